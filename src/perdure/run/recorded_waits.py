"""Recorded waits of a run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure import records as r


class RecordedWait(msgspec.Struct, eq=False, gc=False):
    """A wait of the run, and how it ended."""

    seq: int
    kind: str
    until: int
    how: str = ""
    """"" while it lasts."""
    value: bytes = b""
    by: str = ""
    asked: bool = False
    """Whether the code has reached it in this opening of the run."""


AGAIN = ("refused", "withdrawn")
"""Ends after which a wait starts anew: its answer was refused, or the code had not reached it."""


def withdrawn(waits: Iterable[RecordedWait]) -> list[r.WaitEnded]:
    """Return the entries that end waits which the code no longer reaches."""
    return [r.WaitEnded(waited.seq, "withdrawn") for waited in waits]
