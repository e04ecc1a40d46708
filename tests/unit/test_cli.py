"""The door: help, errors, exit codes, what is printed where, and that text from a store is only text."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from perdure import Agent
from perdure.cli.main import COMMANDS, EXIT_CODES, SECTIONS, cli, main
from perdure.cli.output import CommandOutput, clean, format_age, format_count, format_value, size, to_json_value
from perdure.cli.store_option import repeat_options
from tests.conformance.rich_store import copy_to
from tests.unit.child import read_terminal

ROOT = Path(__file__).parents[2]
STORELESS = {"init", "run", "worker", "replay-check", "crashtest", "doctor", "demo", "archive", "completion", "import"}
STORELESS |= {"workspace", "serve", "keys", "notify", "mcp", "connect", "disconnect", "hook", "proxy"}
"""Commands that make a store, look for it or for a folder first, or need none."""

PROGRAM = [sys.executable, "-m", "perdure.cli"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


def perdure(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False, **options)


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(cli)
    return [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]  # type: ignore[misc]


def with_parts() -> list[tuple[str, click.Command]]:
    """Every command by the name under which it is documented; of a group, those in it."""
    found = []
    for name, command in commands():
        parts = command.commands.values() if isinstance(command, click.Group) else [command]
        found += [(name, part) for part in parts]
    return found


# -- help and documentation -----------------------------------------------------------------------------------


def test_help_lists_every_command_with_its_first_line() -> None:
    for name, command in commands():
        assert command is not None
        assert command.name == name
        assert (command.help or "").splitlines()[0] == COMMANDS[name][1]


def test_help_has_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    places = [told.index(f"\n{title}:\n  {name} ") for name, title in SECTIONS.items()]
    assert places == sorted(places)
    assert all(f"\n  {name} " in told for name in COMMANDS)


def test_every_command_has_json_and_a_store() -> None:
    for name, command in with_parts():
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options or name in ("mcp", "hook"), name
        assert "--store" in options or name in ("worker", "demo", "completion", "disconnect", "notify"), name


def test_every_command_and_option_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    sections = {
        match[1]: match[2] for match in re.finditer(r"^## `perdure ([\w-]+)[^\n]*\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    }
    assert list(sections) == list(COMMANDS)
    for name, command in with_parts():
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and option not in ("--json", "--store"):
                    assert f"`{option}" in sections[name], f"docs/reference/cli.md does not explain {option} of {name}"
    assert "`--json`" in page.partition("## ")[0]
    assert "`--store URL`" in page.partition("## ")[0]


def test_the_numbers_in_the_documentation_are_right(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    program = re.search(r'^```python title="trip.py"\n(.*?)^```', page, re.M | re.S)
    assert program is not None
    environment = {**os.environ, "PERDURE_URL": str(tmp_path / "trips.db")}

    def trip() -> None:
        subprocess.run([sys.executable, "-c", program[1]], env=environment, capture_output=True, check=True)

    trip()
    perdure("answer", "trip-42", "--done", '"AB12"', env=environment)
    trip()
    assert perdure("verify", env=environment).stdout in page
    told = perdure("backup", str(tmp_path / "copy.db"), env=environment).stdout
    assert told.splitlines()[0].partition("B, ")[2] in page


def test_what_is_printed_to_be_copied_has_no_password() -> None:
    assert repeat_options("postgresql://ann:secret@host/db?schema=x") == " --store 'postgresql://ann@host/db?schema=x'"
    assert repeat_options("a b.db", "two words") == " --agent 'two words' --store 'a b.db'"
    assert repeat_options(None) == ""


def test_help_loads_neither_commands_nor_what_they_need() -> None:
    script = "import sys; from perdure.cli.main import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "perdure.cli.main" in loaded
    assert loaded.isdisjoint(
        {"rich", "apsw", "cryptography", "zstandard", "asyncio", "perdure.cli.runs", "perdure.demo"}
    )


def test_every_command_has_help_without_marks_of_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
        told = capsys.readouterr().out
        assert told.startswith("Usage: ")
        assert "\\" not in told


def test_help_loads_no_command_and_no_large_library() -> None:
    code = "import sys; from perdure.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert {name for name in loaded if name.startswith("perdure.cli.")} == {"perdure.cli.main", "perdure.cli.output"}
    assert not loaded & {"apsw", "asyncio", "cryptography", "numpy", "psycopg", "rich", "zstandard"}
    assert not loaded & {"perdure.api", "perdure.store", "perdure.values.codec", "msgspec"}


_LOADED = """
import contextlib, io, sys
from perdure.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
print(code, *sys.modules)
"""


@pytest.mark.parametrize(
    "command",
    "runs,show trip-42,timeline trip-42,agents,state list,threads,events,checkpoints,queues,usage,memory list".split(
        ","
    ),
)
def test_common_commands_load_neither_the_api_nor_a_large_library(command: str, tmp_path: Path) -> None:
    """What is imported decides how fast a command starts: 0.15 s on an idle machine."""
    path = tmp_path / "perdure.db"
    with Agent("travel", store=path) as agent, agent.run("trip-42") as run:
        run.state["k"] = 1
    words = [*command.split(), "--json", "--store", str(path)]
    done = subprocess.run([sys.executable, "-c", _LOADED, *words], capture_output=True, text=True, check=True)
    code, *loaded = done.stdout.split()
    assert code == "0"
    assert not set(loaded) & {"perdure.api", "asyncio", "cryptography", "numpy", "onnxruntime", "psycopg", "rich"}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.match(r"perdure \d+\.\d+\.\d+ \(SQLite \d", capsys.readouterr().out)


def test_the_exit_codes_are_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    table = re.search(r"^\| exit code \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", page, re.M)
    assert table is not None
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table[1].splitlines()]
    assert rows == [(str(code), meaning) for code, meaning in EXIT_CODES.items()]


# -- errors and exit codes ------------------------------------------------------------------------------------


def test_an_error_is_one_message_with_code_and_hint(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "nope", "--store", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "error[PD303]: there is no run 'nope'\nhint: `perdure runs` lists the runs of this store\n"


def test_an_error_can_be_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "nope", "--store", str(path), "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    error = json.loads(told.err)["error"]
    assert (error["code"], error["name"]) == ("PD303", "RunNotFound")
    assert error["message"] == "there is no run 'nope'"
    assert error["hint"]


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - STORELESS))
def test_no_command_makes_a_store_by_looking_for_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.db"
    more = {
        "artifacts": ["ls"],
        "memory": ["list"],
        "export": ["x", "y"],
        "show": ["x"],
        "timeline": ["x"],
        "context": ["x"],
        "answer": ["x", "--retry"],
        "send": ["x", "y"],
        "retry": ["x"],
        "cancel": ["x"],
        "pause": ["x"],
        "resume": ["x"],
        "fork": ["x"],
        "diff": ["x", "y"],
        "undo": ["x"],
        "backup": [str(tmp_path / "copy.db")],
    }
    assert main([command, *more.get(command, []), "--store", str(missing)]) == 2
    told = capsys.readouterr().err
    assert f"error[PD201]: there is no store at {missing}" in told
    assert f"`perdure init --store {missing}`" in told
    missing.touch()
    assert main([command, *more.get(command, []), "--store", str(missing)]) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["missing.db"]
    assert missing.stat().st_size == 0


@pytest.mark.parametrize("arguments", [["nonsense"], ["runs", "--nonsense"], ["show"], ["runs", "--status", "odd"]])
def test_wrong_usage_is_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Error" in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "usage"
    assert main(["workflow"]) == 2
    assert "Did you mean 'workflows'?" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_an_error(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--store", str(path), "--export-anchor", "/proc/nowhere/anchor.json"]) == 2
    assert "error[OS]: /proc/nowhere/anchor.json" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_traceback(path: Path) -> None:
    command = f"{sys.executable} -m perdure.cli show finished --json --store {path}; echo code $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | true"], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert re.fullmatch(r"code (0|141)\n", done.stderr)


def test_an_interrupt_ends_a_command_quietly(path: Path) -> None:
    script = (
        "import os, signal, sys; from perdure.cli.main import main; from perdure.journal import verify as v\n"
        "v._StoreInspection.look_for_strays = lambda self: os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.exit(main(['verify', '--store', {str(path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


# -- what is printed ------------------------------------------------------------------------------------------

EVIL = "x\x1b[2J\x07[bold red]\u202eevil\r\n\u2028\x9b31m"


@pytest.mark.parametrize("character", [*map(chr, range(32)), *map(chr, range(127, 160)), "\u202e", "\u2028", "\ud800"])
def test_no_control_character_gets_through(character: str) -> None:
    cleaned = clean(f"a{character}b")
    assert cleaned.isprintable()
    assert cleaned.startswith("a\\")


def test_other_text_stays_as_it_is() -> None:
    assert clean("naïve 東京 😀 [bold]") == "naïve 東京 😀 [bold]"


def make_evil(path: Path) -> None:
    agent = Agent(f"agent {EVIL}", store=path)

    def step() -> str:
        return EVIL

    with contextlib.suppress(RuntimeError), agent.run(f"run {EVIL}", input=EVIL) as run:
        run.state[EVIL] = EVIL
        run.messages.append(EVIL)
        run.event(EVIL, EVIL)
        run.step(step, name=EVIL)
        raise RuntimeError(EVIL)
    agent.close()


@pytest.mark.parametrize(
    "command",
    [["runs"], ["show", f"run {EVIL}"], ["timeline", f"run {EVIL}"], ["doctor"], ["verify"], ["show", f"{EVIL} no"]],
)
def test_text_from_a_store_is_only_text(command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "perdure.db"
    make_evil(path)
    main([*command, "--store", str(path)])
    told = capfd.readouterr()
    for text in (told.out, told.err, run_in_terminal(*command, "--store", str(path), colour=False)):
        for line in text.splitlines():
            assert line.isprintable(), ascii(line)
    main([*command, "--store", str(path), "--json"])
    told = capfd.readouterr()
    assert (told.out + told.err).isascii()


def run_in_terminal(*arguments: str, colour: bool = True, columns: int = 400) -> str:
    """What a command writes to a terminal; without colour, what remains after its colours are taken away."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    process = subprocess.Popen([*PROGRAM, *arguments], stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = read_terminal(ours)
    process.wait()
    text = shown.decode().replace("\r\n", "\n")
    return text if colour else re.sub(r"\x1b\[[\d;]*m|\x1b\[\?25[hl]|\x1b\[\d?[KAG]|\r", "", text)


def test_a_terminal_gets_colours_and_a_pipe_gets_none(path: Path) -> None:
    assert re.search(r"\x1b\[\d+m *finished", run_in_terminal("runs", "--store", str(path)))
    piped = perdure("runs", "--store", str(path))
    assert piped.stdout.isascii()
    assert "\x1b" not in piped.stdout
    [line] = [line for line in piped.stdout.splitlines() if line.startswith("failed ")]
    assert line.split()[:4] == ["failed", "travel", "failed", "0"]


def test_a_narrow_terminal_gets_cards_instead_of_a_table(path: Path) -> None:
    lines = run_in_terminal("runs", "--status", "failed", "--store", str(path), colour=False, columns=40).splitlines()
    assert lines[:4] == ["in-doubt", "  AGENT       travel", "  STATUS      failed", "  DONE        0"]
    wide = run_in_terminal("runs", "--status", "failed", "--store", str(path), colour=False, columns=80).splitlines()
    assert wide[1].split() == ["RUN", "AGENT", "STATUS", "DONE", "LAST", "ENTRY", "WAITS", "FOR"]


def test_a_folder_is_no_store(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--store", str(path.parent)]) == 2
    assert capsys.readouterr().err.endswith(f"is a folder; a store is a file\nhint: give --store {path}\n")
    assert main(["doctor", "--store", str(path.parent)]) == 1


def test_a_dumb_terminal_is_treated_like_a_pipe(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    assert not CommandOutput(as_json=False).rich


def test_ascii_terminals_see_everything(path: Path) -> None:
    done = perdure("show", "finished", "--store", str(path), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "\\u2026" in done.stdout  # the dots of a shortened value


def test_values_become_json_without_loss_of_sense() -> None:
    values = {"a": (1, {2}), 3: float("nan"), "b": b"\x00", "deep": [None, True, 1.5, "text"]}
    assert to_json_value(values) == {"a": [1, [2]], "3": "nan", "b": "b'\\x00'", "deep": [None, True, 1.5, "text"]}


def test_one_is_singular() -> None:
    assert [format_count(n, "entry", "entries") for n in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]
    assert [format_count(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def test_sizes_and_times_for_people() -> None:
    assert [size(n) for n in (12, 1_500, 2_000_000, 3_100_000_000)] == ["12 bytes", "1.5 kB", "2.0 MB", "3.1 GB"]
    assert [format_age(0, n * 1000) for n in (5, 65, 7_300, 180_000)] == ["5 s ago", "1 min ago", "2 h ago", "2 d ago"]
    assert format_age(5, 0) == "0 s ago"  # a clock that was set back
    assert format_value("x" * 500).endswith("…")


def test_a_moved_store_is_a_warning_in_one_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["answer", "in-doubt", "--retry", "--store", str(path)]) == 0
    told = capsys.readouterr().err
    assert told.startswith("warning: ")
    assert told.count("\n") == 1
