"""The worth of memories, from importance and use; both decay.

    worth = importance x (1 + log2(1 + uses)) x 0.5 ** (days since it was recorded or last recalled / 30)

Each recall counts as a use and restarts the decay. An unused memory loses half its worth in a month. Importance 1 never
decays, and no rule drops it. Uses are buffered and written with the next memory or when the agent closes, so recall
commits nothing; a killed process loses a few uses and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from perdure.platform.failpoints import Site
from perdure.store.base import FinalBatch, Script, Statement, UnitOfWork

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.memory.read import MemoryRow
    from perdure.memory.results import Memory

HALF_LIFE_DAYS = 30.0
DAY_MS = 86_400_000
ALWAYS = 1.0
"""The importance of memories that no rule drops."""
_COUNTED: ContextVar[bool] = ContextVar("perdure_uses_counted", default=True)


def worth(memory: MemoryRow, now: int) -> float:
    """Return the worth of a memory at a time; 0 if it is superseded by then."""
    if memory.ended and memory.replaced <= now:
        return 0.0
    idle = max(0, now - read_last_use(memory)) / DAY_MS
    decay = 1.0 if memory.importance >= ALWAYS else 0.5 ** (idle / HALF_LIFE_DAYS)
    return memory.importance * (1 + math.log2(1 + memory.uses)) * decay


def read_last_use(memory: MemoryRow) -> int:
    """Return when a memory was recorded or last recalled."""
    return max(memory.recorded, memory.last)


class UnrecordedUses(dict[str, tuple[int, int]]):
    """Memories that an agent has recalled and not yet recorded as used: how often, and when last."""


def find_unrecorded_uses(engine: Engine) -> UnrecordedUses:
    """Return the unrecorded uses. They are recorded before the agent closes its store."""

    def make() -> UnrecordedUses:
        engine.before_close.append(lambda: write_uses(engine))
        return UnrecordedUses()

    return engine.parts.get_or_make(UnrecordedUses, make)


def write_uses(engine: Engine) -> None:
    """Record uses, if there are any."""
    if find_unrecorded_uses(engine):
        engine.store.submit(RecordUses(engine))


def note(engine: Engine, found: Iterable[Memory]) -> None:
    """Count a recall of some memories. Uncommitted memories are skipped: they may never be committed."""
    if engine.store.read_only or not _COUNTED.get():
        return
    now, recalled = engine.store.clock.wall_ms(), find_unrecorded_uses(engine)
    for memory in found:
        if memory.entry[0]:
            uses, _ = recalled.get(memory.id, (0, 0))
            recalled[memory.id] = (uses + 1, now)


@contextmanager
def leave_uncounted() -> Iterator[None]:
    """Recall on behalf of somebody who may write nothing, not even that a memory was used."""
    token = _COUNTED.set(False)
    try:
        yield
    finally:
        _COUNTED.reset(token)


def flush_statements(engine: Engine) -> list[Statement]:
    """Return the statements that record the buffered uses, and empty the buffer."""
    recalled = find_unrecorded_uses(engine)
    noted = dict(recalled)
    recalled.clear()
    return [Statement("count_memory_use", (engine.stream, which, *use)) for which, use in sorted(noted.items())]


class RecordUses(UnitOfWork[None]):
    """Records uses in a commit of their own. Repeated, a few uses are counted twice."""

    site = Site.MEMORY

    def __init__(self, engine: Engine) -> None:
        self._statements = flush_statements(engine)

    def script(self) -> Script[None]:
        yield FinalBatch(self._statements)
