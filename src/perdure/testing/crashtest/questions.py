"""Explains why a person is asked about an effect, whether that can be avoided, and where it was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from perdure.journal.leases import LEASE_MS
from perdure.testing.crashtest.messages import Disturbance, manner_of
from perdure.testing.crashtest.snapshot import JournaledEffect
from perdure.testing.crashtest.sources import ProgramSources

SHOWN_MAX = 3
"""How many places are shown per effect."""


def note_questions(asked: Iterable[tuple[str, JournaledEffect]], sources: ProgramSources) -> Iterator[str]:
    """Yield a note for each effect and reason. `asked` has the place of each try."""
    found: dict[str, list[str]] = defaultdict(list)
    for place, effect in asked:
        found[_reason(place, effect, sources)].append(place)
    for reason, places in found.items():
        more = f" and {len(places) - SHOWN_MAX} more" if len(places) > SHOWN_MAX else ""
        yield f"asked: {reason} [{', '.join(places[:SHOWN_MAX])}{more}]"


def _reason(place: str, effect: JournaledEffect, sources: ProgramSources) -> str:
    name = effect.name
    waits = f"the outcome of {name} is unknown, so the run waits for a person (`perdure answer`). "
    if name not in sources.checks:
        return f"{waits}Nothing is lost or repeated. Add check= to @agent.effect to settle it without a person"
    if Disturbance.STOP not in map(manner_of, place.split(",")):
        return f"{waits}Its check did not decide: it returned Unknown, or raised"
    still = f"the check of {name} says NotDone, but the process that started it is only paused and may still do it. "
    if not effect.timeout_ms:
        return f"{still}Add timeout= to @agent.effect: after it, the check is believed"
    seconds = (effect.timeout_ms + LEASE_MS) / 1000
    return f"{still}This is expected: after {seconds:g} s (its timeout and a lease) its check is believed"
