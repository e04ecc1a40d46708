"""The proxy does what it says, shown on plain psycopg: tests that lean on it would otherwise prove nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.proxy import Fault, Proxy

INSERT = "INSERT INTO seen VALUES (%s)"


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    cluster.execute("DROP TABLE IF EXISTS seen")
    cluster.execute("CREATE TABLE seen (number int PRIMARY KEY)")
    with Proxy(cluster) as proxy:
        yield proxy


def list_sessions(cluster: Cluster) -> list[int]:
    return [number for (number,) in cluster.execute("SELECT number FROM seen ORDER BY number")]


def test_round_trips_are_counted(cluster: Cluster, proxy: Proxy) -> None:
    with psycopg.connect(proxy.url(), autocommit=True) as connection:
        before = len(proxy.trips)
        connection.execute(INSERT, (1,))
        assert len(proxy.trips) == before + 1
        with connection.transaction():
            connection.execute(INSERT, (2,))
        assert len(proxy.trips) == before + 4, "BEGIN, INSERT, COMMIT"
        with connection.pipeline():
            for number in (3, 4, 5):
                connection.execute(INSERT, (number,))
        assert len(proxy.trips) == before + 5, "a pipeline is one"
    assert list_sessions(cluster) == [1, 2, 3, 4, 5]


def test_a_flush_of_nothing_is_not_a_round_trip(proxy: Proxy) -> None:
    with psycopg.connect(proxy.url(), autocommit=True) as connection:
        before = len(proxy.trips)
        connection.pgconn.enter_pipeline_mode()
        connection.pgconn.send_flush_request()
        connection.pgconn.flush()
        connection.pgconn.exit_pipeline_mode()
        connection.execute(INSERT, (1,))
        assert len(proxy.trips) == before + 1


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LATE])
def test_a_commit_is_cut_on_the_side_that_was_asked_for(cluster: Cluster, proxy: Proxy, fault: Fault) -> None:
    connection = psycopg.connect(proxy.url())
    connection.execute(INSERT, (1,))
    proxy.strike(1, fault)
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    connection.close()
    assert proxy.struck.is_set()
    if fault is Fault.LATE:
        assert list_sessions(cluster) == []
    while fault is not Fault.CUT_BEFORE and not list_sessions(cluster):
        time.sleep(0.01)
    assert list_sessions(cluster) == ([] if fault is Fault.CUT_BEFORE else [1])
    with psycopg.connect(proxy.url(), autocommit=True) as again:
        again.execute(INSERT, (2,))


def test_a_black_hole_swallows_answers_and_keeps_the_connection(cluster: Cluster, proxy: Proxy) -> None:
    connection = psycopg.connect(proxy.url(), autocommit=True)
    proxy.black_hole()

    def insert() -> None:
        with suppress(psycopg.OperationalError):
            connection.execute(INSERT, (1,))

    caller = threading.Thread(target=insert)
    caller.start()
    while not list_sessions(cluster):
        time.sleep(0.01)
    assert caller.is_alive(), "executed, and the client still waits"
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url(connect_timeout="2"))
    proxy.heal()
    proxy.cut()
    caller.join()
    assert not caller.is_alive()
    connection.close()


def test_a_dead_machine_refuses_and_comes_back(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(proxy.url())
    proxy.heal()
    psycopg.connect(proxy.url()).close()
