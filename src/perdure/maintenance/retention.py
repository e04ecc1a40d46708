"""Garbage collection: `agent.gc()` and `perdure gc` free what is no longer needed.

`dry_run` reports everything beforehand. It works in short commits, so it can be interrupted anywhere and does not block
other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.data import checkpoints, state
from perdure.data.events.compaction import EventCompactionLimit, find_compaction_limit
from perdure.journal import archive, object_gc
from perdure.journal.checkpoint_writes import CheckpointCache, SaveCheckpoint
from perdure.journal.needed_entries import RemovableEvents
from perdure.journal.retention_rules import keep_of
from perdure.kernel.protocol import drive_sync
from perdure.kernel.write_routing import land
from perdure.maintenance import compaction
from perdure.memory.lifecycle import retention as remembering
from perdure.platform.failpoints import Site
from perdure.platform.process import identify_this_process
from perdure.store.base import Script, Statement, Store, UnitOfWork
from perdure.store.rows import first_number
from perdure.values.durations import Duration, seconds_of
from perdure.values.limits import GC_BATCH
from perdure.work.threads import retention

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

GcProgress = Callable[[str, int, int], None]
"""Receives what is being done, how much of it is done, and the total."""


class FreedPart(msgspec.Struct, frozen=True):
    """The number of freed things of a kind, and their bytes."""

    count: int = 0
    bytes: int = 0


class GcReport(msgspec.Struct, frozen=True):
    """What `gc` has freed, or would free with `dry_run=True`."""

    dry_run: bool
    state: FreedPart = FreedPart()
    """Expired keys."""
    checkpoints: FreedPart = FreedPart()
    """Versions that the rules of `checkpoint.retain` do not keep. Their bytes count as objects."""
    threads: FreedPart = FreedPart()
    """Versions of threads that the rules of `threads.retain` do not keep."""
    memories: FreedPart = FreedPart()
    """Memories that have expired, or that the rules of `memory.retain` do not keep."""
    events: FreedPart = FreedPart()
    """Journal entries that were archived and compacted."""
    objects: FreedPart = FreedPart()
    """Unreferenced large values and parts of checkpoints."""
    holders: FreedPart = FreedPart()
    """Rows of dead processes."""
    bytes_before: int = 0
    """The size of the store on disk before."""
    bytes_after: int = 0
    archives: tuple[str, ...] = ()
    """The archives of the compacted entries."""
    notes: tuple[str, ...] = ()
    """What could not be done, and why."""

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to free."""
        return not any(
            part.count
            for part in (
                self.state,
                self.checkpoints,
                self.threads,
                self.memories,
                self.events,
                self.objects,
                self.holders,
            )
        )

    def __str__(self) -> str:
        found = [f"{part.count} {one if part.count == 1 else many}" for one, many, part in self.parts() if part.count]
        verb = "would free" if self.dry_run else "freed"
        return f"{verb} {', '.join(found)}" if found else "nothing to free"

    def parts(self) -> Iterator[tuple[str, str, FreedPart]]:
        """Yield each kind with its name in the singular and in the plural."""
        yield "expired key of state", "expired keys of state", self.state
        yield "old checkpoint", "old checkpoints", self.checkpoints
        yield "old checkpoint of threads", "old checkpoints of threads", self.threads
        yield "old memory", "old memories", self.memories
        yield "compacted entry", "compacted entries", self.events
        yield "unreferenced object", "unreferenced objects", self.objects
        yield "dead holder", "dead holders", self.holders


def gc(
    store: Store,
    engines: Sequence[Engine],
    *,
    dry_run: bool = False,
    compact_before: Duration | None = None,
    events_before: Duration | None = None,
    archive_folder: str | None = None,
    vacuum: bool = False,
    progress: GcProgress | None = None,
) -> GcReport:
    """Free what these agents no longer need, and what nothing in the store refers to."""
    tell = progress or (lambda what, done, total: None)
    known = [engine for engine in engines if engine.is_known()]
    events = _subtract_age(store, events_before, "events_before")
    wanted = GcHorizons(
        _subtract_age(store, compact_before, "compact_before") if compact_before is not None else events, events
    )
    if dry_run:
        return _preview(store, known, wanted, tell)
    before = _bytes_of(store)
    swept = sweep(known, tell)
    dropped = FreedPart(sum(_drop(engine, tell) for engine in known))
    threads = FreedPart(sum(retention.apply_retention(engine, tell) for engine in known))
    folder = archive_folder or archive.folder_of(store)
    forgotten = [remembering.apply_retention(engine, folder, tell) for engine in known]
    signing = _select_signing_engines(known, wanted.entries)
    holds = _find_event_limits(signing, wanted)
    for engine in signing:
        if holds and holds[engine.stream].carries:
            drive_sync(store, land(engine, Site.STATE, holds[engine.stream].carries))
    compactions = [
        compaction.compact(engine, wanted.entries, folder, tell, _find_removable_events(engine, signing, holds, wanted))
        for engine in signing
    ]
    freed = object_gc.collect(store, lambda done, total: tell("looking for unreferenced objects", done, total))
    holders = store.submit(_RemoveDeadProcesses(store))
    tell("shrinking", 0, 1)
    unshrunk = store.shrink(whole=vacuum)
    return GcReport(
        False,
        swept,
        dropped,
        threads,
        FreedPart(sum(count for count, _ in forgotten)),
        FreedPart(sum(result.entries for result in compactions), sum(result.bytes for result in compactions)),
        FreedPart(freed.objects, freed.bytes),
        FreedPart(holders),
        before,
        _bytes_of(store),
        (
            *(path for _, files in forgotten for path in files),
            *(path for result in compactions for path in result.archives),
        ),
        (*_notes(known, wanted.entries, holds), *filter(None, [unshrunk])),
    )


def _preview(store: Store, known: Sequence[Engine], wanted: GcHorizons, tell: GcProgress) -> GcReport:
    """Return what would be freed, including objects that would become unreferenced."""
    drops = [mark for engine in known for mark in iterate_outdated(engine)]
    idle = [one for engine in known for one in retention.iterate_outdated(engine)]
    signing = _select_signing_engines(known, wanted.entries)
    holds = _find_event_limits(signing, wanted)
    found = {
        plan.stream: plan
        for engine in signing
        for _, plan in compaction.plans(engine, wanted.entries, _find_removable_events(engine, signing, holds, wanted))
    }
    kept = {stream: {seq for seq, _ in plan.kept} for stream, plan in found.items()}
    marks = object_gc.mark_live(
        store,
        lambda done, total: tell("looking", done, total),
        [
            *(("CheckpointMade", *mark.place, version) for mark in drops for version in mark.drops),
            *(which for one in idle for which in one.iterate_dropped()),
        ],
        lambda stream, seq: stream in found and seq <= found[stream].upto and seq not in kept[stream],
    )
    sizes = [size for page in object_gc.iterate_unused(store, marks) for _, size in page]
    size = _bytes_of(store)
    return GcReport(
        True,
        _drop_expired(known),
        FreedPart(sum(len(mark.drops) for mark in drops)),
        FreedPart(sum(one.count for one in idle)),
        FreedPart(sum(remembering.find_outdated(engine).count for engine in known)),
        FreedPart(sum(plan.gone for plan in found.values()), sum(plan.bytes for plan in found.values())),
        FreedPart(len(sizes), sum(sizes)),
        _count_dead_holders(store),
        size,
        size,
        notes=_notes(known, wanted.entries, holds),
    )


class GcHorizons(msgspec.Struct, frozen=True):
    """The times before which entries and events may be removed; 0 is never."""

    entries: int
    events: int


def _subtract_age(store: Store, age: Duration | None, what: str) -> int:
    return store.clock.wall_ms() - int(seconds_of(age, what) * 1000) if age is not None else 0


def _find_event_limits(signing: Sequence[Engine], wanted: GcHorizons) -> dict[int, EventCompactionLimit]:
    """Return by agent how far its events may be compacted; empty if nobody asks for it."""
    return {engine.stream: find_compaction_limit(engine, wanted.events) for engine in signing} if wanted.events else {}


def _find_removable_events(
    engine: Engine, signing: Sequence[Engine], holds: dict[int, EventCompactionLimit], wanted: GcHorizons
) -> RemovableEvents | None:
    """Return the events that may be removed, including those that one agent has appended in a run of another."""
    if not holds:
        return None
    finished = [row for item in signing for row in item.store.read("finished_runs", (item.name, wanted.events))]
    before = {owner: reader.before for owner, reader in holds.items()}
    arrived = {owner: reader.arrived for owner, reader in holds.items() if reader.arrived is not None}
    return RemovableEvents(engine.stream, before, arrived, frozenset(int(stream) for (stream,) in finished))


def _select_signing_engines(known: Sequence[Engine], horizon: int) -> list[Engine]:
    """Return the agents whose streams can be compacted: compaction signs, so it needs the agent's key."""
    return [engine for engine in known if engine.signer is not None] if horizon else []


def _notes(known: Sequence[Engine], horizon: int, holds: dict[int, EventCompactionLimit]) -> tuple[str, ...]:
    if not horizon:
        return ()
    missing = [engine.name for engine in known if engine.signer is None]
    unsigned = (f"entries of agent {name!r} are not compacted: its key is not here" for name in missing)
    return (*unsigned, *(reader.note for reader in holds.values() if reader.note))


def _bytes_of(store: Store) -> int:
    return first_number(store.read("store_bytes"))


# -- state ------------------------------------------------------------------------------------------------------------


def _drop_expired(engines: Sequence[Engine]) -> FreedPart:
    found = [
        engine.store.read("count_expired_state", (engine.stream, engine.store.clock.wall_ms()))[0] for engine in engines
    ]
    return FreedPart(sum(int(count) for count, _ in found), sum(int(size) for _, size in found))


def sweep(engines: Sequence[Engine], tell: GcProgress) -> FreedPart:
    """Delete expired keys, as journal entries like any other change."""
    expected = _drop_expired(engines)
    done = 0
    for engine in engines:
        while asks := state.overdue(engine, GC_BATCH):
            landed = drive_sync(engine.store, land(engine, Site.STATE, asks))
            done += len(landed)
            tell("expired keys", done, max(done, expected.count))
            if not landed:
                break  # all of them were set again meanwhile
    return FreedPart(done, expected.bytes)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def iterate_outdated(engine: Engine) -> Iterator[SaveCheckpoint]:
    """Yield writes that drop the versions an agent's rules do not keep, one per name."""
    rules = checkpoints.rules_of(engine)
    if not rules:
        return
    now = engine.store.clock.wall_ms()
    versions: dict[str, list[tuple[int, int]]] = {}
    for name, version, _, _, at in engine.store.read("checkpoints_of", (engine.stream,)):
        versions.setdefault(name, []).append((version, at))
    for name, found in versions.items():
        keep = keep_of(rules, name)
        newest_first = sorted(found, reverse=True)
        old = [
            version
            for place, (version, at) in enumerate(newest_first)
            if place and ((keep.last and place >= keep.last) or (keep.milliseconds and at + keep.milliseconds <= now))
        ]
        drops = tuple(version for version in old if not checkpoints.is_pinned(engine, name, version))
        if drops:
            yield SaveCheckpoint(engine.stream, name, drops=drops)


def _drop(engine: Engine, tell: GcProgress) -> int:
    marks = list(iterate_outdated(engine))
    for number, mark in enumerate(marks, start=1):
        for start in range(0, len(mark.drops), GC_BATCH):
            piece = msgspec.structs.replace(mark, drops=mark.drops[start : start + GC_BATCH])
            drive_sync(engine.store, land(engine, Site.CHECKPOINT, [piece]))
        engine.session.get(CheckpointCache).forget(mark.name)
        tell("old checkpoints", number, len(marks))
    return sum(len(mark.drops) for mark in marks)


# -- holders ----------------------------------------------------------------------------------------------------------


def _count_dead_holders(store: Store) -> FreedPart:
    return FreedPart(first_number(store.read("count_dead_holders", _boot_and_time(store))))


def _boot_and_time(store: Store) -> tuple[str, int]:
    return identify_this_process().boot, store.clock.boot_ms()


class _RemoveDeadProcesses(UnitOfWork[int]):
    """Removes the rows of dead processes. A live one comes back with its next heartbeat. Returns their number."""

    site = Site.HEARTBEAT

    def __init__(self, store: Store) -> None:
        self._now = _boot_and_time(store)

    def script(self) -> Script[int]:
        [[(count,)], _] = yield [
            Statement("count_dead_holders", self._now),
            Statement("drop_dead_holders", self._now),
        ]
        return int(count)
