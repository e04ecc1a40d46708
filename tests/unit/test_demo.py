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
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.demo import run_demo
from perdure.demo.evidence import ASSUMED, examine
from perdure.demo.screen import PlainDisplay
from perdure.demo.story import CALLS, KILLED_AT, Call, Life, play, read_calls, read_outside
from perdure.demo.terminal import TerminalDisplay

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")  # copies are looked at

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

Played = tuple[Path, list[Life], list[Life]]

# For processes whose simulated tools need not take their time; found by PYTHONPATH.
QUICK = "import time; time.sleep = lambda seconds, sleep=time.sleep: sleep(seconds / 50)\n"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The demo, played once for all tests that look at what it left: folder, lives, everything that was watched."""
    folder, watched = tmp_path_factory.mktemp("demo"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "src"))
        lives = play(folder, watched.append)
    return folder, lives, watched


@pytest.fixture
def quick(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of child processes take hardly any time."""
    folder = tmp_path_factory.mktemp("quick")
    (folder / "sitecustomize.py").write_text(QUICK)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT / 'src'}")


@pytest.fixture
def copy(played: Played, tmp_path: Path) -> Path:
    """The files of a played demo, to be tampered with."""
    return Path(shutil.copytree(played[0], tmp_path / "copy"))


def test_two_processes_are_killed_and_the_third_finishes(played: Played) -> None:
    folder, lives, _ = played
    assert [life.exit_code for life in lives] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert [len(life.executed) for life in lives] == [46, 2, 2]
    assert [life.remembered for life in lives] == [0, KILLED_AT - 1, KILLED_AT]
    assert len({life.pid for life in lives}) == 3
    assert len(read_calls(folder)) == CALLS == len({(call.tool, call.task) for call in read_calls(folder)})


def test_the_counts_bear_out_every_claim(played: Played) -> None:
    folder, lives, _ = played
    report = examine(folder, lives)
    assert [claim.claim for claim in report.claims if not claim.holds] == []
    assert report.ok
    assert (report.made.calls, report.made.effects) == (50, 16)
    assert (report.repeated.calls, report.repeated.effects, report.repeated.dollars) == (0, 0, 0)
    # A restart from zero repeats 46 calls the first time and 48 the second: 'deploy' had been executed too.
    assert (report.spared.calls, report.spared.effects) == (46 + 48, 13 + 15)
    assert report.spared.dollars == 60 * ASSUMED["model"].dollars


def test_progress_is_seen_while_it_is_made(played: Played) -> None:
    _, lives, watched = played
    first = [life.position for life in watched if life.number == 1 and life.exit_code is None]
    assert first == sorted(first)
    assert len(set(first)) > 20
    assert [life for life in watched if life.exit_code is not None] == lives


def add_line(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(line + "\n")


def test_an_effect_that_happened_twice_is_noticed(copy: Path, played: Played) -> None:
    again = read_outside(copy)[3]
    add_line(copy / "outside.txt", f"{again.key} {again.task}")
    report = examine(copy, played[1])
    assert not report.ok
    assert report.repeated.effects == 1


def test_an_effect_with_a_new_key_is_noticed(copy: Path, played: Played) -> None:
    add_line(copy / "outside.txt", f"{'0' * 32} {read_outside(copy)[3].task}")
    assert not examine(copy, played[1]).ok


def test_an_effect_that_is_missing_is_noticed(copy: Path, played: Played) -> None:
    lines = (copy / "outside.txt").read_text().splitlines(keepends=True)
    (copy / "outside.txt").write_text("".join(lines[:-1]))
    assert not examine(copy, played[1]).ok


def test_a_call_that_was_repeated_is_noticed(copy: Path, played: Played) -> None:
    last = played[1][2]
    add_line(copy / "calls.txt", f"{last.pid} model review part_05.py")
    repeating = msgspec.structs.replace(last, executed=(*last.executed, Call(last.pid, "model", "review part_05.py")))
    report = examine(copy, [*played[1][:2], repeating])
    assert not report.ok
    assert [claim.holds for claim in report.claims if "Process 3" in claim.claim] == [False]
    assert (report.repeated.calls, report.repeated.dollars) == (1, ASSUMED["model"].dollars)


@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_was_not_killed_is_noticed(played: Played, number: int) -> None:
    folder, lives = played[0], list(played[1])
    lives[number] = msgspec.structs.replace(lives[number], exit_code=1)
    assert not examine(folder, lives).ok


def test_the_agent_without_its_store_is_noticed(copy: Path, played: Played) -> None:
    (copy / "coder.db").unlink()
    assert not examine(copy, played[1]).ok


# -- how it is shown --------------------------------------------------------------------------------------------


def test_a_terminal_gets_marks_and_a_table(played: Played) -> None:
    from rich.console import Console

    folder, lives, watched = played
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=60, color_system="standard", _environ={})
    with TerminalDisplay(console, pause=0) as display:
        display.begin(folder, kept=False)
        for life in watched[::8] + lives:
            display.update(life)
        display.end(examine(folder, lives), None)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "━" * 46 + "✗" + "─" * 3 in shown
    assert "━" * 47 + "✗" + "─" * 2 in shown
    assert "SIGKILL in call 47: push the image" in shown
    assert "\x1b[31m" in out.getvalue() or "\x1b[1;31m" in out.getvalue()
    assert "Every claim was verified by counting." in shown


def test_what_failed_is_shown(copy: Path, played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    add_line(copy / "outside.txt", f"{'0' * 32} deploy")
    PlainDisplay().end(examine(copy, played[1]), copy)
    shown = capsys.readouterr().out
    assert "FAIL 17 effects" in shown
    assert f"A claim does not hold; the files are in {copy}." in shown


DEMO = """\
import sys
from pathlib import Path
from perdure.demo import run_demo
folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
sys.exit(run_demo(json=sys.argv[1] == "json", plain=False, folder=folder))
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
        output, errors = process.communicate(timeout=50)
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
    assert len(read_outside(kept)) == facts["made"]["effects"]
    assert run_demo(json=True, plain=False, folder=kept) == 2
    assert "not an empty folder" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_a_failed_demo_says_so_and_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perdure.demo.story.KILLS", ("", "", ""))  # nothing dies
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
        process.communicate(timeout=20)
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []
    pid = int(line.split("pid ")[1].split(")")[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- the examples -----------------------------------------------------------------------------------------------


def test_the_first_example_is_the_agent_of_the_demo() -> None:
    example = (EXAMPLES / "01_coding_agent.py").read_text("utf-8")
    assert example == (ROOT / "src/perdure/demo/agent.py").read_text("utf-8")
    assert len(example.splitlines()) <= 60, "it is to be read in a minute"


def start(example: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / example), *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT / "src"), **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_after(example: str, folder: Path, lines: int) -> list[str]:
    """Start an example, kill it with SIGKILL after so many lines; what it had printed."""
    with start(example, folder) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        shown += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    return shown


def finish(example: str, folder: Path, *arguments: str) -> list[str]:
    """Start an example again; what it prints until it is done."""
    with start(example, folder, *arguments) as process:
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    return output.splitlines(keepends=True)


def test_every_example_is_tested_here() -> None:
    names = ["01_coding_agent.py", "02_async.py", "03_in_doubt.py", "04_each_items.py"]
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == names


def test_the_coding_agent_survives(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = kill_after("01_coding_agent.py", tmp_path, 12)
    request.getfixturevalue("quick")
    after = finish("01_coding_agent.py", tmp_path)
    assert after[-1] == "shipped with 13 comments\n"
    # A call that was under way may be made again, all others are not.
    assert len({*before, *after[:-1]}) == 50
    assert len(before) + len(after) - 1 <= 51
    tasks = [effect.task for effect in read_outside(tmp_path)]
    assert len(tasks) == len(set(tasks)) == 16


def test_the_async_example_survives(tmp_path: Path) -> None:
    before = kill_after("02_async.py", tmp_path, 3)
    after = finish("02_async.py", tmp_path)
    assert before[0] not in after, "an answer that was recorded is not asked for again"
    assert len({*before, *after[:-1]}) == 6
    assert "'answers': 6" in after[-1]
    assert len(list(tmp_path.glob("letter-*.txt"))) == 1


@pytest.mark.parametrize(
    ("answer", "result", "payments"), [("paid", "paid, says the bank", 1), ("not-paid", "paid", 2)]
)
def test_the_example_in_doubt_waits_for_its_answer(tmp_path: Path, answer: str, result: str, payments: int) -> None:
    with start("03_in_doubt.py", tmp_path) as process:
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert "nobody knows whether pay happened" in finish("03_in_doubt.py", tmp_path)[-1]
    assert len((tmp_path / "bank.txt").read_text().splitlines()) == 1
    assert finish("03_in_doubt.py", tmp_path, answer)[-1] == result + "\n"
    # Who answers wrongly pays twice: but under one key, so that the bank could notice.
    keys = [line.split()[0] for line in (tmp_path / "bank.txt").read_text().splitlines()]
    assert (len(keys), len(set(keys))) == (payments, 1)


def test_the_loop_survives_and_takes_new_items(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    before = kill_after("04_each_items.py", tmp_path, 6)
    request.getfixturevalue("quick")
    after = finish("04_each_items.py", tmp_path, "23")
    assert after[-1] == "{'sent': 23, 'last': 'customer 23'}\n"
    letters = [line.split(" ", 1)[1] for line in (tmp_path / "outbox.txt").read_text().splitlines()]
    assert len(letters) == len(set(letters)) == 23
    assert not {*before[:5]} & {*after}
