"""Attributes a line of the outside world to a call, so that only the check of that call is blamed."""

from __future__ import annotations

from collections import Counter

from perdure.testing.crashtest.baseline import ExpectedOutcome, strip_keys
from perdure.testing.crashtest.messages import Disturbance, manner_of, strip_action
from perdure.testing.crashtest.rounds import CrashRound
from perdure.testing.crashtest.snapshot import JournaledEffect

KEY = "KEY"


def find_repeated_effect(learned: ExpectedOutcome, done: CrashRound, line: str, name: str) -> JournaledEffect | None:
    """Return the call that left a line twice because its body ran again. `name` is its writer, if known."""
    again = [one for one in done.snapshot.effects if one.again and name in ("", one.name)]
    if all(_is_before_body(place) for place in done.places):
        return None  # then nothing had happened
    left = [text for text, plain in zip(done.outside, strip_keys(done), strict=True) if learned.reading(plain) == line]
    if any(one.key in text for one in done.snapshot.effects for text in left):
        return next((one for one in again if sum(one.key in text for text in left) > 1), None)
    if name:
        return next(iter(again), None)
    # A call that leaves its key in its lines has not written this one.
    return next((one for one in again if not any(one.key in text for text in done.outside)), None)


def _is_before_body(place: str) -> bool:
    return manner_of(place) == Disturbance.KILL and strip_action(place).startswith("effect.intent:")


def find_missing_effect(learned: ExpectedOutcome, done: CrashRound, missing: list[str]) -> JournaledEffect | None:
    """Return the call that its check called done although its line is missing."""
    begun = Counter(one.name for one in done.snapshot.effects)
    for one in done.snapshot.effects:
        if not one.adopted or begun[one.name] < learned.effects[one.name]:
            continue  # the missing line belongs to a call that never started, so no check was asked about it
        for line in missing:
            by = learned.written_by.get(line)
            mine = by is None or by.inside == f"effect {one.name}"
            if mine and not (KEY in line and any(one.key in text for text in done.outside)):
                return one
    return None
