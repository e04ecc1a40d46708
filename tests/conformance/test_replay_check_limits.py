"""`perdure replay-check` where it could be mistaken: what it must not miss, and what it must not do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.kernel.engine import close_left

from .kit import World
from .replay_programs import Shop, check

HEAD = """
import os
from perdure import Agent
from pathlib import Path

agent = Agent("shop", store=os.environ["REPLAYED"])

def happens(what):
    with Path(os.environ["WORLD"]).open("a") as file:
        file.write(what + "\\n")

@agent.step
def think(of):
    happens(f"think {of}")
    return of

@agent.effect
def pay(customer):
    happens(f"pay {customer}")
    return customer

def crash():
    if os.environ.get("LEAVES"):
        raise ConnectionError
"""

CHILDREN = (
    HEAD
    + """
def main(run_id):
    with agent.run(run_id) as run:
        for n in run.each([1, 2, 3]):
            with agent.run(f"{run_id}/{n}"):
                pay(n)
            if n == 3:
                crash()
"""
)

UNDONE = (
    HEAD
    + """
def main(run_id):
    with agent.run(run_id) as run:
        think(1)
        think(2)
        run.undo(1)
        pay(3)
        crash()
        pay(4)
"""
)

OPEN = (
    HEAD
    + """
def main(run_id):
    with agent.run(run_id) as run:
        #front
        pay(1)
        run.messages.append("paid")
        run.sleep(0.001)
        crash()
"""
)


@pytest.fixture
def left(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets a program begin a run that is left in the middle."""

    def begin(program: str) -> None:
        with monkeypatch.context() as patched:
            patched.setenv("LEAVES", "1")
            with pytest.raises(ConnectionError):
                shop.module(shop.write_version(program)).main("r")
        close_left(shop.url)

    return begin


def judge_program(shop: Shop, capsys: pytest.CaptureFixture[str], program: str, *options: str) -> tuple[int, str, Any]:
    """The exit code, and the verdict and report of run r."""
    code, report = check(capsys, f"{shop.write_version(program)}:main", *options)
    close_left(shop.url)
    [run] = [run for run in report["runs"] if run["id"] == "r"]
    return code, run["verdict"], run


def test_runs_inside_done_items_are_not_missed(shop: Shop, left: Any, capsys: pytest.CaptureFixture[str]) -> None:
    left(CHILDREN)
    assert judge_program(shop, capsys, CHILDREN)[:2] == (0, "replays")
    renamed = CHILDREN.replace("{run_id}/{n}", "{run_id}:{n}")
    code, verdict, run = judge_program(shop, capsys, renamed)
    assert (code, verdict) == (1, "repeats")
    assert [one["name"] for one in run["unreached"]] == [f"run 'r/{n}', with 1 effects and 0 steps" for n in (1, 2, 3)]


def test_an_undo_that_is_gone_leaves_what_came_after_it(
    shop: Shop, left: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    left(UNDONE)
    assert judge_program(shop, capsys, UNDONE)[:2] == (0, "replays")
    code, verdict, run = judge_program(shop, capsys, UNDONE.replace("        run.undo(1)\n", ""))
    assert (code, verdict) == (1, "repeats")
    assert "it would start pay(customer=3)" in json.dumps(run)


def test_what_is_not_asked_for_any_more_is_listed(shop: Shop, left: Any, capsys: pytest.CaptureFixture[str]) -> None:
    left(OPEN)
    gone = OPEN.replace('        run.messages.append("paid")\n        run.sleep(0.001)\n', "")
    code, verdict, run = judge_program(shop, capsys, gone)
    assert (code, verdict) == (0, "differs")
    assert [(one["kind"], one["name"]) for one in run["unreached"]] == [("wait", "sleep"), ("write", "message")]


@pytest.mark.parametrize(
    "use",
    [
        "if think('new'): pass",
        "f'{think(\"new\")}'",
        "[*map(str, [think('new')])]",
        "run.state['x'] = think('new')",
        "pay([think('new')])",
        "isinstance(think('new'), str)",
        "import json; json.dumps(think('new'))",
    ],
)
def test_what_a_new_step_returns_cannot_be_used(
    shop: Shop, left: Any, use: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left(OPEN)
    code, verdict, run = judge_program(shop, capsys, OPEN.replace("#front", use))
    assert (code, verdict) == (1, "unknown"), run
    assert "--run-steps" in json.dumps(run)


def test_a_program_that_swallows_everything_is_not_believed(
    shop: Shop, left: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    left(OPEN)
    swallows = "try: str(think('new'))\n        except BaseException: pass"
    assert judge_program(shop, capsys, OPEN.replace("#front", swallows))[:2] == (1, "unknown")


@pytest.mark.parametrize("loop", ["while think('new') is None: pass", "while True: think('new')"])
def test_a_loop_that_would_never_end_ends(shop: Shop, left: Any, loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    left(OPEN)
    code, verdict, run = judge_program(shop, capsys, OPEN.replace("#front", loop))
    assert (code, verdict) == (1, "unknown")
    assert "keeps starting unrecorded calls" in json.dumps(run)


def test_steps_that_are_run_are_run_once_and_recorded_nowhere(
    shop: Shop, left: Any, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    left(OPEN)
    tables, before = shop.tables(), len(world.read_all())
    # The wait is stood in for, and not used: so the program goes through the run four times.
    front = "run.ask('Which?', id='w')\n        if think('new') == 'new': run.state['seen'] = True"
    assert judge_program(shop, capsys, OPEN.replace("#front", front), "--run-steps")[:2] == (0, "replays")
    assert world.read_all()[before:] == ["think new"]
    assert shop.tables() == tables


def test_a_run_under_another_id_is_not_taken_for_a_new_one(
    shop: Shop, left: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    left(OPEN)
    for _ in ("left", "finished"):
        program = shop.write_version(OPEN.replace("run(run_id)", "run(run_id + chr(50))"))
        code, report = check(capsys, f"{program}:main")
        close_left(shop.url)
        assert (code, report["broken"]) == (1, True)
        assert report["notes"][0].startswith("run 'r': it would start run 'r2', which is not recorded")
        shop.module(shop.write_version(OPEN)).main("r")
        close_left(shop.url)


def test_a_program_that_does_not_come_to_its_run_fails(
    shop: Shop, left: Any, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    left(OPEN)
    before = world.read_all()
    for early, note in (
        ("raise ValueError('no')", "it raises ValueError: no"),
        ("agent.runs.pause('r')", "it writes outside of a run"),
        ("agent.effect(outside='allow')(happens)('now')", "it calls effect happens outside of a run"),
    ):
        program = OPEN.replace("    with agent.run", f"    {early}\n    with agent.run")
        code, report = check(capsys, f"{shop.write_version(program)}:main")
        close_left(shop.url)
        assert (code, report["broken"]) == (1, True)
        assert note in report["notes"][0]
    assert world.read_all() == before


OTHER = """
def other():
    with agent.run("other"):
        agent.memory.remember("a secret")
        agent.workspace(os.environ["FOLDER"])
"""


@pytest.mark.parametrize(
    "ends",
    [
        "agent.runs.pause('other')",
        "agent.runs.cancel('other')",
        "agent.memory.forget(agent.memory.list()[0].id)",
        "agent.workspace(os.environ['FOLDER']).sync()",
    ],
)
def test_what_a_rehearsal_cannot_do_ends_it_and_nothing_behind_it_is_vouched_for(
    ends: str,
    shop: Shop,
    left: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path / "folder"))
    program = OPEN + OTHER
    shop.module(shop.write_version(program)).other()
    left(program)
    tables = shop.tables()
    code, verdict, run = judge_program(shop, capsys, program.replace("#front", ends))
    assert (code, verdict) == (1, "unknown"), run
    assert "which a rehearsal does not do" in json.dumps(run)
    assert judge_program(shop, capsys, program.replace("        crash()", f"        {ends}"))[0] == 0, "all is reached"
    assert shop.tables() == tables


def test_what_steps_have_cost_is_told(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    program = HEAD + (
        "def main(run_id):\n"
        "    def usage(of):\n        run.usage(model='m', cost_usd=0.25)\n\n"
        "    with agent.run(run_id) as run:\n        run.step(usage, 1, name='ask')\n"
    )
    shop.module(shop.write_version(program)).main("r")
    close_left(shop.url)
    code, verdict, run = judge_program(shop, capsys, program.replace("name='ask')", "name='query')"))
    assert (code, verdict) == (1, "reruns")
    assert [one["cost_usd"] for one in run["unreached"]] == [0.25]
    assert "which cost $0.2500" in json.dumps(run)
    assert judge_program(shop, capsys, program.replace("name='ask')", "name='query')"), "--allow-steps")[:2] == (
        0,
        "differs",
    )


def test_a_run_at_work_is_judged_and_left_alone(shop: Shop, world: World, tmp_path: Path) -> None:
    program = shop.module(name := shop.write_version(OPEN.replace("        crash()", "        pay(2)")))
    with program.agent.run("r") as run:
        program.pay(1)
        run.messages.append("paid")
        command = [sys.executable, "-m", "perdure.cli", "replay-check", f"{name}:main", "--json"]
        told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        [judged] = json.loads(told.stdout)["runs"]
        assert (told.returncode, judged["verdict"], judged["status"]) == (0, "replays", "running"), told.stderr
        run.sleep(0.001)
        program.pay(2)
    assert world.read_all() == ["pay 1", "pay 2"]


def test_what_is_queued_has_nothing_to_replay(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    program = OPEN + "\n@agent.task\ndef later(n):\n    pay(n)\n"
    module = shop.module(shop.write_version(program))
    module.main("r")
    module.later.start("t", 1)
    close_left(shop.url)
    assert judge_program(shop, capsys, program)[:2] == (0, "replays")


PLAIN = (
    HEAD
    + """
def main(run_id):
    with agent.run(run_id) as run:
        for n in run.each([1, 2]):
            run.state["sum"] = run.state.get("sum", 0) + n
        crash()
"""
)


def test_done_items_without_steps_are_not_done_again(shop: Shop, left: Any, capsys: pytest.CaptureFixture[str]) -> None:
    left(PLAIN)
    assert judge_program(shop, capsys, PLAIN)[:2] == (0, "replays")
    code, verdict, run = judge_program(shop, capsys, PLAIN.replace("each([1, 2])", "each([1, 2], name='all')"))
    assert (code, verdict) == (1, "reruns")
    assert "2 items are recorded and not found, in loop '1': item 1, item 2" in json.dumps(run)
    shop.module(shop.write_version(PLAIN)).main("r")
    close_left(shop.url)
    assert judge_program(shop, capsys, PLAIN)[:2] == (0, "replays")


ASYNC = """
import os
from perdure import AsyncAgent

agent = AsyncAgent("shop", store=os.environ["REPLAYED"])

@agent.step
async def think(of):
    return of

async def main(run_id):
    async with agent.run(run_id) as run:
        await think(1)
        #then
"""


def test_an_async_program_that_stops_is_told_too(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(shop.module(shop.write_version(ASYNC)).main("r"))
    close_left(shop.url)
    code, report = check(capsys, f"{shop.write_version(ASYNC.replace('run(run_id)', 'run(run_id + chr(50))'))}:main")
    assert (code, report["broken"]) == (1, True)
    close_left(shop.url)
    used = ASYNC.replace("await think(1)", "str(await think(2))")
    assert judge_program(shop, capsys, used)[:2] == (1, "reruns")
    grouped = ASYNC.replace(
        "        await think(1)",
        "        import asyncio\n        async with asyncio.TaskGroup() as group:\n"
        "            group.create_task(shown(2))\n            group.create_task(shown(1))",
    )
    assert judge_program(shop, capsys, grouped + "\nasync def shown(n):\n    print(await think(n))\n")[:2] == (
        0,
        "differs",
    )


PARALLEL = """
import asyncio, os
from perdure import AsyncAgent

agent = AsyncAgent("shop", store=os.environ["REPLAYED"])

@agent.step
async def think(of):
    return [of]

async def worker(run, n, steps):
    last = n
    for _ in range(steps):
        [last] = await think(10 * last + n)

async def inside(run, n, steps):
    async with agent.run(f"{run.id}/{n}", parallel=True) as child:
        await worker(child, n, steps)
        leave()

def leave():
    if os.environ.get("LEAVES"):
        raise ConnectionError

async def main(run_id):
    leaves = bool(os.environ.get("LEAVES"))
    async with agent.run(run_id) as run:
        sides = [SIDE(run, n, n if leaves else 4) for n in (1, 2, 3)]
        await asyncio.gather(*sides, return_exceptions=leaves)
        leave()
"""


@pytest.mark.parametrize("side", ["worker", "inside"])
def test_tasks_side_by_side_come_to_what_is_recorded(
    shop: Shop, side: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them has nothing recorded left, and uses the result of its next step, before another one has begun."""
    program = PARALLEL.replace("SIDE", side)
    with monkeypatch.context() as patched:
        patched.setenv("LEAVES", "1")
        with pytest.raises(ConnectionError):
            asyncio.run(shop.module(shop.write_version(program)).main("r"))
    close_left(shop.url)
    code, report = check(capsys, f"{shop.write_version(program)}:main")
    assert (code, {run["verdict"] for run in report["runs"]}) == (0, {"replays"}), report
    assert sum(run["calls"] for run in report["runs"]) == 6
