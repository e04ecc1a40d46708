"""Which calls of a thread were begun, at which task; and which of them the graph has lost in a crash.

A task that is done again from the same checkpoint has the same id, and finds its calls by it. But a checkpoint may
never have been written: with durability "async" it lags behind, with "exit" there is none before the end, and the
same input may be given once more instead of None. Then the graph comes to the same calls under other ids. So each call
is known by what it is, too, and one whose result has not come into any checkpoint is taken up again. One whose result
has come there is past: the same call elsewhere is a new one, as in a fork, or in the next turn.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from ... import locks, state
from ...engine import Engine
from ...errors import Diverged
from ...journal.landing import Ask
from ...run.ledger import Recorded
from ...run.requests import Protocol, Read
from ...threads.trails import how_it_stands, space_of
from .past import all_past
from .places import Level, Place

_TRAILS_MAX = 256


class Entry(msgspec.Struct, frozen=True):
    """A call that was begun: what it is, and where the graph was."""

    run: str
    name: str
    call: str
    """What it is known by: the id that the model gave it, or a digest of its arguments."""
    effect: bool
    arguments: str
    levels: tuple[Level, ...]
    invocation: str
    order: int
    """When it was begun: those that are alike are taken up again in their order."""
    nth: int = 0
    """Which of several that are alike in one task."""
    lost: bool = False
    """Whether the graph went back to before it: it is found again by what it is."""

    @property
    def task(self) -> str:
        return self.levels[-1].task


class Trail:
    """The calls of a thread that may still matter, as one invocation of the graph sees them."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries
        self.lock = locks.lock()
        self.counts: dict[tuple[int, str, str], int] = {}
        self.unsettled: set[str] = set()
        """Effects of this invocation that ended in doubt."""
        self._order = 0
        self.passed: list[Recorded] = []
        """What was found done, and is not noted as saved yet."""

    def next_order(self, now_ms: int) -> int:
        """A number above all earlier ones of this invocation, and of those before it if the clock is right."""
        with self.lock:
            self._order = max(self._order + 1, now_ms * 1000)
            return self._order

    def count(self, place: Place, name: str, call: str) -> int:
        """Which of several calls that are alike this is, in this doing of the task."""
        with self.lock:
            nth = self.counts.get((place.execution, name, call), 0)
            self.counts[place.execution, name, call] = nth + 1
            return nth

    def find(self, place: Place, wanted: Entry) -> tuple[Entry, bool]:
        """The call that this one is, and whether that has to be written first."""
        with self.lock:
            alike = [one for one in self.entries.values() if (one.name, one.call) == (wanted.name, wanted.call)]
            here = next((one for one in alike if (one.task, one.nth) == (place.task, wanted.nth)), None)
            if here is not None and not here.lost:
                return here, False
            lost = sorted((one for one in alike if one.lost), key=lambda one: one.order)
            found = here or next(iter(lost), None)
            if found is None:
                return wanted, True
            taken = msgspec.structs.replace(wanted, run=found.run, arguments=found.arguments, order=found.order)
            self.entries[found.run] = taken
            return taken, True

    def keep(self, entry: Entry) -> None:
        """From here on this call is known."""
        with self.lock:
            self.entries[entry.run] = entry

    def rivals(self, wanted: Entry) -> list[Entry]:
        """Effects of the same name that the graph has lost, or that are in doubt: the new one may be one of them."""
        with self.lock:
            same = [one for one in self.entries.values() if one.effect and one.name == wanted.name]
            return [one for one in same if one.lost or one.run in self.unsettled]


_trails: OrderedDict[tuple[str, str, str, str], Trail] = OrderedDict()
_lock = locks.lock()


def trail_of(engine: Engine, place: Place) -> Protocol[Trail]:
    """The trail of a thread; read when an invocation comes to its first call."""
    key = (engine.url, engine.name, place.thread, place.invocation)
    with _lock:
        known = _trails.get(key)
    if known is None:
        loaded = yield from _load(engine, place)
        with _lock:
            known = _trails.setdefault(key, loaded)
            while len(_trails) > _TRAILS_MAX:
                _trails.popitem(last=False)
    return known


def _load(engine: Engine, place: Place) -> Protocol[Trail]:
    """Look at what earlier invocations have begun: it has come into a checkpoint and is past, or the graph lost it."""
    found = yield from state.items(engine, space_of(place.thread), None, None)
    known = {run: msgspec.convert(value, Entry) for run, value in found}
    before = [one for one in known.values() if one.invocation != place.invocation and not one.lost]
    before = [one for one in before if not _is_beside(one.levels[-1], place.levels[-1])]
    verdicts: list[bool] = (yield Read(all_past, (place, before))) if before else []
    asks = list[Ask]()
    for entry, past in zip(before, verdicts, strict=True):
        at = state.place(engine, space_of(place.thread), entry.run)
        if past:
            del known[entry.run]
            asks.append(Ask(at))
        else:
            known[entry.run] = lost = msgspec.structs.replace(entry, lost=True)
            asks.append(state.ask_set(engine, at, msgspec.to_builtins(lost), None, None))
    if asks:
        yield from state.change(engine, asks)
    return Trail(known)


def _is_beside(one: Level, other: Level) -> bool:
    """Whether two tasks begin at the same checkpoint: then each is found by its id."""
    return (one.ns, one.checkpoint) == (other.ns, other.checkpoint)


def write(engine: Engine, place: Place, entry: Entry) -> Protocol[None]:
    """Make it durable that a call is about to begin here."""
    at = state.place(engine, space_of(place.thread), entry.run)
    yield from state.change(engine, [state.ask_set(engine, at, msgspec.to_builtins(entry), None, None)])


# -- effects that may have happened --------------------------------------------------------------------------------


def refuse_rivals(engine: Engine, trail: Trail, wanted: Entry, shown: str) -> Protocol[None]:
    """A new effect, beside one of the same name that the graph knows nothing of: it may be the same one again."""
    for rival in trail.rivals(wanted):
        how = yield Read(how_it_stands, (engine, rival.run))
        if how:
            raise Diverged(
                f"{shown} is new, but {rival.name} {how} in run {rival.run!r} of the same thread, and the graph has no "
                "result of it; nothing was run, and all that is recorded is kept",
                hint=f"look at it with `perdure show {rival.run}`; if the new one is wanted too, "
                'on_change="rerun" lets it run',
            )
