"""What an agent keeps: state, checkpoints, artifacts, events, search."""
