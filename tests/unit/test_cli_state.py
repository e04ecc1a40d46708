"""`perdure state` and `perdure checkpoints`: what agents keep, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.cli.main import main
from tests.conformance.rich_store import LARGE, NOISE, copy_to

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


def told(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--store", str(path)]) == code
    captured = capsys.readouterr()
    if code:
        return captured.err
    return json.loads(captured.out) if "--json" in arguments else captured.out


def test_state_is_shown_by_namespace_key_and_version(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [space] = told(path, capsys, "state", "--json")  # and not the namespaces of Perdure itself
    assert (space["agent"], space["name"], space["keys"]) == ("travel", "trip", 2)
    keys = {it["key"]: it["value"] for it in told(path, capsys, "state", "trip", "--json")["keys"]}
    assert keys.keys() == {"searches", "pages"}
    assert keys["pages"] == [LARGE]
    assert told(path, capsys, "state", "trip", "searches") == f"{keys['searches']}\n"
    history = told(path, capsys, "state", "trip", "page", "--history", "--json")["history"]
    assert [(it["version"], it["value"], it["deleted"]) for it in history] == [(1, 1, False), (2, None, True)]
    assert told(path, capsys, "state", "trip", "--limit", "1").splitlines()[-1] == "1 more; --limit 0 shows all"
    assert "--json shows everything" in told(path, capsys, "state", "trip", "pages")


def test_checkpoints_are_listed_and_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        it["name"]: [one["version"] for one in it["versions"]] for it in told(path, capsys, "checkpoints", "--json")
    }
    assert found == {"seen": [1, 2], "draft": [2]}
    assert told(path, capsys, "checkpoints", "draft", "--json")["value"] == {"pages": [LARGE, repr(NOISE), LARGE]}
    assert told(path, capsys, "checkpoints", "seen", "--version", "1").splitlines()[1] == "'a'"


def test_what_is_not_there_is_guessed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'trip'?" in told(path, capsys, "state", "tripp", code=2)
    assert "did you mean 'searches'?" in told(path, capsys, "state", "trip", "search", code=2)
    assert "did you mean 'travel'?" in told(path, capsys, "state", "--agent", "travle", code=2)
    assert "did you mean 'draft'?" in told(path, capsys, "checkpoints", "drafts", code=2)
    assert "it has version 2" in told(path, capsys, "checkpoints", "draft", "--version", "1", code=2)
    assert "NAMESPACE KEY --history" in told(path, capsys, "state", "--history", code=2)


def test_of_several_agents_one_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "perdure.db"
    assert main(["init", "--store", str(path), "--json"]) == 0
    capsys.readouterr()
    assert told(path, capsys, "state").startswith("no state;")
    assert told(path, capsys, "checkpoints").startswith("no checkpoints;")
    for name in ("ann", "ben"):
        agent = Agent(name, store=path)
        agent.state.set("seen", "who", name)
        agent.checkpoint.create("done", name)
        agent.close()
    for what in (["state", "seen"], ["checkpoints", "done"]):
        assert "ann, ben; say which one with --agent" in told(path, capsys, *what, code=2)
    assert told(path, capsys, "state", "seen", "who", "--agent", "ben") == "'ben'\n"
    assert told(path, capsys, "checkpoints", "done", "--agent", "ann", "--json")["value"] == "ann"


def test_threads_are_listed_and_shown_without_their_framework(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = {it["id"]: it for it in told(path, capsys, "threads", "--json")}
    assert listed.keys() == {"talk", "copy"}
    assert told(path, capsys, "threads").splitlines()[0].split() == ["THREAD", "AGENT", "CHECKPOINTS", "LAST"]
    seen = told(path, capsys, "threads", "talk", "--json")
    assert seen["checkpoints"] == listed["talk"]["checkpoints"] == len(seen["history"])
    newest, before = seen["history"][0], seen["history"][1]
    assert newest["parent"] == before["id"]
    assert newest["changes"]
    older = told(path, capsys, "threads", "talk", "--at", before["id"], "--json")
    assert older["values"] != seen["values"]
    text = told(path, capsys, "show", "talk", "--last", "1")
    assert newest["changes"][0] in text
    assert f"the newest 1 of {seen['checkpoints']}" in text
    assert before["id"] not in text
    assert "did you mean 'talk'" in told(path, capsys, "threads", "tolk", code=2)
    assert "talk" in told(path, capsys, "threads", "talk", "--at", "nothing", code=2)
