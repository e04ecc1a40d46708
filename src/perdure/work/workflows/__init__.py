"""`agent.workflows`: a documented plan with a status for each step, which any process can continue."""
