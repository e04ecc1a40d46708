"""The real thing against the pure model of the semantics: the same stories, the same trace, the same end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.conformance.runner import Colour
from tests.conformance.stage import Stage, Told, expected, stage
from tests.model.ops import POINTS, Move
from tests.model.strategies import stories

REACHED = tuple(point for point in POINTS if point != "waiting")
"""A process that waits cannot be killed there by name: with wait=0 it is over before it has begun."""


@pytest.fixture(scope="module", params=["sync", "async"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    colour: Colour = request.param
    with stage(tmp_path_factory.mktemp(colour), colour) as made:
        yield made


def compare(scene: Stage, moves: tuple[Move, ...]) -> None:
    told = expected(moves)
    for number, (said, seen) in enumerate(zip(told, scene.play(moves[: len(told)]), strict=True)):
        why = seen.pop("why", "")
        if said != seen:
            raise AssertionError(difference(number, moves, said, seen) + why)


def difference(number: int, moves: tuple[Move, ...], said: Told, seen: Told) -> str:
    lines = [f"after move {number} of:", *(f"    {move!r}" for move in moves[: number + 1])]
    for what in sorted(said.keys() | seen.keys()):
        one, other = said.get(what), seen.get(what)
        if one != other:
            lines += [f"{what}:", f"    model {one}", f"    real  {other}"]
    return "\n".join(lines) + "\n"


@given(moves=stories(while_waiting=False, points=REACHED))
@settings(suppress_health_check=list(HealthCheck))
def test_stories(scene: Stage, moves: tuple[Move, ...]) -> None:
    compare(scene, moves)


@given(moves=stories(while_waiting=False, points=REACHED, edited=True))
@settings(suppress_health_check=list(HealthCheck))
def test_stories_edited(scene: Stage, moves: tuple[Move, ...]) -> None:
    compare(scene, moves)
