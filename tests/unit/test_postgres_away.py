"""A server that is unreachable: who waits for it is told so, can be interrupted, and does not wait twice."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from perdure import Agent
from perdure.errors import StoreUnavailable
from perdure.store import open_store
from tests.postgres.cluster import Cluster
from tests.unit import child
from tests.unit.units import Put

SECONDS_MAX = 200
FOR_EVER = "100000"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


SYNC = """
    import sys
    from perdure import Agent
    with Agent("a", store=sys.argv[1]).run("r") as run:
        run.step(lambda: 1, name="one")
        print("open", flush=True)
        sys.stdin.readline()
        run.step(lambda: 2, name="two")
"""
ASYNC = """
    import asyncio, sys
    from perdure import AsyncAgent
    async def main():
        async with AsyncAgent("a", store=sys.argv[1]).run("r") as run:
            await run.step(lambda: 1, name="one")
            print("open", flush=True)
            sys.stdin.readline()
            await run.step(lambda: 2, name="two")
    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("code", "number"), [(SYNC, signal.SIGINT), (SYNC, signal.SIGTERM), (ASYNC, signal.SIGTERM), (ASYNC, signal.SIGINT)]
)
def test_a_signal_ends_who_waits_for_a_server(cluster: Cluster, code: str, number: signal.Signals) -> None:
    """Patience would last for a day: that the process ends at all is the proof."""
    url = cluster.url("away", reconnect_seconds=FOR_EVER)
    process = subprocess.Popen(
        child.command(code, url), env=child.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "open\n"
        cluster.kill()
        process.stdin.write("\n")
        process.stdin.flush()
        assert "is unreachable: " in process.stderr.readline()
        process.send_signal(number)
        rest = process.communicate()[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert "is unreachable: " not in rest  # said once, however often it was tried
    cluster.start()
    agent = Agent("a", store=url)
    with agent.run("r") as run:
        assert run.resumed
        assert run.step(lambda: 3, name="one") == 1
    agent.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_who_waits_for_an_answer(cluster: Cluster, number: signal.Signals) -> None:
    """The server stands still, and everybody may wait for it for a day."""
    url = cluster.url("away", reconnect_seconds=FOR_EVER, statement_seconds=FOR_EVER)
    process = subprocess.Popen(
        child.command(SYNC, url), env=child.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        backends = cluster.backends()
        for pid in backends:
            os.kill(pid, signal.SIGSTOP)
        try:
            process.stdin.write("\n")
            process.stdin.flush()
            for _ in range(SECONDS_MAX):  # the first may come before the commit, and the end of the run is one too
                process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                    break
            assert process.returncode not in (0, None)
        finally:
            process.kill()
            for pid in backends:
                os.kill(pid, signal.SIGCONT)


def test_a_server_that_goes_and_comes_back_is_told_once_each(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(cluster.url("away"))
    said = threading.Event()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.set()

    ear, logger = Ear(), logging.getLogger("perdure")
    logger.addHandler(ear)
    threads = [threading.Thread(target=store.submit, args=(Put(f"k{n}"),)) for n in range(3)]
    try:
        cluster.kill()
        for thread in threads:
            thread.start()
        assert said.wait(SECONDS_MAX)
        cluster.start()
        for thread in threads:
            thread.join(SECONDS_MAX)
    finally:
        logger.removeHandler(ear)
    assert [store.read("get_meta", (f"k{n}",)) for n in range(3)] == [[(b"v",)]] * 3
    away, back = [record.getMessage() for record in caplog.records if record.name == "perdure"]
    assert "is unreachable: " in away
    assert "retrying for" in away
    assert "is reachable again" in back
    store.close()


def test_a_session_that_was_ended_is_no_server_that_is_away(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(cluster.url("away"))
    store.submit(Put("before"))
    for pid in cluster.backends():
        cluster.terminate_backend(pid)
    store.submit(Put("after"))
    assert caplog.records == []
    store.close()


def test_the_end_of_a_run_does_not_wait_in_full_again(cluster: Cluster) -> None:
    url = cluster.url("away", reconnect_seconds="1.5")
    agent = Agent("a", store=url)
    with pytest.raises(StoreUnavailable, match="unreachable for 1 s"), agent.run("r") as run:
        run.step(lambda: 1, name="one")
        cluster.kill()
        with pytest.raises(StoreUnavailable, match=r"unreachable for 1\.5 s"):
            run.step(lambda: 2, name="two")
    cluster.start()
    with agent.run("r") as run:
        assert run.resumed
        assert run.step(lambda: 3, name="one") == 1
    agent.close()
