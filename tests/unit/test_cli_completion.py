"""Pressing Tab: a real bash completes commands, options, runs and agents; nothing is made or changed by it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure import Agent
from perdure.cli.main import main
from tests.conformance.rich_store import copy_to
from tests.unit.child import read_terminal

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")

BIN = Path(sys.executable).parent


TELLING = """
perdure() {
    if [ "$_PERDURE_COMPLETE" ]; then command perdure "$@"; else printf '<%s>\\n' "$*"; fi
}
"""
"""So that a line which was completed says what it has become, instead of running."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = copy_to(tmp_path / "perdure.db")
    agent = Agent("airline", store=path)
    for run in ("deploy@1/push", "a:b:c", "evil $(touch x)", "evil\nplain,injected"):
        with agent.run(run):
            pass
    agent.close()
    return path


def environment(path: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PERDURE_URL": str(path), "TERM": "dumb", **more}


def type_into_bash(lines: Sequence[str], rcfile: Path, path: Path) -> str:
    ours, theirs = pty.openpty()
    bash = ["bash", "--noprofile", "--rcfile", str(rcfile), "-i"]
    with subprocess.Popen(
        bash, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(path), cwd=path.parent
    ) as process:
        os.close(theirs)
        os.write(ours, "".join(f"{line}\n" for line in (*lines, "exit")).encode())
        shown = read_terminal(ours)
        process.wait()
    return shown.decode()


def test_bash_completes_the_line_that_somebody_types(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    rcfile = path.parent / "completion.sh"
    rcfile.write_text(capsys.readouterr().out + TELLING)
    lines = [
        "perdure sho\tdeploy@1/p\t--age\tair\t",
        "perdure runs --status cra\t",
        "perdure show a:b\t",
        "perdure show ev\t",
    ]
    told = re.findall(r"^<.*>", type_into_bash(lines, rcfile, path), re.M)
    # What a shell might take for more than text is not offered.
    assert told == ["<show deploy@1/push --agent airline>", "<runs --status crashed>", "<show a:b:c>", "<show ev>"]


@pytest.mark.parametrize("shell", ["zsh"])
def test_other_shells_are_answered(shell: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell, "--json"]) == 0
    assert "_PERDURE_COMPLETE" in json.loads(capsys.readouterr().out)["script"]
    typed = {"COMP_WORDS": "perdure show fin", "COMP_CWORD": "2" if shell == "zsh" else "fin"}
    done = perdure(environment(path, _PERDURE_COMPLETE=f"{shell}_complete", **typed))
    assert "finished" in done.stdout
    assert "of travel" in done.stdout


def test_tab_makes_nothing_and_says_nothing(tmp_path: Path) -> None:
    typed = {"COMP_TYPED": "perdure show ", "_PERDURE_COMPLETE": "bash_complete"}
    done = perdure(environment(tmp_path / "missing.db", **typed))
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_shell_is_found_or_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main(["completion"]) == 0
    assert "function _perdure_completion" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["completion"]) == 2
    assert "bash, zsh or fish" in capsys.readouterr().err


def perdure(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perdure.cli"], env=environment, capture_output=True, text=True, check=False
    )
