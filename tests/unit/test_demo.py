"""The demo proves what it claims, and would notice if it did not."""

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

from perdure.cli.main import main
from perdure.demo import run_demo
from perdure.demo.evidence import ASSUMED, examine
from perdure.demo.host import INNER_PID, command_on, why_not
from perdure.demo.screen import Display, PlainDisplay
from perdure.demo.stage import HOSTS, Stage, drop, stage_in
from perdure.demo.story import CALLS, KILLED_AT, Call, Life, Wait, play, read_calls, read_journal, read_outside
from perdure.demo.terminal import TerminalDisplay

from .quick import SHORT_LEASES, hurry

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")  # copies are looked at

ROOT = Path(__file__).parents[2]

Played = tuple[Stage, list[Life], list[Life]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The demo, played once for all tests that look at what it left: stage, lives, everything that was watched."""
    stage, watched = Stage(tmp_path_factory.mktemp("demo")), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "src"))
        lives = play(stage, watched.append)
    return stage, lives, watched


@pytest.fixture
def quick(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of child processes take hardly any time."""
    monkeypatch.setenv("PYTHONPATH", hurry(tmp_path_factory.mktemp("quick")))


@pytest.fixture
def copy(played: Played, tmp_path: Path) -> Stage:
    """The files of a played demo, to be tampered with."""
    return Stage(Path(shutil.copytree(played[0].folder, tmp_path / "copy")))


def test_two_processes_are_killed_and_the_third_finishes(played: Played) -> None:
    stage, lives, _ = played
    assert [life.exit_code for life in lives] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert [len(life.executed) for life in lives] == [46, 2, 2]
    assert [life.remembered for life in lives] == [0, KILLED_AT - 1, KILLED_AT]
    assert len({life.pid for life in lives}) == 3
    assert len(read_calls(stage.folder)) == CALLS == len({(call.tool, call.task) for call in read_calls(stage.folder)})


def test_the_counts_bear_out_every_claim(played: Played) -> None:
    stage, lives, _ = played
    report = examine(stage, lives)
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


def test_an_effect_that_happened_twice_is_noticed(copy: Stage, played: Played) -> None:
    again = read_outside(copy.folder)[3]
    add_line(copy.folder / "outside.txt", f"{again.key} {again.task}")
    report = examine(copy, played[1])
    assert not report.ok
    assert report.repeated.effects == 1


def test_an_effect_with_a_new_key_is_noticed(copy: Stage, played: Played) -> None:
    add_line(copy.folder / "outside.txt", f"{'0' * 32} {read_outside(copy.folder)[3].task}")
    assert not examine(copy, played[1]).ok


def test_an_effect_that_is_missing_is_noticed(copy: Stage, played: Played) -> None:
    lines = (copy.folder / "outside.txt").read_text().splitlines(keepends=True)
    (copy.folder / "outside.txt").write_text("".join(lines[:-1]))
    assert not examine(copy, played[1]).ok


def test_a_call_that_was_repeated_is_noticed(copy: Stage, played: Played) -> None:
    last = played[1][2]
    add_line(copy.folder / "calls.txt", f"{last.host} {last.pid} model review part_05.py")
    repeating = msgspec.structs.replace(
        last, executed=(*last.executed, Call(last.host, last.pid, "model", "review part_05.py"))
    )
    report = examine(copy, [*played[1][:2], repeating])
    assert not report.ok
    assert [claim.holds for claim in report.claims if "Process 3" in claim.claim] == [False]
    assert (report.repeated.calls, report.repeated.dollars) == (1, ASSUMED["model"].dollars)


@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_was_not_killed_is_noticed(played: Played, number: int) -> None:
    stage, lives = played[0], list(played[1])
    lives[number] = msgspec.structs.replace(lives[number], exit_code=1)
    assert not examine(stage, lives).ok


def test_the_agent_without_its_store_is_noticed(copy: Stage, played: Played) -> None:
    (copy.folder / "coder.db").unlink()
    assert not examine(copy, played[1]).ok


# -- how it is shown --------------------------------------------------------------------------------------------


def test_a_terminal_gets_marks_and_a_table(played: Played) -> None:
    from rich.console import Console

    stage, lives, watched = played
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=60, color_system="standard", _environ={})
    with TerminalDisplay(console, pause=0) as display:
        display.begin(stage, kept=False)
        for life in watched[::8] + lives:
            display.update(life)
        display.end(examine(stage, lives), None)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "━" * 46 + "✗" + "─" * 3 in shown
    assert "━" * 47 + "✗" + "─" * 2 in shown
    assert "SIGKILL in call 47: push the image" in shown
    assert "\x1b[31m" in out.getvalue() or "\x1b[1;31m" in out.getvalue()
    assert "Every claim was verified by counting." in shown


def test_what_failed_is_shown(copy: Stage, played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    add_line(copy.folder / "outside.txt", f"{'0' * 32} deploy")
    PlainDisplay().end(examine(copy, played[1]), copy)
    shown = capsys.readouterr().out
    assert "FAIL 17 effects" in shown
    assert f"A claim does not hold; the files are in {copy.folder}." in shown


DEMO = """\
import sys
from pathlib import Path
from perdure.demo import run_demo
how, folder, store = [*sys.argv[1:], "", ""][:3]
sys.exit(run_demo(json=how == "json", plain=False, folder=Path(folder) if folder else None, store=store or None))
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


# -- on a server ------------------------------------------------------------------------------------------------


def schemas(url: str) -> list[str]:
    """The schemas of the server that begin with the name of the URL's."""
    import psycopg

    from perdure.store.postgres_url import parse

    place = parse(url)
    with psycopg.connect(place.target) as connection:
        query = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)"
        return [name for (name,) in connection.execute(query, (place.schema,))]


@pytest.fixture
def hosts() -> None:
    """Skips where there can be none."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.mark.stores("postgres")
@pytest.mark.usefixtures("hosts")
def test_each_process_is_on_another_host_and_waits_for_the_lease(store_url: str, tmp_path: Path) -> None:
    path, work = hurry(tmp_path / "quick", SHORT_LEASES), tmp_path / "work"
    work.mkdir()
    code, output, errors = demo(work, "json", "", store_url, PYTHONPATH=path, PERDURE_URL="sqlite:////nowhere/x.db")
    assert (code, errors) == (0, "")
    facts: dict[str, Any] = json.loads(output)
    assert [life["host"] for life in facts["lives"]] == ["host-a", "host-b", "host-c"]
    assert [life["exit_code"] for life in facts["lives"]] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert [life["waited_seconds"] > 0 for life in facts["lives"]] == [False, True, True]
    assert len([claim for claim in facts["claims"] if "lease" in claim["claim"]]) == 2
    assert facts["store"] is None
    assert schemas(store_url) == []
    assert list(work.iterdir()) == []
    assert not (Path.home() / ".perdure").exists(), "the keys of the demo stay in its folder"


@pytest.mark.stores("postgres")
@pytest.mark.usefixtures("quick")
def test_where_there_are_no_hosts_the_demo_says_so(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perdure.demo.stage.why_not", lambda: "not today")
    url = store_url.replace("postgres@", "postgres:sesame@", 1)
    assert main(["demo", "--plain", "--store", url, "--folder", str(tmp_path / "kept")]) == 0
    shown = capsys.readouterr().out
    assert "Hosts: only this one, where a death is seen at once. No others here: not today" in shown
    assert "waits" not in shown
    assert "FAIL" not in shown
    [schema] = schemas(url)
    assert f"schema={schema}" in shown.splitlines()[-1]
    assert "sesame" not in shown
    kept = Stage(tmp_path / "kept", f"{store_url.rpartition('=')[0]}={schema}")
    assert read_journal(kept).status == "finished"
    drop(kept)
    assert schemas(url) == []


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/nowhere", "sqlite:///x.db"])
def test_a_store_that_cannot_be_used_is_told_first(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["demo", "--store", url]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "postgresql://" in told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.stores("postgres")
def test_the_schema_of_the_demo_is_named_after_the_users(store_url: str, tmp_path: Path) -> None:
    stage = stage_in(tmp_path, store_url)
    assert re.search(r"[?&]schema=test_\d+_demo_[0-9a-f]{8}$", stage.url)
    assert schemas(store_url) != []
    drop(stage)
    assert schemas(store_url) == []


def test_a_process_that_was_elsewhere_or_did_not_wait_is_noticed(played: Played) -> None:
    stage, lives, _ = played
    report = examine(msgspec.structs.replace(stage, hosts=HOSTS), lives)
    assert [claim.holds for claim in report.claims[-3:]] == [False, False, False]
    assert not report.ok
    own = tuple(life.host for life in lives)
    waited = [msgspec.structs.replace(life, waited=1.0) for life in lives]
    assert examine(msgspec.structs.replace(stage, hosts=own), waited).ok


WAITING = Life(2, "host-b", 0, 46, wait=Wait("host-a", 26.4))


def test_waiting_is_shown_in_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay()
    for left in (26.4, 26.3, 20.1, 20.0, 11.0, 0.1):
        display.update(msgspec.structs.replace(WAITING, wait=Wait("host-a", left)))
    started = msgspec.structs.replace(WAITING, wait=None, pid=INNER_PID)
    for life in (started, msgspec.structs.replace(started, asks="deploy"), started):
        display.update(life)
    assert capsys.readouterr().out.splitlines() == [
        "host-b waits: the lease of host-a runs out in 27 s",
        "host-b waits: the lease of host-a runs out in 20 s",
        "host-b waits: the lease of host-a runs out in 1 s",
        "process 2 on host-b (pid 2): 46 calls from the journal",
        "  'deploy' is in doubt: not done, but host-b waits until nobody elsewhere can still be at it",
    ]


def test_waiting_is_shown_in_a_terminal(tmp_path: Path) -> None:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=60, color_system=None, _environ={})
    with TerminalDisplay(console, pause=0) as display:
        display.begin(Stage(tmp_path, "postgresql://ann:sesame@db/agents?schema=s", HOSTS), kept=False)
        display.update(WAITING)
    assert "Store: postgresql://ann@db/agents?schema=s (dropped at the end)" in out.getvalue()
    assert "Hosts: host-a, host-b, host-c" in out.getvalue()
    assert "process 2 on host-b  46 calls from the journal" in out.getvalue()
    assert "host-b waits: the lease of host-a runs out in 27 s" in out.getvalue()


def test_json_says_nothing_before_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Display() as display:
        display.begin(Stage(tmp_path), kept=False)
        display.update(WAITING)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize("code", ["raise SystemExit(7)", "import os; os.kill(os.getpid(), 9)"])
def test_a_host_ends_as_its_program_ends(code: str) -> None:
    script = f"import os; print(os.uname().nodename, os.getpid(), flush=True); {code}"
    done = subprocess.run(
        command_on("elsewhere", sys.executable, "-c", script), capture_output=True, text=True, timeout=20, check=False
    )
    assert done.stdout == f"elsewhere {INNER_PID}\n"
    assert done.returncode == (7 if "Exit" in code else -signal.SIGKILL)
    assert os.uname().nodename != "elsewhere"


@pytest.mark.usefixtures("hosts")
def test_a_host_that_is_switched_off_takes_its_program_along() -> None:
    script = "import time; print(flush=True); time.sleep(600)"
    with subprocess.Popen(command_on("elsewhere", sys.executable, "-c", script), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        assert process.stdout.read() == b"", "its end of the pipe is closed when it is gone"
