"""Plans the rounds: what is done to the program where, and how many of each kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from ...hints import near
from .orders import CrashtestProblem, Manner, Seen, manner_of, where_of
from .places import Place, beats_of, chosen, evenly, instants, others

SEED = 20
"""Seed of the random instants, so that they are the same every time."""

ALL = 20
"""Rounds of the sampled kinds when there is no limit."""

INSTANT = re.compile(r"after:\d+(\.\d+)?s")
BEAT = re.compile(r"beat:holder\.heartbeat:(before|begun|written|after)#\d+")

Rounds = list[tuple[Place, ...]]


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """How many rounds of each kind. Kills at places get the rest."""

    instants: int
    beats: int
    stops: int
    terms: int
    interrupts: int
    fulls: int
    raises: int
    again: int


def shares_of(limit: int, depth: int) -> Shares:
    """Distribute a limit over the kinds: the larger it is, the more kinds."""
    most = limit or 10 * ALL
    again = most // 4 if depth > 1 else 0
    few = 6 if limit else ALL
    return Shares(
        instants=min(few, max(1, most // 10)),
        beats=min(few, most // 20),
        stops=min(few, most // 10),
        terms=min(few, most // 12),
        interrupts=min(few, most // 20),
        fulls=min(few, most // 20),
        raises=min(few, max(1, most // 20)),
        again=again,
    )


def planned(places: Sequence[Place], beating: Sequence[Seen], seconds: float, limit: int, share: Shares) -> Rounds:
    """Return rounds with one disturbance each."""
    kinds = [
        *instants(share.instants, seconds, SEED),
        *beats_of(beating, share.beats),
        *others(places, Manner.STOP, share.stops),
        *others(places, Manner.TERM, share.terms),
        *others(places, Manner.INTERRUPT, share.interrupts),
        *others(places, Manner.FULL, share.fulls),
        *evenly([place for place in places if place.manner == Manner.RAISE], share.raises),
    ]
    kills = [place for place in places if place.manner == Manner.KILL]
    singles = chosen(kills, max(1, limit - share.again - len(kinds)) if limit else 0)
    return [(place,) for place in (*singles, *kinds)]


def twice(recoveries: Mapping[Place, Sequence[Place]], count: int) -> Rounds:
    """Return rounds with a second kill in the restart, whose places are known by now."""
    options: Rounds = []
    for first, recovery in recoveries.items():
        kills = [place for place in recovery if place.manner == Manner.KILL]
        options += [(first, second) for second in kills[:: max(1, len(kills) // 4)]]
    if not count or len(options) <= count:
        return options
    return [options[number * len(options) // count] for number in range(count)]


def named(only: str, places: Sequence[Place]) -> tuple[Place, ...]:
    """Resolve `--only`: a place of the undisturbed run or an instant, and perhaps one of the restart."""
    known = {place.name: place for place in places}
    first, *more = only.split(",")
    manner, where = manner_of(first), where_of(first)
    if manner in (Manner.STOP, Manner.TERM, Manner.INTERRUPT, Manner.FULL) and where in known:
        begins = msgspec.structs.replace(known[where], name=first)
    elif INSTANT.fullmatch(first) or BEAT.fullmatch(first):
        begins = Place(first, "")
    elif first in known:
        begins = known[first]
    else:
        hint = near(where, known) or "use a place from a report"
        raise CrashtestProblem(f"--only {only}: the undisturbed run does not pass there", hint=hint)
    return (begins, *(Place(name, "") for name in more))
