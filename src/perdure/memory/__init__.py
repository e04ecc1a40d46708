"""`agent.memory`: remember, recall, forget."""
