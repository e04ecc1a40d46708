"""An agent in JavaScript, with nothing but fetch: killed at each moment, it goes on, and no effect happens twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure import Agent
from tests.budget import IN_SOAK
from tests.conformance.kit import wait_until
from tests.docs.pages import blocks_of
from tests.server.harness import Server

NODE = shutil.which("node") or ""

ROOT = Path(__file__).parents[2]
TRAVELLER = Path(__file__).parent / "javascript" / "traveller.mjs"
RESULT = {
    "found": "search done",
    "booked": "book done",
    "paid": "pay done",
    "state": {"city": "NYC"},
    "messages": 1,
}
VERBS = ["open", "step", "intend", "outcome", "intend", "outcome", "step", "close"]
LEFT_BEHIND = [
    "before:1",
    *(f"after:{number}" for number in range(1, len(VERBS) + 1)),
    *(f"{when}:{name}" for name in ("book", "pay") for when in ("in", "out")),
]
"""Each of these leaves something else behind."""

MOMENTS = [
    *LEFT_BEHIND,
    *(f"before:{number}" for number in range(2, len(VERBS) + 1)),
    *(f"{when}:{name}" for name in ("search", "thank") for when in ("in", "out")),
]
"""Those and their neighbours, which `make soak` tries too."""

PLACES = ["effect.intent:after", "step.done:before", "effect.outcome:after", "run.claim:after"]
MORE_PLACES = ["step.done:after", "run.end:after", "effect.intent:before", "effect.outcome:before", "run.end:before"]
"""Commits of the server around which it is killed; `make soak` tries more."""


class Traveller:
    """One run of the agent, in processes of its own."""

    def __init__(self, server: Server, key: str, folder: Path, run_id: str) -> None:
        self.server = server
        self.key = key
        self.run_id = run_id
        self.world = folder / f"{run_id.replace(':', '-')}.txt"
        self.trace = folder / f"{run_id.replace(':', '-')}.trace"

    def start(self, kill: str = "", **more: str) -> subprocess.Popen[str]:
        env = {**os.environ, "WORLD": str(self.world), "TRACE": str(self.trace), "PERDURE_KILL": kill, **more}
        command = [NODE, str(TRAVELLER), self.server.origin, self.key, self.run_id]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def run(self, kill: str = "") -> tuple[int, str]:
        process = self.start(kill)
        out, err = process.communicate(timeout=120)
        return process.returncode, out or err

    @property
    def acts(self) -> list[str]:
        return [line.split()[0] for line in self.world.read_text().splitlines()] if self.world.exists() else []

    def check(self) -> None:
        """The effects have happened once; a step that was killed after it had acted may have acted again."""
        assert [self.acts.count(name) for name in ("book", "pay")] == [1, 1], (self.run_id, self.acts)
        assert all(1 <= self.acts.count(name) <= 2 for name in ("search", "thank")), (self.run_id, self.acts)


@pytest.fixture(scope="module")
def key(shared_server: Server) -> str:
    """A key of the shared server. Every test here needs it, and node."""
    if not NODE:
        pytest.skip("node is not installed: agents in JavaScript are not tried")
    return shared_server.make_key()


def test_an_agent_in_javascript_makes_one_request_per_step_and_two_per_effect(
    shared_server: Server, key: str, tmp_path: Path
) -> None:
    traveller = Traveller(shared_server, key, tmp_path, "plain")
    code, out = traveller.run()
    assert (code, json.loads(out)) == (0, RESULT), out
    assert traveller.trace.read_text().split() == VERBS
    assert traveller.acts == ["search", "book", "pay", "thank"]
    assert traveller.run() == (0, out), "a finished run is replayed"
    assert traveller.acts == ["search", "book", "pay", "thank"]


def test_killed_at_each_moment_it_goes_on_and_no_effect_happens_twice(
    shared_server: Server, key: str, tmp_path: Path
) -> None:
    def kill_and_resume(moment: str) -> None:
        traveller = Traveller(shared_server, key, tmp_path, f"killed-{moment}")
        code, out = traveller.run(moment)
        assert code == -signal.SIGKILL, (moment, out)
        code, out = traveller.run()
        assert (code, json.loads(out) if code == 0 else out) == (0, RESULT), moment
        traveller.check()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(kill_and_resume, MOMENTS if IN_SOAK else LEFT_BEHIND))
    with Agent("travel", store=shared_server.store) as agent:
        assert {run.status for run in agent.runs.list()} == {"finished"}


@pytest.mark.parametrize("place", PLACES + MORE_PLACES * IN_SOAK)
def test_a_killed_server_is_only_a_delay(shared_server: Server, key: str, tmp_path: Path, place: str) -> None:
    port = shared_server.port
    shared_server.kill()
    shared_server.start(port, {"PERDURE_FAILPOINT": place})
    traveller = Traveller(shared_server, key, tmp_path, f"server-{place}")
    process = traveller.start()
    wait_until(lambda: shared_server.died)
    shared_server.kill()
    shared_server.start(port)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, json.loads(out or "{}")) == (0, RESULT), err
    assert traveller.acts == ["search", "book", "pay", "thank"], "the client was alive: it needed no check"


PYTHON = """
import json, os, signal, sys, time
from perdure import Agent, RunBusy

store, world, run_id, kill = sys.argv[1:]
agent = Agent("travel", store=store)

def act(name, key=""):
    with open(world, "a") as file:
        file.write(f"{name} {key}\\n")
    if kill == name:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{name} done"

def check(name):
    from perdure import Done, NotDone
    return lambda *args, key, **kwargs: Done(f"{name} done") if f"{name} {key}\\n" in open(world).read() else NotDone

@agent.step
def search(city):
    return act("search")

@agent.effect(check=lambda flight, leg, *, key: check("book")(key=key), timeout=0.5)
def book(flight, leg, *, key):
    return act("book", key)

@agent.effect(check=lambda booked, *, key: check("pay")(key=key), timeout=0.5)
def pay(booked, *, key):
    return act("pay", key)

@agent.step
def thank():
    return act("thank")

while True:
    try:
        with agent.run(run_id, input={"to": "NYC"}) as run:
            found = search("NYC")
            booked = book(found, 1)
            paid = pay(booked)
            thank()
            run.result = {"found": found, "booked": booked, "paid": paid}
        break
    except RunBusy:
        time.sleep(0.1)
print(json.dumps(run.result))
"""


def test_python_and_javascript_continue_each_others_runs(shared_server: Server, key: str, tmp_path: Path) -> None:
    def python(traveller: Traveller, kill: str = "") -> tuple[int, str]:
        command = [sys.executable, "-c", PYTHON, shared_server.store, str(traveller.world), traveller.run_id, kill]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stdout or done.stderr

    first = Traveller(shared_server, key, tmp_path, "python-first")
    assert python(first, "book")[0] == -signal.SIGKILL
    code, out = first.run()
    assert code == 0, out
    assert json.loads(out)["booked"] == "book done"
    assert first.acts == ["search", "book", "pay", "thank"]

    second = Traveller(shared_server, key, tmp_path, "javascript-first")
    assert second.run("out:book")[0] == -signal.SIGKILL
    code, out = python(second)
    assert (code, json.loads(out) if code == 0 else out) == (
        0,
        {name: RESULT[name] for name in ("found", "booked", "paid")},
    )
    assert second.acts == ["search", "book", "pay", "thank"]


def test_the_code_of_the_page_runs(shared_server: Server, key: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "run-protocol.md").read_text()
    env = {**os.environ, "PERDURE_URL": shared_server.origin, "PERDURE_API_KEY": key}
    [agent] = [block.text for block in blocks_of(page) if block.title == "agent.mjs"]
    [commands] = [block.text for block in blocks_of(page) if block.language == "sh"]
    shutil.copy(ROOT / "examples" / "javascript" / "perdure.mjs", tmp_path)
    (tmp_path / "agent.mjs").write_text(agent)
    done = subprocess.run([NODE, "agent.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "NYC 9:00\n"
    done = subprocess.run(["bash", "-euc", commands], capture_output=True, text=True, check=True, env=env)
    assert '"status":"finished"' in done.stdout


def test_the_example_agent_runs(shared_server: Server, key: str, tmp_path: Path) -> None:
    env = {**os.environ, "PERDURE_URL": shared_server.origin, "PERDURE_API_KEY": key, "BOOKINGS": str(tmp_path / "b")}
    example = ROOT / "examples" / "javascript" / "agent.mjs"
    done = subprocess.run([NODE, str(example), "example"], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "booked NYC-0900\n"
