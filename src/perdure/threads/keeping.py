"""Letting checkpoints of threads go, and copying threads: both leave the objects alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from .. import records as r
from .. import state
from ..failpoints import Site
from ..journal.keeping import Keep
from ..journal.landing import Ask, landed_at
from ..run.requests import Protocol, Read
from ..store.base import Statement
from .reading import Place, line, open_place, places
from .trails import forgetting
from .writing import Moved, land

if TYPE_CHECKING:
    from ..engine import Engine

Points = Sequence[tuple[str, str]]
"""Checkpoints of a thread, by namespace and id."""
Dropping = tuple[r.ThreadDropped, int, int]
"""The record that drops some, the life in which it was made, and how many checkpoints that are."""


def delete(engine: Engine, thread: str) -> Protocol[int]:
    """Drop a whole thread, and what is remembered of its calls; returns how many checkpoints it had."""
    return (yield from _drop(engine, thread, None))


def delete_idle(engine: Engine, thread: str, since: int) -> Protocol[int]:
    """The same, unless something was put to it since then, be it at this very moment."""
    there: list[Place] = yield Read(places, (engine, thread, None))
    found: Dropping | None = yield Read(_dropping, (engine, thread, None))
    if found is None or any(place.at > since for place in there):
        return 0
    heads = {place.ns: place.id for place in reversed(there)}
    still = [Statement("check_thread_head", (engine.stream, thread, *head), Moved) for head in heads.items()]
    try:
        return (yield from _commit(engine, found, (yield Read(forgetting, (engine, thread))), still))
    except Moved:
        return 0


def drop(engine: Engine, thread: str, points: Points) -> Protocol[int]:
    """Drop checkpoints with the writes that go on from them; returns how many were there."""
    return (yield from _drop(engine, thread, points)) if points else 0


def _drop(engine: Engine, thread: str, points: Points | None) -> Protocol[int]:
    while True:
        found: Dropping | None = yield Read(_dropping, (engine, thread, points))
        trail: list[Ask] = (yield Read(_trail, (engine, thread))) if points is None else []
        if found is None:
            if trail:  # calls were begun, and no checkpoint was ever written
                yield from state.land(engine, Site.STATE, trail)
            return 0
        try:
            return (yield from _commit(engine, found, trail))
        except Moved:
            continue  # somebody else has dropped something between our look and the commit: look again


def _commit(engine: Engine, found: Dropping, trail: Sequence[Ask], still: Sequence[Statement] = ()) -> Protocol[int]:
    dropped, life, count = found
    yield from land(engine, {dropped.thread: life}, [dropped], still, trail)
    yield Read(engine.threads.look, (engine, dropped.thread))
    return count


def _trail(engine: Engine, thread: str) -> list[Ask]:
    return forgetting(engine, thread) if engine.is_known() else []


def _dropping(engine: Engine, thread: str, points: Points | None) -> Dropping | None:
    """What drops them; None for nothing."""
    if not engine.is_known():
        return None
    life = engine.threads.look(engine, thread)
    there = places(engine, thread, None)
    if points is not None:
        wanted = set(points)
        chosen = tuple((it.ns, it.id) for it in there if (it.ns, it.id) in wanted)
        made = r.ThreadDropped(engine.stream, thread, life.number + 1, chosen)
        return (made, life.number, len(chosen)) if chosen else None
    written = engine.store.read("writes_of_thread", (engine.stream, thread))
    if not there and not written:
        return None
    floor = max([it.id for it in there] + [row[1] for row in written])
    return r.ThreadDropped(engine.stream, thread, life.number + 1, floor=floor), life.number, len(there)


def delete_runs(engine: Engine, runs: Iterable[str]) -> Protocol[int]:
    """Drop what runs, as the framework calls them, have put; returns how many checkpoints."""
    found: dict[str, list[tuple[str, str]]] = yield Read(_points_of_runs, (engine, list(runs)))
    count = 0
    for thread, points in found.items():
        count += yield from drop(engine, thread, points)
    return count


def _points_of_runs(engine: Engine, runs: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for run in runs if engine.is_known() else ():
        for thread, ns, point in engine.store.read("points_of_run", (engine.stream, str(run))):
            found.setdefault(thread, []).append((ns, point))
    return {thread: _spared(engine, thread, points) for thread, points in found.items()}


def _spared(engine: Engine, thread: str, points: Points) -> list[tuple[str, str]]:
    """Without what checkpoints of other runs need."""
    going, kept = set(points), list[tuple[str, str]]()
    for ns in sorted({ns for ns, _ in points}):
        there = places(engine, thread, ns)
        kept += _unneeded(engine, there, [place for place in there if (place.ns, place.id) in going])
    return kept


def prune(engine: Engine, thread: str, keep: Keep) -> Protocol[int]:
    """Drop older checkpoints of a thread; the newest of each namespace stays. Returns how many went."""
    points: Points = yield Read(outnumbered, (engine, thread, keep))
    return (yield from drop(engine, thread, points))


def outnumbered(engine: Engine, thread: str, keep: Keep) -> list[tuple[str, str]]:
    """The checkpoints that a rule does not keep, and no other one needs."""
    spaces: dict[str, list[Place]] = {}
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
        gone += _unneeded(engine, its, going)
    return gone


def _unneeded(engine: Engine, there: Sequence[Place], going: Sequence[Place]) -> list[tuple[str, str]]:
    """Those of a namespace that may go: not what others need to know the value of a channel."""
    gone = {place.id for place in going}
    needed: set[str] = set()
    for place in there if gone else ():
        if place.id not in gone:
            needed.update(_needed(engine, place))
    return [(place.ns, place.id) for place in going if place.id not in needed]


def _needed(engine: Engine, place: Place) -> Iterator[str]:
    """The checkpoints before one that have the channels which it goes without, or what was written since."""
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
    """Put all checkpoints and writes of one thread into another; returns how many checkpoints. No value is copied."""
    while True:
        made, lives = yield Read(_copies, (engine, source, target))
        if not made:
            return 0
        try:
            yield from land(engine, lives, made)
        except Moved:
            continue  # what we wanted to refer to may be gone: look again
        return sum(isinstance(it, r.ThreadPut) for it in made)


def _copies(engine: Engine, source: str, target: str) -> tuple[list[r.Landing], dict[str, int]]:
    if not engine.is_known() or source == target:
        return [], {}
    life, other = engine.threads.look(engine, source).number, engine.threads.look(engine, target).number
    found: list[r.ThreadPut | r.ThreadWrote] = [
        open_place(engine, place).put for place in reversed(places(engine, source, None))
    ]
    for ns, point, stream, seq in engine.store.read("writes_of_thread", (engine.stream, source)):
        wrote = landed_at(engine.store, stream, seq, r.ThreadWrote)
        found += [it for it in wrote if (it.thread, it.ns, it.id) == (source, ns, point)]
    made: list[r.Landing] = [msgspec.structs.replace(it, thread=target, life=other) for it in found]
    return made, {source: life, target: other}
