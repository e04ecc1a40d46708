"""Records which calls of a thread were started at which task, and finds calls that the graph lost in a crash.

A task repeated from the same checkpoint has the same id and finds its calls by it. But a checkpoint may never have been
written: with durability "async" it lags behind, with "exit" there is none before the end. The same input may also be
given again instead of None. The graph then makes the same calls under other task ids. So each call is also identified
by its content. A call whose result is in no checkpoint is taken up again. If its result is in a checkpoint, it is past,
and an equal call elsewhere, as in a fork or the next turn, is new.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from perdure.adapters.langgraph.finished_tasks import are_past
from perdure.adapters.langgraph.location import GraphLevel, GraphTask
from perdure.data import state
from perdure.errors import Diverged
from perdure.journal.agent_writes import SetKey
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, Read
from perdure.run.ledger import RecordedCall
from perdure.values import locks
from perdure.work.threads.trails import effect_outcome, space_of

_TRAILS_MAX = 256


class TrailCall(msgspec.Struct, frozen=True):
    """A call that was started: its identity, and where the graph was."""

    run: str
    name: str
    call: str
    """The identity of the call: the id from the model, or a digest of its arguments."""
    effect: bool
    arguments: str
    levels: tuple[GraphLevel, ...]
    invocation: str
    order: int
    """When it was started. Equal calls are taken up again in this order."""
    nth: int = 0
    """The number of this call among equal ones in a task."""
    lost: bool = False
    """Whether the graph went back to a point before it. It is then found by its content."""

    @property
    def task(self) -> str:
        return self.levels[-1].task


class CallTrail:
    """The calls of a thread that may still matter to one invocation of the graph."""

    def __init__(self, entries: dict[str, TrailCall]) -> None:
        self.entries = entries
        self.lock = locks.lock()
        self.counts: dict[tuple[int, str, str], int] = {}
        self.unsettled: set[str] = set()
        """Effects of this invocation that ended in doubt."""
        self._order = 0
        self.passed: list[RecordedCall] = []
        """Calls that were found done and are not yet credited as savings."""

    def take_next_order(self, now_ms: int) -> int:
        """Return a number above all earlier ones, also of earlier invocations if the clock is right."""
        with self.lock:
            self._order = max(self._order + 1, now_ms * 1000)
            return self._order

    def count(self, place: GraphTask, name: str, call: str) -> int:
        """Return the number of this call among equal ones in this execution of the task."""
        with self.lock:
            nth = self.counts.get((place.execution, name, call), 0)
            self.counts[place.execution, name, call] = nth + 1
            return nth

    def find(self, place: GraphTask, wanted: TrailCall) -> tuple[TrailCall, bool]:
        """Return the entry of a call, and whether it must be written first."""
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

    def keep(self, entry: TrailCall) -> None:
        """Record a call."""
        with self.lock:
            self.entries[entry.run] = entry

    def possible_repeats(self, wanted: TrailCall) -> list[TrailCall]:
        """Return effects of the same name that are lost or in doubt: the new call may repeat one of them."""
        with self.lock:
            same = [one for one in self.entries.values() if one.effect and one.name == wanted.name]
            return [one for one in same if one.lost or one.run in self.unsettled]


_trails: OrderedDict[tuple[str, str, str, str], CallTrail] = OrderedDict()
_lock = locks.lock()


def trail_of(engine: Engine, place: GraphTask) -> Protocol[CallTrail]:
    """Return the trail of a thread. It is read at the first call of an invocation."""
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


def _load(engine: Engine, place: GraphTask) -> Protocol[CallTrail]:
    """Load the calls of earlier invocations: drop those whose result is in a checkpoint, mark the others as lost."""
    found = yield from state.items(engine, space_of(place.thread), None, None)
    known = {run: msgspec.convert(value, TrailCall) for run, value in found}
    before = [one for one in known.values() if one.invocation != place.invocation and not one.lost]
    before = [one for one in before if not _is_same_checkpoint(one.levels[-1], place.levels[-1])]
    verdicts: list[bool] = (yield Read(are_past, (place, before))) if before else []
    asks = list[SetKey]()
    for entry, past in zip(before, verdicts, strict=True):
        at = state.place(engine, space_of(place.thread), entry.run)
        if past:
            del known[entry.run]
            asks.append(SetKey(at))
        else:
            known[entry.run] = lost = msgspec.structs.replace(entry, lost=True)
            asks.append(state.ask_set(engine, at, msgspec.to_builtins(lost), None, None))
    if asks:
        yield from state.change(engine, asks)
    return CallTrail(known)


def _is_same_checkpoint(one: GraphLevel, other: GraphLevel) -> bool:
    """Return whether two tasks start at the same checkpoint. Then each is found by its id."""
    return (one.ns, one.checkpoint) == (other.ns, other.checkpoint)


def write(engine: Engine, place: GraphTask, entry: TrailCall) -> Protocol[None]:
    """Record durably that a call is about to start."""
    at = state.place(engine, space_of(place.thread), entry.run)
    yield from state.change(engine, [state.ask_set(engine, at, msgspec.to_builtins(entry), None, None)])


# -- effects that may have happened --------------------------------------------------------------------------------


def refuse_possible_repeats(engine: Engine, trail: CallTrail, wanted: TrailCall, shown: str) -> Protocol[None]:
    """Refuse a new effect if a lost or doubtful effect of the same name exists: it may be the same one again."""
    for rival in trail.possible_repeats(wanted):
        how = yield Read(effect_outcome, (engine, rival.run))
        if how:
            raise Diverged(
                f"{shown} is new, but {rival.name} {how} in run {rival.run!r} of the same thread, and the graph has no "
                "result of it; nothing was executed, and all records are kept",
                hint=f'inspect it with `perdure show {rival.run}`; to run the new one too, set on_change="rerun"',
            )
