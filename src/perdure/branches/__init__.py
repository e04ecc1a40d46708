"""Runs that branch off others: forks, what differs between two runs, and a run as it was at any moment."""
