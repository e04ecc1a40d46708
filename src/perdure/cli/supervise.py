"""`perdure run -- python my_agent.py`: starts a program again when it has crashed, until it ends well.

What the program has done is in the store, so that starting it again is continuing it. A crash that comes again and
again at the same place is not mended by another start: then it is left alone, and said where that is.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click
import msgspec

from ..durations import seconds_of
from ..errors import PerdureError
from ..records import KIND_OF, Kind, Status
from ..runs import RunSummary, get_run, list_runs
from ..store import locate, open_store
from ..store.base import Store
from ..trees.tolerant import tolerant
from .output import Output, clean, counted
from .stores import common
from .timeline import in_words

PROGRESS = (
    Kind.STEP_DONE,
    Kind.EFFECT_INTENDED,
    Kind.EFFECT_DONE,
    Kind.ITEM_DONE,
    Kind.WROTE,
    Kind.WAIT_ENDED,
    Kind.LANDED,
    Kind.RUN_FINISHED,
)
"""Entries that a program adds only by getting further."""

PAUSE_SECONDS_MAX = 60.0


class Progress(msgspec.Struct, frozen=True):
    """How far the runs of a store have got."""

    entries: int = 0
    unfinished: tuple[RunSummary, ...] = ()
    stopped: tuple[RunSummary, ...] = ()
    """Those that somebody has cancelled or paused."""

    def told_since(self, before: Progress) -> RunSummary | None:
        """A run that somebody has stopped meanwhile; or long ago, if nothing else is left to do."""
        known = {(run.stream, run.changed_at) for run in before.stopped} if self.unfinished else set()
        return next((run for run in self.stopped if (run.stream, run.changed_at) not in known), None)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--restarts", type=click.IntRange(min=0), default=0, help="Give up after so many in all. Default: never.")
@click.option(
    "--same-place",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Give up after so many crashes in a row without any progress.",
)
@click.option(
    "--backoff", default="1s", show_default=True, help="Before the first restart; doubled each time, up to 1m."
)
@common
def run(command: tuple[str, ...], restarts: int, same_place: int, backoff: str, url: str | None, as_json: bool) -> int:
    """Run a program, and start it again when it has crashed: it continues where it was.

    \b
    perdure run -- python my_agent.py
    perdure run --store sqlite:///agent.db -- python -m my_agent --fast

    The program is told the store by PERDURE_URL. It is not started again when it ends with 0, when you press Ctrl-C, or
    when it keeps crashing at the same place: then it is said where that is. The exit code is the program's.
    """  # noqa: D301 - click wants the character itself: it keeps these lines as they stand
    out, located = Output(as_json), locate(url)
    supervisor = Supervisor(out, located, command, restarts, same_place, seconds_of(backoff, "backoff"))
    code = supervisor.run()
    if as_json:
        out.json({"command": list(command), "starts": supervisor.starts, "exit_code": code, "why": supervisor.why})
    return code


class Supervisor:
    """Starts a program until it ends well, or there is no sense in it."""

    def __init__(
        self, out: Output, url: str, command: tuple[str, ...], restarts: int, same_place: int, backoff: float
    ) -> None:
        self._out = out
        self._url = url
        self._command = command
        self._restarts_max = restarts
        self._same_place_max = same_place
        self._backoff = backoff
        self._stopped_by = 0
        self.starts = 0
        self.why = ""

    def run(self) -> int:
        """The exit code of the last start."""
        stuck, pause, before = 0, self._backoff, progress_of(self._url)
        while True:
            code = self._start()
            if code == 0 or self._stopped_by:
                self.why = "it ended well" if code == 0 else "it was stopped"
                return code
            after = progress_of(self._url)
            if (told := after.told_since(before)) is not None:
                return self._leave(code, told)
            stuck, pause = (stuck + 1, pause) if after.entries == before.entries else (1, self._backoff)
            before = after
            if stuck >= self._same_place_max:
                return self._give_up(code, f"it has crashed {stuck} times at the same place", after)
            if self._restarts_max and self.starts > self._restarts_max:
                return self._give_up(code, f"it was restarted {counted(self._restarts_max, 'time')}", after)
            self._say(f"{_ended(code)}; started again in {pause:g} s{_waiting(after)}")
            if not self._pause(pause):
                self.why = "it was stopped"
                return code
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _start(self) -> int:
        """One start, to its end. Signals are the program's: it has to leave its runs in order."""
        self.starts += 1
        with self._passing_on_signals() as told:
            try:
                child = subprocess.Popen(self._command, env={**os.environ, "PERDURE_URL": self._url})
            except OSError as error:
                raise click.UsageError(f"{shlex.join(self._command)} cannot be started: {error.strerror}") from error
            told.append(child)
            if self._stopped_by:
                child.send_signal(self._stopped_by)
            return child.wait()

    @contextmanager
    def _passing_on_signals(self) -> Iterator[list[subprocess.Popen[Any]]]:
        children: list[subprocess.Popen[Any]] = []

        def pass_on(number: int, _: FrameType | None) -> None:
            self._stopped_by = number
            # A terminal sends Ctrl-C to both of us by itself; everything else comes to this process alone.
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
        """Whether it may go on after it."""
        with self._passing_on_signals():
            until = time.monotonic() + seconds
            while not self._stopped_by and (left := until - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
        return not self._stopped_by

    def _leave(self, code: int, run: RunSummary) -> int:
        """Somebody wants it to stop: starting it again would be no help."""
        self.why = f"run {run.id} is {run.status.value}"
        self._say(
            f"run {clean(run.id)} of agent {clean(run.agent)} is {run.status.value} {clean(run.error)}: left alone"
        )
        if run.status == Status.PAUSED:
            self._say(f"it goes on after `perdure resume {shlex.quote(run.id)}`, when you start this again")
        return code if code > 0 else 128 - code

    def _give_up(self, code: int, why: str, progress: Progress) -> int:
        self.why = why
        self._say(f"{_ended(code)}; given up: {why}")
        for run in progress.unfinished[:3]:
            self._say(f"run {clean(run.id)} of agent {clean(run.agent)} is {run.status.value}")
            for line in where(self._url, run):
                self._say(f"  {line}")
        self._say("what was done is kept: mend it, and start it again")
        return code if code > 0 else 128 - code

    def _say(self, text: str) -> None:
        click.echo(f"perdure: {text}", err=True)


def progress_of(url: str) -> Progress:
    """How far everything in a store has got; nothing, while there is none."""
    try:
        store = open_store(url, create=False, wary=True)
    except PerdureError:
        return Progress()  # the program has not made it yet, or cannot: its own message says why
    try:
        runs = list_runs(store)
        stopped = tuple(run for run in runs if run.status in (Status.CANCELLED, Status.PAUSED))
        unfinished = tuple(run for run in runs if run.status != Status.FINISHED and run not in stopped)
        return Progress(sum(_entries(store, run.stream) for run in runs) + _landed(store), unfinished, stopped)
    finally:
        store.close()


def _entries(store: Store, stream: int) -> int:
    return sum(int(count) for kind, count in store.read("progress_of", (stream,)) if kind in PROGRESS)


def _landed(store: Store) -> int:
    """What was written in the open, in streams of processes."""
    streams = [stream for stream, kind, *_ in store.read("all_streams") if kind == "process"]
    return sum(_entries(store, stream) for stream in streams)


def where(url: str, run: RunSummary) -> list[str]:
    """What a run did last, and what came then: the place of a crash that comes again and again."""
    store = open_store(url, create=False, wary=True)
    try:
        unpack = tolerant(store)
        events = get_run(store, run.agent, run.id, unpack=unpack).events
        told = in_words(events, unpack)
    finally:
        store.close()
    done = [text for event, text in zip(events, told, strict=True) if KIND_OF[type(event.record)] in PROGRESS]
    return [f"last done: {done[-1]}" if done else "nothing is done yet", f"last entry: {told[-1]}"]


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended with {code}"
    try:
        return f"it was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"


def _waiting(progress: Progress) -> str:
    names = ", ".join(clean(run.id) for run in progress.unfinished[:3])
    more = f" and {len(progress.unfinished) - 3} more" if len(progress.unfinished) > 3 else ""
    return f", to go on with {names}{more}" if names else ""
