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

from . import errors
from .codec import stored, upcaster
from .errors import (
    Diverged,
    InDoubt,
    NotDone,
    NotDurable,
    PerdureError,
    RunBusy,
    RunFinished,
    RunWaiting,
)
from .run.doubt import Done, Unknown
from .run.functions import Key
from .sync import Agent, Run

if TYPE_CHECKING:
    from .aio import AsyncAgent, AsyncRun

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AsyncAgent",
    "AsyncRun",
    "Diverged",
    "Done",
    "InDoubt",
    "Key",
    "NotDone",
    "NotDurable",
    "PerdureError",
    "Run",
    "RunBusy",
    "RunFinished",
    "RunWaiting",
    "Unknown",
    "errors",
    "stored",
    "upcaster",
]


def __getattr__(name: str) -> Any:
    # The asynchronous side is loaded when it is asked for: most scripts never are.
    if name in ("AsyncAgent", "AsyncRun"):
        from . import aio

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
