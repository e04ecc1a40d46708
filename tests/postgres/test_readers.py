"""Whoever looks at a store in use sees no damage that is not there, and does none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure import Agent
from perdure.journal import rebuild
from perdure.journal.object_gc import collect
from perdure.journal.verify import verify
from perdure.store.base import Store
from tests.crash.harness import Stage
from tests.postgres.cluster import Cluster
from tests.postgres.workload_process import WorkloadProcess


def verify_store(store: Store) -> list[str]:
    return [str(one) for one in verify(store).findings if one.severity == "damage"]


def check_store(store: Store) -> list[str]:
    return [str(one) for one in rebuild.check(store)]


def rebuilt(store: Store) -> list[str]:
    """Views are made anew under the feet of those who write them."""
    rebuild.rebuild(store)
    return []


def collect_garbage(store: Store) -> list[str]:
    """What nobody refers to is thrown away; what somebody is about to refer to is not."""
    collect(store)
    return []


@pytest.mark.parametrize("look", [verify_store, check_store, rebuilt, collect_garbage], ids=lambda look: look.__name__)
def test_a_store_in_use(stage: Stage, cluster: Cluster, schema: str, look: Callable[[Store], list[str]]) -> None:
    url = cluster.url(schema)
    child = WorkloadProcess(stage, url, "sync", runs=2 if look is rebuilt else 6, steps=250)
    child.progress(0.02)
    agent = Agent("looker", store=url)
    looks = 0
    try:
        store = agent._engine.store
        while child.is_running and looks < 200:
            assert look(store) == []
            looks += 1
    finally:
        agent.close()
    assert looks > 2, "the child was over too soon"
    assert child.join_and_judge(url) == []
