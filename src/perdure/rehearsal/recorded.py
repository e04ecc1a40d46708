"""What is recorded of a run, and which part of it the code has asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from .. import locks
from .. import records as r
from ..journal.lineage import events_of
from ..run.ledger import Ledger, Recorded, scopes_around
from ..run.waits import AGAIN, Waited
from ..runs import RunSummary, children_of
from ..store.base import Store
from .reports import Unreached, dollars

_SEEN = (r.Op.SET, r.Op.DELETE, r.Op.MESSAGE, r.Op.EVENT)
"""Writes in the open that are told when the code does not make them any more."""


class Part(msgspec.Struct, frozen=True):
    """A recorded run inside another one."""

    summary: RunSummary
    effects: int
    steps: int
    cost_usd: float


class Contents:
    """Everything that is recorded of a run, in all of its chapters; what was reached is taken off."""

    def __init__(self, ledger: Ledger, parts: Callable[[], list[Part]]) -> None:
        chapters = list(_chapters(ledger))
        self._waits = [one for chapter in chapters for one in _waits_of(chapter)]
        self._writes = [one for chapter in chapters for one in _writes_of(chapter)]
        self._items = {path for chapter in chapters for path in chapter.items}
        self.calls = sorted((one for chapter in chapters for one in _calls_of(chapter)), key=lambda one: one.seq)
        self._pending = self.calls[::-1]
        """What may not have been reached yet. What was is taken from the end, so that looking stays cheap."""
        self._pending_items = list(self._items)
        self._begun = {scope for call in self.calls for scope in scopes_around(call.path)}
        """Scopes of items in which something is recorded, whether they are done or not."""
        self._lock = locks.lock()
        self._find_parts = parts
        self._parts: list[Part] | None = None
        self._pending_parts: list[Part] = []
        self._reached: set[str] = set()
        """Scopes of items that the code has come to."""
        self._moved: list[tuple[str, str]] = []
        self.landed: set[int] = set()
        """The recorded writes that the code has seen, by their identities."""

    def reach_item(self, path: str) -> None:
        """The code has come to an item."""
        self._reached |= self._names_of(path)

    def has_begun(self, path: str) -> bool:
        """Whether something is recorded in an item."""
        return any(scope in self._begun for scope in self._names_of(path))

    def _names_of(self, path: str) -> set[str]:
        """An item, with the names that it had when its loop was called otherwise."""
        return {path, *(old + path[len(new) :] for old, new in self._moved if path.startswith(new))}

    def move(self, old: str, new: str) -> None:
        """A loop has another name now."""
        self._moved.append((old, new))

    def asked_for(self, one: Recorded) -> bool:
        """Whether the code came to a call, now or before it went back."""
        return one.consumed or one.credited

    def is_left(self, opened: set[int]) -> bool:
        """Whether there are steps, effects, items or runs that the code has not come to."""
        with self._lock:
            return self._is_left(opened)

    def _is_left(self, opened: set[int]) -> bool:
        if self._parts is None:
            self._parts = self._find_parts()
            self._pending_parts = list(self._parts)
        while self._pending and self.asked_for(self._pending[-1]):
            self._pending.pop()
        while self._pending_items and self._is_reached(self._pending_items[-1]):
            self._pending_items.pop()
        while self._pending_parts and self._pending_parts[-1].summary.stream in opened:
            self._pending_parts.pop()
        return bool(self._pending or self._pending_items or self._pending_parts)

    def left(self, opened: set[int]) -> list[Unreached]:
        """All that the code has not come to, in the order of the journal."""
        calls = [_call(one) for one in self.calls if not self.asked_for(one)]
        told = {scope for call in calls if call.weighs for scope in scopes_around(call.scope)}  # by the calls in them
        items = [Unreached("item", _label(path), scope=path, weighs="step") for path in sorted(self._items)]
        items = [item for item in items if item.scope not in told and not self._is_reached(item.scope)]
        parts = self._find_parts() if self._parts is None else self._parts
        runs = [_part(part) for part in parts if part.summary.stream not in opened]
        waits = [
            Unreached("wait", one.kind, one.seq, path)
            for path, one in self._waits
            if not one.asked and one.how not in AGAIN
        ]
        writes = [
            Unreached("write", write.key or str(write.op.name).lower(), scope=path)
            for path, write in self._writes
            if id(write) not in self.landed
        ]
        return [*calls, *items, *runs, *waits, *writes]

    def _is_reached(self, path: str) -> bool:
        return path in self._reached


def parts_of(store: Store, stream: int) -> list[Part]:
    """The runs that a run has opened inside itself; not those that it has left to workers."""
    return [part for child in children_of(store, stream) if (part := _part_of(store, child)) is not None]


def _part_of(store: Store, child: RunSummary) -> Part | None:
    ledger = Ledger(events_of(store, child.stream, fork=child.origin > 0))
    if ledger.started is None or ledger.started.task:
        return None
    calls, inside = _calls_of(ledger), parts_of(store, child.stream)
    effects = sum(_weight(one) == "effect" for one in calls) + sum(part.effects for part in inside)
    steps = sum(_weight(one) == "step" for one in calls) + sum(part.steps for part in inside)
    cost = sum(dollars(one.usage) for one in calls) + sum(part.cost_usd for part in inside)
    return Part(child, effects, steps, cost)


def _part(part: Part) -> Unreached:
    name = f"run {part.summary.id!r}, with {part.effects} effects and {part.steps} steps"
    weighs = "effect" if part.effects else "step" if part.steps else ""
    return Unreached("run", name, cost_usd=part.cost_usd, weighs=weighs)


def _call(one: Recorded) -> Unreached:
    kind = "effect" if one.effect else "step"
    return Unreached(kind, one.name, one.seq, one.path, dollars(one.usage), _weight(one), one.ident)


def _weight(one: Recorded) -> str:
    """Of an effect that failed nothing has happened, unless somebody gave up on knowing that."""
    if one.effect:
        return "" if one.failed and not one.final else "effect"
    return "step" if one.done else ""


def _label(path: str) -> str:
    return f"item {path.rstrip('/').rpartition('/')[2].partition(':')[2]}"


def _chapters(ledger: Ledger) -> Iterator[Ledger]:
    """What was recorded before and after each time that the code went back."""
    yield ledger
    while ledger.after is not None:
        ledger = ledger.after.ledger
        yield ledger


def _calls_of(ledger: Ledger) -> list[Recorded]:
    return list({id(one): one for calls in ledger.calls.values() for one in calls if not one.blank}.values())


def _waits_of(ledger: Ledger) -> list[tuple[str, Waited]]:
    return [(path, one) for (path, *_), waits in ledger.waits.items() for one in waits]


def _writes_of(ledger: Ledger) -> list[tuple[str, r.Write]]:
    return [(path, one) for (path, op, _), writes in ledger.operations.items() if op in _SEEN for one in writes]
