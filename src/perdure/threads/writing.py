"""Stores checkpoints and writes of threads.

Conditions are checked inside the commit, so a server needs one round trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from .. import records as r
from .. import trees
from ..errors import StoreBusy, ThreadConflict, ThreadDeleted
from ..failpoints import Site
from ..journal.append import Head, Signer
from ..journal.landing import Ask, Land, Settled, Wanted
from ..limits import THREAD_STREAMS
from ..run.open_stream import in_the_open
from ..run.requests import Protocol, Read
from ..run.writes import named
from ..store import is_embedded
from ..store.base import Statement, holds
from ..thread_records import Channel, ThreadWrite
from .memory import Kept, Life, Remembered

if TYPE_CHECKING:
    from ..engine import Engine

WRITE_INLINE_MAX = 511
"""A larger write becomes an object, so that the list it ends up in can share it."""


class Moved(StoreBusy):
    """Something of the thread was dropped since it was read: shared objects must be written again."""


class Sealed(msgspec.Struct, frozen=True):
    """A value as a foreign serializer wrote it, and the serializer's type name."""

    form: str
    data: bytes


class Checkpoint(msgspec.Struct, frozen=True):
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


class Written(msgspec.Struct, frozen=True):
    """A write of a task: its index (below 0, the last one wins), the channel and the value."""

    idx: int
    channel: str
    value: Any


def put(engine: Engine, wanted: Checkpoint) -> Protocol[None]:
    """Store a checkpoint durably. The same id again replaces the first one."""
    _check_names(wanted.thread, wanted.ns, wanted.id)
    while True:
        made, objects, kept = yield Read(_made, (engine, wanted))
        if wanted.on_head:
            where = (made.owner, made.thread, made.ns, made.parent)
            objects = [Statement("check_thread_head", where, ThreadConflict), *objects]
        try:
            yield from land(engine, {made.thread: made.life}, [made], objects)
        except Moved:
            yield Read(engine.threads.look, (engine, wanted.thread))
            continue
        engine.threads.remember(made.thread, made.ns, kept, engine.store.clock.boot_ms())
        return


def _made(engine: Engine, wanted: Checkpoint) -> tuple[r.ThreadPut, list[Statement], Remembered]:
    """Return the record, the objects that are missing in the store, and the cache entry."""
    engine.ensure_agent()
    known = engine.threads.life(wanted.thread)
    _must_be_there(engine, wanted, known)
    life = known.number
    before = engine.threads.last(wanted.thread, wanted.ns, life)
    channels, objects, kept = list[Channel](), list[Statement](), dict[str, Kept]()
    for name, value in wanted.channels.items():
        version, last = wanted.versions.get(name), before.channels.get(name)
        same = last is not None and before.id == wanted.parent and name not in wanted.fresh
        if last is None or not same or version is None or last.version != version:
            tree, form, memo = _packed(engine, value, f"channel {name!r}", last)
            objects += tree.objects
            last = Kept(version, tree.packed, form, last.known if last is not None else set(), memo, tree.ids)
        kept[name] = last
        channels.append(Channel(name, last.packed, last.form))
    head, form, _ = _packed(engine, wanted.head, "the checkpoint", None)
    meta, _, _ = _packed(engine, wanted.meta, "metadata", None)
    objects += [*head.objects, *meta.objects]
    where = (engine.stream, wanted.thread, wanted.ns, wanted.id, wanted.parent, life)
    made = r.ThreadPut(*where, head.packed, meta.packed, tuple(channels), wanted.run, form, wanted.since)
    return made, objects, Remembered(wanted.id, life, kept)


def _packed(engine: Engine, value: Any, path: str, last: Kept | None) -> tuple[trees.Tree, str, trees.Memo]:
    form = ""
    if isinstance(value, Sealed):
        form, value = value.form, value.data
    memo = last.memo if last is not None and last.form == form else None
    known = last.known if last is not None else set[bytes]()
    tree, memo = trees.pack_again(engine.store, value, path, known, memo)
    return tree, form, memo


def _must_be_there(engine: Engine, wanted: Checkpoint, life: Life) -> None:
    """Refuse to continue from a deleted thread, so that it is not revived."""
    parent = (wanted.thread, wanted.ns, wanted.parent)
    if wanted.parent and wanted.parent <= life.floor and not _is_there(engine, parent):
        raise ThreadDeleted(f"thread {wanted.thread!r} was deleted together with the parent of this checkpoint")


def _is_there(engine: Engine, point: tuple[str, str, str]) -> bool:
    return bool(engine.store.read("get_thread_point", (engine.stream, *point)))


def write(
    engine: Engine, point: tuple[str, str, str], task: str, path: str, writes: Sequence[Written]
) -> Protocol[None]:
    """Store the writes of a task since a checkpoint (thread, namespace, id), which may be stored later."""
    _check_names(*point)
    while True:
        made, objects = yield Read(_wrote, (engine, point, task, path, writes))
        if made is None:
            return
        try:
            yield from land(engine, {made.thread: made.life}, [made], objects)
        except Moved:
            yield Read(engine.threads.look, (engine, point[0]))
            continue
        return


def _wrote(
    engine: Engine, point: tuple[str, str, str], task: str, path: str, writes: Sequence[Written]
) -> tuple[r.ThreadWrote | None, list[Statement]]:
    """Return the record and its objects; nothing for a dropped checkpoint, which is not revived."""
    engine.ensure_agent()
    life = engine.threads.life(point[0])
    if life.number and _was_dropped(engine, point, life):
        return None, []
    made, objects = list[ThreadWrite](), list[Statement]()
    for it in writes:
        form, value = "", it.value
        if isinstance(value, Sealed):
            form, value = value.form, value.data
        alone = not form and type(value) is not list
        stored = [value] if alone else value
        tree = trees.pack(engine.store, stored, f"write to {it.channel!r}", inline=WRITE_INLINE_MAX)
        objects += tree.objects
        made.append(ThreadWrite(it.idx, it.channel, tree.packed, form, alone))
    return r.ThreadWrote(engine.stream, *point, life.number, task, path, tuple(made)), objects


def _was_dropped(engine: Engine, point: tuple[str, str, str], life: Life) -> bool:
    if _is_there(engine, point):
        return False
    return point[2] <= life.floor or bool(engine.store.read("was_thread_point", (engine.stream, *point)))


# -- committing -------------------------------------------------------------------------------------------------------


def _check_names(thread: str, ns: str, point: str) -> None:
    named(thread, "a thread's id")
    named(point, "a checkpoint's id")
    if not holds(ns):
        raise ValueError(f"a namespace must not contain NUL characters or lone surrogates: {ns!r}")


def land(
    engine: Engine,
    lives: Mapping[str, int],
    made: Sequence[r.Landing],
    before: Sequence[Statement] = (),
    also: Sequence[Ask] = (),
) -> Protocol[None]:
    """Commit records under the locks of their threads, unless something of these was dropped in the meantime.

    Changes of `agent.state` in `also` are part of the same commit.
    """
    threads = sorted(lives)  # a fixed lock order prevents deadlocks
    conditions = [Statement("lock_space", (engine.stream, f"thread {thread}")) for thread in threads]
    conditions += [Statement("check_thread", (engine.stream, thread, lives[thread]), Moved) for thread in threads]

    def unit(head: Head, signer: Signer | None) -> Land:
        asks: list[Wanted] = [*map(Settled, made), *also]
        return Land(
            Site.THREAD, head, [r.Landed(())], engine.store, asks, objects=[*conditions, *before], signer=signer
        )

    yield from in_the_open(engine, unit, lane_of(engine, threads[0]))


def lane_of(engine: Engine, thread: str) -> int:
    """Return the stream of this process that stores a thread. A file store serializes commits anyway."""
    return 0 if is_embedded(engine.url) else 1 + crc32(thread.encode()) % THREAD_STREAMS
