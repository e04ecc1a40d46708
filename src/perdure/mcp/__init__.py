"""The Model Context Protocol: tools, resources and prompts of an agent, for any model and any client."""
