"""Statistics of an agent's index: the number of pieces, and in how many each term occurs.

Counted once per process, and again after noticeable growth. A few more memories hardly change the weight of a word, and
counting takes longer than the rest of a recall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.memory.recall.lexical import IndexStatistics
from perdure.store.base import Statement

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

GROWN = 0.02
"""The relative growth after which they are counted again."""

GROWN_FROM = 200


class KnownStatistics(msgspec.Struct, frozen=True):
    """Statistics, and the newest piece that they cover."""

    newest: int
    scope: IndexStatistics


def read_statistics(engine: Engine) -> IndexStatistics:
    """Return the statistics, counted on first use."""
    kept: dict[tuple[int, str, str], KnownStatistics] = engine.place.vectors
    which = (engine.stream, "known pieces", "")
    return (kept.get(which) or kept.setdefault(which, _count_statistics(engine))).scope


def is_stale(engine: Engine, newest: int) -> bool:
    """Return whether the statistics are too old, given the number of the newest piece. If so, drop them."""
    kept: dict[tuple[int, str, str], KnownStatistics] = engine.place.vectors
    found = kept.get((engine.stream, "known pieces", ""))
    if found is None or newest - found.newest <= max(GROWN * found.scope.total, GROWN_FROM):
        return False
    kept.pop((engine.stream, "known pieces", ""), None)
    return True


def _count_statistics(engine: Engine) -> KnownStatistics:
    owner = engine.stream
    queries = [Statement("last_chunk_number"), Statement("chunk_totals", (owner,)), Statement("term_counts", (owner,))]
    [(newest,)], [(total, length)], terms = engine.store.read_all(queries)
    having = {str(term): int(count) for term, count in terms}
    return KnownStatistics(newest, IndexStatistics(int(total), int(length) / max(int(total), 1), having))
