"""Does a program survive? It is killed at every place that it passes, started again, and compared with itself.

from perdure.testing.crashtest import crashtest

crashtest("agent.py", count_effects="outside.txt").assert_survives()
"""

from .orders import CrashtestProblem
from .report import Report, Trial, Verdict
from .testing import crashtest

__all__ = ["CrashtestProblem", "Report", "Trial", "Verdict", "crashtest"]
