"""`perdure artifacts ls|get|put|rm`."""

from __future__ import annotations

import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.cli.main import main


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in an empty folder beside a store; gives its output, what it says of an error, or its JSON."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> Any:
        assert main(["artifacts", *arguments, "--store", "perdure.db"]) == code
        caught = capsys.readouterr()
        return json.loads(caught.out) if "--json" in arguments and not code else caught.out + caught.err

    return run


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent("learner", store=tmp_path / "perdure.db")


def test_put_list_get_and_remove(agent: Agent, run_command: Any, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3_000_000)
    Path("model.bin").write_bytes(data)
    agent.state.set("a", "k", 1)
    assert run_command("ls") == "no artifacts\n"
    assert run_command("put", "models/best", "model.bin", "--note", "after\nepoch 3", "--label", "good") == (
        "saved models/best, version 1, 3.0 MB\n"
    )
    Path("model.bin").write_bytes(data[:-5] + b"other")
    assert run_command("put", "models/best", "model.bin", "--json")["version"] == 2
    listed = run_command("ls")
    assert "models/best  1        learner  file  3.0 MB  3.0 MB" in listed
    assert "good; after\\nepoch 3" in listed
    assert "2 versions, 6.0 MB, stored in 3." in listed
    first, second = run_command("ls", "--json")
    assert (first["labels"], first["size"], second["version"]) == (["good"], 3_000_000, 2)
    assert second["added"] < 300_000 < first["added"]
    assert run_command("get", "models/best", "--version", "1").startswith(
        "wrote best: models/best, version 1, 3.0 MB, verified"
    )
    assert Path("best").read_bytes() == data
    assert "--force" in run_command("get", "models/best", code=2)
    assert run_command("get", "models/best", "--force", "--json")["version"] == 2
    assert Path("best").read_bytes() == data[:-5] + b"other"
    assert run_command("rm", "models/best", "--version", "1", "--json")["deleted"] == 1
    assert "no version 1" in run_command("rm", "models/best", "--version", "1", code=2)
    assert run_command("rm", "models/best") == "deleted 1 version of models/best\n"
    assert run_command("ls") == "no artifacts\n"


def test_artifacts_stream_through_pipes(agent: Agent, run_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.state.set("a", "k", 1)
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe")))
    run_command("put", "piped", "-")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", out)
        assert main(["artifacts", "get", "piped", "-", "--store", "perdure.db"]) == 0
    assert out.buffer.getvalue() == b"from a pipe"  # type: ignore[attr-defined]


def test_artifact_commands_say_what_is_missing(run_command: Any, agent: Agent) -> None:
    Path("x").write_bytes(b"x")
    agent.runs.list()
    assert "--agent NAME" in run_command("put", "a", "x", code=2)
    assert run_command("put", "weights", "x", "--agent", "learner") == "saved weights, version 1, 1 bytes\n"
    assert "hint: did you mean 'weights'?" in run_command("get", "weight", code=2)
    assert "in the range" in run_command("get", "weights", "--version", "9" * 30, code=2)
    assert "there is no agent 'nobody'" in run_command("ls", "--agent", "nobody", code=2)
    assert "did you mean 'learner'" in run_command("get", "weights", "--agent", "learnr", code=2)
    Agent("other", store="perdure.db").artifacts.save("weights", b"2")
    assert "several agents have an artifact of that name: learner, other" in run_command("get", "weights", code=2)
    assert "choose the agent" in run_command("put", "a", "x", code=2)
    assert run_command("get", "weights", "--agent", "other", "--json")["size"] == 1
    assert Path("weights").read_bytes() == b"2"
    assert "no agent has an artifact 'nothing'" in run_command("rm", "nothing", code=2)
    Path("weights").unlink()
    run_command("put", "a/..", "x", "--agent", "other")
    assert "give a PATH" in run_command("get", "a/..", code=2)
