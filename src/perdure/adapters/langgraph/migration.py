"""Copies threads of another saver into Perdure: checkpoint by checkpoint, with their writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple

from perdure.adapters.langgraph.checkpoints import config_at

CheckpointKey = tuple[str, str, str]
"""Thread, namespace and id of a checkpoint."""


class Migrated(msgspec.Struct, frozen=True):
    """How much was copied."""

    threads: int
    checkpoints: int
    writes: int


def migrate(
    source: BaseCheckpointSaver[Any], target: BaseCheckpointSaver[Any], *, threads: Iterable[str] | None = None
) -> Migrated:
    """Copy all threads of a saver, or the named ones, into another: history, branches and pending writes.

        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string("old.db") as old:
            print(migrate(old, PerdureSaver("agent.db")))      # Migrated(threads=12, checkpoints=480, writes=1100)

    The source is only read. Copying is idempotent, so start an interrupted migration again. Nobody should write to
    these threads meanwhile. The target needs `on_conflict="fork"`, its default, because a history may have branches.
    """
    counts = {"threads": 0, "checkpoints": 0, "writes": 0}
    wanted = None if threads is None else {str(one) for one in threads}
    for _, places in groupby(_places(source, wanted), key=lambda place: place[0]):
        counts["threads"] += 1
        for place in places:
            found = source.get_tuple(config_at(*place))
            if found is not None:  # else it was deleted in the meantime
                counts["checkpoints"] += 1
                counts["writes"] += _copy(found, place, target)
    return Migrated(**counts)


def _places(source: BaseCheckpointSaver[Any], threads: set[str] | None) -> list[CheckpointKey]:
    """Return the places of all checkpoints, oldest first in each thread.

    Ids are ordered by time. No state is loaded.
    """
    listings: Iterator[CheckpointTuple] = (
        source.list(None)
        if threads is None
        else (one for thread in threads for one in source.list({"configurable": {"thread_id": thread}}))
    )
    return sorted(_place(one) for one in listings)


def _place(found: CheckpointTuple) -> CheckpointKey:
    about = found.config["configurable"]
    return str(about["thread_id"]), str(about.get("checkpoint_ns", "")), str(about["checkpoint_id"])


def _copy(found: CheckpointTuple, place: CheckpointKey, target: BaseCheckpointSaver[Any]) -> int:
    """Copy one checkpoint with its pending writes. Returns the number of writes."""
    thread, ns, _ = place
    parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else ""
    checkpoint = found.checkpoint
    # Declare every channel as new: unchanged values are still stored only once.
    at = target.put(config_at(thread, ns, parent), checkpoint, found.metadata, checkpoint["channel_versions"])
    pending = found.pending_writes or []
    for number, (task, writes) in enumerate(groupby(pending, key=lambda write: write[0])):
        # The path of a task is unknown, only the resulting order. The number preserves it.
        for some in _kinds([(channel, value) for _, channel, value in writes]):
            target.put_writes(at, some, task, f"{number:08}")
    return len(pending)


def _kinds(writes: list[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    """Separate interrupts, errors and resume values from results: savers number them differently."""
    for special in (False, True):
        some = [write for write in writes if (write[0] in WRITES_IDX_MAP) is special]
        if some:
            yield some
