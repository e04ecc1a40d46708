"""Servers that are not as one would wish: older, or with fewer connections than asked for."""

from __future__ import annotations

import random

import pytest

from tests.crash.harness import Stage
from tests.postgres.cluster import Cluster
from tests.postgres.workload_process import WorkloadProcess

FEW = {"max_connections": "4", "superuser_reserved_connections": "0", "max_wal_senders": "0", "wal_level": "minimal"}


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_server_with_few_connections(stage: Stage, schema: str, colour: str) -> None:
    """It refuses most of what the pool would like to have. Those that it gives are enough."""
    with Cluster(FEW) as cluster:
        child = WorkloadProcess(stage, cluster.url(schema), colour)
        assert child.join_and_judge(cluster.url(schema)) == []
        assert "too many clients already" in cluster.log()


def test_an_older_server(stage: Stage, schema: str) -> None:
    """PostgreSQL 16 has no transaction_timeout."""
    with Cluster(version=16) as cluster:
        child = WorkloadProcess(stage, cluster.url(schema), "sync")
        child.strike(2, cluster.restart, random.Random(9))
        assert child.join_and_judge(cluster.url(schema)) == []
