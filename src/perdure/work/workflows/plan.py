"""A snapshot of a workflow: which steps are done, which come next, which can start."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from perdure.errors import WrongType
from perdure.records import StepStatus


class WorkflowStep(msgspec.Struct, frozen=True):
    """One step of a workflow. `step["action"]` is the same as `step.action`."""

    step: int | str
    """The number or the name of the step."""
    action: str
    args: Any
    depends_on: tuple[int | str, ...]
    status: StepStatus
    result: Any = None
    note: str = ""
    title: str = ""
    claimed_by: str = ""
    """The live process that has claimed it; empty if none has."""
    run: str = ""
    """The run in which `resume` executes it."""
    by: str = ""
    """The agent that changed it last."""
    ours: bool = False
    """Whether this agent, in this process, has claimed it."""
    changed_at: datetime | None = None

    def __getitem__(self, field: str) -> Any:
        if field not in self.__struct_fields__:
            raise KeyError(field)
        return getattr(self, field)

    def __setitem__(self, field: str, value: Any) -> None:
        raise WrongType(
            f"step {self.step} is a copy: its {field} cannot be set here",
            hint=f"change the workflow: workflow.complete({self.step!r}), or start, fail, block, skip, reset",
        )

    @property
    def done(self) -> bool:
        """Whether it is completed or skipped, so that steps depending on it may start."""
        return self.status.over

    def __str__(self) -> str:
        return f"step {self.step}: {self.action} ({self.status})"


class WorkflowSnapshot(msgspec.Struct, frozen=True):
    """A snapshot of a whole workflow."""

    agent: str
    name: str
    version: int
    at: datetime
    """When this version was created."""
    steps: tuple[WorkflowStep, ...]

    @property
    def done(self) -> int:
        """The number of completed and skipped steps."""
        return sum(step.done for step in self.steps)

    @property
    def progress(self) -> int:
        """The share of finished steps in percent; 100 only when all are finished."""
        return 100 * self.done // len(self.steps)

    @property
    def status(self) -> StepStatus:
        """The status of the workflow as a whole."""
        found = {step.status for step in self.steps}
        if all(status.over for status in found):
            return StepStatus.COMPLETED
        for status in (StepStatus.FAILED, StepStatus.IN_PROGRESS, StepStatus.BLOCKED):
            if status in found:
                return status
        return StepStatus.IN_PROGRESS if any(status.over for status in found) else StepStatus.PENDING

    @property
    def sequential(self) -> bool:
        """Whether each step depends exactly on the one before it."""
        before = [(), *((step.step,) for step in self.steps)]
        return all(step.depends_on == wanted for step, wanted in zip(self.steps, before, strict=False))

    def possible(self) -> list[WorkflowStep]:
        """Return the unfinished steps whose dependencies are finished."""
        over = {step.step for step in self.steps if step.done}
        return [step for step in self.steps if not step.done and over.issuperset(step.depends_on)]

    def list_ready(self) -> list[WorkflowStep]:
        """Return the steps that can start now: pending, or in progress with a claimant that is gone."""
        return [
            step
            for step in self.possible()
            if step.status == StepStatus.PENDING or (step.status == StepStatus.IN_PROGRESS and not step.claimed_by)
        ]

    def results(self) -> dict[int | str, Any]:
        """Return the results of the completed steps."""
        return {step.step: step.result for step in self.steps if step.status == StepStatus.COMPLETED}
