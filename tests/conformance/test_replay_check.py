"""`perdure replay-check`: recorded runs and today's code, without running or writing anything."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from perdure import Agent, RunWaiting
from perdure.cli.main import main
from perdure.kernel.engine import close_left
from perdure.run.rehearse.verdict import FAILS

from .kit import World
from .replay_programs import Shop, check

PROGRAM = """
import os
from perdure import Agent, Done, Unknown
from pathlib import Path

agent = Agent("travel", store=os.environ["REPLAYED"])
world = Path(os.environ["WORLD"])

def happens(what):
    with world.open("a") as file:
        file.write(what + "\\n")

@agent.step
def search(city):
    happens("search")
    return [city + " 9:00"]

@agent.effect
def book(flight):
    happens("book")
    return "AB12"

@agent.effect
def post(n):
    happens("post")
    return n

@agent.step
def rate(n):
    happens("rate")
    return n * n

def main(run_id):
    with agent.run(run_id, input={"to": "Oslo"}) as run:
        run.state["city"] = "Oslo"
        flights = search("Oslo")
        code = book(flights[0])
        run.messages.append(code)
        for n in run.each([1, 2]):
            run.state["sum"] = run.state.get("sum", 0) + post(n)
        run.map(rate, [3, 4])
        if run_id == "left":
            raise ConnectionError("the power is out")
        if run_id == "asks":
            run.ask("Which seat?")
        run.result = code
"""

CHANGES: dict[str, tuple[tuple[str, str], dict[str, str], str]] = {
    "nothing": (("", ""), {"done": "replays", "left": "replays", "asks": "replays"}, "ends the same way"),
    "it goes on": (("raise ConnectionError", "print"), {"left": "replays"}, "would finish"),
    "it fails as before": (("", ""), {"left": "replays"}, "fails as before: ConnectionError: the power is out"),
    "it waits": (("", ""), {"asks": "replays"}, "continues with Which seat? (it is already waiting) at"),
    "an effect renamed": (
        ("def book(", "def reserve(flight):\n    return happens('reserve')\nbook = reserve\ndef unused("),
        {"done": "diverges", "left": "diverges", "asks": "diverges"},
        "reserve(flight='Oslo 9:00') is new, but book(flight='Oslo 9:00') is recorded with the same arguments",
    ),
    "an effect renamed, with was": (
        ("@agent.effect\ndef book(flight)", "@agent.effect(was='book', name='reserve')\ndef book(flight, seat=None)"),
        {"done": "replays", "left": "replays", "asks": "replays"},
        "ends the same way",
    ),
    "other arguments of an effect": (
        ("book(flights[0])", "book('Oslo 11:00')"),
        {"done": "diverges", "left": "diverges", "asks": "diverges"},
        "is recorded, and the code has not called it before this one",
    ),
    "other arguments of a step": (
        ('search("Oslo")', 'search("Rome")'),
        {"done": "reruns", "left": "reruns", "asks": "reruns"},
        "it would start search(city='Rome') at",
    ),
    "a step removed": (
        ("run.map(rate, [3, 4])", ""),
        {"done": "differs", "left": "differs", "asks": "differs"},
        "recorded, but no longer reached: rate (entry",
    ),
    "a step added at the end": (
        ("run.result = code", "rate(9)"),
        {"done": "differs", "asks": "replays"},
        "it starts rate(n=9) at",
    ),
    "a loop with another name": (
        ("run.each([1, 2])", "run.each([1, 2], name='all')"),
        {"done": "repeats", "left": "repeats", "asks": "repeats"},
        "2 effects are recorded and not found, in 2 items of loop '1': post (entry",
    ),
    "another question": (
        ("Which seat?", "Window or aisle?"),
        {"asks": "differs", "done": "replays"},
        "no longer reached: ask (entry",
    ),
    "another value written in the open": (
        ('run.state["city"] = "Oslo"', 'run.state["city"] = "Rome"'),
        {"done": "diverges", "left": "diverges"},
        "state['city'] is 'Rome', but was recorded as 'Oslo'",
    ),
    "another result": (
        ("run.result = code", "run.result = 5"),
        {"done": "diverges"},
        "result is 5, but was recorded as",
    ),
    "another input": (('"to": "Oslo"', '"to": "Rome"'), {"done": "diverges"}, "was started with {'to': 'Oslo'}"),
    "the agent's state in the open": (
        ("        code = book", "        agent.state.set('trip', 'n', 1)\n        code = book"),
        {"done": "replays", "left": "replays"},
        "ends the same way",
    ),
    "the agent's state in the open, used": (
        (
            "        code = book",
            "        assert 1 == agent.state.incr('t', 'n') == agent.state.get('t', 'n')\n        code = book",
        ),
        {"done": "replays", "left": "replays"},
        "ends the same way",
    ),
    "an order in the open": (
        ("        code = book", "        agent.runs.pause('asks')\n        code = book"),
        {"done": "unknown", "left": "unknown"},
        "it writes to the agent outside of a step",
    ),
    "a child that was not there": (
        ("        code = book", "        with agent.run('child'):\n            pass\n        code = book"),
        {"done": "differs", "left": "replays"},
        "run 'child', a child",
    ),
    "an exception of its own": (
        ("        code = book", "        raise ValueError('no')\n        code = book"),
        {"done": "diverges", "left": "unknown"},
        "it raises ValueError: no",
    ),
}


def record(shop: Shop) -> None:
    """Three runs: one that has finished, one that was left, and one that asks."""
    program = shop.module(shop.write_version(PROGRAM, ("agent.run(run_id,", "agent.run(run_id, wait=0,")))
    program.main("done")
    with pytest.raises(ConnectionError):
        program.main("left")
    with pytest.raises(RunWaiting):
        program.main("asks")
    close_left(shop.url)


def test_what_a_change_does_to_recorded_runs(shop: Shop, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    record(shop)
    tables, done = shop.tables(), world.read_all()
    assert len(tables["runs"]) == 3
    for name, (change, verdicts, text) in CHANGES.items():
        code, report = check(capsys, f"{shop.write_version(PROGRAM, change)}:main")
        close_left(shop.url)
        found = {run["id"]: run["verdict"] for run in report["runs"]}
        assert {run: found[run] for run in verdicts} == verdicts, (name, report)
        assert text in json.dumps(report).replace('\\"', '"'), (name, report)
        assert code == any(verdict in FAILS for verdict in found.values()), name
        assert report["failed"] == sum(run["fails"] for run in report["runs"])
        assert shop.tables() == tables, f"{name}: something was written"
        assert world.read_all() == done, f"{name}: something was run"


def test_which_runs_and_how_it_is_told(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(shop)
    program = shop.write_version(PROGRAM, CHANGES["a step added at the end"][0])
    code, report = check(capsys, f"{program}:main", "--run", "done", "--junit", "report.xml")
    assert (code, [run["id"] for run in report["runs"]]) == (0, ["done"])
    assert check(capsys, f"{program}:main", "--run", "done", "--strict")[0] == 1
    program = shop.write_version(PROGRAM, CHANGES["another result"][0])
    code, report = check(capsys, f"{program}:main", "--status", "finished", "--junit", "report.xml")
    assert (code, [run["id"] for run in report["runs"]]) == (1, ["done"])
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert suite.attrib["failures"] == "1" and "result is 5" in suite[0][0].attrib["message"]
    code, report = check(capsys, f"{program}:main", "--last", "1")
    assert len(report["runs"]) == 1 and report["left_out"] == 2
    code, report = check(capsys, f"{program}:main", "--run", "nobody")
    assert (code, report["missing"]) == (1, ["nobody"])
    assert main(["replay-check", f"{program}:main"]) == 1
    told = capsys.readouterr().out
    assert "done  finished  diverges: " in told and "3 runs: 2 replayed, 1 diverge" in told
    for wrong in ("nothing", f"{program}:nobody", f"{program}:agent", "no_such_module:main"):
        assert main(["replay-check", wrong]) == 2


def test_a_fork_is_replayed_with_what_it_shares(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    record(shop)
    program = shop.module(shop.write_version(PROGRAM))
    program.agent.runs.fork("done", at="search", to="fork")
    close_left(shop.url)
    name = shop.write_version(PROGRAM)
    _, report = check(capsys, f"{name}:main", "--run", "fork")
    assert [run["calls"] for run in report["runs"]] == [1]
    assert "continues with book(flight='Oslo 9:00') at" in report["runs"][0]["then"]


def test_a_script_opens_its_runs_itself(shop: Shop, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    record(shop)
    done = world.read_all()
    script = shop.write_version(PROGRAM + "\nimport sys\nmain(sys.argv[1])") + ".py"
    code, report = check(capsys, script, "done")
    assert (code, [run["verdict"] for run in report["runs"]]) == (0, ["replays"])
    code, report = check(capsys, script, "new")
    told = "it would start run 'new', which is not recorded, and has opened none of the unfinished ones: asks"
    assert (code, report["runs"], report["notes"], report["broken"]) == (1, [], [f"{told}, left"], True)
    assert world.read_all() == done


TASKS = """
import os
from perdure import Agent, AsyncAgent

agent = Agent("desk", store=os.environ["REPLAYED"])

@agent.step
def search(topic):
    return [topic]

@agent.task
def report(topic, run):
    found = search(topic)
    run.sleep("9h")
    return found
"""


@pytest.mark.parametrize("face", ["Agent", "AsyncAgent"])
def test_tasks_of_an_agent(shop: Shop, face: str, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = shop.module(shop.write_version(TASKS))
    recorded.report.start("q3", topic="rain")
    work_until_parked(recorded.agent)
    close_left(shop.url)
    program = TASKS
    if face == "AsyncAgent":
        program = TASKS.replace("= Agent(", "= AsyncAgent(").replace("def report", "async def report")
        program = program.replace("= search(", "= await search(").replace("    run.sleep", "    await run.sleep")
    tables = shop.tables()
    for change, code, text in (
        (("", ""), 0, "continues with until "),
        (("report(topic", "summary(topic"), 1, "which agent 'desk' does not declare"),
        (("@agent.task", "@agent.task(was='report', name='summary')"), 0, "continues with until "),
        (("search(topic", "find(topic"), 1, "it would start find(topic='rain') at"),
    ):
        found, report = check(capsys, f"{shop.write_version(program, change)}:agent")
        close_left(shop.url)
        assert (found, len(report["runs"])) == (code, 1), report
        assert text in json.dumps(report)
    assert shop.tables() == tables


def test_finished_runs_of_tasks(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    program = TASKS.replace('    run.sleep("9h")\n', "")
    recorded = shop.module(shop.write_version(program))
    recorded.report.run("q3", topic="rain")
    with recorded.agent.run("no task"):
        recorded.search("snow")
    close_left(shop.url)
    for change, code in ((("", ""), 0), (("search(topic", "find(topic"), 1)):
        found, report = check(capsys, f"{shop.write_version(program, change)}:agent")
        close_left(shop.url)
        assert (found, [run["id"] for run in report["runs"]]) == (code, ["q3"]), report


def work_until_parked(agent: Agent) -> None:
    """A worker takes the run, and leaves it where it waits."""
    worker = agent.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    ends = time.monotonic() + 100
    while [row[7] for row in agent._engine.store.read("all_tasks")] != ["parked"]:
        assert time.monotonic() < ends, "it is not parked"
        time.sleep(0.005)
    worker.drain()
    thread.join()


ASYNC_PROGRAM = """
import asyncio, os
from perdure import AsyncAgent

agent = AsyncAgent("travel", store=os.environ["REPLAYED"])
ran = []

@agent.step
async def rate(n):
    ran.append(n)
    return n

async def main(run_id):
    async with agent.run(run_id) as run:
        await rate(0)
        async with asyncio.TaskGroup() as tasks:
            for n in (1, 2):
                tasks.create_task(rate(n))
        await run.map(rate, [3, 4])
        if run_id == "left" and not run.resumed:
            raise ConnectionError
"""


def test_an_async_program(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = shop.module(shop.write_version(ASYNC_PROGRAM))
    asyncio.run(recorded.main("done"))
    with pytest.raises(ConnectionError):
        asyncio.run(recorded.main("left"))
    close_left(shop.url)
    for change, verdicts in (
        (("", ""), ["replays", "replays"]),
        (("[3, 4]", "[3, 5]"), ["reruns", "reruns"]),
        (("(1, 2)", "(1, 5)"), ["reruns", "reruns"]),
    ):
        name = shop.write_version(ASYNC_PROGRAM, change)
        _, report = check(capsys, f"{name}:main")
        assert [run["verdict"] for run in report["runs"]] == verdicts
        assert shop.module(name).ran == []


def test_forks_and_runs_that_went_back(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    change = ("        run.result", "        run.undo(3)\n        rate(7)\n        run.result")
    program = shop.module(shop.write_version(PROGRAM, change))
    program.main("back")
    program.agent.runs.fork("back", at="search", to="branch")
    program.main("branch")
    close_left(shop.url)
    code, report = check(capsys, f"{shop.write_version(PROGRAM, change)}:main")
    assert {run["id"]: run["verdict"] for run in report["runs"]} == {"back": "replays", "branch": "replays"}
    assert code == 0
