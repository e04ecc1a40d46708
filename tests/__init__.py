"""The tests, by what they cost: `tests/budget.py` says how long each folder may take."""
