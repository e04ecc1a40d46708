"""Records of workflows."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from perdure.records.base import Record


class StepStatus(StrEnum):
    """The status of a workflow step."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"

    @property
    def over(self) -> bool:
        """Whether nothing is left to do, so that steps depending on it may start."""
        return self in (StepStatus.COMPLETED, StepStatus.SKIPPED)


class StepState(Record, frozen=True):
    """The progress of a workflow step, and who has claimed it."""

    status: StepStatus = StepStatus.PENDING
    result: bytes = b""
    note: str = ""
    holder: int = 0
    """The process that has claimed it; 0 if none has."""
    by: str = ""
    """The agent that changed it last."""
    claim: int = 0
    """The revision of the workflow at which it was last claimed. It works like a fencing token."""
    attempt: int = 0
    """How often it was reopened after its end. Each attempt executes in another run."""
    run: str = ""
    """The run that executes it, once `resume` has started it."""


class PlannedStep(Record, frozen=True):
    """One step of a workflow."""

    step: str
    numbered: bool
    """Whether it is identified by a number."""
    action: str
    arguments: bytes
    digest: bytes
    """A digest of the action and its arguments, which identify the work."""
    depends_on: tuple[str, ...]
    title: str = ""
    standing: StepState = StepState()
    """The initial progress."""


class WorkflowMade(Record, frozen=True, tag=11):
    """A workflow or its next version. Revisions count all changes of a workflow of that name."""

    owner: int
    name: str
    version: int
    revision: int
    steps: tuple[PlannedStep, ...]


class WorkflowMoved(Record, frozen=True, tag=12):
    """A workflow step changed its status."""

    owner: int
    name: str
    version: int
    revision: int
    step: str
    standing: StepState


_STEPS = msgspec.msgpack.Decoder(tuple[PlannedStep, ...])
_STANDING = msgspec.msgpack.Decoder(StepState)


def encode_part(part: StepState | tuple[PlannedStep, ...]) -> bytes:
    """Encode a part of a record for a view."""
    return msgspec.msgpack.encode(part)


def decode_steps(data: bytes) -> tuple[PlannedStep, ...]:
    """Decode the steps of a workflow from its view."""
    return _STEPS.decode(data)


def decode_standing(data: bytes) -> StepState:
    """Decode the progress of a step from its view."""
    return _STANDING.decode(data)
