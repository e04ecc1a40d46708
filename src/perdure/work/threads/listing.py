"""Lists, reads and compares threads for people. Needs no framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import ThreadNotFound
from perdure.journal import trees
from perdure.records.threads import ThreadChannel
from perdure.store.rows import require_run_row
from perdure.values.clock import moment
from perdure.values.codec.decoder import decode_as_dicts
from perdure.values.hints import name_hint
from perdure.work.threads.conversations import conversations, read_index, run_id_of
from perdure.work.threads.read import (
    EVERYTHING,
    CheckpointHeader,
    StoredCheckpoint,
    find_newest,
    places,
    point_at,
    read_checkpoint,
    read_writes,
    value_of,
)
from perdure.work.threads.trails import frameworks
from perdure.work.threads.write import ForeignValue

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_PAGE = 500


class ThreadInfo(msgspec.Struct, frozen=True):
    """One entry of `agent.threads.list()`."""

    id: str
    checkpoints: int
    """The number of checkpoints in all namespaces."""
    began: datetime
    at: datetime
    """When it was last written."""
    newest: str
    """The id of the newest checkpoint; of Perdure's own threads, the run that is the last turn."""
    framework: str = "langgraph"
    """Who continues it: `langgraph`, `openai-agents` and so on, or `perdure` for `agent.thread`."""
    turns: int = 0
    """Of Perdure's own threads."""


class PointInfo(msgspec.Struct, frozen=True):
    """One entry of `agent.threads.history()`: a checkpoint without its state."""

    thread: str
    ns: str
    """The namespace of a subgraph; empty for the graph itself."""
    id: str
    parent: str
    run: str
    at: datetime
    step: int | None = None
    source: str = ""
    """The cause, in the framework's terms: `input`, `loop`, `update` or `fork`."""
    channels: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    """The tasks with writes since this checkpoint."""


def list_threads(engine: Engine) -> list[ThreadInfo]:
    """Return all threads of an agent, sorted by id, without reading their state."""
    return sorted([*_iterate_conversations(engine), *list_saved_threads(engine)], key=lambda thread: thread.id)


def _iterate_conversations(engine: Engine) -> Iterator[ThreadInfo]:
    """The threads of `agent.thread`."""
    for thread in conversations(engine):
        index = read_index(engine, thread)
        if index.turns < index.first:
            continue
        first, last = (run_id_of(engine, index, number) for number in (index.first, index.turns))
        began, ended = (require_run_row(engine.store, engine.name, run) for run in (first, last))
        turns = index.turns - index.first + 1
        yield ThreadInfo(thread, 0, moment(began.started_at), moment(ended.changed_at), last, "perdure", turns)


def list_saved_threads(engine: Engine) -> list[ThreadInfo]:
    """Return the threads that a framework has saved, sorted by id."""
    found: list[ThreadInfo] = []
    after, known = "", frameworks(engine) if engine.is_known() else {}
    while engine.is_known():
        rows = engine.store.read("threads_of", (engine.stream, after, _PAGE))
        found += [
            ThreadInfo(one, count, moment(first), moment(last), head, known.get(one, "langgraph"))
            for one, count, first, last, head in rows
        ]
        if len(rows) < _PAGE:
            break
        after = rows[-1][0]
    return found


def history(engine: Engine, thread: str, ns: str | None = None, limit: int | None = None) -> list[PointInfo]:
    """Return the checkpoints of a thread, newest first, of one or all namespaces. Raises `ThreadNotFound`."""
    found = places(engine, thread, ns, count=EVERYTHING if limit is None else limit)
    if not found:
        raise not_found_error(engine, thread)
    return [_info(engine, place) for place in found]


def _info(engine: Engine, place: CheckpointHeader) -> PointInfo:
    point = read_checkpoint(engine, place)
    meta = _to_plain(engine, point.put.meta, point.put.form)
    told: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
    step, source = told.get("step"), told.get("source")
    pending = read_writes(engine, place.thread, place.ns, place.id).get(place.id, ())
    return PointInfo(
        *(place.thread, place.ns, place.id, place.parent, place.run, moment(place.at)),
        step=step if type(step) is int else None,
        source=source if isinstance(source, str) else "",
        channels=tuple(channel.name for channel in point.put.channels),
        pending=tuple(dict.fromkeys(pending_write.task for pending_write in pending)),
    )


def _to_plain(engine: Engine, packed: bytes, form: str) -> Any:
    """Return a value for people; None if only a foreign serializer can read it."""
    if form:
        return None
    with decode_as_dicts():
        return trees.unpack(engine.store, packed)


def state(engine: Engine, thread: str, at: str | None = None, ns: str = "") -> dict[str, Any]:
    """Return the channel values of a thread: the newest, or those of a checkpoint."""
    with decode_as_dicts():
        return {
            channel.name: value_of(engine, channel) for channel in _find_checkpoint(engine, thread, at, ns).put.channels
        }


def diff(engine: Engine, thread: str, a: str, b: str | None, ns: str = "") -> list[trees.Change]:
    """Return the changes from one checkpoint to another, or to the newest, path by path."""
    before, after = (
        _channels(_find_checkpoint(engine, thread, a, ns)),
        _channels(_find_checkpoint(engine, thread, b, ns)),
    )
    with decode_as_dicts():
        return [
            change
            for name in dict.fromkeys([*before, *after])
            for change in _changes(engine, name, before.get(name), after.get(name))
        ]


def _channels(point: StoredCheckpoint) -> dict[str, ThreadChannel]:
    return {channel.name: channel for channel in point.put.channels}


def _changes(
    engine: Engine, name: str, one: ThreadChannel | None, other: ThreadChannel | None
) -> Iterator[trees.Change]:
    if one is not None and other is not None:
        for change in trees.diff(engine.store, one.value, other.value) if one.value != other.value else ():
            yield trees.Change((name, *change.steps), change.kind, change.before, change.after)
    elif other is not None:
        yield trees.Change((name,), "added", after=value_of(engine, other))
    elif one is not None:
        yield trees.Change((name,), "removed", before=value_of(engine, one))


def _find_checkpoint(engine: Engine, thread: str, at: str | None, ns: str) -> StoredCheckpoint:
    found = find_newest(engine, thread, ns) if at is None else point_at(engine, thread, ns, at)
    if found is None:
        raise not_found_error(engine, thread, at)
    return found


def not_found_error(engine: Engine, thread: str, at: str | None = None) -> ThreadNotFound:
    """Return the error for a missing thread or checkpoint."""
    if at is not None and (ids := [place.id for place in places(engine, thread, None, count=5)]):
        return ThreadNotFound(
            f"thread {thread!r} has no checkpoint {at!r}", hint=f"the newest checkpoints are {', '.join(ids)}"
        )
    if thread in conversations(engine):
        hint = "agent.thread(id) reads it: .messages, .state, .turns()"
        return ThreadNotFound(f"thread {thread!r} has turns, and no checkpoints", hint=hint)
    names = [info.id for info in list_threads(engine)]
    text = f"agent {engine.name!r} has no thread {thread!r}"
    return ThreadNotFound(text, hint=name_hint(thread, names, "`perdure threads` lists the threads"))


__all__ = ["PointInfo", "ForeignValue", "ThreadInfo", "diff", "history", "list_threads", "not_found_error", "state"]
