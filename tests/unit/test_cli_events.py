"""`perdure events`: what agents have noted, for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Agent, kinds
from perdure.cli.main import main
from perdure.journal import rebuild
from perdure.store import open_store
from perdure.values.limits import NUMBER_MAX
from tests.conformance.rich_store import copy_to

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


def run_command(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main(["events", *arguments, "--store", str(path)]) == code
    captured = capsys.readouterr()
    if code:
        return captured.err
    return json.loads(captured.out) if "--json" in arguments else captured.out


def test_events_are_shown_the_newest_last(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, *lines = run_command(path, capsys).splitlines()
    assert header.split() == ["AT", "AGENT", "RUN", "KIND", "PAYLOAD"]
    assert [line.split()[3:5] for line in lines] == [["finished", "DECISION"], ["-", "PAGE_SEEN"], ["-", "decision"]]
    assert "{'what': 'go on', 'why': 'it is cheap', 'options': []}" in lines[-1]
    decision, seen, last = run_command(path, capsys, "--json")
    assert decision == {
        "agent": "travel", "kind": "DECISION", "payload": {"why": "cheapest"}, "run": "finished",
        "at": decision["at"], "position": decision["position"],
    }  # fmt: skip
    assert run_command(path, capsys, "--limit", "1", "--json") == [last]
    assert run_command(path, capsys, "--since", decision["position"], "--limit", "1", "--json") == [seen]
    assert run_command(path, capsys, "--since", decision["at"], "--limit", "1", "--json") == [decision]
    assert run_command(path, capsys, "--since", "1h", "--json", "--kind", "DECISION", "--kind", "decision") == [
        decision,
        last,
    ]
    assert run_command(path, capsys, "--run", "finished", "--json") == [decision]


def test_what_is_not_there_is_told(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run_command(path, capsys, "--kind", "DECIDED") == "no such events; known kinds: DECISION, PAGE_SEEN, decision\n"
    )
    assert run_command(path, capsys, "--run", "failed") == "no events\n"
    assert "no run 'fnished'" in run_command(path, capsys, "--run", "fnished", code=2)
    assert "no agent 'nobody'" in run_command(path, capsys, "--agent", "nobody", code=2)
    assert "2h" in run_command(path, capsys, "--since", "yesterday", code=2)
    assert "2h" in run_command(path, capsys, "--since", "99999999999999d", code=2)
    assert "in the range" in run_command(path, capsys, "--limit", "9" * 30, code=2)
    every = run_command(path, capsys)
    for all_of_them in (["--since", "0001-01-01"], ["--since", "300000d"], ["--limit", str(NUMBER_MAX)]):
        assert run_command(path, capsys, *all_of_them) == every


def test_events_are_followed(path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "perdure.cli",
        "events",
        "--follow",
        "--json",
        "--limit",
        "1",
        "--store",
        str(path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["kind"] == "decision"
        agent, other = Agent("travel", store=path), Agent("new", store=path)
        agent.events.append(kinds.Observation("rain"))
        line = json.loads(follower.stdout.readline())
        assert (line["kind"], line["payload"]["what"]) == ("observation", "rain")
        other.events.append("FIRST", 1)
        assert json.loads(follower.stdout.readline())["agent"] == "new"
        agent.close()
        other.close()
        follower.kill()


def test_an_old_store_gets_the_view_of_what_its_runs_have_noted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def forget() -> None:
        """As it is after a migration of a store that has no such view; tests/releases migrates one."""
        connection = apsw.Connection(str(path))
        connection.execute("DELETE FROM events; INSERT INTO meta (key, value) VALUES ('stale', x'01')").fetchall()
        connection.close()

    forget()
    assert [event["kind"] for event in run_command(path, capsys, "--json")] == ["DECISION", "PAGE_SEEN", "decision"]
    forget()
    agent = Agent("travel", store=path)
    assert [event.kind for event in agent.events.read()] == ["DECISION", "PAGE_SEEN", "decision"]
    agent.close()
    store = open_store(f"sqlite:///{path}")
    assert rebuild.check(store) == []
    assert store.read("get_meta", ("stale",)) == []
    store.close()
