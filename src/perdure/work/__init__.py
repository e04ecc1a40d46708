"""What an agent works through: workflows, tasks, threads."""
