"""Which faults a history has, and how often. A kind of trouble is often absent: mixed with all others it hides them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec


class Weather(msgspec.Struct, frozen=True):
    """Probabilities; the times that go with them are in `history.py`."""

    loss: float = 0.0
    """Of a message, that it, its answer or both do not arrive, or late."""
    flapping: float = 0.0
    """That the first host has no network after a message, for about a lease."""
    slow_hearts: float = 0.0
    """That the answer to a heartbeat takes seconds: it is nobody's hurry."""
    slowness: float = 0.0
    """That a message takes seconds."""
    stalling: float = 0.0
    """That the server takes seconds over a statement or a commit."""
    stumbling: float = 0.0
    """That a process is stopped after a commit."""
    peril: float = 0.0
    """That something happens between an intent and its body."""
    dying: float = 0.0
    """That a process is killed when it has just sent something."""
    failing: float = 0.0
    """That a body raises."""
    faults_max: int = 0
    """Of those that come by the clock."""


def _make_mixed(random: Random) -> Weather:
    choice = random.choice
    return Weather(
        loss=choice((0.0, 0.0, 0.02)),
        flapping=choice((0.0, 0.0, 0.03)),
        slowness=choice((0.0, 0.01, 0.05)),
        stalling=choice((0.0, 0.0, 0.05)),
        stumbling=choice((0.0, 0.02)),
        peril=choice((0.0, 0.4)),
        dying=choice((0.0, 0.0, 0.01)),
        failing=choice((0.0, 0.1)),
        faults_max=6,
    )


def _make_late_answers(random: Random) -> Weather:
    return Weather(flapping=0.2, peril=0.2, slowness=0.02)


def _slow_hearts(random: Random) -> Weather:
    return Weather(slow_hearts=0.6, peril=0.6)


def _deaths(random: Random) -> Weather:
    return Weather(stalling=0.2, dying=0.04, loss=0.01)


def _stops(random: Random) -> Weather:
    return Weather(peril=0.7, stumbling=0.02, failing=0.1, faults_max=3)


WEATHERS: tuple[Callable[[Random], Weather], ...] = (
    _make_mixed,
    _make_mixed,
    _make_late_answers,
    _slow_hearts,
    _deaths,
    _stops,
)
