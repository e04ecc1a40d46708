"""The demo proves what it claims, and would notice if it did not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.demo import Screen, play, run_demo
from perdure.demo.evidence import CALLS, KILLED_AT, DemoProcess, count, examine, read_calls, read_outside

from .fast_tools import hurry

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")  # copies are looked at

ROOT = Path(__file__).parents[2]

Played = tuple[Path, list[DemoProcess]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The demo, played once for all tests that look at what it left."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "src"))
        return folder, play(folder, Screen(silent=True))


@pytest.fixture
def quick(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of child processes take hardly any time."""
    monkeypatch.setenv("PYTHONPATH", hurry(tmp_path_factory.mktemp("quick")))


@pytest.fixture
def copy(played: Played, tmp_path: Path) -> Path:
    """The files of a played demo, to be tampered with."""
    return Path(shutil.copytree(played[0], tmp_path / "copy"))


def test_two_processes_are_killed_and_the_third_finishes(played: Played) -> None:
    folder, lives = played
    assert [life.exit_code for life in lives] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert [len(life.executed) for life in lives] == [46, 2, 2]
    assert [life.remembered for life in lives] == [0, KILLED_AT - 1, KILLED_AT]
    assert len({life.pid for life in lives}) == 3
    assert len(read_calls(folder)) == CALLS == len({task for _, task in read_calls(folder)})


def test_the_counts_bear_out_every_claim(played: Played) -> None:
    assert [claim for claim, holds in examine(*played).items() if not holds] == []
    # A restart from zero repeats 46 calls the first time and 48 the second: 'deploy' had been executed too.
    assert count(*played) == {
        "made": {"calls": 50, "effects": 16},
        "repeated": {"calls": 0, "effects": 0},
        "spared": {"calls": 46 + 48, "effects": 13 + 15},
    }


def add_line(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(line + "\n")


def test_an_effect_that_happened_twice_is_noticed(copy: Path, played: Played) -> None:
    add_line(copy / "outside.txt", f"{read_outside(copy)[3]} again")
    assert not all(examine(copy, played[1]).values())
    assert count(copy, played[1])["repeated"]["effects"] == 1


def test_an_effect_with_a_new_key_is_noticed(copy: Path, played: Played) -> None:
    add_line(copy / "outside.txt", f"{'0' * 32} deploy")
    assert not all(examine(copy, played[1]).values())


def test_an_effect_that_is_missing_is_noticed(copy: Path, played: Played) -> None:
    lines = (copy / "outside.txt").read_text().splitlines(keepends=True)
    (copy / "outside.txt").write_text("".join(lines[:-1]))
    assert not all(examine(copy, played[1]).values())


def test_a_call_that_was_repeated_is_noticed(copy: Path, played: Played) -> None:
    last = played[1][2]
    add_line(copy / "calls.txt", f"host {last.pid} model review part_05.py")
    again = msgspec.structs.replace(last, executed=(*last.executed, "model review part_05.py"))
    lives = [*played[1][:2], again]
    assert [holds for claim, holds in examine(copy, lives).items() if "Process 3" in claim] == [False]
    assert count(copy, lives)["repeated"]["calls"] == 1


@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_was_not_killed_is_noticed(played: Played, number: int) -> None:
    lives = list(played[1])
    lives[number] = msgspec.structs.replace(lives[number], exit_code=1)
    assert not all(examine(played[0], lives).values())


# -- how it is shown --------------------------------------------------------------------------------------------


DEMO = """\
import sys
from pathlib import Path
from perdure.demo import run_demo
how, folder = [*sys.argv[1:], ""][:2]
sys.exit(run_demo(json=how == "json", plain=False, folder=Path(folder) if folder else None))
"""


def start_demo(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`perdure demo` without the command line around it."""
    return subprocess.Popen(
        [sys.executable, "-c", DEMO, *arguments],
        env={"PYTHONPATH": str(ROOT / "src"), **os.environ, "TMPDIR": str(folder), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def demo(folder: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    with start_demo(folder, *arguments, **environment) as process:
        output, errors = process.communicate(timeout=600)
    return process.returncode, output, errors


@pytest.mark.usefixtures("quick")
def test_a_pipe_gets_plain_lines_and_nothing_stays_behind(tmp_path: Path) -> None:
    # What the user's shell has set must not reach the agent of the demo.
    code, output, errors = demo(tmp_path, "text", PERDURE_URL="sqlite:////nowhere/x.db", TERM="xterm-256color")
    assert (code, errors) == (0, "")
    assert "\x1b" not in output
    assert "SIGKILL in call 47: push the image" in output
    assert "FAIL" not in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_json_is_one_object_and_a_folder_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept" / "here"
    code, output, errors = demo(tmp_path, "json", str(kept))
    assert (code, errors) == (0, "")
    facts: dict[str, Any] = json.loads(output)
    assert facts["ok"] is True
    assert facts["folder"] == str(kept)
    assert [life["died_in"] for life in facts["lives"]] == ["push the image", "deploy", None]
    assert [claim["holds"] for claim in facts["claims"]] == [True] * 8
    assert len(read_outside(kept)) == facts["made"]["effects"]
    assert run_demo(json=True, plain=False, folder=kept) == 2
    assert "not an empty folder" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_a_failed_demo_says_so_and_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perdure.demo.KILLS", ("", "", ""))  # nothing dies
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_demo(json=True, plain=False, folder=None) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] is False
    assert Path(facts["folder"], "coder.db").exists()


def test_ctrl_c_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    with start_demo(tmp_path, "text") as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("process 1"))
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=600)
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []
    pid = int(line.split("pid ")[1].split(")")[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
