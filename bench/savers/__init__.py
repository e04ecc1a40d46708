"""LangGraph's checkpointers and Perdure's beside each other.

`child` and what it imports run in the environment of the peers too: nothing of Perdure is imported there but by name.
"""
