"""A workflow as it stands at one moment: what is done, what comes next, what can be started."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from ..records import StepStatus


class WorkflowStep(msgspec.Struct, frozen=True):
    """One step of a workflow as it stands; `step["action"]` is `step.action`."""

    step: int | str
    """Its number or name."""
    action: str
    args: Any
    depends_on: tuple[int | str, ...]
    status: StepStatus
    result: Any = None
    note: str = ""
    title: str = ""
    claimed_by: str = ""
    """Who is at it, and alive; empty when nobody is."""
    run: str = ""
    """The run in which `resume` has begun it."""
    by: str = ""
    """The agent that changed it last."""
    ours: bool = False
    """Whether it is this agent, in this process, that is at it."""
    changed_at: datetime | None = None

    def __getitem__(self, field: str) -> Any:
        if field not in self.__struct_fields__:
            raise KeyError(field)
        return getattr(self, field)

    @property
    def done(self) -> bool:
        """Completed or skipped: what depends on it may begin."""
        return self.status.over

    def __str__(self) -> str:
        return f"step {self.step}: {self.action} ({self.status})"


class Plan(msgspec.Struct, frozen=True):
    """All of a workflow at one moment."""

    agent: str
    name: str
    version: int
    at: datetime
    """When this version was made."""
    steps: tuple[WorkflowStep, ...]

    @property
    def done(self) -> int:
        """How many steps are completed or skipped."""
        return sum(it.done for it in self.steps)

    @property
    def progress(self) -> int:
        """In percent; 100 only when nothing is left."""
        return 100 * self.done // len(self.steps)

    @property
    def status(self) -> StepStatus:
        """Of the whole."""
        found = {it.status for it in self.steps}
        if all(status.over for status in found):
            return StepStatus.COMPLETED
        for status in (StepStatus.FAILED, StepStatus.IN_PROGRESS, StepStatus.BLOCKED):
            if status in found:
                return status
        return StepStatus.IN_PROGRESS if any(status.over for status in found) else StepStatus.PENDING

    @property
    def sequential(self) -> bool:
        """Whether each step simply follows the one before it."""
        before = [(), *((it.step,) for it in self.steps)]
        return all(it.depends_on == wanted for it, wanted in zip(self.steps, before, strict=False))

    def possible(self) -> list[WorkflowStep]:
        """The steps that are not done, and whose dependencies are."""
        over = {it.step for it in self.steps if it.done}
        return [it for it in self.steps if not it.done and over.issuperset(it.depends_on)]

    def ready(self) -> list[WorkflowStep]:
        """Those that can be started now: pending, or left in progress by somebody who is gone."""
        return [
            it
            for it in self.possible()
            if it.status == StepStatus.PENDING or (it.status == StepStatus.IN_PROGRESS and not it.claimed_by)
        ]

    def results(self) -> dict[int | str, Any]:
        """What the completed steps came to."""
        return {it.step: it.result for it in self.steps if it.status == StepStatus.COMPLETED}
