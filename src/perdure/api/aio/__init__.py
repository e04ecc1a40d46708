"""The public face of agents and runs."""

from perdure.api.aio.agent import AsyncAgent
from perdure.api.aio.run import AsyncRun
from perdure.api.aio.run_data import AsyncMessages, AsyncState
from perdure.api.aio.run_loops import AsyncEach
from perdure.api.aio.runs import AsyncRuns

__all__ = ["AsyncAgent", "AsyncEach", "AsyncMessages", "AsyncRun", "AsyncRuns", "AsyncState"]
