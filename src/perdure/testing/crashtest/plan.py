"""Plans the rounds: what is done to the program where, and how many of each kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from perdure.testing.crashtest.messages import CrashtestProblem, Disturbance, ProgramEvent, manner_of, strip_action
from perdure.testing.crashtest.places import (
    CrashPoint,
    beats_of,
    evenly,
    instants,
    select_disturbance_points,
    select_points,
)
from perdure.values.hints import did_you_mean

SEED = 20
"""Seed of the random instants, so that they are the same every time."""

ALL = 20
"""Rounds of the sampled kinds when there is no limit."""

INSTANT = re.compile(r"after:\d+(\.\d+)?s")
BEAT = re.compile(r"beat:holder\.heartbeat:(before|begun|written|after)#\d+")

PlannedRounds = list[tuple[CrashPoint, ...]]


class RoundShares(msgspec.Struct, frozen=True, kw_only=True):
    """How many rounds of each kind. Kills at places get the rest."""

    instants: int
    beats: int
    stops: int
    terms: int
    interrupts: int
    fulls: int
    raises: int
    again: int


def shares_of(limit: int, depth: int) -> RoundShares:
    """Distribute a limit over the kinds: the larger it is, the more kinds."""
    most = limit or 10 * ALL
    again = most // 4 if depth > 1 else 0
    few = 6 if limit else ALL
    return RoundShares(
        instants=min(few, max(1, most // 10)),
        beats=min(few, most // 20),
        stops=min(few, most // 10),
        terms=min(few, most // 12),
        interrupts=min(few, most // 20),
        fulls=min(few, most // 20),
        raises=min(few, max(1, most // 20)),
        again=again,
    )


def plan_rounds(
    places: Sequence[CrashPoint], beating: Sequence[ProgramEvent], seconds: float, limit: int, share: RoundShares
) -> PlannedRounds:
    """Return rounds with one disturbance each."""
    kinds = [
        *instants(share.instants, seconds, SEED),
        *beats_of(beating, share.beats),
        *select_disturbance_points(places, Disturbance.STOP, share.stops),
        *select_disturbance_points(places, Disturbance.TERM, share.terms),
        *select_disturbance_points(places, Disturbance.INTERRUPT, share.interrupts),
        *select_disturbance_points(places, Disturbance.FULL, share.fulls),
        *evenly([place for place in places if place.manner == Disturbance.RAISE], share.raises),
    ]
    kills = [place for place in places if place.manner == Disturbance.KILL]
    singles = select_points(kills, max(1, limit - share.again - len(kinds)) if limit else 0)
    return [(place,) for place in (*singles, *kinds)]


def twice(recoveries: Mapping[CrashPoint, Sequence[CrashPoint]], count: int) -> PlannedRounds:
    """Return rounds with a second kill in the restart, whose places are known by now."""
    options: PlannedRounds = []
    for first, recovery in recoveries.items():
        kills = [place for place in recovery if place.manner == Disturbance.KILL]
        options += [(first, second) for second in kills[:: max(1, len(kills) // 4)]]
    if not count or len(options) <= count:
        return options
    return [options[number * len(options) // count] for number in range(count)]


def resolve_only(only: str, places: Sequence[CrashPoint]) -> tuple[CrashPoint, ...]:
    """Resolve `--only`: a place of the undisturbed run or an instant, and perhaps one of the restart."""
    known = {place.name: place for place in places}
    first, *more = only.split(",")
    manner, where = manner_of(first), strip_action(first)
    if manner in (Disturbance.STOP, Disturbance.TERM, Disturbance.INTERRUPT, Disturbance.FULL) and where in known:
        begins = msgspec.structs.replace(known[where], name=first)
    elif INSTANT.fullmatch(first) or BEAT.fullmatch(first):
        begins = CrashPoint(first, "")
    elif first in known:
        begins = known[first]
    else:
        hint = did_you_mean(where, known) or "use a place from a report"
        raise CrashtestProblem(f"--only {only}: the undisturbed run does not pass there", hint=hint)
    return (begins, *(CrashPoint(name, "") for name in more))
