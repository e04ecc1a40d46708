"""What this process writes outside of any run: a stream of its own for each agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import LeaseLost
from ..journal.append import Head, Signer
from ..limits import SEAL_EVENTS
from ..store.base import Unit
from .requests import Protocol, Read, Submit

if TYPE_CHECKING:
    from ..engine import Engine

A = TypeVar("A", bound=Unit[Any])


def in_the_open(engine: Engine, make: Callable[[Head, Signer | None], A], lane: int = 0) -> Protocol[A]:
    """Commit entries to the stream of this process; to a new one, when `gc` has folded that one under its hands."""
    while True:
        head = yield Read(engine.own_stream, (lane,))
        unit = make(head, engine.signer if head.seq - head.sealed >= SEAL_EVENTS else None)
        try:
            yield Submit(unit)
        except LeaseLost:
            engine.place.leave_stream(head)
            continue
        return unit
