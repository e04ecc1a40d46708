"""Commits writes outside of runs: each process has its own stream for each agent."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perdure.errors import LeaseLost
from perdure.journal.append import Append, Signer, StreamHead
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.records import AgentChange, Record
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
    earlier: tuple[AgentChange, ...] | None = None
    """What an earlier attempt has committed: the next commit returns it as its own, and commits nothing."""


COMPANION: ContextVar[CommitCompanion | None] = ContextVar("perdure_companion", default=None)


def is_recalling() -> bool:
    """Whether the caller makes the answer of an earlier commit again, so that nothing is committed."""
    companion = COMPANION.get()
    return companion is not None and companion.earlier is not None


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
            if companion.earlier is not None:
                unit.recall(companion.earlier)
                companion.landed = True
                return unit
        try:
            yield Submit(unit)
        except LeaseLost:
            engine.place.leave_stream(head)
            continue
        if joins and companion is not None and isinstance(unit, Append):
            companion.landed = unit.accompanied
        return unit
