"""Retention rules for threads, applied by `gc`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from perdure.data import checkpoints
from perdure.errors import RunBusy, TurnUnfinished
from perdure.journal.objects import DroppedVersion
from perdure.journal.retention_rules import THREADS, RetentionRule, keep_of
from perdure.kernel.protocol import Protocol, Read, drive_sync
from perdure.store.rows import require_run_row
from perdure.values.clock import moment
from perdure.values.durations import Duration, seconds_of
from perdure.work.threads import conversations, prune
from perdure.work.threads import fork as forking
from perdure.work.threads.conversations import ThreadIndex, read_index, run_id_of
from perdure.work.threads.erasure import erase_calls, erase_dropped, scrub
from perdure.work.threads.fork import drop_turns
from perdure.work.threads.listing import ThreadInfo, list_threads
from perdure.work.threads.prune import PointKeys, delete_idle, drop, find_outnumbered
from perdure.work.threads.trails import frameworks

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class ThreadRetention(msgspec.Struct, frozen=True):
    """A rule of `agent.threads.retention()`: a pattern of ids and what to keep. None sets no limit."""

    pattern: str
    keep_last: int | None
    keep_for: timedelta | None
    idle_for: timedelta | None


class OutdatedThread(msgspec.Struct, frozen=True):
    """The part of a thread that its rule does not keep. `points=None` stands for the whole thread."""

    owner: int
    thread: str
    count: int
    points: PointKeys | None = None
    since: int = 0
    """For a whole thread: nothing was written to it after this time."""
    first: int = 0
    """For `agent.thread`: the first turn that stays."""

    def iterate_dropped(self) -> Iterator[DroppedVersion]:
        """Yield references for the check of what would still be in use."""
        if self.first:
            return  # turns are runs, whose entries compaction frees
        for ns, point in self.points or ():
            yield "Thread", self.owner, self.thread, ns, point
        if self.points is None:
            yield "Thread", self.owner, self.thread


def retain(
    engine: Engine, pattern: str, keep_last: int | None, keep_for: Duration | None, idle_for: Duration | None
) -> Protocol[None]:
    """Set the rule for a pattern of ids. A rule without limits removes the stored rule."""
    keep = checkpoints.parse_retention(keep_last, keep_for)
    idle = 0 if idle_for is None else max(1, int(seconds_of(idle_for, "idle_for") * 1000))
    yield from checkpoints.retain(engine, pattern, msgspec.structs.replace(keep, idle=idle), THREADS)


def retention(engine: Engine) -> list[ThreadRetention]:
    """Return the rules, sorted by pattern."""
    rules = sorted(checkpoints.rules_of(engine, THREADS).items())
    return [
        ThreadRetention(rule, keep.last or None, _span(keep.milliseconds), _span(keep.idle)) for rule, keep in rules
    ]


def _span(milliseconds: int) -> timedelta | None:
    return timedelta(milliseconds=milliseconds) if milliseconds else None


def iterate_outdated(engine: Engine) -> Iterator[OutdatedThread]:
    """Yield what the rules do not keep, thread by thread."""
    rules = checkpoints.rules_of(engine, THREADS)
    for thread in list_threads(engine) if rules else ():
        found = _find_outdated(engine, thread, keep_of(rules, thread.id))
        if found.count:
            yield found


def _find_outdated(engine: Engine, thread: ThreadInfo, keep: RetentionRule) -> OutdatedThread:
    if thread.framework == "perdure":
        return _find_outdated_turns(engine, thread.id, keep, thread.at)
    since = engine.store.clock.wall_ms() - keep.idle
    if keep.idle and thread.at <= moment(since):
        return OutdatedThread(engine.stream, thread.id, thread.checkpoints, since=since)
    points = find_outnumbered(engine, thread.id, keep) if keep.last or keep.milliseconds else []
    return OutdatedThread(engine.stream, thread.id, len(points), points)


def _find_outdated_turns(
    engine: Engine, thread: str, keep: RetentionRule, written: datetime | None = None
) -> OutdatedThread:
    """Apply a rule that counts turns: the newest `keep_last` turns stay, and those that began recently enough."""
    now, index = engine.store.clock.wall_ms(), read_index(engine, thread)
    if keep.idle and written is not None and written <= moment(now - keep.idle):
        return OutdatedThread(engine.stream, thread, index.turns - index.first + 1, first=index.turns + 1)
    if not keep.last and not keep.milliseconds:
        return OutdatedThread(engine.stream, thread, 0, first=index.first)
    first = index.turns - keep.last + 1 if keep.last else index.turns
    while (
        keep.milliseconds
        and first > index.first
        and _read_turn_start(engine, index, first - 1) > now - keep.milliseconds
    ):
        first -= 1
    return OutdatedThread(engine.stream, thread, max(0, first - index.first), first=first)


def _read_turn_start(engine: Engine, index: ThreadIndex, number: int) -> int:
    return require_run_row(engine.store, engine.name, run_id_of(engine, index, number)).started_at


def delete(engine: Engine, thread: str) -> Protocol[int]:
    """Delete a thread, whoever continues it. Returns how many turns or checkpoints it had."""
    if (yield Read(_has_turns, (engine, thread))):
        return (yield from forking.delete(engine, thread))
    by_adapter = yield Read(lambda: engine.is_known() and thread in frameworks(engine))
    count = yield from prune.delete(engine, thread)
    if by_adapter:
        yield from scrub(engine, (yield from erase_calls(engine, thread)))
    return count


def shorten(engine: Engine, thread: str, keep: RetentionRule) -> Protocol[int]:
    """Drop what a rule does not keep of a thread, whoever continues it. Returns how many turns or checkpoints."""
    if not (yield Read(_has_turns, (engine, thread))):
        return (yield from prune.prune(engine, thread, keep))
    found: OutdatedThread = yield Read(_find_outdated_turns, (engine, thread, keep))
    return (yield from forking.shorten(engine, thread, found.first)) if found.count else 0


def _has_turns(engine: Engine, thread: str) -> bool:
    index = read_index(engine, thread)
    return index.turns >= index.first


def apply_retention(engine: Engine, tell: Callable[[str, int, int], None]) -> int:
    """Drop what the rules do not keep, and erase dropped turns. Returns how many checkpoints were dropped."""
    found, gone = list(iterate_outdated(engine)), 0
    for number, one in enumerate(found, start=1):
        gone += drive_sync(engine.store, _drop_outdated(engine, one))
        tell("old checkpoints of threads", number, len(found))
    for thread in conversations.erasing(engine):  # the values and the files are freed by the rest of the collection
        drive_sync(engine.store, erase_dropped(engine, thread))
    return gone


def _drop_outdated(engine: Engine, one: OutdatedThread) -> Protocol[int]:
    if one.first:
        return _drop_turns(engine, one)
    if one.points is None:
        return delete_idle(engine, one.thread, one.since)
    return drop(engine, one.thread, one.points)


def _drop_turns(engine: Engine, one: OutdatedThread) -> Protocol[int]:
    index: ThreadIndex = yield Read(read_index, (engine, one.thread))
    try:
        return (yield from drop_turns(engine, one.thread, one.first if one.first <= index.turns else None))
    except (RunBusy, TurnUnfinished):
        return 0  # somebody continues it: the next collection looks again
