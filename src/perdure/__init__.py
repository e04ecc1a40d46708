"""Perdure makes AI agents survive: kill the process anywhere, and it continues from its last durable moment.

from perdure import Agent

agent = Agent("travel")

@agent.step
def search(city): ...

with agent.run("trip-42") as run:
    flights = search("NYC")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure import errors
from perdure.api.sync import Agent, Run
from perdure.errors import InDoubt, NotDone, PerdureError, RunBusy, RunWaiting
from perdure.run.doubt import Done, Unknown
from perdure.run.function import Fence, Key
from perdure.values.codec import stored, upcaster

if TYPE_CHECKING:
    from perdure import kinds
    from perdure.api.aio import AsyncAgent, AsyncRun
    from perdure.data.events.read import Event

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AsyncAgent",
    "AsyncRun",
    "Done",
    "Event",
    "Fence",
    "InDoubt",
    "Key",
    "NotDone",
    "PerdureError",
    "Run",
    "RunBusy",
    "RunWaiting",
    "Unknown",
    "errors",
    "kinds",
    "stored",
    "upcaster",
]


if not TYPE_CHECKING:  # for type checkers every name would be there, also a mistyped one

    def __getattr__(name: str) -> Any:
        # What most scripts never use is loaded when it is asked for.
        if name in ("AsyncAgent", "AsyncRun"):
            from perdure.api import aio

            return getattr(aio, name)
        if name == "Event":
            from perdure.data.events.read import Event

            return Event
        if name == "kinds":
            import perdure.kinds as found  # `from . import` would ask here again

            return found
        if isinstance(getattr(errors, name, None), type):
            return getattr(
                errors, name
            )  # every error can be imported from here too; documentation names perdure.errors
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
