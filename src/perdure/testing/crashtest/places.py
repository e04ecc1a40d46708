"""Where a program can be killed, in words, and which places are tried when there are too many."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from .orders import Seen

NOUNS = {
    "run.claim": "the run is opened",
    "run.end": "the end of the run is recorded",
    "step.done": "a step is recorded",
    "step.failed": "the failure of a step is recorded",
    "attempt.failed": "a failed attempt is recorded",
    "effect.intent": "the intent of an effect is recorded",
    "effect.again": "the second start of an effect is recorded",
    "effect.outcome": "the outcome of an effect is recorded",
    "effect.failed": "the failure of an effect is recorded",
    "effect.doubt": "the doubt about an effect is recorded",
    "item.done": "an item of a loop is recorded",
    "run.write": "a write of the run is recorded",
    "run.credit": "what was saved is recorded",
    "run.question": "a question is recorded",
    "wait.begin": "a wait begins",
    "wait.end": "a wait ends",
    "state.write": "agent.state is written",
    "checkpoint.write": "a checkpoint is written",
    "artifact.write": "an artifact is written",
    "event.append": "an event is noted",
    "workflow.write": "a workflow is written",
}
SPECIAL = {
    "step.done:before": "after the body of a step, before it is recorded",
    "effect.intent:after": "after the intent of an effect, before its body",
    "effect.outcome:before": "after the effect happened, before its outcome is recorded",
}
OUTSIDE_OF_RUNS = "in code outside of any run"
RAISED = "(not killed) an effect raises after it happened"
RANDOM = "at a random instant"
AGAIN = "twice: the second time while it recovers"

_MOMENTS = {"before": "before", "begun": "while", "written": "while", "after": "after"}


class Place(msgspec.Struct, frozen=True):
    """One place, as `--only` names it."""

    name: str
    words: str
    at: str = ""
    """The program's line."""


def words_of(seen: Seen) -> str:
    """What a newcomer understands."""
    if seen.what == "return":
        return RAISED
    if seen.what == "line":
        kind = seen.inside.partition(" ")[0]
        inside = {"": OUTSIDE_OF_RUNS, "run": "in the plain code of a run"}
        return inside.get(kind, f"inside the body of {'an' if kind == 'effect' else 'a'} {kind}")
    if seen.name in SPECIAL:
        return SPECIAL[seen.name]
    site, _, moment = seen.name.partition(":")
    return f"{_MOMENTS[moment]} {NOUNS[site]}" if site in NOUNS else "while the store and the agent are set up"


def places_of(trail: Iterable[Seen]) -> list[Place]:
    """Every place on a trail, in order."""
    times: Counter[str] = Counter()
    found = []
    for seen in trail:
        if seen.what in ("point", "line", "return"):
            name = f"line:{seen.name}" if seen.what == "line" else seen.name
            times[name] += 1
            found.append(Place(f"{name}#{times[name]}", words_of(seen), seen.at))
    return found


def instants(count: int, seconds: float, seed: int) -> list[Place]:
    """Random moments within the time that the program takes."""
    dice = random.Random(seed)
    chosen = sorted(dice.uniform(0.02, max(0.05, seconds)) for _ in range(count))
    return [Place(f"after:{at:.3f}s", RANDOM) for at in chosen]


def chosen(places: Sequence[Place], limit: int) -> list[Place]:
    """As many as allowed: the edges of commits first, then lines, then the insides of commits, each spread evenly."""
    if not limit or len(places) <= limit:
        return list(places)
    classes: list[list[Place]] = [[], [], []]
    for place in places:
        classes[_class_of(place)].append(place)
    shares = [limit - limit * 4 // 10, limit * 3 // 10, limit // 10]
    taken: set[str] = set()
    for share, group in zip(shares, classes, strict=True):
        taken |= {place.name for place in _spread(group, share)}
    for group in classes:
        rest = [place for place in group if place.name not in taken]
        taken |= {place.name for place in _spread(rest, limit - len(taken))}
    return [place for place in places if place.name in taken]


def _class_of(place: Place) -> int:
    if place.name.startswith("line:"):
        return 2 if place.words == OUTSIDE_OF_RUNS else 1
    site, _, moment = place.name.partition("#")[0].partition(":")
    if site == "raise":
        return 0
    return 0 if site in NOUNS and moment in ("before", "after") else 2


def _spread(places: Sequence[Place], count: int) -> list[Place]:
    """Of every line and moment one before of any a second, and evenly over the whole."""
    if count <= 0:
        return []
    buckets: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        buckets.setdefault((place.words, place.at), []).append(place)
    firsts = [group[0] for group in buckets.values()]
    if len(firsts) >= count:
        return [firsts[number * len(firsts) // count] for number in range(count)]
    rest = [place for group in buckets.values() for place in group[1:]]
    more = min(count - len(firsts), len(rest))
    return firsts + [rest[(number + 1) * len(rest) // more - 1] for number in range(more)]
