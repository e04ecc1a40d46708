"""Deletes, prunes and copies checkpoints of threads. Stored objects are left to garbage collection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.journal.agent_writes import SetKey, read_changes_at
from perdure.journal.retention_rules import RetentionRule
from perdure.kernel import write_routing
from perdure.kernel.protocol import Protocol, Read
from perdure.platform.failpoints import Site
from perdure.store.base import Statement
from perdure.work.threads.cache import cache_of
from perdure.work.threads.read import CheckpointHeader, line, places, read_checkpoint
from perdure.work.threads.trails import delete_trail
from perdure.work.threads.write import StaleThread, land

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

PointKeys = Sequence[tuple[str, str]]
"""Checkpoints of a thread, by namespace and id."""
ThreadDrop = tuple[r.ThreadDropped, int, int]
"""The record that drops checkpoints, the life it is valid in, and how many checkpoints it drops."""


def delete(engine: Engine, thread: str) -> Protocol[int]:
    """Delete a whole thread and the trail of its calls. Returns how many checkpoints it had."""
    return (yield from _drop(engine, thread, None))


def delete_idle(engine: Engine, thread: str, since: int) -> Protocol[int]:
    """Delete a whole thread, unless it was written after `since` or is being written right now."""
    there: list[CheckpointHeader] = yield Read(places, (engine, thread, None))
    found: ThreadDrop | None = yield Read(_make_drop, (engine, thread, None))
    if found is None or any(place.at > since for place in there):
        return 0
    heads = {place.ns: place.id for place in reversed(there)}
    still = [Statement("check_thread_head", (engine.stream, thread, *head), StaleThread) for head in heads.items()]
    try:
        return (yield from _commit(engine, found, (yield Read(delete_trail, (engine, thread))), still))
    except StaleThread:
        return 0


def drop(engine: Engine, thread: str, points: PointKeys) -> Protocol[int]:
    """Drop checkpoints with the writes that follow them. Returns how many existed."""
    return (yield from _drop(engine, thread, points)) if points else 0


def _drop(engine: Engine, thread: str, points: PointKeys | None) -> Protocol[int]:
    while True:
        found: ThreadDrop | None = yield Read(_make_drop, (engine, thread, points))
        trail: list[SetKey] = (yield Read(_trail, (engine, thread))) if points is None else []
        if found is None:
            if trail:  # calls were started, but no checkpoint was written
                yield from write_routing.land(engine, Site.STATE, trail)
            return 0
        try:
            return (yield from _commit(engine, found, trail))
        except StaleThread:
            continue  # something was dropped between the read and the commit: read again


def _commit(
    engine: Engine, found: ThreadDrop, trail: Sequence[SetKey], still: Sequence[Statement] = ()
) -> Protocol[int]:
    dropped, life, count = found
    yield from land(engine, {dropped.thread: life}, [dropped], still, trail)
    yield Read(cache_of(engine).read_life, (engine, dropped.thread))
    return count


def _trail(engine: Engine, thread: str) -> list[SetKey]:
    return delete_trail(engine, thread) if engine.is_known() else []


def _make_drop(engine: Engine, thread: str, points: PointKeys | None) -> ThreadDrop | None:
    """Return the record that drops checkpoints; None if there are none."""
    if not engine.is_known():
        return None
    life = cache_of(engine).read_life(engine, thread)
    there = places(engine, thread, None)
    if points is not None:
        wanted = set(points)
        chosen = tuple((place.ns, place.id) for place in there if (place.ns, place.id) in wanted)
        made = r.ThreadDropped(engine.stream, thread, life.number + 1, chosen)
        return (made, life.number, len(chosen)) if chosen else None
    written = engine.store.read("writes_of_thread", (engine.stream, thread))
    if not there and not written:
        return None
    floor = max([place.id for place in there] + [checkpoint for _, checkpoint, *_ in written])
    return r.ThreadDropped(engine.stream, thread, life.number + 1, floor=floor), life.number, len(there)


def delete_runs(engine: Engine, runs: Iterable[str]) -> Protocol[int]:
    """Drop the checkpoints of some framework runs. Returns how many."""
    found: dict[str, list[tuple[str, str]]] = yield Read(_points_of_runs, (engine, list(runs)))
    count = 0
    for thread, points in found.items():
        count += yield from drop(engine, thread, points)
    return count


def _points_of_runs(engine: Engine, runs: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for run in runs if engine.is_known() else ():
        for thread, ns, point in engine.store.read("thread_checkpoints_of_run", (engine.stream, str(run))):
            found.setdefault(thread, []).append((ns, point))
    return {thread: _select_unneeded_by_runs(engine, thread, points) for thread, points in found.items()}


def _select_unneeded_by_runs(engine: Engine, thread: str, points: PointKeys) -> list[tuple[str, str]]:
    """Leave out checkpoints that other runs still need."""
    going, kept = set(points), list[tuple[str, str]]()
    for ns in sorted({ns for ns, _ in points}):
        there = places(engine, thread, ns)
        kept += _select_unneeded_by_channels(engine, there, [place for place in there if (place.ns, place.id) in going])
    return kept


def prune(engine: Engine, thread: str, keep: RetentionRule) -> Protocol[int]:
    """Drop older checkpoints of a thread, but never the newest of a namespace. Returns how many."""
    points: PointKeys = yield Read(find_outnumbered, (engine, thread, keep))
    return (yield from drop(engine, thread, points))


def find_outnumbered(engine: Engine, thread: str, keep: RetentionRule) -> list[tuple[str, str]]:
    """Return the checkpoints that a rule does not keep and no other checkpoint needs."""
    spaces: dict[str, list[CheckpointHeader]] = {}
    for place in places(engine, thread, None):
        spaces.setdefault(place.ns, []).append(place)
    oldest = engine.store.clock.wall_ms() - keep.milliseconds if keep.milliseconds else 0
    gone: list[tuple[str, str]] = []
    for its in spaces.values():
        going = [
            place
            for number, place in enumerate(its)
            if number and ((keep.last and number >= keep.last) or (oldest and place.at < oldest))
        ]
        gone += _select_unneeded_by_channels(engine, its, going)
    return gone


def _select_unneeded_by_channels(
    engine: Engine, there: Sequence[CheckpointHeader], going: Sequence[CheckpointHeader]
) -> list[tuple[str, str]]:
    """Leave out checkpoints that are needed to compute the value of a channel."""
    gone = {place.id for place in going}
    needed: set[str] = set()
    for place in there if gone else ():
        if place.id not in gone:
            needed.update(_iterate_needed(engine, place))
    return [(place.ns, place.id) for place in going if place.id not in needed]


def _iterate_needed(engine: Engine, place: CheckpointHeader) -> Iterator[str]:
    """Yield earlier checkpoints that hold the channels this one omits, or the writes since then."""
    wanted: set[str] = set()
    for number, point in enumerate(line(engine, place.thread, place.ns, place.id)):
        if number == 0:
            wanted.update(point.put.since)
        else:
            yield point.put.id
            wanted.difference_update(channel.name for channel in point.put.channels)
        if not wanted:
            return


# -- copying ----------------------------------------------------------------------------------------------------------


def copy(engine: Engine, source: str, target: str) -> Protocol[int]:
    """Copy all checkpoints and writes of a thread to another one by reference. Returns how many checkpoints."""
    while True:
        made, lives = yield Read(_copies, (engine, source, target))
        if not made:
            return 0
        try:
            yield from land(engine, lives, made)
        except StaleThread:
            continue  # the referenced entries may be gone: read again
        return sum(isinstance(item, r.ThreadPut) for item in made)


def _copies(engine: Engine, source: str, target: str) -> tuple[list[r.AgentChange], dict[str, int]]:
    if not engine.is_known() or source == target:
        return [], {}
    life, other = cache_of(engine).read_life(engine, source).number, cache_of(engine).read_life(engine, target).number
    found: list[r.ThreadPut | r.ThreadWrote] = [
        read_checkpoint(engine, place).put for place in reversed(places(engine, source, None))
    ]
    for ns, point, stream, seq in engine.store.read("writes_of_thread", (engine.stream, source)):
        wrote = read_changes_at(engine.store, stream, seq, r.ThreadWrote)
        found += [record for record in wrote if (record.thread, record.ns, record.id) == (source, ns, point)]
    made: list[r.AgentChange] = [msgspec.structs.replace(record, thread=target, life=other) for record in found]
    return made, {source: life, target: other}
