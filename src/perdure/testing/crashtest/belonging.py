"""Which call a line of the outside world belongs to: only who was asked about that call can be wrong about it."""

from __future__ import annotations

from collections import Counter

from .learning import Learned, plain_lines
from .orders import Manner, manner_of, where_of
from .snapshot import EffectSeen
from .stage import Round

KEY = "KEY"


def done_again(learned: Learned, done: Round, line: str, name: str) -> EffectSeen | None:
    """The call that has left a line twice, because its body was started again; `name`, if it is known who writes it."""
    again = [one for one in done.snapshot.effects if one.again and name in ("", one.name)]
    if all(_before_a_body(place) for place in done.places):
        return None  # then nothing had happened
    left = [text for text, plain in zip(done.outside, plain_lines(done), strict=True) if learned.reading(plain) == line]
    if any(one.key in text for one in done.snapshot.effects for text in left):
        return next((one for one in again if sum(one.key in text for text in left) > 1), None)
    if name:
        return next(iter(again), None)
    # Who leaves its key in lines of its own has not written this one.
    return next((one for one in again if not any(one.key in text for text in done.outside)), None)


def _before_a_body(place: str) -> bool:
    return manner_of(place) == Manner.KILL and where_of(place).startswith("effect.intent:")


def never_done(learned: Learned, done: Round, missing: list[str]) -> EffectSeen | None:
    """The call that its check has called done, and whose line is missing."""
    begun = Counter(one.name for one in done.snapshot.effects)
    for one in done.snapshot.effects:
        if not one.adopted or begun[one.name] < learned.effects[one.name]:
            continue  # a line that is missing is of a call that was never begun, about which no check was asked
        for line in missing:
            by = learned.written_by.get(line)
            mine = by is None or by.inside == f"effect {one.name}"
            if mine and not (KEY in line and any(one.key in text for text in done.outside)):
                return one
    return None
