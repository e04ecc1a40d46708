"""Behind pgbouncer in transaction mode, where no two transactions need share a connection."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent, InDoubt
from tests.conformance.model_comparison import expected
from tests.conformance.model_comparison import stage as theatre
from tests.conformance.model_regressions import STORIES, crash_everywhere
from tests.conformance.model_runner import Colour
from tests.crash.harness import Stage, spread
from tests.crash.waiting import wait_for
from tests.model.ops import COMMITS, IN_A_BODY
from tests.postgres.cluster import Cluster
from tests.postgres.pooler import Pooler
from tests.postgres.workload_process import WorkloadProcess

COLOURS: list[Colour] = ["sync", "async"]
PLAYED = 8
"""Of the stories; tests/conformance plays all of them without a pooler."""


@pytest.fixture(scope="module")
def pooler(cluster: Cluster) -> Iterator[Pooler]:
    with Pooler(cluster) as pooler:
        yield pooler


@pytest.mark.parametrize("colour", COLOURS)
def test_many_runs_share_a_few_connections(
    stage: Stage, cluster: Cluster, pooler: Pooler, schema: str, colour: str
) -> None:
    """More clients than connections: whatever a session remembers belongs to somebody else a moment later."""
    child = WorkloadProcess(stage, pooler.url(schema), colour)
    assert child.join_and_judge(cluster.url(schema)) == []


@pytest.mark.parametrize("colour", COLOURS)
def test_the_stories_of_the_conformance_suite(pooler: Pooler, schema: str, tmp_path: Path, colour: Colour) -> None:
    """Each attempt is a process of its own, killed where the story says so, compared with the model after each move."""
    stories = [*STORIES.values(), *crash_everywhere((*IN_A_BODY, *COMMITS)).values()]
    with theatre(tmp_path, pooler.url(schema), colour) as scene:
        for moves in spread(stories, PLAYED):
            told = expected(moves)
            seen = scene.play(moves[: len(told)])
            for said, found in zip(told, seen, strict=True):
                found.pop("why", "")
                assert said == found, moves


@pytest.mark.parametrize("hears", ["listening", "only looking"])
def test_an_answer_wakes_the_run_that_waits_for_it(cluster: Cluster, pooler: Pooler, schema: str, hears: str) -> None:
    """Behind a pooler nobody can listen; by `listen_url` the way round it is open."""
    url = pooler.url(schema, listen_url=cluster.url()) if hears == "listening" else pooler.url(schema)
    waiter, person = Agent("traveller", store=url), Agent("traveller", store=cluster.url(schema))
    results: list[str] = []

    def lose_the_line() -> None:
        raise ConnectionError("nobody knows")

    def travel() -> None:
        with waiter.run("trip") as run:
            results.append(run.effect(lose_the_line, name="book"))

    with pytest.raises(InDoubt):
        travel()
    traveller = threading.Thread(target=travel)
    traveller.start()
    wait_for(lambda: [run.id for run in person.runs.list(status="waiting")] == ["trip"], "the question")
    person.runs.answer("trip", done="booked", by="a person")
    traveller.join()
    waiter.close()
    person.close()
    assert results == ["booked"]


def test_the_server_behind_it_is_killed(stage: Stage, schema: str) -> None:
    chance = random.Random(7)
    with Cluster() as cluster, Pooler(cluster) as pooler:
        child = WorkloadProcess(stage, pooler.url(schema), "sync")

        def kill() -> None:
            cluster.kill()
            cluster.start()

        child.strike(4, kill, chance)
        assert child.join_and_judge(cluster.url(schema)) == []
