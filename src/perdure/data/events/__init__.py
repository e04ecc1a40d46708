"""`agent.events`: an ordered log of application events, written with the enclosing step."""
