"""Branches of runs: forks, comparison of two runs, undo, and runs as they were at an earlier point."""
