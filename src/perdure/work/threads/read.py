"""Reads threads from the store. Does not depend on the framework that wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import JournalDamaged
from perdure.journal import trees
from perdure.journal.agent_writes import decode_changes
from perdure.records.threads import ThreadChannel, ThreadWrite
from perdure.store.base import Row
from perdure.values import codec
from perdure.work.threads.cache import cache_of
from perdure.work.threads.write import ForeignValue

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

EVERYTHING = (1 << 62) - 1
LINE = 128
"""How many checkpoints of a lineage are read in one query."""


class CheckpointHeader(msgspec.Struct, frozen=True):
    """A checkpoint of a thread, without its state."""

    thread: str
    ns: str
    id: str
    parent: str
    run: str
    stream: int
    seq: int
    at: int


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint of a thread as stored: its values are still packed."""

    at: int
    put: r.ThreadPut


class PendingWrite(msgspec.Struct, frozen=True):
    """A write with its task."""

    path: str
    task: str
    write: ThreadWrite


# -- checkpoints ------------------------------------------------------------------------------------------------------


def find_newest(engine: Engine, thread: str, ns: str) -> StoredCheckpoint | None:
    """Return the newest checkpoint of a namespace."""
    if not engine.is_known():
        return None
    return _point(engine.store.read("newest_thread_checkpoint", (engine.stream, thread, ns)), thread, ns)


def point_at(engine: Engine, thread: str, ns: str, point: str) -> StoredCheckpoint | None:
    """Return one checkpoint, or None."""
    if not engine.is_known():
        return None
    return _point(engine.store.read("get_thread_checkpoint", (engine.stream, thread, ns, point)), thread, ns)


def _point(rows: Sequence[Row], thread: str, ns: str) -> StoredCheckpoint | None:
    for point, at, kind, body in rows:
        return StoredCheckpoint(at, _find_put(kind, body, thread, ns, point))
    return None


def _find_put(kind: int, body: bytes | None, thread: str, ns: str, point: str) -> r.ThreadPut:
    if body is None:
        raise JournalDamaged(f"the journal entry of checkpoint {point!r} of thread {thread!r} was erased")
    for record in decode_changes(kind, body, r.ThreadPut):
        if (record.thread, record.ns, record.id) == (thread, ns, point):
            return record
    raise JournalDamaged(f"the journal entry of checkpoint {point!r} of thread {thread!r} holds another checkpoint")


def line(engine: Engine, thread: str, ns: str, point: str) -> Iterator[StoredCheckpoint]:
    """Yield a checkpoint and its ancestors, nearest first, reading many at once."""
    while point and engine.is_known():
        rows = engine.store.read("thread_ancestors", (engine.stream, thread, ns, point, LINE))
        found = [StoredCheckpoint(at, _find_put(kind, body, thread, ns, its)) for its, at, kind, body in rows]
        yield from found
        point = found[-1].put.parent if len(found) == LINE else ""


def places(
    engine: Engine, thread: str | None, ns: str | None, before: str = "", count: int = EVERYTHING
) -> list[CheckpointHeader]:
    """Return checkpoints of one or all threads and namespaces, newest first."""
    if not engine.is_known():
        return []
    if thread is None:
        rows = engine.store.read("all_thread_checkpoints_page", (engine.stream, before, count))
        return [header for header in (CheckpointHeader(*row) for row in rows) if ns is None or header.ns == ns]
    where = (engine.stream, thread, ns or "", int(ns is None))
    return [CheckpointHeader(*row) for row in engine.store.read("thread_checkpoints_page", (*where, before, count))]


def read_checkpoint(engine: Engine, place: CheckpointHeader) -> StoredCheckpoint:
    """Return the full checkpoint of a place."""
    [(_, kind, _, body, _, _)] = engine.store.read("journal_entry", (place.stream, place.seq))
    return StoredCheckpoint(place.at, _find_put(kind, body, place.thread, place.ns, place.id))


# -- writes -----------------------------------------------------------------------------------------------------------


def read_writes(
    engine: Engine, thread: str, ns: str, first: str, last: str | None = None
) -> dict[str, list[PendingWrite]]:
    """Return the writes that follow a checkpoint, or a range of them, by checkpoint id, in order of precedence."""
    bounds = (first, first if last is None else last)
    found: dict[str, dict[tuple[str, int], PendingWrite]] = {}
    for point, kind, body in engine.store.read("thread_writes_between", (engine.stream, thread, ns, *bounds)):
        if body is not None:
            mine = [
                record
                for record in decode_changes(kind, body, r.ThreadWrote)
                if (record.thread, record.ns, record.id) == (thread, ns, point)
            ]
            _merge(found.setdefault(point, {}), mine)
    return {point: sorted(its.values(), key=_order) for point, its in found.items()}


def _merge(found: dict[tuple[str, int], PendingWrite], wrote: Iterable[r.ThreadWrote]) -> None:
    for one in wrote:
        for write in one.writes:
            which = (one.task, write.idx)
            if write.idx < 0 or which not in found:
                found[which] = PendingWrite(one.path, one.task, write)


def _order(pending: PendingWrite) -> tuple[str, str, int]:
    return pending.path, pending.task, pending.write.idx


# -- values -----------------------------------------------------------------------------------------------------------


def value_of(engine: Engine, record: ThreadChannel | ThreadWrite) -> Any:
    """Return the value of a channel or write; if a foreign serializer wrote it, its sealed bytes."""
    value = unpack_value(engine, record.value, record.form)
    return value[0] if isinstance(record, ThreadWrite) and record.alone else value


def unpack_value(engine: Engine, packed: bytes, form: str) -> Any:
    """Unpack a value. A form marks sealed bytes of a foreign serializer."""
    value = _unpack_cached(engine, packed)
    return ForeignValue(form, value) if form else value


def _unpack_cached(engine: Engine, packed: bytes) -> Any:
    """Unpack a value, from cached bytes if this process stored or read it recently."""
    if packed[:1] != trees.TREE:
        return trees.unpack(engine.store, packed)
    now, memory = engine.store.clock.boot_ms(), cache_of(engine)
    data = memory.content(packed, now)
    if data is not None:
        return codec.decode(data, ours=True)
    data = trees.content(engine.store, packed)
    value = codec.decode(data)
    memory.hold(trees.TreeMemo((data,), packed, len(data)), now)
    return value


def values_of(engine: Engine, put: r.ThreadPut) -> Mapping[str, Any]:
    """Return the whole state of a checkpoint."""
    return {channel.name: value_of(engine, channel) for channel in put.channels}
