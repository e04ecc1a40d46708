"""Builds what a model is shown of a run: identity, knowledge, progress and the conversation, within a budget."""
