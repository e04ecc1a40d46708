"""Compares two runs: their steps, state, messages and outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from perdure.journal import objects
from perdure.journal.lineage import lineage
from perdure.journal.trees.diff import Change, diff
from perdure.run.data_view import view_of
from perdure.run.history import effective
from perdure.run.ledger import Ledger, RecordedCall
from perdure.run.listing import RunInfo, get_run
from perdure.store.base import Store
from perdure.values import codec

ValueDecoder = Callable[[bytes], Any]
StepChangeKind = Literal["added", "removed", "changed"]
_INLINE = b"\x00"
_ENCODE = msgspec.msgpack.Encoder().encode
LINES_SHOWN = 20


class StepChange(msgspec.Struct, frozen=True):
    """A step or an effect that differs between two runs, or exists in one of them only."""

    kind: StepChangeKind
    name: str
    scope: str
    """The enclosing item, if any."""
    effect: bool
    seq_a: int = 0
    """Its entry in the first run; 0 if there is none."""
    seq_b: int = 0
    before: Any = None
    """Its result in the first run; an exception if it failed."""
    after: Any = None
    arguments: tuple[Change, ...] = ()
    """For an effect: how the arguments differ. Arguments of steps are not recorded."""

    def __str__(self) -> str:
        sign = {"added": "+", "removed": "-", "changed": "~"}[self.kind]
        values = [_terse(self.before)] * (self.kind != "added") + [_terse(self.after)] * (self.kind != "removed")
        given = f" ({'; '.join(map(str, self.arguments))})" if self.arguments else ""
        return f"{sign} {self.scope}{self.name}: {' -> '.join(values)}{given}"


class RunDiff(msgspec.Struct, frozen=True):
    """The differences between two runs. `str()` gives a page of text; `bool()` tells whether there are any."""

    a: str
    b: str
    shared: int
    """The last entry shared by reference; 0 if the runs are not related by forks."""
    steps: tuple[StepChange, ...]
    same_steps: int
    input: tuple[Change, ...]
    state: tuple[Change, ...]
    messages: tuple[Change, ...]
    status: tuple[str, str]
    result: tuple[Change, ...]

    def __bool__(self) -> bool:
        changes = (self.steps, self.input, self.state, self.messages, self.result)
        return any(changes) or self.status[0] != self.status[1]

    def __repr__(self) -> str:
        counts = {word: len(found) for word, found in self._parts()}
        parts = ", ".join(f"{count} in {word}" for word, count in counts.items() if count)
        return f"<RunDiff {self.a!r} -> {self.b!r}: {parts or 'no difference'}>"

    def __str__(self) -> str:
        shared = f"the first {self.shared} entries are shared, " if self.shared else ""
        lines = [f"{self.a} -> {self.b}: {shared}{self.same_steps} steps are equal"]
        for word, found in self._parts():
            if found:
                more = [f"  and {len(found) - LINES_SHOWN} more"] if len(found) > LINES_SHOWN else []
                lines += [word, *(f"  {one}" for one in found[:LINES_SHOWN]), *more]
        return "\n".join(lines)

    def _parts(self) -> Iterator[tuple[str, Sequence[Any]]]:
        yield from (("input", self.input), ("steps", self.steps), ("state", self.state), ("messages", self.messages))
        yield "status", [f"~ {self.status[0]} -> {self.status[1]}"] if self.status[0] != self.status[1] else []
        yield "result", self.result


def compare(store: Store, agent: str, a: str, b: str, decode: ValueDecoder = codec.decode) -> RunDiff:
    """Compare two runs of an agent. Calls match by scope, name and arguments, whenever they were made."""
    return _RunComparison(store, decode).runs(get_run(store, agent, a, bytes), get_run(store, agent, b, bytes))


class _RunSide(msgspec.Struct, frozen=True):
    """One of the two runs."""

    info: RunInfo
    ledger: Ledger
    state: Mapping[str, bytes]
    messages: Sequence[bytes]

    def calls(self) -> dict[tuple[str, str, bytes, int], RecordedCall]:
        """Return the calls that have ended or are in doubt."""
        return {
            (*key, nth): one
            for key, calls in self.ledger.calls.items()
            for nth, one in enumerate(calls)
            if one.done or one.failed or one.in_doubt
        }


class _RunComparison:
    """Compares runs of one store."""

    def __init__(self, store: Store, decode: ValueDecoder) -> None:
        self._store = store
        self._decode = decode

    def runs(self, first: RunInfo, second: RunInfo) -> RunDiff:
        a, b = self._side(first), self._side(second)
        assert a.ledger.started is not None
        assert b.ledger.started is not None
        steps, same = self._steps(a.calls(), b.calls())
        return RunDiff(
            first.id,
            second.id,
            self._count_shared(first, second),
            tuple(sorted(steps, key=lambda one: one.seq_b or one.seq_a)),
            same,
            self._values(a.ledger.started.input, b.ledger.started.input),
            self._compare_collections(
                {key: self._read_raw(value) for key, value in a.state.items()},
                {key: self._read_raw(value) for key, value in b.state.items()},
            ),
            self._compare_collections(
                [self._read_raw(value) for value in a.messages], [self._read_raw(value) for value in b.messages]
            ),
            (first.status.value, second.status.value),
            self._values(first.result or b"", second.result or b""),
        )

    def _side(self, info: RunInfo) -> _RunSide:
        holding = effective(info.events)
        view = view_of(holding)
        return _RunSide(info, Ledger(holding), info.state, [value for _, value in view.messages])

    def _count_shared(self, a: RunInfo, b: RunInfo) -> int:
        shared = 0
        for (left, upto), (right, other) in zip(self._parts(a), self._parts(b), strict=False):
            if left != right:
                break
            shared = int(min(upto, other, a.events[-1].seq, b.events[-1].seq))
            if upto != other:
                break
        return shared

    def _parts(self, info: RunInfo) -> list[tuple[int, float]]:
        """Return the streams that hold the entries of a run, each with its last entry."""
        forks = lineage(self._store, info.summary.stream) if info.summary.origin else []
        return [*((part.origin, part.cut) for part in forks), (info.summary.stream, math.inf)]

    # -- calls ----------------------------------------------------------------------------------------------------

    def _steps(
        self, a: dict[tuple[str, str, bytes, int], RecordedCall], b: dict[tuple[str, str, bytes, int], RecordedCall]
    ) -> tuple[list[StepChange], int]:
        changes, same = list[StepChange](), 0
        for key in a.keys() & b.keys():
            if _outcome(a[key]) == _outcome(b[key]):
                same += 1
            else:
                changes.append(self._step("changed", a[key], b[key]))
        # Calls of the same name and scope with different arguments are matched in order.
        left, right = _group_missing_calls(a, b), _group_missing_calls(b, a)
        for place in left.keys() | right.keys():
            ours, theirs = left.get(place, []), right.get(place, [])
            changes += [self._step("changed", one, other) for one, other in zip(ours, theirs, strict=False)]
            changes += [self._step("removed", one, None) for one in ours[len(theirs) :]]
            changes += [self._step("added", None, one) for one in theirs[len(ours) :]]
        return changes, same

    def _step(self, kind: StepChangeKind, a: RecordedCall | None, b: RecordedCall | None) -> StepChange:
        call = a or b
        assert call is not None
        given = a is not None and b is not None and a.effect and b.effect
        return StepChange(
            kind,
            call.name,
            call.path,
            call.effect,
            a.seq if a is not None else 0,
            b.seq if b is not None else 0,
            self._value(_outcome(a)) if a is not None else None,
            self._value(_outcome(b)) if b is not None else None,
            self._values(a.arguments, b.arguments) if given and a is not None and b is not None else (),
        )

    # -- values ---------------------------------------------------------------------------------------------------

    def _read_raw(self, packed: bytes) -> bytes:
        identity = objects.reference(packed)
        return objects.fetch(self._store, identity) if identity else packed[1:]

    def _value(self, packed: bytes) -> Any:
        return self._decode(self._read_raw(packed)) if packed else "in doubt"

    def _values(self, before: bytes, after: bytes) -> tuple[Change, ...]:
        if before == after:
            return ()
        left, right = (self._read_raw(data) if data else _ENCODE(None) for data in (before, after))
        return tuple(diff(self._store, _INLINE + left, _INLINE + right, self._decode))

    def _compare_collections(self, before: Any, after: Any) -> tuple[Change, ...]:
        """Compare collections of values by key or index."""
        return tuple(diff(self._store, _INLINE + _join_values(before), _INLINE + _join_values(after), self._decode))


def _join_values(values: dict[str, bytes] | list[bytes]) -> bytes:
    if isinstance(values, dict):
        return _ENCODE({key: msgspec.Raw(raw) for key, raw in values.items()})
    return _ENCODE([msgspec.Raw(raw) for raw in values])


def _outcome(call: RecordedCall) -> bytes:
    """Return the packed result or error of a call; empty while it is unknown."""
    return call.result if call.done else call.error if call.failed else b""


def _group_missing_calls(
    calls: dict[tuple[str, str, bytes, int], RecordedCall], others: dict[tuple[str, str, bytes, int], RecordedCall]
) -> dict[tuple[str, str], list[RecordedCall]]:
    """Return the calls that the other run does not have, by scope and name, in order."""
    found: dict[tuple[str, str], list[RecordedCall]] = {}
    for (scope, name, _, _), call in sorted(
        ((key, one) for key, one in calls.items() if key not in others), key=lambda pair: pair[1].seq
    ):
        found.setdefault((scope, name), []).append(call)
    return found


def _terse(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
