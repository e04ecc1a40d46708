"""The `perdure` command: finds the command, and turns every error into one message and an exit code."""

from __future__ import annotations

import importlib
import json
import keyword
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import click

from ..errors import PerdureError, StoreMovedWarning
from ..hints import near
from .output import clean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

OK, FOUND, ERROR, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141
EXIT_CODES = {
    OK: "all is well",
    FOUND: "something wrong was found: damage, a difference, a problem",
    ERROR: "an error: `error[PD303]: ...` and a hint, on standard error",
    INTERRUPTED: "interrupted by Ctrl-C",
    NO_READER: "the reader of the output went away",
}
"""What each exit code means. Only `perdure run` has others: those of the program that it runs."""

COMPLETE = "_PERDURE_COMPLETE"
"""Set by the shell that wants to know how a line may go on; see `completion.py`."""


COMMANDS = {
    "init": ("keeping", "Make a store in this folder."),
    "run": ("supervise", "Run a program, and start it again when it has crashed: it continues where it was."),
    "worker": ("worker", "Do what is queued: take runs of an agent's tasks, and those of dead workers."),
    "queues": ("queues", "Show the queues of the agents: what waits, runs, is parked and is dead."),
    "retry": ("queues", "Queue a run again that has failed for good; what it had done is kept."),
    "crashtest": ("crashtest", "Prove that a program survives: kill it everywhere, start it again, compare."),
    "replay-check": ("replay_check", "Check that today's code repeats nothing that recorded runs have done, for CI."),
    "runs": ("runs", "List the runs, the one that was started, resumed or ended last first."),
    "show": ("show", "Show a run: what it did, what it has, what it waits for; now or at any moment."),
    "timeline": ("chart", "Draw a run over time: steps, restarts, waits, what is in doubt, what it cost."),
    "context": ("context", "Show what a model would be shown of a run: a picture of the budget of tokens."),
    "handoff": ("handoff", "Write a brief for whoever goes on with a run: a person, a process, a model."),
    "bootstrap": ("workspace", "Print what an agent reads when it wakes up, within a budget of tokens."),
    "workspace": ("workspace", "Make and sync the folder of files that people read and edit."),
    "state": ("state", "Show what agents keep in `agent.state`: namespaces, keys, values and their history."),
    "checkpoints": ("checkpoints", "Show the checkpoints of agents: named snapshots, and what is in one."),
    "threads": ("threads", "Show the threads that LangGraph has saved: their values, and what changed when."),
    "memory": ("memory", "Show, find, add and forget what agents know."),
    "usage": ("cost", "What calls of models have cost."),
    "savings": ("cost", "What resuming has saved: the amnesia tax not paid."),
    "events": ("events", "Show what agents have noted, the newest last."),
    "workflows": ("workflows", "Show the workflows of the agents: a plan each, with a status for every step."),
    "answer": ("answer", "Answer what a run asks, or say what became of an effect in doubt."),
    "send": ("answer", "Send an event to a run, which takes it with run.wait_event(NAME)."),
    "cancel": ("orders", "End a run for good, and all runs that are part of it."),
    "pause": ("orders", "Let a run rest until `perdure resume RUN`."),
    "resume": ("orders", "Let a paused run go on, when its program is started again."),
    "fork": ("branches", "Make a run that begins as another one did, and goes its own way."),
    "undo": ("branches", "Take back the last steps of a run that is not open."),
    "diff": ("branches", "Show what differs between two runs."),
    "artifacts": ("artifacts", "List, get, put and remove artifacts: files and learned weights of agents."),
    "doctor": ("doctor", "Look for what could go wrong, and say how to mend it."),
    "verify": ("verify", "Look for entries that were edited, removed or reordered."),
    "rebuild": ("verify", "Make the views anew from the journal."),
    "migrate": ("migrate", "Bring an old store forward, or say what that would do."),
    "gc": ("gc", "Show what is not needed any more, and free it."),
    "archive": ("archive", "Show or verify entries that `gc` has folded."),
    "backup": ("keeping", "Copy a store that is in use, and verify the copy."),
    "export": ("moving", "Write an agent into one file: to copy it, or to move it to another store."),
    "import": ("moving", "Bring the agent in a file into a store, of either kind."),
    "adopt": ("keeping", "Go on with a store that was moved, copied or put back to an earlier state."),
    "demo": ("demo", "Watch an agent survive kill -9."),
    "completion": ("completion", "Print what makes your shell complete commands, options, runs and agents."),
}
"""Each command with its module and its line in the list, so that `perdure --help` loads none of them.

The function in the module has the name of the command, with `_` for `-`, and behind what is a word of Python's.
"""


SECTIONS = {
    "init": "Run programs",
    "runs": "Look at runs, and at what agents keep",
    "answer": "Answer and steer runs",
    "artifacts": "Look after a store",
    "demo": "More",
}
"""The list of commands has a heading before each of these."""


class _Commands(click.Group):
    """Commands that are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[cmd_name][0]}", __package__)
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(module, name + "_" * keyword.iskeyword(name))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. {near(args[0], COMMANDS).capitalize()}".rstrip())
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        # Not super(): it would load every command to ask for its line.
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width, parts = max(map(len, COMMANDS)), dict[str, list[tuple[str, str]]]()
        title = "Commands"
        for name, (_, line) in COMMANDS.items():
            title = SECTIONS.get(name, title)
            parts.setdefault(title, []).append((name.ljust(width), line))
        for heading, lines in parts.items():
            with formatter.section(heading):
                formatter.write_dl(lines)


def _version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        import platform

        import apsw

        from .. import __version__

        print(f"perdure {__version__} (SQLite {apsw.sqlite_lib_version()}, Python {platform.python_version()})")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """Perdure makes agents survive: kill the process anywhere, and the run goes on.

    Exit codes: 0 all is well, 1 something wrong was found, 2 an error, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if arguments is None and (instruction := os.environ.get(COMPLETE)):
        from .completion import complete

        return complete(cli, instruction)
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows ASCII only still shows everything
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", StoreMovedWarning)
            warnings.showwarning = _show_warning
            code = _run(given)
            sys.stdout.flush()
        return code
    except PerdureError as error:
        return _fail(as_json, error.code, error.message, error.hint, type(error).__name__)
    except click.ClickException as error:
        return _usage(error, as_json)
    except BrokenPipeError:
        # The interpreter flushes once more when it ends: let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except OSError as error:
        return _fail(as_json, "OS", f"{error.filename or 'input or output'}: {error.strerror or error}", "", "OSError")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    # Not cli.main(): it has its own mind about interrupts and closed pipes.
    try:
        with cli.make_context("perdure", arguments) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return result if isinstance(result, int) else OK


def _fail(as_json: bool, code: str, message: str, hint: str, name: str) -> int:
    if as_json:
        shown = {"error": {"code": code, "name": name, "message": message, "hint": hint}}
        print(json.dumps(shown), file=sys.stderr)
    else:
        first, *more = message.splitlines() or [""]
        print(f"error[{code}]: {clean(first)}", *(f"  {clean(line)}" for line in more), sep="\n", file=sys.stderr)
        if hint:
            print(f"hint: {clean(hint)}", file=sys.stderr)
    return ERROR


def _usage(error: click.ClickException, as_json: bool) -> int:
    if as_json:
        return _fail(True, "usage", error.format_message(), "", type(error).__name__)
    error.show()
    return ERROR


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"warning: {clean(str(message))}", file=sys.stderr)
