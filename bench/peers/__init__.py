"""The systems that are compared, each in a process of its own: Perdure, DBOS, LangGraph, and a bare commit.

These modules run in the environment of the system (`.venv-peers` for the others), so they import the standard
library, that system, and nothing of Perdure or of the rest of the benchmark. The other side, which starts them
and reads what they say, is `bench.comparison`.
"""
