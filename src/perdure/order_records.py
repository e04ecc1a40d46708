"""The records of orders: what somebody has told a run, and that it was obeyed; and where a run is.

`records.py` has all others.
"""

from __future__ import annotations

from enum import StrEnum

from .plan_records import Record


class Status(StrEnum):
    """Where a run is. `QUEUED` and `CRASHED` are never stored: of the first there is no run yet, the holder of the
    second is dead.
    """

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    FINISHED = "finished"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    CRASHED = "crashed"

    @property
    def over(self) -> bool:
        """Whether nothing will happen in it any more."""
        return self in (Status.FINISHED, Status.CANCELLED)


class Order(StrEnum):
    """What a run may be told."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"


class OrderGiven(Record, frozen=True, tag=65):
    """A run that is open somewhere is told something; it obeys at its next boundary. Numbered for each run."""

    stream: int
    number: int
    fence: int
    """Of the holder that is told: who takes the run over finds out whether it has obeyed."""
    order: Order
    reason: str
    by: str


class RunCancelled(Record, frozen=True):
    """The end of the run: it is never opened again."""

    reason: str
    by: str
    order: int = 0
    """The number of the order that was obeyed; 0 when nobody had the run open, so that it took effect at once."""


class RunPaused(Record, frozen=True):
    """The run is not opened until somebody resumes it."""

    reason: str
    by: str
    order: int = 0


class RunReleased(Record, frozen=True):
    """A paused run may be opened again."""

    reason: str
    by: str


class CleanupBegan(Record, frozen=True):
    """A cancelled run cleans up: until that has ended it may be opened again, to go on with it and nothing else."""

    reason: str
    by: str
    order: int = 0
