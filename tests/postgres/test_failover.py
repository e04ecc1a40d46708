"""The server dies for good, and its synchronous standby is promoted: nothing is lost, nothing is doubled."""

from __future__ import annotations

import random
import threading

import pytest

from perdure import Agent
from perdure.errors import StoreProblem
from tests.crash.harness import Stage
from tests.postgres.cluster import Cluster
from tests.postgres.proxy import Proxy
from tests.postgres.workload_process import WorkloadProcess


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_failover_to_the_other_host_of_the_url(stage: Stage, schema: str, colour: str) -> None:
    """libpq's own way: two hosts in the URL, of which the one that takes writes is meant."""
    with Cluster() as first, first.standby() as second:
        hosts, ports = f"{first.folder},{second.folder}", f"{first.port},{second.port}"
        url = first.url(schema, host=hosts, port=ports, target_session_attrs="read-write")
        child = WorkloadProcess(stage, url, colour)
        child.progress(random.Random(5).uniform(0.3, 0.6))
        first.kill()
        second.promote()
        assert child.is_running
        assert child.join_and_judge(second.url(schema)) == []


def test_failover_behind_an_address_that_moves(stage: Stage, schema: str) -> None:
    """A balancer's way. For a while it leads to a server that is still a replica and takes no writes."""
    with Cluster() as first, first.standby() as second, Proxy(first) as address:
        child = WorkloadProcess(stage, address.url(schema), "sync")
        child.progress(0.4)
        first.kill()
        address.lead_to(second)
        address.cut()
        while address.connections == 0 or not second.backends():
            assert child.is_running
        second.promote()
        assert child.is_running
        assert child.join_and_judge(second.url(schema)) == []


@pytest.mark.parametrize("how", ["gives up", "is thrown out"])
def test_what_the_standby_has_not_is_not_acknowledged(schema: str, how: str) -> None:
    """The commit waits for the standby until its client is gone. Then it can be seen, and is on one server only."""
    with Cluster() as first, first.standby() as second:
        agent = Agent("traveller", store=first.url(schema, statement_seconds="0.5", reconnect_seconds="1.5"))
        acknowledged: list[str] = []
        done = threading.Event()

        def travel() -> None:
            with pytest.raises(StoreProblem), agent.run("trip") as run:
                for number in range(6):
                    run.state[str(number)] = number
                    acknowledged.append(str(number))
                    if number == 2:
                        first.stall_replication()
            done.set()

        traveller = threading.Thread(target=travel)
        traveller.start()
        while not done.wait(0.01):
            if how == "is thrown out":
                for pid in first.find_waiting_for_standby():
                    first.terminate_backend(pid)
        traveller.join()
        first.kill()
        second.promote()
        successor = Agent("traveller", store=second.url(schema))
        kept = successor.runs.get("trip").state
        successor.close()
        assert acknowledged == ["0", "1", "2"]
        assert set(acknowledged) <= set(kept)
        agent.close()
