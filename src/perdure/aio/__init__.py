"""The public face of agents and runs."""

from .agent import AsyncAgent, AsyncRuns
from .run import AsyncEach, AsyncMessages, AsyncRun, AsyncState

__all__ = ["AsyncAgent", "AsyncEach", "AsyncMessages", "AsyncRun", "AsyncRuns", "AsyncState"]
