"""Stores checkpoints and writes of threads.

Conditions are checked inside the commit, so a server needs one round trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from perdure import records as r
from perdure.data import state
from perdure.errors import StoreBusy, ThreadConflict, ThreadDeleted, WrongValue
from perdure.journal import trees
from perdure.journal.agent_writes import AgentWrite, AppendAgentWrites, SetKey, UnconditionalWrite
from perdure.journal.append import Signer, StreamHead
from perdure.kernel.names import check_storable_name
from perdure.kernel.open_stream import commit_to_process_stream
from perdure.kernel.protocol import Protocol, Read
from perdure.platform.failpoints import Site
from perdure.records.threads import ThreadChannel, ThreadWrite
from perdure.store import is_embedded
from perdure.store.base import Statement, is_storable_name
from perdure.values.limits import THREAD_STREAMS
from perdure.work.threads.cache import LastCheckpoint, StoredChannel, ThreadLife, cache_of
from perdure.work.threads.trails import FRAMEWORKS

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

WRITE_INLINE_MAX = 511
"""A larger write becomes an object, so that the list it ends up in can share it."""


class StaleThread(StoreBusy):
    """Something of the thread was dropped since it was read: shared objects must be written again."""


class ForeignValue(msgspec.Struct, frozen=True):
    """A value as a foreign serializer wrote it, and the serializer's type name."""

    form: str
    data: bytes


class NewThreadCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint to store."""

    thread: str
    ns: str
    id: str
    parent: str
    head: Any
    meta: Any
    channels: Mapping[str, Any]
    versions: Mapping[str, Any]
    """Channel versions. A channel with the same version as in the parent is not encoded again."""
    fresh: frozenset[str] = frozenset()
    """Channels that were written since the parent, whatever their version."""
    run: str = ""
    since: tuple[str, ...] = ()
    """Omitted channels: their value follows from an earlier checkpoint and the writes since."""
    on_head: bool = False
    """Refuse the checkpoint unless its parent is the newest one."""
    framework: str = ""
    """Who continues the thread; empty for LangGraph. Recorded with the first checkpoint of a namespace."""


class TaskWrite(msgspec.Struct, frozen=True):
    """A write of a task: its index (below 0, the last one wins), the channel and the value."""

    idx: int
    channel: str
    value: Any


def put_checkpoint(engine: Engine, wanted: NewThreadCheckpoint) -> Protocol[None]:
    """Store a checkpoint durably. The same id again replaces the first one."""
    _check_names(wanted.thread, wanted.ns, wanted.id)
    while True:
        made, objects, kept = yield Read(_make_put, (engine, wanted))
        if wanted.on_head:
            where = (made.owner, made.thread, made.ns, made.parent)
            objects = [Statement("check_thread_head", where, ThreadConflict), *objects]
        try:
            yield from land(engine, {made.thread: made.life}, [made], objects, _framework_write(engine, wanted))
        except StaleThread:
            yield Read(cache_of(engine).read_life, (engine, wanted.thread))
            continue
        cache_of(engine).remember(made.thread, made.ns, kept, engine.store.clock.boot_ms())
        return


def _framework_write(engine: Engine, wanted: NewThreadCheckpoint) -> list[SetKey]:
    if not wanted.framework or wanted.parent:
        return []
    return [state.ask_set(engine, (engine.stream, FRAMEWORKS, wanted.thread), wanted.framework, None, None)]


def _make_put(engine: Engine, wanted: NewThreadCheckpoint) -> tuple[r.ThreadPut, list[Statement], LastCheckpoint]:
    """Return the record, the objects that are missing in the store, and the cache entry."""
    engine.ensure_agent()
    known = cache_of(engine).life(wanted.thread)
    _require_thread(engine, wanted, known)
    life = known.number
    before = cache_of(engine).find_last(wanted.thread, wanted.ns, life)
    channels, objects, kept = list[ThreadChannel](), list[Statement](), dict[str, StoredChannel]()
    for name, value in wanted.channels.items():
        version, last = wanted.versions.get(name), before.channels.get(name)
        same = last is not None and before.id == wanted.parent and name not in wanted.fresh
        if last is None or not same or version is None or last.version != version:
            tree, form, memo = _pack(engine, value, f"channel {name!r}", last)
            objects += tree.objects
            last = StoredChannel(version, tree.packed, form, last.known if last is not None else set(), memo, tree.ids)
        kept[name] = last
        channels.append(ThreadChannel(name, last.packed, last.form))
    head, form, _ = _pack(engine, wanted.head, "the checkpoint", None)
    meta, _, _ = _pack(engine, wanted.meta, "metadata", None)
    objects += [*head.objects, *meta.objects]
    where = (engine.stream, wanted.thread, wanted.ns, wanted.id, wanted.parent, life)
    made = r.ThreadPut(*where, head.packed, meta.packed, tuple(channels), wanted.run, form, wanted.since)
    return made, objects, LastCheckpoint(wanted.id, life, kept)


def _pack(
    engine: Engine, value: Any, path: str, last: StoredChannel | None
) -> tuple[trees.ObjectTree, str, trees.TreeMemo]:
    form = ""
    if isinstance(value, ForeignValue):
        form, value = value.form, value.data
    memo = last.memo if last is not None and last.form == form else None
    known = last.known if last is not None else set[bytes]()
    tree, memo = trees.pack_again(engine.store, value, path, known, memo)
    return tree, form, memo


def _require_thread(engine: Engine, wanted: NewThreadCheckpoint, life: ThreadLife) -> None:
    """Refuse to continue from a deleted thread, so that it is not revived."""
    parent = (wanted.thread, wanted.ns, wanted.parent)
    if wanted.parent and wanted.parent <= life.floor and not _is_there(engine, parent):
        raise ThreadDeleted(f"thread {wanted.thread!r} was deleted together with the parent of this checkpoint")


def _is_there(engine: Engine, point: tuple[str, str, str]) -> bool:
    return bool(engine.store.read("get_thread_checkpoint", (engine.stream, *point)))


def write(
    engine: Engine, point: tuple[str, str, str], task: str, path: str, writes: Sequence[TaskWrite]
) -> Protocol[None]:
    """Store the writes of a task since a checkpoint (thread, namespace, id), which may be stored later."""
    _check_names(*point)
    while True:
        made, objects = yield Read(_make_writes, (engine, point, task, path, writes))
        if made is None:
            return
        try:
            yield from land(engine, {made.thread: made.life}, [made], objects)
        except StaleThread:
            yield Read(cache_of(engine).read_life, (engine, point[0]))
            continue
        return


def _make_writes(
    engine: Engine, point: tuple[str, str, str], task: str, path: str, writes: Sequence[TaskWrite]
) -> tuple[r.ThreadWrote | None, list[Statement]]:
    """Return the record and its objects; nothing for a dropped checkpoint, which is not revived."""
    engine.ensure_agent()
    life = cache_of(engine).life(point[0])
    if life.number and _was_dropped(engine, point, life):
        return None, []
    made, objects = list[ThreadWrite](), list[Statement]()
    for written in writes:
        form, value = "", written.value
        if isinstance(value, ForeignValue):
            form, value = value.form, value.data
        alone = not form and type(value) is not list
        stored = [value] if alone else value
        tree = trees.pack(engine.store, stored, f"write to {written.channel!r}", inline=WRITE_INLINE_MAX)
        objects += tree.objects
        made.append(ThreadWrite(written.idx, written.channel, tree.packed, form, alone))
    return r.ThreadWrote(engine.stream, *point, life.number, task, path, tuple(made)), objects


def _was_dropped(engine: Engine, point: tuple[str, str, str], life: ThreadLife) -> bool:
    if _is_there(engine, point):
        return False
    return point[2] <= life.floor or bool(engine.store.read("was_thread_checkpoint", (engine.stream, *point)))


# -- committing -------------------------------------------------------------------------------------------------------


def _check_names(thread: str, ns: str, point: str) -> None:
    check_storable_name(thread, "a thread's id")
    check_storable_name(point, "a checkpoint's id")
    if not is_storable_name(ns):
        raise WrongValue(f"a namespace must not contain NUL characters or lone surrogates: {ns!r}")


def land(
    engine: Engine,
    lives: Mapping[str, int],
    made: Sequence[r.AgentChange],
    before: Sequence[Statement] = (),
    also: Sequence[SetKey] = (),
) -> Protocol[None]:
    """Commit records under the locks of their threads, unless something of these was dropped in the meantime.

    Changes of `agent.state` in `also` are part of the same commit.
    """
    threads = sorted(lives)  # a fixed lock order prevents deadlocks
    conditions = [Statement("lock_namespace", (engine.stream, f"thread {thread}")) for thread in threads]
    conditions += [Statement("check_thread", (engine.stream, thread, lives[thread]), StaleThread) for thread in threads]

    def unit(head: StreamHead, signer: Signer | None) -> AppendAgentWrites:
        asks: list[AgentWrite] = [*map(UnconditionalWrite, made), *also]
        return AppendAgentWrites(
            Site.THREAD, head, [r.Landed(())], engine.store, asks, objects=[*conditions, *before], signer=signer
        )

    yield from commit_to_process_stream(engine, unit, lane_of(engine, threads[0]))


def lane_of(engine: Engine, thread: str) -> int:
    """Return the stream of this process that stores a thread. A file store serializes commits anyway."""
    return 0 if is_embedded(engine.url) else 1 + crc32(thread.encode()) % THREAD_STREAMS
