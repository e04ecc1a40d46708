"""Real graphs behave with PerdureSaver as they do with InMemorySaver: states, tasks, interrupts, histories, streams."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from langgraph.checkpoint.memory import InMemorySaver

from tests.adapters.feature_graphs import SCENES
from tests.adapters.random_graphs import PLANS, Plan, act
from tests.adapters.saver_comparison import Scene, play_scene
from tests.adapters.savers import saver_at
from tests.conftest import WANTED, new_store

_threads = itertools.count(1)


@pytest.fixture(scope="module", params=WANTED)
def saver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One saver for all scenes, each of which has threads of its own."""
    with saver_at(new_store(request.param, Path(tmp_path_factory.mktemp("graphs")))) as made:
        yield made


@cache
def read_expected(scene: Scene, colour: str) -> list[Any]:
    return play_scene(scene, InMemorySaver(), colour, "expected")


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_scene_looks_the_same(saver: Any, scene: Scene, colour: str) -> None:
    seen = play_scene(scene, saver, colour, f"thread-{next(_threads)}-of-scenes")
    compare(seen, read_expected(scene, colour))


def compare(seen: list[Any], wanted: list[Any]) -> None:
    """Note by note: the first difference is the one to look at."""
    for number, (ours, theirs) in enumerate(zip(seen, wanted, strict=False)):
        assert ours == theirs, f"note {number}: {difference(ours, theirs)}"
    assert len(seen) == len(wanted)


def difference(ours: Any, theirs: Any, path: str = "") -> str:
    """Where two notes differ first."""
    if type(ours) is type(theirs) and isinstance(ours, dict) and ours.keys() == theirs.keys():
        pairs = [(f"{path}.{key}", ours[key], theirs[key]) for key in ours]
    elif type(ours) is type(theirs) and isinstance(ours, list | tuple) and len(ours) == len(theirs):
        pairs = [(f"{path}[{place}]", one, other) for place, (one, other) in enumerate(zip(ours, theirs, strict=True))]
    else:
        return f"at {path}\n  ours   {ours!r}\n  theirs {theirs!r}"
    return next(difference(one, other, where) for where, one, other in pairs if one != other)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(plan=PLANS)
def test_random_graphs_look_the_same(saver: Any, plan: Plan) -> None:
    _look_the_same(saver, plan)


@pytest.mark.soak
@settings(suppress_health_check=list(HealthCheck))
@given(plan=PLANS)
def test_many_random_graphs_look_the_same(saver: Any, plan: Plan) -> None:
    _look_the_same(saver, plan)


def _look_the_same(saver: Any, plan: Plan) -> None:
    scene = partial(act, plan)
    compare(
        play_scene(scene, saver, plan.colour, f"thread-{next(_threads)}-of-scenes"),
        play_scene(scene, InMemorySaver(), plan.colour, "expected"),
    )
