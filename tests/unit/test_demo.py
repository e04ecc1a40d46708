"""The demo proves what it claims, and would notice if it did not; the examples survive being killed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure.demo
from perdure.demo import run_demo
from perdure.demo.evidence import ASSUMED, examine
from perdure.demo.screen import PlainDisplay
from perdure.demo.story import CALLS, KILLED_AT, Call, Life, play, read_calls, read_outside
from perdure.demo.terminal import TerminalDisplay

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Life], list[Life]]:
    """The demo, played once for all tests that look at what it left: folder, lives, everything that was watched."""
    folder, watched = tmp_path_factory.mktemp("demo"), []
    lives = play(folder, watched.append)
    return folder, lives, watched


@pytest.fixture
def copy(played: tuple[Path, list[Life], list[Life]], tmp_path: Path) -> Path:
    """The files of a played demo, to be tampered with."""
    return Path(shutil.copytree(played[0], tmp_path / "copy"))


def test_two_processes_are_killed_and_the_third_finishes(played: tuple[Path, list[Life], list[Life]]) -> None:
    folder, lives, _ = played
    assert [life.exit_code for life in lives] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert [len(life.executed) for life in lives] == [46, 2, 2]
    assert [life.remembered for life in lives] == [0, KILLED_AT - 1, KILLED_AT]
    assert len({life.pid for life in lives}) == 3
    assert len(read_calls(folder)) == CALLS == len({(call.tool, call.task) for call in read_calls(folder)})


def test_the_counts_bear_out_every_claim(played: tuple[Path, list[Life], list[Life]]) -> None:
    folder, lives, _ = played
    report = examine(folder, lives)
    assert [claim.claim for claim in report.claims if not claim.holds] == []
    assert report.ok
    assert (report.made.calls, report.made.effects) == (50, 16)
    assert (report.repeated.calls, report.repeated.effects, report.repeated.dollars) == (0, 0, 0)
    # A restart from zero repeats 46 calls the first time and 48 the second: 'deploy' had been executed too.
    assert (report.spared.calls, report.spared.effects) == (46 + 48, 13 + 15)
    assert report.spared.dollars == 60 * ASSUMED["model"].dollars


def test_progress_is_seen_while_it_is_made(played: tuple[Path, list[Life], list[Life]]) -> None:
    _, lives, watched = played
    first = [life.position for life in watched if life.number == 1 and life.exit_code is None]
    assert first == sorted(first)
    assert len(set(first)) > 20
    assert [life for life in watched if life.exit_code is not None] == lives


def add_line(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(line + "\n")


def test_an_effect_that_happened_twice_is_noticed(
    copy: Path, played: tuple[Path, list[Life], list[Life]]
) -> None:
    again = read_outside(copy)[3]
    add_line(copy / "outside.txt", f"{again.key} {again.task}")
    report = examine(copy, played[1])
    assert not report.ok
    assert report.repeated.effects == 1


def test_an_effect_with_a_new_key_is_noticed(copy: Path, played: tuple[Path, list[Life], list[Life]]) -> None:
    add_line(copy / "outside.txt", f"{'0' * 32} {read_outside(copy)[3].task}")
    assert not examine(copy, played[1]).ok


def test_an_effect_that_is_missing_is_noticed(copy: Path, played: tuple[Path, list[Life], list[Life]]) -> None:
    lines = (copy / "outside.txt").read_text().splitlines(keepends=True)
    (copy / "outside.txt").write_text("".join(lines[:-1]))
    assert not examine(copy, played[1]).ok


def test_a_call_that_was_repeated_is_noticed(copy: Path, played: tuple[Path, list[Life], list[Life]]) -> None:
    last = played[1][2]
    add_line(copy / "calls.txt", f"{last.pid} model review part_05.py")
    repeating = msgspec.structs.replace(
        last, executed=(*last.executed, Call(last.pid, "model", "review part_05.py"))
    )
    report = examine(copy, [*played[1][:2], repeating])
    assert not report.ok
    assert [claim.holds for claim in report.claims if "Process 3" in claim.claim] == [False]
    assert (report.repeated.calls, report.repeated.dollars) == (1, ASSUMED["model"].dollars)


@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_was_not_killed_is_noticed(
    played: tuple[Path, list[Life], list[Life]], number: int
) -> None:
    folder, lives = played[0], list(played[1])
    lives[number] = msgspec.structs.replace(lives[number], exit_code=1)
    assert not examine(folder, lives).ok


def test_the_agent_without_its_store_is_noticed(copy: Path, played: tuple[Path, list[Life], list[Life]]) -> None:
    (copy / "coder.db").unlink()
    assert not examine(copy, played[1]).ok


# -- how it is shown --------------------------------------------------------------------------------------------


def test_a_terminal_gets_marks_and_a_table(played: tuple[Path, list[Life], list[Life]]) -> None:
    from rich.console import Console

    folder, lives, watched = played
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=60, color_system="standard", _environ={})
    with TerminalDisplay(console, pause=0) as display:
        display.begin(folder)
        for life in watched[::8] + lives:
            display.update(life)
        display.end(examine(folder, lives), None)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "━" * 46 + "✗" + "─" * 3 in shown
    assert "━" * 47 + "✗" + "─" * 2 in shown
    assert "SIGKILL in call 47: push the image" in shown
    assert "\x1b[31m" in out.getvalue() or "\x1b[1;31m" in out.getvalue()
    assert "Every claim was verified by counting." in shown


def test_what_failed_is_shown(
    copy: Path, played: tuple[Path, list[Life], list[Life]], capsys: pytest.CaptureFixture[str]
) -> None:
    add_line(copy / "outside.txt", f"{'0' * 32} deploy")
    PlainDisplay().end(examine(copy, played[1]), copy)
    shown = capsys.readouterr().out
    assert "FAIL 17 effects" in shown
    assert f"A claim does not hold; the files are in {copy}." in shown


def demo(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`perdure demo` without the command line around it."""
    code = (
        "import sys; from pathlib import Path; from perdure.demo import run_demo;"
        "folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None;"
        "sys.exit(run_demo(json=sys.argv[1] == 'json', plain=False, folder=folder))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_a_pipe_gets_plain_lines_and_nothing_stays_behind(tmp_path: Path) -> None:
    # What the user's shell has set must not reach the agent of the demo.
    result = demo("text", folder=tmp_path, PERDURE_URL="sqlite:////nowhere/x.db", TERM="xterm-256color")
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert "SIGKILL in call 47: push the image" in result.stdout
    assert "FAIL" not in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object_and_a_folder_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "here"
    result = demo("json", str(kept), folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    facts: dict[str, Any] = json.loads(result.stdout)
    assert facts["ok"] is True
    assert facts["folder"] == str(kept)
    assert [life["died_in"] for life in facts["lives"]] == ["push the image", "deploy", None]
    assert len(read_outside(kept)) == facts["made"]["effects"]
    again = demo("json", str(kept), folder=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "not an empty folder" in again.stderr


def test_a_failed_demo_says_so_and_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing dies, so hardly a claim is left.
    monkeypatch.setattr(perdure.demo.story, "KILLS", ("", "", ""))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(perdure.demo.tempfile, "tempdir", None)
    assert run_demo(json=True, plain=False, folder=None) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] is False
    assert Path(facts["folder"], "coder.db").exists()
