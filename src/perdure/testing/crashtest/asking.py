"""Why a person is asked about an effect, for each effect: whether that could be otherwise, and where it was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ...leases import LEASE_MS
from .orders import Manner, manner_of
from .snapshot import EffectSeen
from .sources import Sources

SHOWN_MAX = 3
"""Places of one effect."""


def about_asked(asked: Iterable[tuple[str, EffectSeen]], sources: Sources) -> Iterator[str]:
    """A note for each effect and reason; `asked` has the place of each try."""
    found: dict[str, list[str]] = defaultdict(list)
    for place, effect in asked:
        found[_reason(place, effect, sources)].append(place)
    for reason, places in found.items():
        more = f" and {len(places) - SHOWN_MAX} more" if len(places) > SHOWN_MAX else ""
        yield f"asked: {reason} [{', '.join(places[:SHOWN_MAX])}{more}]"


def _reason(place: str, effect: EffectSeen, sources: Sources) -> str:
    name = effect.name
    waits = f"nobody could know whether {name} had happened, so the run waits for a person (`perdure answer`). "
    if name not in sources.checks:
        return f"{waits}Nothing is lost or repeated. With check= at @agent.effect it finds out by itself"
    if Manner.STOP not in map(manner_of, place.split(",")):
        return f"{waits}Its check could not say: it returned Unknown, or raised"
    still = f"the check of {name} says NotDone, but the process that has begun it is only paused, and may still do it. "
    if not effect.timeout_ms:
        return f"{still}With timeout= at @agent.effect that is believed when it can be no more"
    seconds = (effect.timeout_ms + LEASE_MS) / 1000
    return f"{still}That is as it should be: after {seconds:g} s (its timeout and a lease) its check is believed"
