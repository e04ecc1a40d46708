"""Tests whether a program survives crashes: kills it at every point, restarts it, and compares the outcome.

from perdure.testing.crashtest import crashtest

crashtest("agent.py", count_effects="outside.txt").assert_survives()
"""

from perdure.testing.crashtest.messages import CrashtestProblem
from perdure.testing.crashtest.report import CrashtestReport, RoundResult, RoundVerdict
from perdure.testing.crashtest.run import crashtest

__all__ = ["CrashtestProblem", "CrashtestReport", "RoundResult", "RoundVerdict", "crashtest"]
