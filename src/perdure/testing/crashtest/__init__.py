"""Tests whether a program survives crashes: kills it at every point, restarts it, and compares the outcome.

from perdure.testing.crashtest import crashtest

crashtest("agent.py", count_effects="outside.txt").assert_survives()
"""

from .orders import CrashtestProblem
from .report import Report, Trial, Verdict
from .testing import crashtest

__all__ = ["CrashtestProblem", "Report", "Trial", "Verdict", "crashtest"]
