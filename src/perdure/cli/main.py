"""The `perdure` command: finds the command, and turns every error into one message and an exit code.

0 all is well, 1 something wrong was found, 2 an error, 130 interrupted, 141 the reader of our output went away.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TextIO

import click

from ..errors import PerdureError, StoreMovedWarning
from .output import clean

OK, FOUND, ERROR, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141


def _init() -> click.Command:
    from .keeping import init

    return init


def _runs() -> click.Command:
    from .runs import runs

    return runs


def _supervise() -> click.Command:
    from .supervise import run

    return run


def _crashtest() -> click.Command:
    from .crashtest import crashtest

    return crashtest


def _show() -> click.Command:
    from .show import show

    return show


def _events() -> click.Command:
    from .events import events

    return events


def _workflows() -> click.Command:
    from .workflows import workflows

    return workflows


def _answer() -> click.Command:
    from .answer import answer

    return answer


def _usage_command() -> click.Command:
    from .cost import usage

    return usage


def _savings() -> click.Command:
    from .cost import savings

    return savings


def _send() -> click.Command:
    from .answer import send

    return send


def _doctor() -> click.Command:
    from .doctor import doctor

    return doctor


def _verify() -> click.Command:
    from .verify import verify

    return verify


def _rebuild() -> click.Command:
    from .verify import rebuild

    return rebuild


def _migrate() -> click.Command:
    from .migrate import migrate

    return migrate


def _gc() -> click.Command:
    from .gc import gc

    return gc


def _archive() -> click.Command:
    from .archive import archive

    return archive


def _backup() -> click.Command:
    from .keeping import backup

    return backup


def _adopt() -> click.Command:
    from .keeping import adopt

    return adopt


def _artifacts() -> click.Command:
    from .artifacts import artifacts

    return artifacts


def _demo() -> click.Command:
    from .demo import demo

    return demo


COMMANDS: dict[str, tuple[Callable[[], click.Command], str]] = {
    "init": (_init, "Make a store in this folder."),
    "run": (_supervise, "Run a program, and start it again when it has crashed: it continues where it was."),
    "crashtest": (_crashtest, "Prove that a program survives: kill it everywhere, start it again, compare."),
    "runs": (_runs, "List the runs, the one that was started, resumed or ended last first."),
    "show": (_show, "Show a run: what it did, what it has, what it waits for."),
    "usage": (_usage_command, "What calls of models have cost."),
    "savings": (_savings, "What resuming has saved: the amnesia tax not paid."),
    "events": (_events, "Show what agents have noted, the newest last."),
    "workflows": (_workflows, "Show the workflows of the agents: a plan each, with a status for every step."),
    "answer": (_answer, "Answer what a run asks, or say what became of an effect in doubt."),
    "send": (_send, "Send an event to a run, which takes it with run.wait_event(NAME)."),
    "artifacts": (_artifacts, "List, get, put and remove artifacts: files and learned weights of agents."),
    "doctor": (_doctor, "Look for what could go wrong, and say how to mend it."),
    "verify": (_verify, "Look for entries that were edited, removed or reordered."),
    "rebuild": (_rebuild, "Make the views anew from the journal."),
    "migrate": (_migrate, "Bring an old store forward, or say what that would do."),
    "gc": (_gc, "Show what is not needed any more, and free it."),
    "archive": (_archive, "Show or verify entries that `gc` has folded."),
    "backup": (_backup, "Copy a store that is in use, and verify the copy."),
    "adopt": (_adopt, "Go on with a store that was moved or copied."),
    "demo": (_demo, "Watch an agent survive kill -9."),
}
"""Each command with how to load it and its line in the list, so that `perdure --help` loads none of them."""


class _Commands(click.Group):
    """Commands that are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return COMMANDS[cmd_name][0]() if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            import difflib  # only for who has mistyped

            if close := difflib.get_close_matches(args[0], COMMANDS, n=1):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


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
        print(f"error[{code}]: {clean(message)}", file=sys.stderr)
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
