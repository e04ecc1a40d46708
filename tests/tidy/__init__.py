"""Our style as tests.

A rule is a small function that takes sources or texts and returns complaints, each `where: what is wrong`.
The files `test_*.py` hold every rule against the repository, where it must be silent, and against something
bad, where it must complain.
"""
