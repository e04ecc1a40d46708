"""Describes where a program can be disturbed, and selects places when there are too many."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from perdure.platform.failpoints import Site
from perdure.testing.crashtest.messages import Disturbance, ProgramEvent, manner_of

NOUNS = {
    "run.claim": "the run is opened",
    "run.end": "the end of the run is recorded",
    "step.done": "a step is recorded",
    "step.failed": "the failure of a step is recorded",
    "attempt.failed": "a failed attempt is recorded",
    "effect.intent": "the intent of an effect is recorded",
    "effect.again": "an effect is started again",
    "effect.outcome": "the outcome of an effect is recorded",
    "effect.failed": "the failure of an effect is recorded",
    "effect.doubt": "the doubt about an effect is recorded",
    "item.done": "an item of a loop is recorded",
    "run.write": "a write of the run is recorded",
    "run.credit": "savings are recorded",
    "run.question": "a question is recorded",
    "wait.begin": "a wait begins",
    "wait.end": "a wait ends",
    "run.signal": "an event is sent to a run",
    "run.order": "a run is told to pause or to end",
    "run.cleanup": "a cleanup is recorded",
    "run.fork": "a run is forked",
    "task.queue": "a task is queued",
    "state.write": "agent.state is written",
    "checkpoint.write": "a checkpoint is written",
    "artifact.write": "an artifact is written",
    "event.append": "an event is appended",
    "workflow.write": "a workflow is written",
}
SPECIAL = {
    "step.done:before": "after the body of a step, before it is recorded",
    "effect.intent:after": "after the intent of an effect, before its body",
    "effect.outcome:before": "after an effect, before its outcome is recorded",
}
DECISIVE = frozenset({"effect.intent:after", "effect.outcome:before"})
OUTSIDE_OF_RUNS = "in code outside of any run"
GIVING_BACK = "when the process ends and releases its leases"
SETTING_UP = "while the store and the agent are set up"

AGAIN = "killed again while it recovers"
GROUPS = {
    Disturbance.KILL: "killed (SIGKILL)",
    Disturbance.INSTANT: "killed at a random instant",
    Disturbance.BEAT: "killed during a heartbeat",
    Disturbance.STOP: "paused, its run taken over, then woken up",
    Disturbance.TERM: "told to end (SIGTERM)",
    Disturbance.INTERRUPT: "interrupted (Ctrl-C)",
    Disturbance.FULL: "not killed: the disk was full for a moment",
    Disturbance.RAISE: "not killed: an effect raised after it happened",
}
"""The kinds of disturbance as the report names them, in its order."""

OF_A_RUN = frozenset(
    "step.done step.failed attempt.failed effect.intent effect.outcome effect.failed item.done run.write run.end "
    "wait.begin wait.end".split()
)
"""Commits that only the holder of a run's lease may make."""

TELLING = (
    "effect.intent:after", "effect.outcome:before", "effect", "step.done:before", "effect.intent:before", "run",
    "item.done:before", "run.end:before", "step",
)  # fmt: skip
"""Places that find the most bugs, tried first. `run` and so on stand for lines inside."""

_MOMENTS = {"before": "before", "begun": "while", "written": "while", "after": "after"}


class CrashPoint(msgspec.Struct, frozen=True):
    """One place, as `--only` names it."""

    name: str
    words: str
    at: str = ""
    """The program's line."""
    inside: str = ""
    """As in `ProgramEvent`."""
    nearest: str = ""
    """For a random instant: the place that the program had reached."""

    @property
    def manner(self) -> Disturbance:
        """The disturbance at this place."""
        return manner_of(self.name)

    def description(self) -> str:
        """Return what is done, and where."""
        group = GROUPS[self.manner]
        return (
            f"killed {self.words}" if self.manner == Disturbance.KILL else f"{group}: {self.words}".removesuffix(": ")
        )


def words_of(seen: ProgramEvent) -> str:
    """Describe a place for newcomers."""
    if seen.what == "return":
        return f"{seen.name.partition(':')[2]}"
    if seen.what == "line":
        kind = seen.inside.partition(" ")[0]
        inside = {"": OUTSIDE_OF_RUNS, "run": "in the plain code of a run"}
        return inside.get(kind, f"inside the body of {'an' if kind == 'effect' else 'a'} {kind}")
    if seen.name in SPECIAL:
        return SPECIAL[seen.name]
    site, _, moment = seen.name.partition(":")
    if site == Site.HEARTBEAT:
        return GIVING_BACK
    return f"{_MOMENTS[moment]} {NOUNS[site]}" if site in NOUNS else SETTING_UP


def places_of(trail: Iterable[ProgramEvent]) -> list[CrashPoint]:
    """Return every place on a trail, in order."""
    times: Counter[str] = Counter()
    found = []
    for seen in trail:
        if seen.what in ("point", "line", "return"):
            name = f"line:{seen.name}" if seen.what == "line" else seen.name
            times[name] += 1
            found.append(CrashPoint(f"{name}#{times[name]}", words_of(seen), seen.at, seen.inside))
    return found


def beats_of(trail: Iterable[ProgramEvent], count: int) -> list[CrashPoint]:
    """Return some moments of heartbeats, early enough that a faster start reaches them too."""
    beats = [place for place in places_of(trail) if place.name.startswith(Site.HEARTBEAT)]
    early = [_make_point(place, Disturbance.BEAT, "") for place in beats[: len(beats) * 2 // 3]]
    return evenly(early, count)


def instants(count: int, seconds: float, seed: int) -> list[CrashPoint]:
    """Return random moments within the duration of the program."""
    dice = random.Random(seed)
    chosen = sorted(dice.uniform(0.02, max(0.05, seconds)) for _ in range(count))
    return [CrashPoint(f"after:{at:.3f}s", "") for at in chosen]


def select_disturbance_points(places: Sequence[CrashPoint], manner: Disturbance, count: int) -> list[CrashPoint]:
    """Return some places for a disturbance other than a kill."""
    fit = [place for place in places if place.manner == Disturbance.KILL and _is_applicable(place, manner)]
    return [_make_point(place, manner, place.words) for place in _select_telling(fit, count)]


def _is_applicable(place: CrashPoint, manner: Disturbance) -> bool:
    site, _, moment = place.name.partition("#")[0].partition(":")
    if manner == Disturbance.FULL:
        return site in NOUNS and moment == "written"
    if site == "line":
        # Nobody can prevent what a paused process does in the body of an effect: it had already started.
        return place.inside != "" and (manner != Disturbance.STOP or not place.inside.startswith("effect"))
    return site in OF_A_RUN and moment in ("before", "after") and f"{site}:{moment}" != "run.end:after"


def _select_telling(places: Sequence[CrashPoint], count: int) -> list[CrashPoint]:
    """Select first the places that find most, one of each kind, then evenly."""
    groups: dict[str, list[CrashPoint]] = {}
    for place in places:
        groups.setdefault(_sort_of(place), []).append(place)
    order = sorted(groups, key=lambda sort: TELLING.index(sort) if sort in TELLING else len(TELLING))
    firsts = [groups[sort][(len(groups[sort]) - 1) // 2] for sort in order][:count]
    rest = [place for place in places if place not in firsts]
    return firsts + evenly(rest, count - len(firsts))


def _sort_of(place: CrashPoint) -> str:
    if place.name.startswith("line:"):
        return place.inside.partition(" ")[0]
    return place.name.partition("#")[0].replace(":written", ":before")


def _make_point(place: CrashPoint, manner: Disturbance, words: str) -> CrashPoint:
    return msgspec.structs.replace(place, name=f"{manner}:{place.name}", words=words)


def select_points(places: Sequence[CrashPoint], limit: int) -> list[CrashPoint]:
    """Select up to `limit` places: around effects, edges of commits, lines, insides of commits, each spread evenly."""
    if not limit or len(places) <= limit:
        return list(places)
    classes: list[list[CrashPoint]] = [[], [], [], []]
    for place in places:
        classes[_class_of(place)].append(place)
    shares = [limit * 3 // 10, limit * 3 // 10, limit * 3 // 10, limit // 10]
    taken: set[str] = set()
    for share, group in zip(shares, classes, strict=True):
        taken |= {place.name for place in _spread_evenly(group, share)}
    for group in classes:
        rest = [place for place in group if place.name not in taken]
        taken |= {place.name for place in _spread_evenly(rest, limit - len(taken))}
    return [place for place in places if place.name in taken]


def _class_of(place: CrashPoint) -> int:
    if place.name.startswith("line:"):
        return 3 if place.words == OUTSIDE_OF_RUNS else 2
    name = place.name.partition("#")[0]
    if name in DECISIVE:
        return 0  # only these places show a wrong check, perhaps for one call of many
    site, _, moment = name.partition(":")
    return 1 if site in NOUNS and moment in ("before", "after") else 3


def _spread_evenly(places: Sequence[CrashPoint], count: int) -> list[CrashPoint]:
    """Select one of every line and moment before a second of any, spread evenly."""
    if count <= 0:
        return []
    buckets: dict[tuple[str, str], list[CrashPoint]] = {}
    for place in places:
        buckets.setdefault((place.words, place.at), []).append(place)
    firsts = [group[0] for group in buckets.values()]
    if len(firsts) >= count:
        return evenly(firsts, count)
    rest = [place for group in buckets.values() for place in group[1:]]
    more = min(count - len(firsts), len(rest))
    return firsts + [rest[(number + 1) * len(rest) // more - 1] for number in range(more)]


def evenly(places: Sequence[CrashPoint], count: int) -> list[CrashPoint]:
    """Select this many, evenly from the first on."""
    count = max(0, min(count, len(places)))
    return [places[number * len(places) // count] for number in range(count)]
