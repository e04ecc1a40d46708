"""`perdure worker`, `perdure queues` and `perdure retry`: real processes, signals and words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.cli.main import main
from perdure.work.tasks import stalled
from perdure.work.tasks.definition import tasks_of

PROGRAM = """
import os, time
from perdure import Agent

agent = Agent("clerk", store=os.environ["PERDURE_URL"])

@agent.task
def copy(run, pages):
    for page in range(pages):
        run.step(time.sleep, 0.02, name="page", id=str(page))
    return pages

@agent.task
def burn():
    raise OSError("on fire")
"""


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "office.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_URL", str(tmp_path / "office.db"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return tmp_path


def agent_of(office: Path) -> Agent:
    agent = Agent("clerk", store=office / "office.db")
    agent.task(lambda run, pages: None, name="copy")
    agent.task(lambda: None, name="burn")
    return agent


def read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def problems(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the doctor says about queues."""
    capsys.readouterr()
    main(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    return [row["text"] for row in checks if row["about"] == "queues" and row["level"] != "ok"]


def test_what_is_queued_is_shown_and_missed_when_nobody_takes_it(
    office: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(agent_of(office)) as agent:
        copy = tasks_of(agent._engine)["copy"]
        with pytest.raises(ValueError, match="key='mail': copy has no such parameter; it has run, pages"):
            copy.options(key="mail").start("c", 5)
        copy.options(key="pages", priority=3).start("c", 5)
        copy.options(delay="9d").start("later", 5)
        assert problems(capsys) == []  # somebody may still come
        monkeypatch.setattr(stalled, "UNSERVED_MS", -1)
        [told] = problems(capsys)
        assert told.startswith("1 run of queue default of clerk: the oldest was queued ")
        assert main(["show", "c"]) == 0
        facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[2:])
        assert (facts["status"], facts["task"], facts["priority"], facts["key"]) == ("queued", "copy", "3", "5")
        assert facts["begins"] == "when a worker takes it; in its queue 0 running, 2 queued"
        agent.queues.pause("default")
        assert problems(capsys) == ["queue default of clerk is paused, and 1 run waits in it"]
        assert main(["show", "later", "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["not_before"] and facts["queue_paused"] and facts["input"] == {"pages": 5}
        assert main(["timeline", "c"]) == 2
        assert "run 'c' is queued, and no worker has started it" in capsys.readouterr().err


def test_a_worker_says_what_it_does_and_is_drained_by_a_signal(
    office: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = agent_of(office)
    copy, burn = tasks_of(agent._engine)["copy"], tasks_of(agent._engine)["burn"]
    burn.start("b")
    command = [sys.executable, "-m", "perdure.cli", "worker", "office:agent", "--json", "--concurrency", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=office) as worker:
        assert read(worker)["tasks"] == ["burn", "copy"]
        assert read(worker) == {"run": "b", "task": "burn", "is": "taken"}
        assert read(worker) == {"run": "b", "task": "burn", "is": "failed", "error": "OSError: on fire"}
        copy.start("c", 500)
        assert read(worker)["run"] == "c"
        worker.send_signal(signal.SIGTERM)
        assert read(worker) == {"worker": "draining", "under_way": 1}
        assert read(worker)["is"] == "drained"
        assert read(worker)["drained"] == 1
        assert worker.wait(30) == 0
    assert main(["queues", "--json"]) == 0
    [queue] = json.loads(capsys.readouterr().out)
    assert (queue["queued"], queue["running"], queue["dead"], queue["tasks"]) == (1, 0, 1, ["copy"])
    assert "1 run of queue default of clerk failed for good" in problems(capsys)[0]
    assert main(["retry", "b", "--by", "ann"]) == 0
    assert main(["queues", "pause", "default"]) == 0
    assert main(["queues"]) == 0
    told = capsys.readouterr().out
    assert "queued again: run b of agent clerk, by ann" in told and "paused" in told.splitlines()[-1]
    assert main(["retry", "b"]) == 2
    assert "error[PD342]: run 'b' is queued" in capsys.readouterr().err
    agent.close()


def test_a_worker_uses_the_store_that_it_is_given(
    office: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(office)
    monkeypatch.delitem(sys.modules, "office", raising=False)
    (office / "fixed.py").write_text(PROGRAM.replace('os.environ["PERDURE_URL"]', '"fixed.db"'))
    assert main(["worker", "fixed:agent", "--store", "other.db"]) == 2
    assert "leave out one of the two" in capsys.readouterr().err and not list(office.glob("*.db"))
    with closing(Agent("clerk", store=office / "other.db")) as agent:
        agent.task(lambda: None, name="burn").start("b")
    command = [sys.executable, "-m", "perdure.cli", "worker", "office:agent", "--json", "--store", "other.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=office) as worker:
        assert read(worker)["store"].endswith("other.db")
        assert read(worker)["run"] == "b"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert not (office / "office.db").exists()


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("nowhere:agent", "there is no module 'nowhere'"),
        ("office:agnt", "there is no such name; did you mean 'agent'?"),
        ("office:os", "it is a module, not an agent"),
        ("nowhere.py", "there is no file 'nowhere.py'"),
    ],
)
def test_a_program_that_is_not_there_is_told(
    office: Path, program: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(office)
    monkeypatch.delitem(sys.modules, "office", raising=False)
    assert main(["worker", program]) == 2
    assert told in capsys.readouterr().err
