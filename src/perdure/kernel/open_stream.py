"""Commits writes outside of runs: each process has its own stream for each agent."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perdure.errors import LeaseLost
from perdure.journal.append import Append, Signer, StreamHead
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.records import Record
from perdure.store.base import Store, UnitOfWork
from perdure.values.limits import SEAL_EVENTS

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

A = TypeVar("A", bound=UnitOfWork[Any])


class CommitCompanion(msgspec.Struct, eq=False):
    """Records that land with the next commit outside of runs: in the same transaction, or not at all.

    The server adds its audit entry to each write in this way.
    """

    store: Store
    records: tuple[Record, ...]
    landed: bool = False


COMPANION: ContextVar[CommitCompanion | None] = ContextVar("perdure_companion", default=None)


def commit_to_process_stream(
    engine: Engine, make: Callable[[StreamHead, Signer | None], A], lane: int = 0
) -> Protocol[A]:
    """Commit entries to this process's stream. If `gc` has compacted that stream, commit to a new one."""
    while True:
        head = yield Read(engine.own_stream, (lane,))
        unit = make(head, engine.signer if head.seq - head.sealed >= SEAL_EVENTS else None)
        companion = COMPANION.get()
        joins = companion is not None and not companion.landed and companion.store is engine.store
        if joins and companion is not None and isinstance(unit, Append):
            unit.accompany(companion.records)
        try:
            yield Submit(unit)
        except LeaseLost:
            engine.place.leave_stream(head)
            continue
        if joins and companion is not None and isinstance(unit, Append):
            companion.landed = unit.accompanied
        return unit
