"""Retention rules for threads, applied by `gc`."""

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
    """A rule of `agent.threads.retention()`: a pattern of ids and what to keep. None sets no limit."""

    pattern: str
    keep_last: int | None
    keep_for: timedelta | None
    idle_for: timedelta | None


class Outdated(msgspec.Struct, frozen=True):
    """The part of a thread that its rule does not keep. `points=None` stands for the whole thread."""

    owner: int
    thread: str
    count: int
    points: Points | None = None
    since: int = 0
    """For a whole thread: nothing was written to it after this time."""

    def dropped(self) -> Iterator[Dropped]:
        """Yield references for the check of what would still be in use."""
        for ns, point in self.points or ():
            yield "Thread", self.owner, self.thread, ns, point
        if self.points is None:
            yield "Thread", self.owner, self.thread


def retain(
    engine: Engine, pattern: str, keep_last: int | None, keep_for: Duration | None, idle_for: Duration | None
) -> Protocol[None]:
    """Set the rule for a pattern of ids. A rule without limits removes the stored rule."""
    keep = checkpoints.read_keep(keep_last, keep_for)
    idle = 0 if idle_for is None else max(1, int(seconds_of(idle_for, "idle_for") * 1000))
    yield from checkpoints.retain(engine, pattern, msgspec.structs.replace(keep, idle=idle), THREADS)


def retention(engine: Engine) -> list[ThreadRetention]:
    """Return the rules, sorted by pattern."""
    rules = sorted(checkpoints.rules_of(engine, THREADS).items())
    return [ThreadRetention(it, keep.last or None, _span(keep.milliseconds), _span(keep.idle)) for it, keep in rules]


def _span(milliseconds: int) -> timedelta | None:
    return timedelta(milliseconds=milliseconds) if milliseconds else None


def outdated(engine: Engine) -> Iterator[Outdated]:
    """Yield what the rules do not keep, thread by thread."""
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
    """Drop what the rules do not keep. Returns how many checkpoints were dropped."""
    found, gone = list(outdated(engine)), 0
    for number, one in enumerate(found, start=1):
        gone += drive_sync(engine.store, _dropping(engine, one))
        tell("old checkpoints of threads", number, len(found))
    return gone


def _dropping(engine: Engine, one: Outdated) -> Protocol[int]:
    if one.points is None:
        return delete_idle(engine, one.thread, one.since)
    return drop(engine, one.thread, one.points)
