"""The recorded operations of a run, and which of them the code has reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from perdure import records as r
from perdure.journal.lineage import events_of
from perdure.kernel.scope import scopes_around
from perdure.run.ledger import Ledger, RecordedCall
from perdure.run.listing import RunSummary, children_of
from perdure.run.recorded_waits import AGAIN, RecordedWait
from perdure.run.rehearse.verdict import UnreachedOperation, dollars
from perdure.store.base import Store
from perdure.values import locks

_SEEN = (r.WriteOp.SET, r.WriteOp.DELETE, r.WriteOp.MESSAGE, r.WriteOp.EVENT)
"""Writes outside of bodies that are reported when the code no longer makes them."""


class NestedRun(msgspec.Struct, frozen=True):
    """A recorded run inside another one."""

    summary: RunSummary
    effects: int
    steps: int
    cost_usd: float


class RecordedContents:
    """Everything recorded in all chapters of a run, with the reached parts removed."""

    def __init__(self, ledger: Ledger, parts: Callable[[], list[NestedRun]]) -> None:
        chapters = list(_chapters(ledger))
        self._waits = [one for chapter in chapters for one in _list_waits(chapter)]
        self._writes = [one for chapter in chapters for one in _list_writes(chapter)]
        self._items = {path for chapter in chapters for path in chapter.items}
        self.calls = sorted((one for chapter in chapters for one in _calls_of(chapter)), key=lambda one: one.seq)
        self._pending = self.calls[::-1]
        """Calls that may not have been reached. Reached ones are removed from the end, so that checks stay cheap."""
        self._pending_items = list(self._items)
        self._begun = {scope for call in self.calls for scope in scopes_around(call.path)}
        """Scopes of items that have entries, done or not."""
        self._lock = locks.lock()
        self._find_parts = parts
        self._parts: list[NestedRun] | None = None
        self._pending_parts: list[NestedRun] = []
        self._reached: set[str] = set()
        """Scopes of items that the code has reached."""
        self._moved: list[tuple[str, str]] = []
        self.landed: set[int] = set()
        """The ids of the recorded writes that the code has seen."""

    def reach_item(self, path: str) -> None:
        """Mark an item as reached."""
        self._reached |= self._names_of(path)

    def has_begun(self, path: str) -> bool:
        """Whether anything is recorded in an item."""
        return any(scope in self._begun for scope in self._names_of(path))

    def _names_of(self, path: str) -> set[str]:
        """Return the scope of an item, and those under earlier names of its loop."""
        return {path, *(old + path[len(new) :] for old, new in self._moved if path.startswith(new))}

    def move(self, old: str, new: str) -> None:
        """Record that a loop was renamed."""
        self._moved.append((old, new))

    def is_reached(self, one: RecordedCall) -> bool:
        """Whether the code reached a call, in this chapter or an earlier one."""
        return one.consumed or one.credited

    def is_left(self, opened: set[int]) -> bool:
        """Whether there are steps, effects, items or runs that the code has not reached."""
        with self._lock:
            return self._is_left(opened)

    def _is_left(self, opened: set[int]) -> bool:
        if self._parts is None:
            self._parts = self._find_parts()
            self._pending_parts = list(self._parts)
        while self._pending and self.is_reached(self._pending[-1]):
            self._pending.pop()
        while self._pending_items and self._is_reached(self._pending_items[-1]):
            self._pending_items.pop()
        while self._pending_parts and self._pending_parts[-1].summary.stream in opened:
            self._pending_parts.pop()
        return bool(self._pending or self._pending_items or self._pending_parts)

    def list_unreached(self, opened: set[int]) -> list[UnreachedOperation]:
        """Return everything that the code has not reached, in journal order."""
        calls = [_call(one) for one in self.calls if not self.is_reached(one)]
        covered = {scope for call in calls if call.weighs for scope in scopes_around(call.scope)}  # by their calls
        items = [UnreachedOperation("item", _label(path), scope=path, weighs="step") for path in sorted(self._items)]
        items = [item for item in items if item.scope not in covered and not self._is_reached(item.scope)]
        parts = self._find_parts() if self._parts is None else self._parts
        runs = [_part(part) for part in parts if part.summary.stream not in opened]
        waits = [
            UnreachedOperation("wait", one.kind, one.seq, path)
            for path, one in self._waits
            if not one.asked and one.how not in AGAIN
        ]
        writes = [
            UnreachedOperation("write", write.key or str(write.op.name).lower(), scope=path)
            for path, write in self._writes
            if id(write) not in self.landed
        ]
        return [*calls, *items, *runs, *waits, *writes]

    def _is_reached(self, path: str) -> bool:
        return path in self._reached


def parts_of(store: Store, stream: int) -> list[NestedRun]:
    """Return the runs that a run opened inside itself, without those for workers."""
    return [part for child in children_of(store, stream) if (part := _part_of(store, child)) is not None]


def _part_of(store: Store, child: RunSummary) -> NestedRun | None:
    ledger = Ledger(events_of(store, child.stream, fork=child.origin > 0))
    if ledger.started is None or ledger.started.task:
        return None
    calls, inside = _calls_of(ledger), parts_of(store, child.stream)
    effects = sum(_weight(one) == "effect" for one in calls) + sum(part.effects for part in inside)
    steps = sum(_weight(one) == "step" for one in calls) + sum(part.steps for part in inside)
    cost = sum(dollars(one.usage) for one in calls) + sum(part.cost_usd for part in inside)
    return NestedRun(child, effects, steps, cost)


def _part(part: NestedRun) -> UnreachedOperation:
    name = f"run {part.summary.id!r}, with {part.effects} effects and {part.steps} steps"
    weighs = "effect" if part.effects else "step" if part.steps else ""
    return UnreachedOperation("run", name, cost_usd=part.cost_usd, weighs=weighs)


def _call(one: RecordedCall) -> UnreachedOperation:
    kind = "effect" if one.effect else "step"
    return UnreachedOperation(kind, one.name, one.seq, one.path, dollars(one.usage), _weight(one), one.ident)


def _weight(one: RecordedCall) -> str:
    """Return what a call counts as. A failed effect did not happen, unless a person gave up on it."""
    if one.effect:
        return "" if one.failed and not one.final else "effect"
    return "step" if one.done else ""


def _label(path: str) -> str:
    return f"item {path.rstrip('/').rpartition('/')[2].partition(':')[2]}"


def _chapters(ledger: Ledger) -> Iterator[Ledger]:
    """Yield the ledger of each chapter."""
    yield ledger
    while ledger.after is not None:
        ledger = ledger.after.ledger
        yield ledger


def _calls_of(ledger: Ledger) -> list[RecordedCall]:
    return list({id(one): one for calls in ledger.calls.values() for one in calls if not one.blank}.values())


def _list_waits(ledger: Ledger) -> list[tuple[str, RecordedWait]]:
    return [(path, one) for (path, *_), waits in ledger.waits.items() for one in waits]


def _list_writes(ledger: Ledger) -> list[tuple[str, r.RunWrite]]:
    return [(path, one) for (path, op, _), writes in ledger.operations.items() if op in _SEEN for one in writes]
