"""The `perdure` command: dispatches to a command, and turns every error into one message and an exit code."""

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

from perdure.cli.output import clean
from perdure.errors import PerdureError, StoreMovedWarning
from perdure.values.hints import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

OK, FOUND, ERROR, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141
EXIT_CODES = {
    OK: "success",
    FOUND: "a problem was found: damage, a difference, a failed check",
    ERROR: "an error: `error[PD303]: ...` and a hint, on standard error",
    INTERRUPTED: "interrupted by Ctrl-C",
    NO_READER: "the reader closed the output pipe",
}
"""The meaning of each exit code. `perdure run` also returns those of the program that it runs."""

COMPLETE = "_PERDURE_COMPLETE"
"""Set by a shell that requests completions; see `completion.py`."""


COMMANDS = {
    "init": ("store_admin", "Create a store in this folder."),
    "run": ("supervise", "Run a program, and restart it after a crash: it continues where it was."),
    "proxy": ("proxy", "Record the paid model calls of a program in any language, and never pay one twice."),
    "worker": ("worker", "Execute queued runs of an agent's tasks, including those of dead workers."),
    "ui": ("ui", "Look at the runs of a store in a browser, and answer their questions."),
    "serve": ("serve", "Serve a store over HTTP: for any process, in any language, with a key."),
    "mcp": ("mcp", "Give an agent's memory to a model: the Model Context Protocol on standard input and output."),
    "connect": ("connect", "Give a coding agent a memory: add `perdure mcp` to the configuration of TOOL."),
    "disconnect": ("connect", "Take back what `perdure connect TOOL` has added. The memory stays in its store."),
    "hook": (
        "hook",
        "Answer one hook of a coding agent: the payload on standard input, the answer on standard output.",
    ),
    "keys": ("keys", "Create, list, rotate and revoke the API keys of a server."),
    "notify": ("notify", "Show and repeat the notices that a server sends about open questions."),
    "queues": ("queues", "Show the queues of agents: queued, running, parked and dead runs."),
    "retry": ("queues", "Queue a dead run again. Its finished steps are kept."),
    "crashtest": ("crashtest", "Kill a program at every point, restart it, and compare the results."),
    "replay-check": ("replay_check", "Check in CI that today's code can continue recorded runs and repeats nothing."),
    "runs": ("runs", "List runs, most recently active first."),
    "agents": ("agents", "List the agents of a store, with their runs."),
    "show": ("show", "Show a run: its steps, data and waits, now or at an earlier moment."),
    "timeline": ("chart", "Draw a run over time: steps, restarts, waits, effects in doubt, cost."),
    "context": ("context", "Show the context that a run would send to a model, and how it uses the token budget."),
    "handoff": ("handoff", "Write a brief for whoever continues a run: a person, a process or a model."),
    "bootstrap": ("workspace", "Print what an agent should read when it starts, within a token budget."),
    "workspace": ("workspace", "Create and sync the folder of files that people read and edit."),
    "state": ("state", "Show `agent.state`: namespaces, keys, values and their history."),
    "checkpoints": ("checkpoints", "List, show, compare and delete the checkpoints of agents."),
    "threads": ("threads", "Show conversations: those of agent.thread, and those that LangGraph saved."),
    "memory": ("memory", "Show, search, add and erase memories of agents."),
    "usage": ("cost", "Show what model calls have cost."),
    "savings": ("cost", "Show what resuming has saved: steps that a restart from zero would have repeated."),
    "events": ("events", "Show the events of agents, newest last."),
    "workflows": ("workflows", "Show the workflows of agents, with the status of every step."),
    "playbooks": ("playbooks", "Show playbooks: their pages, success and cost by step and tier, what they save."),
    "answer": ("answers", "Answer a question of a run, or resolve an effect in doubt."),
    "send": ("answers", "Send an event to a run, which receives it with run.wait_event(NAME)."),
    "cancel": ("control", "Cancel a run and its child runs for good."),
    "pause": ("control", "Pause a run until `perdure resume RUN`."),
    "resume": ("control", "Continue a run: allow a paused one to go on, and start its program."),
    "fork": ("branches", "Create a run that shares the beginning of another one."),
    "undo": ("branches", "Undo the last steps of a run that is not open."),
    "diff": ("branches", "Show what differs between two runs."),
    "artifacts": ("artifacts", "List, get, put and remove artifacts: files and model weights of agents."),
    "doctor": ("doctor", "Find problems and print how to fix them."),
    "verify": ("verify", "Detect entries that were edited, removed or reordered."),
    "rebuild": ("verify", "Rebuild the views from the journal."),
    "migrate": ("migrate", "Migrate an old store to this version, or show what that would do."),
    "gc": ("gc", "Delete data that is no longer needed, after showing it."),
    "archive": ("archive", "Show or verify the archives that `gc` has written."),
    "backup": ("store_admin", "Copy a store while it is in use, and verify the copy."),
    "export": ("transfer", "Export an agent to one file, to copy it or to move it to another store."),
    "import": ("transfer", "Import the agent of an export file, or the data of another tool."),
    "adopt": ("store_admin", "Continue with a store that was moved, copied or restored from a backup."),
    "demo": ("demo", "Watch an agent survive kill -9."),
    "completion": ("completion", "Print the shell script that completes commands, options, runs and agents."),
}
"""The module and the help line of each command, so that `perdure --help` imports none of them.

The function in the module has the name of the command, with `_` for `-` and after a Python keyword.
"""


_OF_RUNS = ("show", "timeline", "context", "handoff", "answer", "send", "cancel", "pause", "resume", "retry", "fork")
NOUN_VERB: dict[tuple[str, str], tuple[str, ...]] = {
    **{("runs", verb): (verb,) for verb in (*_OF_RUNS, "undo", "diff")},
    **{(noun, "list"): (noun,) for noun in ("runs", "agents", "state", "threads", "events", "queues", "checkpoints")},
    ("state", "get"): ("state",),
    ("state", "history"): ("state", "--history"),
    ("threads", "show"): ("threads",),
    ("agents", "export"): ("export",),
    ("agents", "import"): ("import",),
    ("artifacts", "list"): ("artifacts", "ls"),
    ("artifacts", "delete"): ("artifacts", "rm"),
}
"""The long form of commands, a noun and a verb, and the short form that it stands for."""
LONG_ONLY = {
    "state set": ("state", "set_state"),
    "import claude-code": ("import_source", "import_claude_code"),
    "import chatgpt": ("import_source", "import_chatgpt"),
    "import mem0": ("import_source", "import_mem0"),
    "import letta": ("import_source", "import_letta"),
    "import markdown": ("import_source", "import_markdown"),
}
"""The module and the function of commands that exist in the long form only."""

SECTIONS = {
    "init": "Run programs",
    "runs": "Inspect runs and agents",
    "answer": "Answer and control runs",
    "artifacts": "Manage a store",
    "demo": "More",
}
"""The headings in the list of commands, by the command that follows them."""


class _LazyCommands(click.Group):
    """Imports commands when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS and cmd_name not in LONG_ONLY:
            return None
        own = cmd_name.replace("-", "_")
        place, name = LONG_ONLY.get(cmd_name) or (COMMANDS[cmd_name][0], own)
        module = importlib.import_module(f".{place}", __package__)
        command: click.Command = getattr(module, name + "_" * keyword.iskeyword(name))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        long = (args[0], args[1]) if len(args) > 1 else ("", "")
        if " ".join(long) in LONG_ONLY:
            return super().resolve_command(ctx, [" ".join(long), *args[2:]])
        args = [*NOUN_VERB.get(long, args[:2]), *args[2:]]
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. {did_you_mean(args[0], COMMANDS).capitalize()}".rstrip())
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        # Not super(): it would import every command to read its help line.
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

        from perdure import __version__

        print(f"perdure {__version__} (SQLite {apsw.sqlite_lib_version()}, Python {platform.python_version()})")
        ctx.exit()


@click.group(cls=_LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli() -> None:
    """Durable execution and memory for AI agents: kill the process anywhere, and the run continues.

    Every command also has a long form, noun and verb: `perdure runs show RUN`, `perdure state get NAMESPACE KEY`.

    Exit codes: 0 success, 1 a problem was found, 2 an error, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    if arguments is None and (instruction := os.environ.get(COMPLETE)):
        from perdure.cli.completion import complete

        return complete(cli, instruction)
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal shows escapes instead of failing
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
        # The interpreter flushes stdout again at exit: send that to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except OSError as error:
        return _fail(as_json, "OS", f"{error.filename or 'input or output'}: {error.strerror or error}", "", "OSError")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: list[str]) -> int:
    # Not cli.main(): it handles interrupts and closed pipes in its own way.
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
