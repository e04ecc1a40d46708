"""What a run has waited for, as its journal has it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .. import records as r


class Waited(msgspec.Struct, eq=False, gc=False):
    """A wait of the run, and how it ended."""

    seq: int
    kind: str
    until: int
    how: str = ""
    """Empty while it lasts."""
    value: bytes = b""
    by: str = ""
    asked: bool = False
    """The code has come to it in this opening of the run."""


AGAIN = ("refused", "withdrawn")
"""How a wait ends that is begun anew when the code comes there: its answer did not fit, or the code did not come."""


def withdrawn(waits: Iterable[Waited]) -> list[r.WaitEnded]:
    """The entries that end waits to which the code does not come any more."""
    return [r.WaitEnded(waited.seq, "withdrawn") for waited in waits]
