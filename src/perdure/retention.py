"""What is not needed any more, and freeing it: `agent.gc()` and `perdure gc`.

Everything that goes is told beforehand (`dry_run`), and goes in short commits: it can be interrupted anywhere, and
others go on beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from . import archive, checkpoints, collect, folding, state
from .durations import Duration, seconds_of
from .events.horizon import Held, held
from .failpoints import Site
from .journal.keeping import keep_of
from .journal.marks import Mark
from .journal.needs import Noted
from .limits import GC_BATCH
from .memory import retaining as remembering
from .process import this_process
from .run.requests import drive_sync
from .store.base import Script, Statement, Store, Unit
from .threads import retaining

if TYPE_CHECKING:
    from .engine import Engine

Progress = Callable[[str, int, int], None]
"""Told now and then what is being done, how much of it is done, and of how much."""


class Part(msgspec.Struct, frozen=True):
    """How many things of a kind, and the bytes that they take."""

    count: int = 0
    bytes: int = 0


class GcReport(msgspec.Struct, frozen=True):
    """What `gc` has freed, or would free with `dry_run=True`."""

    dry_run: bool
    state: Part = Part()
    """Keys whose time had run out."""
    checkpoints: Part = Part()
    """Versions that the rules of `checkpoint.retain` do not keep. Their bytes are among those of the objects."""
    threads: Part = Part()
    """The same of threads, by the rules of `threads.retain`."""
    memories: Part = Part()
    """What the rules of `memory.retain` do not keep, or whose time had run out."""
    events: Part = Part()
    """Entries of the journal that were archived and folded."""
    objects: Part = Part()
    """Large values, and parts of checkpoints, that nothing refers to."""
    holders: Part = Part()
    """Rows of processes that are gone."""
    bytes_before: int = 0
    """What the store took on disk."""
    bytes_after: int = 0
    archives: tuple[str, ...] = ()
    """The files that have the folded entries."""
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

    def parts(self) -> Iterator[tuple[str, str, Part]]:
        """Each kind of thing in words, for one and for many."""
        yield "expired key of state", "expired keys of state", self.state
        yield "old checkpoint", "old checkpoints", self.checkpoints
        yield "old checkpoint of threads", "old checkpoints of threads", self.threads
        yield "old memory", "old memories", self.memories
        yield "folded entry", "folded entries", self.events
        yield "unreferenced object", "unreferenced objects", self.objects
        yield "dead holder", "dead holders", self.holders


def gc(
    store: Store,
    engines: Sequence[Engine],
    *,
    dry_run: bool = False,
    fold_before: Duration | None = None,
    events_before: Duration | None = None,
    archive_folder: str | None = None,
    vacuum: bool = False,
    progress: Progress | None = None,
) -> GcReport:
    """Free what these agents do not need any more, and what nobody in the store refers to."""
    tell = progress or (lambda what, done, total: None)
    known = [engine for engine in engines if engine.is_known()]
    events = _ago(store, events_before, "events_before")
    wanted = Horizons(_ago(store, fold_before, "fold_before") if fold_before is not None else events, events)
    if dry_run:
        return _told(store, known, wanted, tell)
    before = _bytes_of(store)
    swept = sweep(known, tell)
    dropped = Part(sum(_drop(engine, tell) for engine in known))
    threads = Part(sum(retaining.let_go(engine, tell) for engine in known))
    folder = archive_folder or archive.folder_of(store)
    forgotten = [remembering.let_go(engine, folder, tell) for engine in known]
    signing = _signing(known, wanted.entries)
    holds = _held(signing, wanted)
    for engine in signing:
        if holds and holds[engine.stream].carries:
            drive_sync(store, state.land(engine, Site.STATE, holds[engine.stream].carries))
    folds = [
        folding.fold(engine, wanted.entries, folder, tell, _noted(engine, signing, holds, wanted)) for engine in signing
    ]
    freed = collect.collect(store, lambda done, total: tell("looking for unreferenced objects", done, total))
    holders = store.submit(_Bury(store))
    tell("shrinking", 0, 1)
    unshrunk = store.shrink(whole=vacuum)
    return GcReport(
        False,
        swept,
        dropped,
        threads,
        Part(sum(count for count, _ in forgotten)),
        Part(sum(it.entries for it in folds), sum(it.bytes for it in folds)),
        Part(freed.objects, freed.bytes),
        Part(holders),
        before,
        _bytes_of(store),
        (*(path for _, files in forgotten for path in files), *(path for it in folds for path in it.archives)),
        (*_notes(known, wanted.entries, holds), *filter(None, [unshrunk])),
    )


def _told(store: Store, known: Sequence[Engine], wanted: Horizons, tell: Progress) -> GcReport:
    """What would be freed: the same looks, and the objects that nothing would refer to then."""
    drops = [mark for engine in known for mark in outdated(engine)]
    idle = [one for engine in known for one in retaining.outdated(engine)]
    signing = _signing(known, wanted.entries)
    holds = _held(signing, wanted)
    found = {
        plan.stream: plan
        for engine in signing
        for _, plan in folding.plans(engine, wanted.entries, _noted(engine, signing, holds, wanted))
    }
    kept = {stream: {seq for seq, _ in plan.kept} for stream, plan in found.items()}
    marks = collect.marked(
        store,
        lambda done, total: tell("looking", done, total),
        [
            *(("CheckpointMade", *mark.place, version) for mark in drops for version in mark.drops),
            *(which for one in idle for which in one.dropped()),
        ],
        lambda stream, seq: stream in found and seq <= found[stream].upto and seq not in kept[stream],
    )
    sizes = [size for page in collect.unused(store, marks) for _, size in page]
    size = _bytes_of(store)
    return GcReport(
        True,
        _expired(known),
        Part(sum(len(mark.drops) for mark in drops)),
        Part(sum(one.count for one in idle)),
        Part(sum(remembering.outdated(engine).count for engine in known)),
        Part(sum(plan.gone for plan in found.values()), sum(plan.bytes for plan in found.values())),
        Part(len(sizes), sum(sizes)),
        _dead(store),
        size,
        size,
        notes=_notes(known, wanted.entries, holds),
    )


class Horizons(msgspec.Struct, frozen=True):
    """Before which time entries and events may go; 0 is never."""

    entries: int
    events: int


def _ago(store: Store, age: Duration | None, what: str) -> int:
    return store.clock.wall_ms() - int(seconds_of(age, what) * 1000) if age is not None else 0


def _held(signing: Sequence[Engine], wanted: Horizons) -> dict[int, Held]:
    """By agent, how far its events may go; of none, if nobody asks for it."""
    return {engine.stream: held(engine, wanted.events) for engine in signing} if wanted.events else {}


def _noted(engine: Engine, signing: Sequence[Engine], holds: dict[int, Held], wanted: Horizons) -> Noted | None:
    """What may go of events: also of those that one agent has noted in a run of another."""
    if not holds:
        return None
    finished = [row for it in signing for row in it.store.read("finished_runs", (it.name, wanted.events))]
    before = {owner: it.before for owner, it in holds.items()}
    arrived = {owner: it.arrived for owner, it in holds.items() if it.arrived is not None}
    return Noted(engine.stream, before, arrived, frozenset(int(stream) for (stream,) in finished))


def _signing(known: Sequence[Engine], horizon: int) -> list[Engine]:
    """The agents whose streams can be folded: what an agent has signed is folded only where its key is."""
    return [engine for engine in known if engine.signer is not None] if horizon else []


def _notes(known: Sequence[Engine], horizon: int, holds: dict[int, Held]) -> tuple[str, ...]:
    if not horizon:
        return ()
    missing = [engine.name for engine in known if engine.signer is None]
    unsigned = (f"entries of agent {name!r} are not folded: its key is not here" for name in missing)
    return (*unsigned, *(it.note for it in holds.values() if it.note))


def _bytes_of(store: Store) -> int:
    return int(store.read("store_bytes")[0][0])


# -- state ------------------------------------------------------------------------------------------------------------


def _expired(engines: Sequence[Engine]) -> Part:
    found = [engine.store.read("count_expired", (engine.stream, engine.store.clock.wall_ms()))[0] for engine in engines]
    return Part(sum(int(count) for count, _ in found), sum(int(size) for _, size in found))


def sweep(engines: Sequence[Engine], tell: Progress) -> Part:
    """Delete keys whose time has run out, as entries of the journal like any other change."""
    expected = _expired(engines)
    done = 0
    for engine in engines:
        while asks := state.overdue(engine, GC_BATCH):
            landed = drive_sync(engine.store, state.land(engine, Site.STATE, asks))
            done += len(landed)
            tell("expired keys", done, max(done, expected.count))
            if not landed:
                break  # all of them were set again at this very moment
    return Part(done, expected.bytes)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def outdated(engine: Engine) -> Iterator[Mark]:
    """What drops the versions that an agent's rules do not keep, name by name."""
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
        drops = tuple(version for version in old if not checkpoints.pinned(engine, name, version))
        if drops:
            yield Mark(engine.stream, name, drops=drops)


def _drop(engine: Engine, tell: Progress) -> int:
    marks = list(outdated(engine))
    for number, mark in enumerate(marks, start=1):
        for start in range(0, len(mark.drops), GC_BATCH):
            piece = msgspec.structs.replace(mark, drops=mark.drops[start : start + GC_BATCH])
            drive_sync(engine.store, state.land(engine, Site.CHECKPOINT, [piece]))
        engine.shelf.forget(mark.name)
        tell("old checkpoints", number, len(marks))
    return sum(len(mark.drops) for mark in marks)


# -- holders ----------------------------------------------------------------------------------------------------------


def _dead(store: Store) -> Part:
    return Part(int(store.read("count_dead_holders", _now(store))[0][0]))


def _now(store: Store) -> tuple[str, int]:
    return this_process().boot, store.clock.boot_ms()


class _Bury(Unit[int]):
    """Rows of dead processes go; one that lives comes back with its next beat. Returns how many there were."""

    site = Site.HEARTBEAT

    def __init__(self, store: Store) -> None:
        self._now = _now(store)

    def script(self) -> Script[int]:
        [[(count,)], _] = yield [
            Statement("count_dead_holders", self._now),
            Statement("drop_dead_holders", self._now),
        ]
        return int(count)
