"""`perdure gc` and `perdure archive`: nothing goes unasked, and what went can be shown."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.cli.main import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with something of everything that can go."""
    path = tmp_path / "perdure.db"
    agent = Agent("keeper", store=path)
    with agent.run("old", input="in") as run:
        for number in range(10):
            run.step(lambda number=number: f"{number} " * 100, name=f"step {number}")
        run.result = "out"
    for number in range(4):
        agent.checkpoint.create("c", [number, "x" * 9000])
    agent.checkpoint.retain("c", keep_last=1)
    agent.state.set("s", "k", 1, ttl=0.001)
    agent.close()
    time.sleep(0.01)
    return path


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(one) for one in arguments]) == code
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    return json.loads(run_command(capsys, *arguments, "--json", code=code))


def test_where_nobody_can_be_asked_it_only_shows(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = run_command(capsys, "gc", "--store", path)
    assert "expired keys of state  1" in shown
    assert "old checkpoints        3" in shown
    assert f"to do it: perdure gc --yes --store {path}" in shown
    report = as_json(capsys, "gc", "--store", path)
    assert (report["dry_run"], report["state"]["count"], report["checkpoints"]["count"]) == (True, 1, 3)
    assert as_json(capsys, "gc", "--store", path) == report, "nothing has gone"


def test_with_yes_it_goes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = as_json(capsys, "gc", "--store", path, "--yes")
    assert (report["dry_run"], report["state"]["count"], report["checkpoints"]["count"]) == (False, 1, 3)
    assert report["bytes_after"] <= report["bytes_before"]
    assert run_command(capsys, "gc", "--store", path).startswith("nothing to free; the store takes ")
    assert as_json(capsys, "gc", "--store", path, "--agent", "keeper")["state"]["count"] == 0
    assert run_command(capsys, "verify", "--store", path).startswith("ok; ")
    assert run_command(capsys, "rebuild", "--check", "--store", path).startswith("ok")


def test_what_was_compacted_can_be_shown_and_verified(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = as_json(capsys, "gc", "--store", path, "--compact-before", "1ms", "--yes")
    assert report["events"]["count"] >= 10
    [file] = [Path(name) for name in report["archives"] if "00000002-" in name]
    assert file.parent == Path(f"{path}.archive")
    shown = run_command(capsys, "archive", "show", file.name, "--store", path)
    assert shown.startswith("run keeper/old, entries 1 to 12")
    assert "step step 3 -> '3 3 3" in shown
    assert as_json(capsys, "archive", "show", file)["entries"][0]["kind"] == "RunStarted"
    assert run_command(capsys, "archive", "verify", file, "--store", path).endswith("it matches the store\n")
    assert (
        run_command(capsys, "archive", "verify", file.parent, "--store", path).count(": ok; ")
        == len(report["archives"])
        > 1
    )
    assert main(["archive", "show", str(file.parent)]) == 2
    assert "is a folder; name one of its archives" in capsys.readouterr().err
    (path.parent / "empty").mkdir()
    assert main(["archive", "verify", str(path.parent / "empty")]) == 2
    assert "no archive in the folder" in capsys.readouterr().err
    assert "compacted: archive" in run_command(capsys, "show", "old", "--store", path)
    assert "finished  10" in run_command(capsys, "runs", "--store", path)
    file.write_bytes(file.read_bytes()[:-5])
    assert "damaged" in run_command(capsys, "archive", "verify", file, "--store", path, code=1)
    assert as_json(capsys, "archive", "verify", file, code=1)["ok"] is False


def test_events_go_only_when_they_are_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent, other = Agent("keeper", store=path), Agent("other", store=path)
    with agent.run("both") as run:
        for number in range(10):
            run.event("SEEN", f"{number} " * 50)
            run.step(lambda n=number: other.events.append("SEEN", f"{n} " * 50), name=f"step {number}")
    position = next(agent.events.read(limit=1)).position
    agent.close()
    other.close()
    time.sleep(0.01)
    run_command(capsys, "gc", "--store", path, "--compact-before", "1ms", "--yes")
    assert len(as_json(capsys, "events", "--store", path)) == 20
    shown = run_command(capsys, "gc", "--store", path, "--events-before", "1ms")
    assert f"perdure gc --yes --store {path} --events-before 1ms" in shown
    as_json(capsys, "gc", "--store", path, "--events-before", "1ms", "--archive", f"{path}.old", "--yes")
    assert [row["agent"] for row in as_json(capsys, "events", "--store", path)] == ["keeper", "other"]
    assert main(["events", "--store", str(path), "--agent", "keeper", "--since", position]) != 0
    assert "were compacted" in capsys.readouterr().err
    assert run_command(capsys, "verify", "--store", path).startswith("ok; ")
    assert run_command(capsys, "rebuild", "--check", "--store", path).startswith("ok")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--yes", "--dry-run"], "exclude each other"),
        (["--archive", "folder"], "--compact-before"),
        (["--compact-before", "soon"], "90s"),
        (["--events-before", "soon"], "90s"),
        (["--compact-before", "9999999999999d"], "1,000 years"),
        (["--events-before", "9999999999999d"], "1,000 years"),
        (["--agent", "nobody"], "no agent 'nobody'"),
    ],
)
def test_mistakes_are_told(path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], why: str) -> None:
    assert main(["gc", "--store", str(path), *wrong]) == 2
    assert why in capsys.readouterr().err
