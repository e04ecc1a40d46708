"""More tenants than a server keeps open, and more than PostgreSQL has connections for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure import Agent
from perdure.store import open_store
from perdure.store.base import Store
from perdure.store.postgres.url import is_postgres
from tests.conformance.kit import wait_until
from tests.server.harness import Client, Server

TENANTS = 8
OPEN = 2
CONNECTIONS = 5


@pytest.fixture
def store_with_few_connections(store_url: str) -> str:
    return f"{store_url}&process_connections={CONNECTIONS}" if is_postgres(store_url) else store_url


@pytest.fixture
def crowded(store_with_few_connections: str, tmp_path: Path) -> Iterator[Server]:
    """A server without keys, whose clients name their tenant; it keeps two stores open."""
    options = ("--no-auth", "--open-tenants", str(OPEN))
    running = Server(store_with_few_connections, tmp_path, *options).start()
    yield running
    running.kill()


def count_open(client: Client) -> int:
    lines = client.get("/metrics").body.decode().splitlines()
    return int(float(next(line for line in lines if line.startswith("perdure_open_tenants")).split()[1]))


def count_commits(client: Client) -> int:
    lines = client.get("/metrics").body.decode().splitlines()
    return int(float(next(line for line in lines if line.startswith("perdure_commits_total")).split()[1]))


def test_many_tenants_share_few_open_stores(crowded: Server) -> None:
    client, commits = crowded.client(), 0

    def work(number: int) -> None:
        with Agent("travel", store=f"{crowded.origin}?tenant=t{number}") as agent:
            step = agent.step(name="step")(lambda n: n)
            with agent.run("r") as run:
                run.result = [step(n) for n in range(3)]

    with ThreadPoolExecutor(TENANTS) as threads:
        list(threads.map(work, range(TENANTS)))
        commits = count_commits(client)
        list(threads.map(work, range(TENANTS)))  # again: the stores of most were closed
    assert count_commits(client) >= commits
    with Agent("travel", store=f"{crowded.origin}?tenant=last") as agent:
        agent.state.set("a", "b", 1)
        assert count_open(client) <= OPEN + 1  # a store that is in use is not closed
    for number in range(TENANTS):
        with Agent("travel", store=f"{crowded.origin}?tenant=t{number}") as agent:
            assert agent.runs.get("r").result == [0, 1, 2]


def test_a_store_with_a_stream_stays_open(crowded: Server) -> None:
    """A follower that waits is in the way of nothing, and gets its event after many other tenants."""
    told = threading.Event()

    def follow() -> None:
        with Agent("travel", store=f"{crowded.origin}?tenant=followed") as agent, agent.run("ask", wait=60) as run:
            if run.ask("which?") == "this":
                told.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    with Agent("travel", store=f"{crowded.origin}?tenant=followed") as agent:
        wait_until(lambda: [one.status for one in agent.runs.list()] == ["waiting"])
        for number in range(TENANTS):
            with Agent("travel", store=f"{crowded.origin}?tenant=t{number}") as other:
                other.state.set("a", "b", number)
        agent.runs.answer("ask", "this")
    assert told.wait(60)
    thread.join()


@pytest.mark.stores("postgres")
def test_pools_of_one_process_share_its_connections(store_url: str) -> None:
    url = store_url.partition("schema=")[0]
    stores = [open_store(f"{url}schema=shared_{n}&process_connections={CONNECTIONS}") for n in range(TENANTS)]

    def read(store: Store) -> int:
        return sum(len(store.read("all_agents")) for _ in range(20))

    try:
        with ThreadPoolExecutor(TENANTS * 2) as threads:
            assert sum(threads.map(read, stores * 2)) == 0
        assert sum(len(store._pool._connections) for store in stores) <= CONNECTIONS  # type: ignore[attr-defined]
    finally:
        for store in stores:
            store.close()
