"""Remote stores through kills and broken lines, at every request of a program: nothing is lost, nothing happens twice.

`make test` disturbs some requests in one journey per way, and kills at a few moments. `make soak` disturbs each
request by itself, in each way, on both stores.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent
from tests.server.cutting_proxy import CuttingProxy
from tests.server.harness import Server
from tests.server.remote_program import ACTS, acts_in, travel

GATEWAY_TIMEOUT = b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n"
ANSWERS = {"cut after": None, "timeout after": GATEWAY_TIMEOUT, "silence after": b"", "half an answer": b"HTTP/1.1 200"}
"""What the client gets in place of an answer."""
LINES = ["cut before", *ANSWERS]
QUICK = ("cut before", "cut after", "timeout after")
"""Without waiting for an answer that does not come."""
SERVER_KILLS = ["server killed before", "server killed after"]
CLIENT_KILLS = ["client killed before", "client killed after"]
BODIES = [f"{when}:{act}" for when in ("in", "out") for act in ACTS]
SOME = {0, 2, 5, 7, 9, 12}
"""Not every second one: a unit of two requests would never come through."""
REQUESTS = 20
"""More than the program makes."""


class Journey:
    """The program on one server behind a proxy, disturbed at chosen requests."""

    def __init__(self, server: Server, key: str, folder: Path, run_id: str) -> None:
        self.server = server
        self.key = key
        self.run_id = run_id.replace(" ", "-").replace(":", "-")
        self.world = folder / f"{self.run_id}.txt"
        self.proxy = CuttingProxy(server.port)
        self.store = f"{self.proxy.origin}?statement_seconds=0.5"
        self.disturbed = 0
        self._child: subprocess.Popen[bytes] | None = None

    def disturb(self, way: str, at: set[int]) -> None:
        """Disturb the commits with these numbers, from 0. Renewals of leases do not count."""
        seen, chosen = itertools.count(), set[bytes]()

        def before(request: bytes) -> bool:
            if not self._is_write(request) or next(seen) not in at:
                return True
            self.disturbed += 1
            chosen.add(request)
            if way.endswith("after") or way == "half an answer":
                return True
            self._kill(way)
            return False

        def after(request: bytes, answer: bytes) -> bytes | None:
            if request not in chosen:
                return answer
            chosen.discard(request)
            self._kill(way)
            return ANSWERS.get(way)

        self.proxy.toll, self.proxy.fate = before, after

    def _is_write(self, request: bytes) -> bool:
        line = request.split(b"\r\n", 1)[0]
        return b"/v1/store/commit" in line and b"holder.heartbeat" not in request

    def _kill(self, way: str) -> None:
        if way.startswith("server"):
            self.server.kill()
            self.server.start(self.server.port)
        elif way.startswith("client"):
            assert self._child is not None
            self._child.kill()

    def travel(self) -> None:
        assert travel(self.store, self.key, self.world, self.run_id) == ACTS

    def start_client(self, kill: str = "") -> int:
        """Make the journey in a process of its own; returns its exit code."""
        command = [sys.executable, "-m", "tests.server.remote_program", self.store, self.key, str(self.world)]
        self._child = subprocess.Popen([*command, self.run_id, kill], cwd=Path(__file__).parents[2])
        return self._child.wait(120)

    def check(self, repeated_steps: int = 0) -> None:
        """The run is finished, with all that it did; steps of a killed client may have acted twice."""
        acts = acts_in(self.world)
        assert [acts.count(act) for act in ACTS if act.startswith("effect")] == [1, 1], acts
        assert list(dict.fromkeys(acts)) == ACTS, acts
        assert len(acts) <= len(ACTS) + repeated_steps, acts
        with Agent("travel", store=self.store, api_key=self.key) as agent:
            info = agent.runs.get(self.run_id)
            assert (info.status, info.result, info.state) == ("finished", ACTS, {"done": len(ACTS)})
            assert agent.state.get("journeys", self.run_id) == ACTS
            # A client that goes on writes it again: a write outside of a step is not recorded by the run.
            assert agent.state.version("journeys", self.run_id) <= 1 + repeated_steps

    def close(self) -> None:
        self.proxy.close()


@pytest.fixture
def near_journeys(shared_server: Server, tmp_path: Path) -> Iterator[Journeys]:
    """Journeys on a server that the tests here share."""
    made = Journeys(shared_server, tmp_path)
    yield made
    made.close()


@pytest.fixture
def journeys(server: Server, tmp_path: Path) -> Iterator[Journeys]:
    made = Journeys(server, tmp_path)
    yield made
    made.close()


class Journeys:
    """Makes journeys on one server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._key = server.make_key()
        self._made: list[Journey] = []

    def new(self, name: str) -> Journey:
        journey = Journey(self._server, self._key, self._folder, name)
        self._made.append(journey)
        return journey

    def close(self) -> None:
        for journey in self._made:
            journey.close()


def break_line(journey: Journey, way: str, at: set[int]) -> None:
    journey.disturb(way, at)
    journey.travel()
    journey.check()


def kill_client(journey: Journey, way: str, at: int) -> bool:
    """Kill the client around a request, and go on in another process. False if there is no such request."""
    journey.disturb(way, {at})
    code = journey.start_client()
    if not journey.disturbed:
        assert code == 0
        return False
    assert code == -signal.SIGKILL
    journey.disturb(way, set())
    assert journey.start_client() == 0
    journey.check(repeated_steps=1)
    return True


@pytest.mark.parametrize("way", LINES)
def test_a_journey_over_a_bad_line_loses_and_doubles_nothing(near_journeys: Journeys, way: str) -> None:
    journey = near_journeys.new(way)
    break_line(journey, way, SOME if way in QUICK else {2, 7})
    assert journey.disturbed >= (len(ACTS) if way in QUICK else 2)


@pytest.mark.stores("postgres")
def test_a_journey_loses_and_doubles_nothing_on_postgres(journeys: Journeys) -> None:
    break_line(journeys.new("timeouts"), "timeout after", SOME)
    break_line(journeys.new("kills"), "server killed after", {1, 4})


@pytest.mark.parametrize("way", SERVER_KILLS)
def test_a_server_killed_around_a_request_loses_and_doubles_nothing(near_journeys: Journeys, way: str) -> None:
    journey = near_journeys.new(way)
    break_line(journey, way, {3, 5})
    assert journey.disturbed == 2


@pytest.mark.parametrize(("way", "at"), [("client killed before", 3), ("client killed after", 3)])
def test_a_client_killed_around_a_request_is_replaced(near_journeys: Journeys, way: str, at: int) -> None:
    assert kill_client(near_journeys.new(way), way, at)


@pytest.mark.parametrize("kill", ["in:effect 1", "out:effect 1"])
def test_a_client_killed_in_a_body_is_replaced(near_journeys: Journeys, kill: str) -> None:
    kill_in_body(near_journeys.new(kill), kill)


def kill_in_body(journey: Journey, kill: str) -> None:
    assert journey.start_client(kill) == -signal.SIGKILL
    assert journey.start_client() == 0
    journey.check(repeated_steps=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", [*LINES, *SERVER_KILLS])
def test_each_request_disturbed_by_itself(journeys: Journeys, way: str) -> None:
    reached = 0
    for at in range(REQUESTS):
        journey = journeys.new(f"{way}-{at}")
        break_line(journey, way, {at})
        reached += journey.disturbed
    assert len(ACTS) < reached < REQUESTS, "every request was disturbed, and there are no more"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", CLIENT_KILLS)
def test_a_client_killed_at_each_request(journeys: Journeys, way: str) -> None:
    reached = [kill_client(journeys.new(f"{way}-{at}"), way, at) for at in range(REQUESTS)]
    assert len(ACTS) < sum(reached) < REQUESTS, "every request was tried, and there are no more"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kill", BODIES)
def test_a_client_killed_in_each_body(journeys: Journeys, kill: str) -> None:
    kill_in_body(journeys.new(kill), kill)
