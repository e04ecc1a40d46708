"""What a model is shown of a run: who it is, what it knows, where it was, and the conversation, within a budget."""
