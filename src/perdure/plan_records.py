"""The records of workflows, with what every record has in common. `records.py` has all others."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """An entry's content.

    What a later version has added is refused, and not left out: who leaves it out would make views without it, and
    collect the objects that only it refers to.
    """


class StepStatus(StrEnum):
    """Where a step of a workflow is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"

    @property
    def over(self) -> bool:
        """Whether nothing is left to do, so that what depends on it may begin."""
        return self in (StepStatus.COMPLETED, StepStatus.SKIPPED)


class Standing(Record, frozen=True):
    """How far a step of a workflow is, and who is at it."""

    status: StepStatus = StepStatus.PENDING
    result: bytes = b""
    note: str = ""
    holder: int = 0
    """The process that has claimed it; 0 when nobody is at it."""
    by: str = ""
    """The agent that has changed it last."""
    claim: int = 0
    """The revision of the workflow at which it was last claimed: what a fence is to a stream."""
    attempt: int = 0
    """Counts how often it was opened again after its end: each time it is worked at in another run."""
    run: str = ""
    """The run in which it is worked at, once `resume` has begun it."""


class PlannedStep(Record, frozen=True):
    """One step of a workflow."""

    step: str
    numbered: bool
    """Whether people call it by a number."""
    action: str
    arguments: bytes
    digest: bytes
    """Of the action and its arguments: what makes it the same work."""
    depends_on: tuple[str, ...]
    title: str = ""
    standing: Standing = Standing()
    """Where it begins."""


class WorkflowMade(Record, frozen=True, tag=11):
    """A workflow, or the next version of one. Revisions count all changes of a workflow of that name."""

    owner: int
    name: str
    version: int
    revision: int
    steps: tuple[PlannedStep, ...]


class WorkflowMoved(Record, frozen=True, tag=12):
    """A step of a workflow has got somewhere."""

    owner: int
    name: str
    version: int
    revision: int
    step: str
    standing: Standing


_STEPS = msgspec.msgpack.Decoder(tuple[PlannedStep, ...])
_STANDING = msgspec.msgpack.Decoder(Standing)


def encode_part(part: Standing | tuple[PlannedStep, ...]) -> bytes:
    """A part of a record, as a view keeps it."""
    return msgspec.msgpack.encode(part)


def decode_steps(data: bytes) -> tuple[PlannedStep, ...]:
    """The steps of a workflow out of its view."""
    return _STEPS.decode(data)


def decode_standing(data: bytes) -> Standing:
    """How far a step is, out of its view."""
    return _STANDING.decode(data)
