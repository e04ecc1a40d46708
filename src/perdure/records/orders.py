"""Records of orders: what a run was told to do and that it obeyed, and the status of a run.

All others are in `records/__init__.py`.
"""

from __future__ import annotations

from enum import StrEnum

from perdure.records.base import Record


class RunStatus(StrEnum):
    """The status of a run.

    `QUEUED` and `CRASHED` are never stored: a queued run does not exist yet, and the holder of a crashed run is dead.
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
    ERASED = "erased"
    """Its conversation was deleted. It is in no list, and nobody can open it."""

    @classmethod
    def listed(cls) -> list[str]:
        """The statuses of runs that lists show."""
        return [one.value for one in cls if one != cls.ERASED]

    @property
    def over(self) -> bool:
        """Whether the run has ended for good."""
        return self in (RunStatus.FINISHED, RunStatus.CANCELLED, RunStatus.ERASED)


class Order(StrEnum):
    """What a run can be told."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    """Only for a run that no process has open: a holder never receives it."""


class OrderGiven(Record, frozen=True, tag=65):
    """An order to a run that is open somewhere. It obeys at its next step. Orders are numbered per run."""

    stream: int
    number: int
    fence: int
    """The fencing token of the holder that is told: after a takeover, this shows whether it obeyed."""
    order: Order
    reason: str
    by: str


class RunCancelledEntry(Record, frozen=True):
    """The end of the run: it is never opened again."""

    reason: str
    by: str
    order: int = 0
    """The number of the order that was obeyed; 0 if no process had the run open, so that it took effect at once."""


class RunPausedEntry(Record, frozen=True):
    """The run is not opened until it is resumed."""

    reason: str
    by: str
    order: int = 0


class RunReleased(Record, frozen=True):
    """Allow a paused run to be opened again, or a failed one to be retried."""

    reason: str
    by: str
    retry: bool = False
    """Whether steps whose results could not be stored run again."""


class CleanupBegan(Record, frozen=True):
    """The cleanup of a cancelled run has started.

    Until it ends, the run may be opened again, but only to continue it.
    """

    reason: str
    by: str
    order: int = 0
