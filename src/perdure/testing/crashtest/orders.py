"""What passes between the crash test and the processes that it starts."""

from __future__ import annotations

import msgspec

READY = -1
"""The id in the news that the zygote itself is there."""


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
    """Where it is killed: `effect.outcome:before#1`, `line:agent.py:12#1`; never, if empty.

    `raise:NAME#1` is no kill: then the effect of that name raises after it has happened.
    """
    trail: str = ""
    """The file that takes where it has been, a `Seen` per line; none, if empty."""
    thorough: bool = False
    """Also note lines and calls in the trail."""
    watched: str = ""
    """A file of the outside world: which line of the program made it grow is noted too."""


class News(msgspec.Struct, frozen=True, kw_only=True):
    """A process was started, or has ended."""

    id: int
    pid: int = 0
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
