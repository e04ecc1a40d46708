"""Commits writes outside of runs: each process has its own stream for each agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.errors import LeaseLost
from perdure.journal.append import Signer, StreamHead
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.store.base import UnitOfWork
from perdure.values.limits import SEAL_EVENTS

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

A = TypeVar("A", bound=UnitOfWork[Any])


def commit_to_process_stream(
    engine: Engine, make: Callable[[StreamHead, Signer | None], A], lane: int = 0
) -> Protocol[A]:
    """Commit entries to this process's stream. If `gc` has compacted that stream, commit to a new one."""
    while True:
        head = yield Read(engine.own_stream, (lane,))
        unit = make(head, engine.signer if head.seq - head.sealed >= SEAL_EVENTS else None)
        try:
            yield Submit(unit)
        except LeaseLost:
            engine.place.leave_stream(head)
            continue
        return unit
