"""Commands in their long form, a noun and a verb; the commands that came with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from perdure import Agent
from perdure.cli.main import COMMANDS, LONG_ONLY, NOUN_VERB, main
from perdure.errors import RunPaused


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "perdure.db"
    with Agent("travel", store=path) as agent, agent.run("trip") as run:
        run.state["k"] = 1
        agent.state.set("prefs", "seat", "aisle")
        agent.state.set("prefs", "seat", "window")
    return str(path)


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("long", "short"),
    [
        (("runs", "list"), ("runs",)),
        (("runs", "show", "trip"), ("show", "trip")),
        (("runs", "timeline", "trip", "--width", "80"), ("timeline", "trip", "--width", "80")),
        (("state", "list", "prefs"), ("state", "prefs")),
        (("state", "get", "prefs", "seat"), ("state", "prefs", "seat")),
        (("state", "history", "prefs", "seat"), ("state", "prefs", "seat", "--history")),
        (("checkpoints", "list"), ("checkpoints",)),
        (("artifacts", "list"), ("artifacts", "ls")),
    ],
)
def test_the_long_form_does_what_the_short_one_does(
    store: str, long: tuple[str, ...], short: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--json", "--store", store)
    assert run_command(capsys, *long, *where) == run_command(capsys, *short, *where)


def test_every_long_form_leads_to_a_command_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert {short[0] for short in NOUN_VERB.values()} <= set(COMMANDS)
    for long in (*NOUN_VERB, *(one.split() for one in LONG_ONLY)):
        assert run_command(capsys, *long, "--help").startswith("Usage: perdure ")


def test_state_is_set_with_a_version(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_it = ["state", "set", "prefs", "bags", "2", "--if-version", "0", "--store", store, "--json"]
    told = json.loads(run_command(capsys, *set_it))
    assert told == {"agent": "travel", "namespace": "prefs", "key": "bags", "version": 1}
    assert main(set_it) == 2
    assert json.loads(capsys.readouterr().err)["error"]["name"] == "VersionConflict"
    with Agent("travel", store=store) as agent:
        assert agent.state.get("prefs", "bags") == 2


def test_agents_are_listed_with_their_runs(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Agent("idle", store=store) as agent, pytest.raises(ConnectionError), agent.run("r"):
        raise ConnectionError
    rows = json.loads(run_command(capsys, "agents", "--json", "--store", store))
    assert [(row["name"], row["runs"], row["unfinished"]) for row in rows] == [("idle", 1, 1), ("travel", 1, 0)]
    assert "travel" in run_command(capsys, "agents", "list", "--store", store)


def test_resume_starts_the_program_of_a_paused_run(
    store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "trip.py"
    program.write_text("from perdure import Agent\nwith Agent('travel').run('later') as run: run.result = 'there'\n")
    with Agent("travel", store=store) as agent:
        with pytest.raises(RunPaused), agent.run("later") as run:
            agent.runs.pause("later")
            run.step(str, name="stopped")
        assert main(["resume", "later", "--store", store, "--", sys.executable, str(program)]) == 0
        assert agent.runs.result("later") == "there"
    assert main(["resume", "later", "--store", store, "--", sys.executable, "-c", "raise SystemExit(0)"]) == 0


def test_resume_of_a_run_that_nobody_paused_names_the_command(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Agent("travel", store=store) as agent, pytest.raises(ConnectionError), agent.run("trip #9"):
        raise ConnectionError
    assert main(["resume", "trip #9", "--store", store]) == 2
    told = capsys.readouterr().err
    assert "'trip #9' is failed, not paused" in told
    assert "perdure resume 'trip #9' -- python PROGRAM.py" in told
