"""How long threads are kept: rules that `gc` applies, as those for checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from .. import checkpoints
from ..clock import moment
from ..durations import Duration, seconds_of
from ..journal.keeping import THREADS, Keep, keep_of
from ..objects import Dropped
from ..run.requests import Protocol, drive_sync
from .keeping import Points, delete_idle, drop, outnumbered
from .listing import ThreadInfo, listed

if TYPE_CHECKING:
    from ..engine import Engine


class ThreadRetention(msgspec.Struct, frozen=True):
    """A rule of `agent.threads.retention()`: which ids, and what is kept of them. None says nothing."""

    pattern: str
    keep_last: int | None
    keep_for: timedelta | None
    idle_for: timedelta | None


class Outdated(msgspec.Struct, frozen=True):
    """What a thread has that its rule does not keep; no points: all of it."""

    owner: int
    thread: str
    count: int
    points: Points | None = None
    since: int = 0
    """Of a whole thread: nothing was put to it after this time."""

    def dropped(self) -> Iterator[Dropped]:
        """The same for who asks what would still be referred to."""
        for ns, point in self.points or ():
            yield "Thread", self.owner, self.thread, ns, point
        if self.points is None:
            yield "Thread", self.owner, self.thread


def retain(
    engine: Engine, pattern: str, keep_last: int | None, keep_for: Duration | None, idle_for: Duration | None
) -> Protocol[None]:
    """Set the rule for a pattern of ids; one that says nothing takes the rule back."""
    keep = checkpoints.read_keep(keep_last, keep_for)
    idle = 0 if idle_for is None else max(1, int(seconds_of(idle_for, "idle_for") * 1000))
    yield from checkpoints.retain(engine, pattern, msgspec.structs.replace(keep, idle=idle), THREADS)


def retention(engine: Engine) -> list[ThreadRetention]:
    """The rules, by pattern."""
    rules = sorted(checkpoints.rules_of(engine, THREADS).items())
    return [ThreadRetention(it, keep.last or None, _span(keep.milliseconds), _span(keep.idle)) for it, keep in rules]


def _span(milliseconds: int) -> timedelta | None:
    return timedelta(milliseconds=milliseconds) if milliseconds else None


def outdated(engine: Engine) -> Iterator[Outdated]:
    """What the rules do not keep, thread by thread."""
    rules = checkpoints.rules_of(engine, THREADS)
    for thread in listed(engine) if rules else ():
        found = _outdated(engine, thread, keep_of(rules, thread.id))
        if found.count:
            yield found


def _outdated(engine: Engine, thread: ThreadInfo, keep: Keep) -> Outdated:
    since = engine.store.clock.wall_ms() - keep.idle
    if keep.idle and thread.at <= moment(since):
        return Outdated(engine.stream, thread.id, thread.checkpoints, since=since)
    points = outnumbered(engine, thread.id, keep) if keep.last or keep.milliseconds else []
    return Outdated(engine.stream, thread.id, len(points), points)


def let_go(engine: Engine, tell: Callable[[str, int, int], None]) -> int:
    """Drop what the rules do not keep; returns how many checkpoints went."""
    found, gone = list(outdated(engine)), 0
    for number, one in enumerate(found, start=1):
        gone += drive_sync(engine.store, _dropping(engine, one))
        tell("old checkpoints of threads", number, len(found))
    return gone


def _dropping(engine: Engine, one: Outdated) -> Protocol[int]:
    if one.points is None:
        return delete_idle(engine, one.thread, one.since)
    return drop(engine, one.thread, one.points)
