"""`perdure run -- python my_agent.py`: restarts a program after a crash until it succeeds.

The program's work is in the store, so a restart continues it. A program that keeps crashing at the same place is given
up, and the place is reported.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_count
from perdure.cli.store_option import add_common_options
from perdure.cli.timeline import describe
from perdure.errors import PerdureError
from perdure.journal.trees.tolerant_read import tolerant
from perdure.kernel.names import check_identifier
from perdure.records import KIND_OF, EntryKind, RunStatus
from perdure.run.listing import RunSummary, get_run, list_runs
from perdure.store import locate, open_store
from perdure.store.base import Store
from perdure.values.durations import seconds_of

PROGRESS = (
    EntryKind.STEP_DONE,
    EntryKind.EFFECT_INTENDED,
    EntryKind.EFFECT_DONE,
    EntryKind.ITEM_DONE,
    EntryKind.WROTE,
    EntryKind.WAIT_ENDED,
    EntryKind.LANDED,
    EntryKind.RUN_FINISHED,
)
"""Entries that show progress of the program."""

PAUSE_SECONDS_MAX = 60.0


class StoreProgress(msgspec.Struct, frozen=True):
    """The progress of the runs in a store."""

    entries: int = 0
    unfinished: tuple[RunSummary, ...] = ()
    stopped: tuple[RunSummary, ...] = ()
    """Cancelled and paused runs."""

    def find_stopped_since(self, before: StoreProgress) -> RunSummary | None:
        """Return a run that was stopped since `before`; or earlier, if no other run is unfinished."""
        known = {(run.stream, run.changed_at) for run in before.stopped} if self.unfinished else set()
        return next((run for run in self.stopped if (run.stream, run.changed_at) not in known), None)


F = TypeVar("F", bound=Callable[..., Any])


def add_restart_options(command: F) -> F:
    """Add the options of a command that restarts a program."""
    options = (
        click.option(
            "--restarts", type=click.IntRange(min=0), default=0, help="Maximum number of restarts. Default: unlimited."
        ),
        click.option(
            "--same-place",
            type=click.IntRange(min=1),
            default=3,
            show_default=True,
            help="Give up after this many crashes in a row without progress.",
        ),
        click.option(
            "--backoff",
            default="1s",
            show_default=True,
            help="Pause before the first restart; doubled each time, up to 1m.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def add_mismatch_option(command: F) -> F:
    """Add `--on-mismatch`, for the commands that record model calls."""
    option = click.option(
        "--on-mismatch",
        type=click.Choice(["warn", "strict", "force"]),
        default="warn",
        show_default=True,
        help="What happens when a restarted program asks a model something else than recorded.",
    )
    return option(command)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@add_restart_options
@click.option("--capture", is_flag=True, help="Record paid model calls over HTTP, and never pay one twice.")
@click.option("--id", "run_id", help="With --capture: the run. Default: the program's unfinished run, or a new one.")
@click.option("--host", "hosts", multiple=True, help="With --capture: record this host too, HOST or HOST:PORT.")
@add_mismatch_option
@add_common_options
def run(
    command: tuple[str, ...],
    restarts: int,
    same_place: int,
    backoff: str,
    capture: bool,
    run_id: str | None,
    hosts: tuple[str, ...],
    on_mismatch: str,
    url: str | None,
    as_json: bool,
) -> int:
    """Run a program, and restart it after a crash: it continues where it was.

    \b
    perdure run -- python my_agent.py
    perdure run --store sqlite:///agent.db -- python -m my_agent --fast
    perdure run --capture -- python unchanged_agent.py

    PERDURE_URL passes the store to the program. It is not restarted if it exits with 0, if you press Ctrl-C, or if it
    keeps crashing at the same place, which is then reported. The exit code is the program's.
    """  # noqa: D301 - the literal \b tells click not to rewrap these lines
    out, located = CommandOutput(as_json), locate(url)
    captured = _start_capture(located, command, run_id, hosts, on_mismatch) if capture else None
    supervisor = Supervisor(out, located, command, restarts, same_place, seconds_of(backoff, "backoff"), captured)
    code = supervisor.run()
    if code == 0 and captured is not None:
        captured.finish(located, captured.id)
    if as_json:
        out.json({"command": list(command), "starts": supervisor.starts, "exit_code": code, "why": supervisor.why})
    return code


class CapturedRun(msgspec.Struct, frozen=True):
    """The run that records a program's model calls, and how the program learns of it."""

    id: str
    environment: dict[str, str]
    finish: Callable[[str, str], None]
    before_start: Callable[[], None] = lambda: None
    """Called before each start of the program."""


def _start_capture(
    url: str, command: tuple[str, ...], run_id: str | None, hosts: tuple[str, ...], on_mismatch: str
) -> CapturedRun:
    from perdure.http_capture import process

    chosen = process.choose_run(url, command) if run_id is None else check_identifier(run_id, "a run's id")
    click.echo(f"perdure: model calls are recorded in run {clean(chosen)}", err=True)
    return CapturedRun(chosen, process.make_environment(chosen, hosts, on_mismatch), process.finish_run)


def supervise(out: CommandOutput, url: str, command: tuple[str, ...]) -> int:
    """Run a program with the defaults of `perdure run`. Returns its exit code."""
    return Supervisor(out, url, command, 0, 3, 1.0).run()


class Supervisor:
    """Starts a program until it succeeds, or restarts no longer help."""

    def __init__(
        self,
        out: CommandOutput,
        url: str,
        command: tuple[str, ...],
        restarts: int,
        same_place: int,
        backoff: float,
        captured: CapturedRun | None = None,
    ) -> None:
        self._out = out
        self._url = url
        self._command = command
        self._restarts_max = restarts
        self._same_place_max = same_place
        self._backoff = backoff
        self._captured = captured or CapturedRun("", {}, lambda url, run: None)
        self._stopped_by = 0
        self.starts = 0
        self.why = ""

    def run(self) -> int:
        """Run the program to its end. Returns the exit code of the last start."""
        stuck, pause, before = 0, self._backoff, progress_of(self._url)
        while True:
            code = self._start()
            if code == 0 or self._stopped_by:
                self.why = "it succeeded" if code == 0 else "it was stopped"
                return code
            after = progress_of(self._url)
            if (told := after.find_stopped_since(before)) is not None:
                return self._leave(code, told)
            stuck, pause = (stuck + 1, pause) if after.entries == before.entries else (1, self._backoff)
            before = after
            if stuck >= self._same_place_max:
                return self._give_up(code, f"it has crashed {stuck} times at the same place", after)
            if self._restarts_max and self.starts > self._restarts_max:
                return self._give_up(code, f"it was restarted {format_count(self._restarts_max, 'time')}", after)
            self._print(f"{_describe_exit(code)}; restart in {pause:g} s{_describe_wait(after)}")
            if not self._pause(pause):
                self.why = "it was stopped"
                return code
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _start(self) -> int:
        """Start the program once and wait for its end. Signals are passed on, so that it can close its runs."""
        self.starts += 1
        self._captured.before_start()
        with self._pass_on_signals() as told:
            try:
                environment = {**os.environ, **self._captured.environment, "PERDURE_URL": self._url}
                child = subprocess.Popen(self._command, env=environment)
            except OSError as error:
                raise click.UsageError(f"{shlex.join(self._command)} cannot be started: {error.strerror}") from error
            told.append(child)
            if self._stopped_by:
                child.send_signal(self._stopped_by)
            return child.wait()

    @contextmanager
    def _pass_on_signals(self) -> Iterator[list[subprocess.Popen[Any]]]:
        children: list[subprocess.Popen[Any]] = []

        def pass_on(number: int, _: FrameType | None) -> None:
            self._stopped_by = number
            # A terminal sends Ctrl-C to both processes; all other signals reach only this one.
            for child in children:
                if number != signal.SIGINT or not os.isatty(0):
                    child.send_signal(number)

        before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield children
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pause(self, seconds: float) -> bool:
        """Sleep. Returns False if a signal ended the pause."""
        with self._pass_on_signals():
            until = time.monotonic() + seconds
            while not self._stopped_by and (left := until - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
        return not self._stopped_by

    def _leave(self, code: int, run: RunSummary) -> int:
        """Stop because a run was cancelled or paused: a restart would not help."""
        self.why = f"run {run.id} is {run.status.value}"
        self._print(
            f"run {clean(run.id)} of agent {clean(run.agent)} is {run.status.value} {clean(run.error)}: left alone"
        )
        if run.status == RunStatus.PAUSED:
            self._print(f"to continue: `perdure resume {shlex.quote(run.id)}`, then start this again")
        return code if code > 0 else 128 - code

    def _give_up(self, code: int, why: str, progress: StoreProgress) -> int:
        self.why = why
        self._print(f"{_describe_exit(code)}; given up: {why}")
        for run in progress.unfinished[:3]:
            self._print(f"run {clean(run.id)} of agent {clean(run.agent)} is {run.status.value}")
            for line in describe_crash_place(self._url, run):
                self._print(f"  {line}")
        self._print("finished work is kept: fix the program and start it again")
        return code if code > 0 else 128 - code

    def _print(self, text: str) -> None:
        click.echo(f"perdure: {text}", err=True)


def progress_of(url: str) -> StoreProgress:
    """Return the progress of all runs in a store; empty if the store does not exist yet."""
    try:
        store = open_store(url, create=False, wary=True)
    except PerdureError:
        return StoreProgress()  # not created yet; if the program cannot create it, its own error says why
    try:
        runs = list_runs(store)
        stopped = tuple(run for run in runs if run.status in (RunStatus.CANCELLED, RunStatus.PAUSED))
        unfinished = tuple(run for run in runs if run.status != RunStatus.FINISHED and run not in stopped)
        return StoreProgress(
            sum(_entries(store, run.stream) for run in runs) + _count_entries(store), unfinished, stopped
        )
    finally:
        store.close()


def _entries(store: Store, stream: int) -> int:
    return sum(int(count) for kind, count in store.read("entry_counts", (stream,)) if kind in PROGRESS)


def _count_entries(store: Store) -> int:
    """Count the entries written outside of runs, in the streams of processes."""
    streams = [stream for stream, kind, *_ in store.read("all_streams") if kind == "process"]
    return sum(_entries(store, stream) for stream in streams)


def describe_crash_place(url: str, run: RunSummary) -> list[str]:
    """Describe the place of a repeated crash: the last finished call and the last entry of a run."""
    store = open_store(url, create=False, wary=True)
    try:
        unpack = tolerant(store)
        events = get_run(store, run.agent, run.id, unpack=unpack).events
        told = describe(events, unpack)
    finally:
        store.close()
    done = [text for event, text in zip(events, told, strict=True) if KIND_OF[type(event.record)] in PROGRESS]
    return [f"last done: {done[-1]}" if done else "nothing is done yet", f"last entry: {told[-1]}"]


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"it ended with {code}"
    try:
        return f"it was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"


def _describe_wait(progress: StoreProgress) -> str:
    names = ", ".join(clean(run.id) for run in progress.unfinished[:3])
    more = f" and {len(progress.unfinished) - 3} more" if len(progress.unfinished) > 3 else ""
    return f", to continue {names}{more}" if names else ""
