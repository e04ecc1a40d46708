"""Messages between the crash test and the processes that it starts."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from perdure.errors import PerdureError

READY = -1
"""The id of the message that the fork server is ready."""


LEASE_MS = 600
"""Lease duration of a program that will be paused: it must expire soon."""

HEART_SECONDS = 0.002
"""The interval of a heartbeat that the test interrupts."""


class CrashtestProblem(PerdureError):
    """The crash test itself cannot be carried out."""

    code = "PD601"


class Disturbance(StrEnum):
    """The disturbance at a place. Its name is the first part of the place's name, except for kills."""

    KILL = "kill"
    """SIGKILL."""
    BEAT = "beat"
    """SIGKILL, with a much faster heartbeat than normal."""
    STOP = "stop"
    """SIGSTOP until its lease has expired and another process has finished its work, then SIGCONT."""
    TERM = "term"
    """SIGTERM."""
    INTERRUPT = "int"
    """SIGINT, as by Ctrl-C."""
    FULL = "full"
    """The disk is full: a commit is refused."""
    RAISE = "raise"
    """The effect of that name raises after it has happened."""
    INSTANT = "after"
    """SIGKILL after some time, wherever it is."""


def manner_of(place: str) -> Disturbance:
    """Return the disturbance at a place."""
    first = place.partition(":")[0]
    return Disturbance(first) if first in [manner.value for manner in Disturbance] else Disturbance.KILL


def strip_action(place: str) -> str:
    """Return the place without its disturbance."""
    manner = manner_of(place)
    return place if manner in (Disturbance.KILL, Disturbance.RAISE) else place.removeprefix(f"{manner}:")


class LaunchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to start a program in a folder, and perhaps to disturb it at a place."""

    id: int
    program: str
    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    output: str
    """The file for its output."""
    place: str = ""
    """Where it is disturbed: `effect.outcome:before#1`, `term:line:agent.py:12#1`; empty for nowhere."""
    reached: str = ""
    """The file that is created when it gets there."""
    beating: bool = False
    """Whether the heartbeat runs all the time."""
    trail: str = ""
    """The file that records where it has been, a `ProgramEvent` per line; empty for none."""
    thorough: bool = False
    """Whether lines and calls are recorded too."""
    watched: str = ""
    """A file of the outside world: the program lines that make it grow are recorded."""


class ProcessNews(msgspec.Struct, frozen=True, kw_only=True):
    """A status message: a process was started, stopped or ended."""

    id: int
    pid: int = 0
    stopped: bool = False
    code: int | None = None


class ProgramEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that the program did, and where."""

    what: str
    """`point`, `line`, `call`, `return` (from the body of an effect), or `grew` (the watched file)."""
    name: str
    """`site:moment`, `agent.py:12`, `random.random`, `raise:charge`, or the new size."""
    at: str = ""
    """The program's own line: `agent.py:12`."""
    inside: str = ""
    """`run` in the plain code of a run, `step NAME` or `effect NAME` in a body; empty outside of runs."""
    function: str = ""
    """The program's function that contains the line."""
    callers: tuple[tuple[str, str], ...] = ()
    """For a call: the program's lines that led there, with their functions, nearest first."""
