"""`agent.workflows`: a documented plan with a status for each step, that any process can go on with."""
