"""Points of a run: the number of an entry, a step or a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import PointNotFound, WrongType
from perdure.kernel.scope import scopes_around
from perdure.run.function import EXPLICIT
from perdure.run.history import effective
from perdure.values.hints import name_hint

RunPoint = int | str
"""A point as users name it."""

NONE_YET = "none has finished yet"


class EndedCall(msgspec.Struct, frozen=True):
    """A call of a step or an effect that has ended."""

    seq: int
    """The entry that ended it."""
    call: r.CallIdentity
    effect: bool
    failed: bool

    @property
    def id(self) -> str | None:
        """The explicit id of the call, if it has one."""
        return self.call.ident[1:].decode() if self.call.ident.startswith(EXPLICIT) else None

    @property
    def name(self) -> str:
        return self.call.name

    def __str__(self) -> str:
        which = f" (id {self.id!r})" if self.id is not None else f" in {self.call.scope}" if self.call.scope else ""
        return f"{self.name!r} at {self.seq}{which}"


def list_ended_calls(events: Iterable[r.JournalEntry]) -> list[EndedCall]:
    """Return every ended call, in order of their ends. A retried call counts by its last end."""
    intents: dict[int, r.CallIdentity] = {}
    found: dict[r.CallIdentity, EndedCall] = {}
    for event in events:
        record = event.record
        if isinstance(record, r.EffectIntended):
            intents[event.seq] = record.call
        if isinstance(record, r.StepDone | r.StepFailedEntry):
            ended = EndedCall(event.seq, record.call, False, isinstance(record, r.StepFailedEntry))
        elif isinstance(record, r.EffectDone | r.EffectFailed):
            ended = EndedCall(event.seq, intents[record.intent], True, isinstance(record, r.EffectFailed))
        else:
            continue
        found.pop(ended.call, None)
        found[ended.call] = ended
    return list(found.values())


def find_point(events: Sequence[r.JournalEntry], at: RunPoint) -> int:
    """Return the number of the entry that a point stands for."""
    if isinstance(at, int) and not isinstance(at, bool):
        numbers = {event.seq for event in events}
        if at not in numbers:
            there = f"its entries are {min(numbers)} to {max(numbers)}"
            raise PointNotFound(f"the run has no entry {at}; {there}", hint="`perdure show` lists the entries of a run")
        return at
    if not isinstance(at, str):
        raise WrongType(f"a point must be an entry number or the name of a step or checkpoint, not {at!r}")
    kind, name = _kind_and_name(at)
    events = effective(events)
    calls = [one.seq for one in _find_calls(list_ended_calls(events), name)] if kind != "checkpoint" else []
    marks = _checkpoints(events, name) if kind != "step" else []
    if calls and marks:
        raise PointNotFound(
            f"{at!r} is both a step and a checkpoint of the run", hint=f'write "step:{name}" or "checkpoint:{name}"'
        )
    if calls or marks:
        return max(calls or marks)
    known = [one.name for one in list_ended_calls(events)] if kind != "checkpoint" else []
    known += _checkpoint_names(events) if kind != "step" else []
    raise PointNotFound(
        f"the run has no finished step or checkpoint {at!r}",
        hint=name_hint(name, dict.fromkeys(known), NONE_YET),
    )


def find_overrides(events: Sequence[r.JournalEntry], override: Mapping[RunPoint, Any]) -> dict[int, Any]:
    """Return the overridden results by the entry that ended the step. `events` are the kept entries."""
    events = effective(events)
    calls, found = list_ended_calls(events), dict[int, Any]()
    items = {event.record.scope: event.seq for event in events if isinstance(event.record, r.ItemDone)}
    for which, value in override.items():
        call = _select_call(calls, which)
        if call.effect:
            raise PointNotFound(
                f"{call.name!r} is an effect: it has already happened, so its result cannot be overridden",
                hint="fork before it with at=; the fork then executes it itself",
            )
        for scope in scopes_around(call.call.scope):
            if scope in items:
                raise PointNotFound(
                    f"{call.name!r} is in item {scope[:-1]!r}, which is done, so its steps do not run again",
                    hint=f"fork at an entry before {items[scope]}, which completes the item",
                )
        found[call.seq] = value
    return found


def _select_call(calls: Sequence[EndedCall], which: RunPoint) -> EndedCall:
    if isinstance(which, int):
        named = [one for one in calls if one.seq == which]
    else:
        named = _find_calls(calls, _kind_and_name(which)[1])
    if len(named) == 1:
        return named[0]
    if not named:
        known = [one.name for one in calls]
        raise PointNotFound(
            f"the run has no finished step {which!r} up to that point",
            hint=name_hint(which, dict.fromkeys(known), NONE_YET),
        )
    listed = ", ".join(map(str, named[:10])) + ("" if len(named) <= 10 else " and others")
    raise PointNotFound(
        f"{which!r} was called {len(named)} times: {listed}",
        hint=f'name one by number, such as "{which}#2" for the second, or by its entry',
    )


def _find_calls(calls: Sequence[EndedCall], name: str) -> list[EndedCall]:
    """Return the calls of a name or id; `name#2` is the second one."""
    found = [one for one in calls if name in (one.name, one.id)]
    base, _, number = name.rpartition("#")
    if not found and base and number.isdecimal():
        same = [one for one in calls if base in (one.name, one.id)]
        found = same[int(number) - 1 : int(number)] if int(number) else []
    return found


def _kind_and_name(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    return (kind, name) if kind in ("step", "checkpoint") and name else ("", text)


def _checkpoints(events: Iterable[r.JournalEntry], name: str) -> list[int]:
    return [event.seq for event in events if name in _checkpoint_names([event])]


def _checkpoint_names(events: Iterable[r.JournalEntry]) -> list[str]:
    return [
        landed.name
        for event in events
        for landed in getattr(event.record, "landed", ())
        if isinstance(landed, r.CheckpointMade)
    ]
