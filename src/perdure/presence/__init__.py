"""How an agent wakes up and is shown what it needs: workspace, context, handoff."""
