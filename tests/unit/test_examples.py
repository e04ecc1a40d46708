"""The examples survive being killed, and the first one is the agent of the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.test_first_programs import PROGRAMS

from .quick import hurry

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def quick(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of child processes take hardly any time."""
    monkeypatch.setenv("PYTHONPATH", hurry(tmp_path_factory.mktemp("quick")))


def test_the_first_example_is_the_agent_of_the_demo() -> None:
    example = (EXAMPLES / "01_coding_agent.py").read_text("utf-8")
    assert example == (ROOT / "src/perdure/demo/agent.py").read_text("utf-8")
    assert len(example.splitlines()) <= 60, "it is to be read in a minute"


def start(example: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / example), *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT / "src"), **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_after(example: str, folder: Path, lines: int) -> list[str]:
    """Start an example, kill it with SIGKILL after so many lines; what it had printed."""
    with start(example, folder) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        shown += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return shown


def finish(example: str, folder: Path, *arguments: str) -> list[str]:
    """Start an example again; what it prints until it is done."""
    with start(example, folder, *arguments) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    return output.splitlines(keepends=True)


def test_every_example_is_tested() -> None:
    names = ["01_coding_agent.py", "02_async.py", "03_in_doubt.py", "04_each_items.py", "10_workers.py"]
    names += ["11_sessions.py", "langgraph_agent.py", *PROGRAMS]
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(names)


def test_the_example_of_langgraph_survives(tmp_path: Path) -> None:
    with start("langgraph_agent.py", tmp_path) as process:
        before, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    after = finish("langgraph_agent.py", tmp_path)
    assert before == "the model is asked\npaid 120 for invoice 7\n"
    assert after == ["the model is asked\n", "The bank says: paid before.\n"]


def test_the_coding_agent_survives(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = kill_after("01_coding_agent.py", tmp_path, 12)
    request.getfixturevalue("quick")
    after = finish("01_coding_agent.py", tmp_path)
    assert after[-1] == "shipped with 13 comments\n"
    # A call that was under way may be made again, all others are not.
    assert len({*before, *after[:-1]}) == 50
    assert len(before) + len(after) - 1 <= 51
    tasks = [line.split(" ", 1)[1] for line in (tmp_path / "outside.txt").read_text().splitlines()]
    assert len(tasks) == len(set(tasks)) == 16


def test_the_example_of_workers_survives(tmp_path: Path) -> None:
    kill_after("10_workers.py", tmp_path, 4)
    after = finish("10_workers.py", tmp_path)
    assert after[-1] == "rain (600 words), snow (600 words), fog (600 words)\n"
    assert len((tmp_path / "published.txt").read_text().splitlines()) == 3


def test_sessions_that_know_nothing_finish_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a new process; one of them is killed, and what it had done is not done again."""
    finish("11_sessions.py", tmp_path, "initialise")
    for place in ("", "step.done:after", "", "", "", "", ""):
        with monkeypatch.context() as patch:
            patch.setenv("PERDURE_FAILPOINT", place)
            with start("11_sessions.py", tmp_path, "session") as process:
                output, _ = process.communicate()
            assert process.returncode == (-signal.SIGKILL if place else 0), output
    assert output == "nothing is left\n"
    assert (tmp_path / "work.txt").read_text().split() == ["outline", "draft", "figures", "review", "mail"]
    assert "- [ ]" not in (tmp_path / "sessions/tasks/report.md").read_text()


def test_the_async_example_survives(tmp_path: Path) -> None:
    before = kill_after("02_async.py", tmp_path, 3)
    after = finish("02_async.py", tmp_path)
    assert before[0] not in after, "an answer that was recorded is not asked for again"
    assert len({*before, *after[:-1]}) == 6
    assert "'answers': 6" in after[-1]
    assert len(list(tmp_path.glob("letter-*.txt"))) == 1


@pytest.mark.parametrize(
    ("answer", "result", "payments"), [("paid", "paid, says the bank", 1), ("not-paid", "paid", 2)]
)
def test_the_example_in_doubt_waits_for_its_answer(tmp_path: Path, answer: str, result: str, payments: int) -> None:
    with start("03_in_doubt.py", tmp_path) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert "the outcome of pay is unknown" in finish("03_in_doubt.py", tmp_path)[-1]
    assert len((tmp_path / "bank.txt").read_text().splitlines()) == 1
    assert finish("03_in_doubt.py", tmp_path, answer)[-1] == result + "\n"
    # Who answers wrongly pays twice: but under one key, so that the bank could notice.
    keys = [line.split()[0] for line in (tmp_path / "bank.txt").read_text().splitlines()]
    assert (len(keys), len(set(keys))) == (payments, 1)
    again = finish("03_in_doubt.py", tmp_path, answer)
    assert "is finished" in again[0]
    assert again[-1] == result + "\n"


def test_the_loop_survives_and_takes_new_items(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = kill_after("04_each_items.py", tmp_path, 6)
    request.getfixturevalue("quick")
    after = finish("04_each_items.py", tmp_path, "23")
    assert after[-1] == "{'sent': 23, 'last': 'customer 23'}\n"
    letters = [line.split(" ", 1)[1] for line in (tmp_path / "outbox.txt").read_text().splitlines()]
    assert len(letters) == len(set(letters)) == 23
    assert not {*before[:5]} & {*after}
    assert finish("04_each_items.py", tmp_path, "23") == after[-1:]
    [refused] = finish("04_each_items.py", tmp_path, "25")
    assert "start a run with a new id" in refused
