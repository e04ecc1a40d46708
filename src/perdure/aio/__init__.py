"""The public face of agents and runs."""

from .agent import AsyncAgent
from .run import AsyncEach, AsyncRun
from .run_data import AsyncMessages, AsyncState
from .runs import AsyncRuns

__all__ = ["AsyncAgent", "AsyncEach", "AsyncMessages", "AsyncRun", "AsyncRuns", "AsyncState"]
