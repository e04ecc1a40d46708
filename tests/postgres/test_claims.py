"""Many want the same run at the same moment: what one of them decides must still be true when it writes."""

from __future__ import annotations

import pytest

from tests.crash.harness import Stage, run_cases
from tests.crash.world import World
from tests.postgres import contender
from tests.postgres.cluster import Cluster

ITEMS = 3
ROUNDS, LONG_ROUNDS = 12, 400


def contend(stage: Stage, cluster: Cluster, schema: str) -> list[str]:
    """Four try again and again, without a pause, until one of them has finished it: all others see it end."""
    folder = stage.folder()
    url = cluster.url(schema)
    children = [
        stage.fork_server.start(
            "tests.postgres.contender:main", folder, url=url, who=f"c{number}", items=ITEMS, pause_seconds=0.0
        )
        for number in range(4)
    ]
    for child in children:
        assert child.wait() == 0, child.output()
    found = contender.judge(url, World(folder), ITEMS)
    return found if len(contender.writers(url)) == 1 else [*found, f"it had the writers {contender.writers(url)}"]


def test_a_run_that_ends_is_not_taken_over(stage: Stage, cluster: Cluster) -> None:
    assert run_cases(lambda number: contend(stage, cluster, f"claims_{number}"), range(ROUNDS)) == []


@pytest.mark.soak
def test_a_run_that_ends_is_never_taken_over(stage: Stage, cluster: Cluster) -> None:
    assert run_cases(lambda number: contend(stage, cluster, f"long_claims_{number}"), range(LONG_ROUNDS)) == []
