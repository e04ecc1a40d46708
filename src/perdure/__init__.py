"""Perdure makes AI agents survive: kill the process anywhere, and it continues from its last durable moment.

from perdure import Agent

agent = Agent("travel")

@agent.step
def search(city): ...

with agent.run("trip-42") as run:
    flights = search("NYC")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perdure import errors
from perdure.errors import InDoubt, NotDone, PerdureError, RunBusy, RunWaiting

if TYPE_CHECKING:
    from perdure import kinds
    from perdure.api.aio import AsyncAgent, AsyncRun
    from perdure.api.capture import capture
    from perdure.api.sync import Agent, Run
    from perdure.data.events.read import Event
    from perdure.run.doubt import Done, Unknown
    from perdure.run.function import Fence, Key
    from perdure.values.codec import stored, upcaster

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
    "capture",
    "errors",
    "kinds",
    "stored",
    "upcaster",
]


_MODULES = {
    "Agent": "perdure.api.sync",
    "AsyncAgent": "perdure.api.aio",
    "AsyncRun": "perdure.api.aio",
    "Done": "perdure.run.doubt",
    "Event": "perdure.data.events.read",
    "Fence": "perdure.run.function",
    "Key": "perdure.run.function",
    "Run": "perdure.api.sync",
    "Unknown": "perdure.run.doubt",
    "capture": "perdure.api.capture",
    "stored": "perdure.values.codec",
    "upcaster": "perdure.values.codec",
}
"""Names that are imported when they are first used: the command line needs few of them, and starts faster."""


if not TYPE_CHECKING:  # for type checkers every name would be there, also a mistyped one

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            found = getattr(import_module(_MODULES[name]), name)
        elif name == "kinds":
            found = import_module("perdure.kinds")  # `from . import` would ask here again
        elif isinstance(getattr(errors, name, None), type):
            found = getattr(errors, name)  # every error can be imported from here too; the docs name perdure.errors
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
