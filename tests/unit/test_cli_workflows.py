"""`perdure workflows`: the plans of the agents, for people and for programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from perdure import Agent, InDoubt
from perdure.cli.main import main


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "perdure.db")
    agent = Agent("travel", store=path)
    wf = agent.workflows.create(
        "trip",
        [
            {"step": "search", "depends_on": []},
            {"step": "book", "depends_on": "search", "args": {"to": "NYC"}},
            {"step": "pack", "title": "pack \x1b[2J the bag"},
        ],
    )
    wf.complete("search", result=["9:00"])
    wf.start("book")
    Agent("other", store=path).workflows.create("report", ["write"])
    return path


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code
    shown = capsys.readouterr()
    return shown.out if code == 0 else shown.err


def test_workflows_are_listed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_command(capsys, "workflows", "--store", store).splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        ["report", "other", "1", "pending"],
        ["trip", "travel", "1", "in_progress"],
    ]
    assert lines[2].endswith("1 of 3, 33%  book")
    found = json.loads(run_command(capsys, "workflows", "list", "--agent", "travel", "--json", "--store", store))
    assert [(row["name"], row["progress"], row["steps"]) for row in found] == [("trip", 33, 3)]
    assert run_command(capsys, "workflows", "--store", store, "list", "--agent", "nobody") == "no such workflows\n"


def test_one_is_shown_with_who_is_at_it(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    here = f"agent 'travel' in process {os.getpid()} on "
    lines = run_command(capsys, "workflows", "show", "trip", "--store", store).splitlines()
    assert lines[:2] == ["trip, version 1: 1 of 3 steps done, 33%", "  ✓ search"]
    assert lines[2].startswith(f"    ▶ book  (in progress: {here}")
    assert lines[3] == r"  · pack pack \x1b[2J the bag"
    shown = json.loads(run_command(capsys, "workflows", "show", "trip", "--json", "--store", store))
    assert [(row["step"], row["status"], row["result"], row["args"]) for row in shown["steps"]] == [
        ("search", "completed", ["9:00"], None),
        ("book", "in_progress", None, {"to": "NYC"}),
        ("pack", "pending", None, None),
    ]
    assert shown["steps"][1]["claimed_by"].startswith(here)
    assert "- [x] **search**" in run_command(capsys, "workflows", "show", "trip", "--markdown", "--store", store)
    assert "    s1 --> s2\n" in run_command(capsys, "workflows", "show", "trip", "--mermaid", "--store", store)
    assert "did you mean 'trip'?" in run_command(capsys, "workflows", "show", "tirp", "--store", store, code=2)
    assert "the newest version is 1" in run_command(
        capsys, "workflows", "show", "trip", "--version", "2", "--store", store, code=2
    )


def test_a_step_that_is_settled_by_hand_waits_for_no_answer(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent("other", store=store)

    @agent.effect
    def write() -> None:
        raise TimeoutError("net")

    wf = agent.workflows.get("report")
    with pytest.raises(InDoubt):
        wf.resume()
    wf.complete(1, result="by hand")
    why = "by agent 'other': step 1 of workflow 'report' was completed by hand"
    line = run_command(capsys, "runs", "--store", store).splitlines()[1]
    assert line.split()[:3] == ["report@1/1", "other", "cancelled"] and line.endswith(why)
    assert "no answer is needed" in run_command(capsys, "show", "report@1/1", "--store", store)
    refused = run_command(capsys, "answer", "report@1/1", "--retry", "--store", store, code=2)
    assert f"was cancelled {why}; it needs no answer" in refused


def test_a_title_can_neither_begin_a_line_nor_move_the_cursor(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    wf = Agent("other", store=store).workflows.create(
        "esc\x1b[31m", [{"action": "x", "title": "one\n  ✓ 2 two \x1b[31m"}]
    )
    lines = [r"esc\x1b[31m, version 1: 0 of 1 steps done, 0%", r"  · 1 one\n  ✓ 2 two \x1b[31m"]
    assert str(wf).splitlines() == lines
    assert run_command(capsys, "workflows", "show", "esc\x1b[31m", "--store", store).splitlines() == lines
    assert "\x1b" not in repr(wf) + wf.markdown() + wf.mermaid()


def test_the_journal_of_a_run_tells_of_them(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent("other", store=store)
    agent.workflows.get("report").resume({"write": lambda: "written"})
    text = run_command(capsys, "show", "report@1/1", "--store", store)
    assert "item work done, with workflow 'report': step 1 completed" in text
