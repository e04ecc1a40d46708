"""Moments of a run by what people call them: the number of an entry, a step, a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from .. import records as r
from ..errors import PointNotFound
from ..hints import meant
from ..run.functions import EXPLICIT
from ..run.history import effective
from ..run.ledger import scopes_around

Point = int | str
"""What may be said for a moment."""

NONE_YET = "it has finished none yet"


class Ended(msgspec.Struct, frozen=True):
    """A call of a step or an effect that has come to an end."""

    seq: int
    """The entry that ended it."""
    call: r.Call
    effect: bool
    failed: bool

    @property
    def id(self) -> str | None:
        """Its explicit id, if it has one."""
        return self.call.ident[1:].decode() if self.call.ident.startswith(EXPLICIT) else None

    @property
    def name(self) -> str:
        return self.call.name

    def __str__(self) -> str:
        which = f" (id {self.id!r})" if self.id is not None else f" in {self.call.scope}" if self.call.scope else ""
        return f"{self.name!r} at {self.seq}{which}"


def ended_calls(events: Iterable[r.Event]) -> list[Ended]:
    """Every call with an outcome, in the order of their ends. One that was tried again counts by its last end."""
    intents: dict[int, r.Call] = {}
    found: dict[r.Call, Ended] = {}
    for event in events:
        it = event.record
        if isinstance(it, r.EffectIntended):
            intents[event.seq] = it.call
        if isinstance(it, r.StepDone | r.StepFailed):
            ended = Ended(event.seq, it.call, False, isinstance(it, r.StepFailed))
        elif isinstance(it, r.EffectDone | r.EffectFailed):
            ended = Ended(event.seq, intents[it.intent], True, isinstance(it, r.EffectFailed))
        else:
            continue
        found.pop(ended.call, None)
        found[ended.call] = ended
    return list(found.values())


def find_point(events: Sequence[r.Event], at: Point) -> int:
    """The number of the entry that a moment is right after."""
    if isinstance(at, int) and not isinstance(at, bool):
        numbers = {event.seq for event in events}
        if at not in numbers:
            there = f"it has {min(numbers)} to {max(numbers)}"
            raise PointNotFound(f"the run has no entry {at}; {there}", hint="`perdure show RUN` lists them")
        return at
    if not isinstance(at, str):
        raise TypeError(f"a moment is the number of an entry, or the name of a step or a checkpoint, not {at!r}")
    kind, name = _kind_and_name(at)
    events = effective(events)
    calls = [one.seq for one in _named(ended_calls(events), name)] if kind != "checkpoint" else []
    marks = _checkpoints(events, name) if kind != "step" else []
    if calls and marks:
        raise PointNotFound(
            f"{at!r} is a step and a checkpoint of the run", hint=f'say "step:{name}" or "checkpoint:{name}"'
        )
    if calls or marks:
        return max(calls or marks)
    known = [one.name for one in ended_calls(events)] if kind != "checkpoint" else []
    known += _checkpoint_names(events) if kind != "step" else []
    raise PointNotFound(
        f"the run has finished no step, and made no checkpoint, {at!r}",
        hint=meant(name, dict.fromkeys(known), NONE_YET),
    )


def find_overrides(events: Sequence[r.Event], override: Mapping[Point, Any]) -> dict[int, Any]:
    """By the entry that ended it: what steps are to have returned. `events` are all that is kept of the run."""
    events = effective(events)
    calls, found = ended_calls(events), dict[int, Any]()
    items = {event.record.scope: event.seq for event in events if isinstance(event.record, r.ItemDone)}
    for which, value in override.items():
        it = _one_call(calls, which)
        if it.effect:
            raise PointNotFound(
                f"{it.name!r} is an effect: what it did to the world has happened, and is not made otherwise",
                hint="fork at an entry before it (at=), and the fork does it by itself",
            )
        for scope in scopes_around(it.call.scope):
            if scope in items:
                raise PointNotFound(
                    f"{it.name!r} is in item {scope[:-1]!r}, which is done: its steps are not asked for any more",
                    hint=f"fork at an entry before {items[scope]}, which completes the item",
                )
        found[it.seq] = value
    return found


def _one_call(calls: Sequence[Ended], which: Point) -> Ended:
    if isinstance(which, int):
        named = [one for one in calls if one.seq == which]
    else:
        named = _named(calls, _kind_and_name(which)[1])
    if len(named) == 1:
        return named[0]
    if not named:
        known = [one.name for one in calls]
        raise PointNotFound(
            f"the run has finished no step {which!r} up to there",
            hint=meant(which, dict.fromkeys(known), NONE_YET),
        )
    listed = ", ".join(map(str, named[:10])) + ("" if len(named) <= 10 else " and others")
    raise PointNotFound(
        f"{which!r} was called {len(named)} times: {listed}",
        hint=f'say which by its number, as in "{which}#2" for the second, or by its entry',
    )


def _named(calls: Sequence[Ended], name: str) -> list[Ended]:
    """The calls of that name or id; `name#2` is the second one."""
    found = [one for one in calls if name in (one.name, one.id)]
    base, _, number = name.rpartition("#")
    if not found and base and number.isdecimal():
        same = [one for one in calls if base in (one.name, one.id)]
        found = same[int(number) - 1 : int(number)] if int(number) else []
    return found


def _kind_and_name(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    return (kind, name) if kind in ("step", "checkpoint") and name else ("", text)


def _checkpoints(events: Iterable[r.Event], name: str) -> list[int]:
    return [event.seq for event in events if name in _checkpoint_names([event])]


def _checkpoint_names(events: Iterable[r.Event]) -> list[str]:
    return [
        landed.name
        for event in events
        for landed in getattr(event.record, "landed", ())
        if isinstance(landed, r.CheckpointMade)
    ]
