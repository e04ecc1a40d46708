"""What passes between the crash test and the processes that it starts."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ...errors import PerdureError

READY = -1
"""The id in the news that the zygote itself is there."""


LEASE_MS = 600
"""Of a program that will be paused: its lease must run out soon."""

HEART_SECONDS = 0.002
"""Between two beats of a heart that is to be caught beating."""


class CrashtestProblem(PerdureError):
    """The crash test itself cannot be done."""

    code = "PD601"


class Manner(StrEnum):
    """What is done to a program at a place; the first part of a place's name, except for kills."""

    KILL = "kill"
    """SIGKILL."""
    BEAT = "beat"
    """The same, while its heart beats much more often than in real life."""
    STOP = "stop"
    """SIGSTOP until its lease has run out and another process has done its work, then SIGCONT."""
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


def manner_of(place: str) -> Manner:
    """What is done there."""
    first = place.partition(":")[0]
    return Manner(first) if first in [manner.value for manner in Manner] else Manner.KILL


def where_of(place: str) -> str:
    """The place without what is done there."""
    manner = manner_of(place)
    return place if manner in (Manner.KILL, Manner.RAISE) else place.removeprefix(f"{manner}:")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Start a program in a folder, and perhaps kill it at a place."""

    id: int
    program: str
    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    output: str
    """The file that takes what it prints."""
    place: str = ""
    """Where something is done to it: `effect.outcome:before#1`, `term:line:agent.py:12#1`; nowhere, if empty."""
    reached: str = ""
    """The file that is made when it comes there."""
    beating: bool = False
    """Its heart beats all the time."""
    trail: str = ""
    """The file that takes where it has been, a `Seen` per line; none, if empty."""
    thorough: bool = False
    """Also note lines and calls in the trail."""
    watched: str = ""
    """A file of the outside world: which line of the program made it grow is noted too."""


class News(msgspec.Struct, frozen=True, kw_only=True):
    """A process was started, was stopped, or has ended."""

    id: int
    pid: int = 0
    stopped: bool = False
    code: int | None = None


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that the program did, and where."""

    what: str
    """`point`, `line`, `call`, `return` (of an effect's body), or `grew`: the watched file did."""
    name: str
    """`site:moment`, `agent.py:12`, `random.random`, `raise:charge`, or the new size."""
    at: str = ""
    """The program's own line: `agent.py:12`."""
    inside: str = ""
    """`run` in the plain code of a run, `step NAME` or `effect NAME` in a body; empty outside of runs."""
    function: str = ""
    """The program's function around that line."""
    callers: tuple[tuple[str, str], ...] = ()
    """Of a call: the program's lines that led there, with their functions, the nearest first."""
