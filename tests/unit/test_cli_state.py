"""`perdure state` and `perdure checkpoints`: what agents keep, for people and for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, stored
from perdure.cli.main import main
from tests.conformance.rich_store import LARGE, NOISE, copy_to

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


def run_command(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--store", str(path)]) == code
    captured = capsys.readouterr()
    if code:
        return captured.err
    return json.loads(captured.out) if "--json" in arguments else captured.out


def test_state_is_shown_by_namespace_key_and_version(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [space] = run_command(path, capsys, "state", "--json")  # and not the namespaces of Perdure itself
    assert (space["agent"], space["name"], space["keys"]) == ("travel", "trip", 2)
    keys = {row["key"]: row["value"] for row in run_command(path, capsys, "state", "trip", "--json")["keys"]}
    assert keys.keys() == {"searches", "pages"}
    assert keys["pages"] == [LARGE]
    assert run_command(path, capsys, "state", "trip", "searches") == f"{keys['searches']}\n"
    history = run_command(path, capsys, "state", "trip", "page", "--history", "--json")["history"]
    assert [(row["version"], row["value"], row["deleted"]) for row in history] == [(1, 1, False), (2, None, True)]
    assert run_command(path, capsys, "state", "trip", "--limit", "1").splitlines()[-1] == "1 more; --limit 0 shows all"
    assert "--json shows everything" in run_command(path, capsys, "state", "trip", "pages")


def test_checkpoints_are_listed_and_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        row["name"]: [one["version"] for one in row["versions"]]
        for row in run_command(path, capsys, "checkpoints", "--json")
    }
    assert found == {"seen": [1, 2], "draft": [2]}
    assert run_command(path, capsys, "checkpoints", "draft", "--json")["value"] == {
        "pages": [LARGE, repr(NOISE), LARGE]
    }
    assert run_command(path, capsys, "checkpoints", "seen", "--version", "1").splitlines()[1] == "'a'"


@stored("cli-point")
@dataclass
class Point:
    x: int


@pytest.fixture
def drafts(tmp_path: Path) -> Path:
    """A store with checkpoints in which one part is of a class that only this program knows."""
    path = tmp_path / "drafts.db"
    agent = Agent("ann", store=path)
    first = {"at": Point(1), "to": [(Point(2), "b")], "n": 1, 7: "seven"}
    agent.checkpoint.create("draft", first, labels=["good"], meta={"cost": 2})
    agent.checkpoint.create("draft", first | {"n": 2, "to": [(Point(2), "c")]})
    agent.checkpoint.create("final", {"n": 2, "esc": "\x1b[2J"}, meta=Point(3))
    agent.close()
    return path


def run_without_class(path: Path, *arguments: str) -> Any:
    """What a program says that does not know the class."""
    script = "import sys; from perdure.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, *arguments, "--store", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


def test_objects_of_a_class_that_is_not_known_here_are_shown_as_data(drafts: Path) -> None:
    text = run_without_class(drafts, "checkpoints", "draft")
    assert "'n': 2" in text and "7: 'seven'" in text and text.count("{'class': 'cli-point', 'x': ") == 2
    shown = run_without_class(drafts, "checkpoints", "draft", "--json")["value"]
    at, to, meta = ({"class": "cli-point", "x": x} for x in (1, 2, 3))
    assert shown == {"at": at, "to": [[to, "c"]], "n": 2, "7": "seven"}
    assert run_without_class(drafts, "checkpoints", "final", "--json")["meta"] == meta
    lines = run_without_class(drafts, "checkpoints", "diff", "draft").splitlines()
    assert lines == ["draft version 1 -> draft version 2: 2 changes", "~ .to[0][1]: 'b' -> 'c'", "~ .n: 1 -> 2"]


def test_versions_have_their_labels_and_notes(drafts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for versions in (
        run_command(drafts, capsys, "checkpoints", "--json")[0]["versions"],
        run_command(drafts, capsys, "checkpoints", "draft", "--json")["versions"],
    ):
        assert [(row["version"], row["labels"], row["meta"]) for row in versions] == [
            (1, ["good"], {"cost": 2}),
            (2, [], None),
        ]
    assert [row["name"] for row in run_command(drafts, capsys, "checkpoints", "--limit", "1", "--json")] == ["final"]
    assert run_command(drafts, capsys, "checkpoints", "--limit", "1").splitlines()[2:] == [
        "1 older; --limit 0 shows all"
    ]
    assert len(run_command(drafts, capsys, "checkpoints", "show", "draft", "--limit", "1", "--json")["versions"]) == 1


def test_checkpoints_are_compared(drafts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_command(drafts, capsys, "checkpoints", "diff", "draft", "2", "1", "--json")
    assert (found["from"]["version"], found["to"]["version"]) == (2, 1)
    assert found["changes"][1] == {"path": ".n", "kind": "changed", "before": 2, "after": 1}
    lines = run_command(drafts, capsys, "checkpoints", "diff", "draft", "1", "--to", "final").splitlines()
    assert lines[0] == "draft version 1 -> final version 1: 5 changes"
    assert set(lines[1:]) >= {"~ .n: 1 -> 2", "- [7]: 'seven'", r"+ .esc: '\x1b[2J'"}
    assert run_command(drafts, capsys, "checkpoints", "diff", "draft", "1", "1").endswith("nothing has changed\n")
    assert "3 more; --limit 0" in run_command(
        drafts, capsys, "checkpoints", "diff", "draft", "--to", "final", "--limit", "1"
    )
    assert "it has version 1, 2" in run_command(drafts, capsys, "checkpoints", "diff", "draft", "1", "9", code=2)


def test_checkpoints_are_deleted_by_who_says_so(drafts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = run_command(drafts, capsys, "checkpoints", "delete", "draft")
    assert asked.startswith("would delete 2 versions of draft: 1, 2\nnothing was deleted; add --yes")
    assert run_command(drafts, capsys, "checkpoints", "delete", "draft", "--json")["deleted"] == 0
    one = run_command(drafts, capsys, "checkpoints", "delete", "draft", "--version", "1", "--yes", "--json")
    assert (one["versions"], one["deleted"]) == ([1], 1)
    assert "no version 1" in run_command(
        drafts, capsys, "checkpoints", "delete", "draft", "--version", "1", "--yes", code=2
    )
    assert run_command(drafts, capsys, "checkpoints", "delete", "draft", "--yes") == "deleted 1 version of draft\n"
    assert [row["name"] for row in run_command(drafts, capsys, "checkpoints", "--json")] == ["final"]


def test_what_is_not_there_is_guessed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'trip'?" in run_command(path, capsys, "state", "tripp", code=2)
    assert "did you mean 'searches'?" in run_command(path, capsys, "state", "trip", "search", code=2)
    assert "did you mean 'travel'?" in run_command(path, capsys, "state", "--agent", "travle", code=2)
    assert "did you mean 'draft'?" in run_command(path, capsys, "checkpoints", "drafts", code=2)
    assert "it has version 2" in run_command(path, capsys, "checkpoints", "draft", "--version", "1", code=2)
    assert "NAMESPACE KEY --history" in run_command(path, capsys, "state", "--history", code=2)


def test_of_several_agents_one_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "perdure.db"
    assert main(["init", "--store", str(path), "--json"]) == 0
    capsys.readouterr()
    assert run_command(path, capsys, "state").startswith("no state;")
    assert run_command(path, capsys, "checkpoints").startswith("no checkpoints;")
    for name in ("ann", "ben"):
        agent = Agent(name, store=path)
        agent.state.set("seen", "who", name)
        agent.checkpoint.create("done", name)
        agent.close()
    for what in (["state", "seen"], ["checkpoints", "done"]):
        assert "ann, ben; choose one with --agent" in run_command(path, capsys, *what, code=2)
    assert run_command(path, capsys, "state", "seen", "who", "--agent", "ben") == "'ben'\n"
    assert run_command(path, capsys, "checkpoints", "done", "--agent", "ann", "--json")["value"] == "ann"


def test_threads_are_listed_and_shown_without_their_framework(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = {row["id"]: row for row in run_command(path, capsys, "threads", "--json")}
    assert listed.keys() == {"talk", "copy"}
    assert run_command(path, capsys, "threads").splitlines()[0].split() == [
        "THREAD",
        "AGENT",
        "FRAMEWORK",
        "SIZE",
        "LAST",
    ]
    seen = run_command(path, capsys, "threads", "talk", "--json")
    assert seen["checkpoints"] == listed["talk"]["checkpoints"] == len(seen["history"])
    newest, before = seen["history"][0], seen["history"][1]
    assert newest["parent"] == before["id"]
    assert newest["changes"]
    older = run_command(path, capsys, "threads", "talk", "--at", before["id"], "--json")
    assert older["values"] != seen["values"]
    text = run_command(path, capsys, "show", "talk", "--last", "1")
    assert newest["changes"][0] in text
    assert f"the newest 1 of {seen['checkpoints']}" in text
    assert before["id"] not in text
    assert "did you mean 'talk'" in run_command(path, capsys, "threads", "tolk", code=2)
    assert "talk" in run_command(path, capsys, "threads", "talk", "--at", "nothing", code=2)
