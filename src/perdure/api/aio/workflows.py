"""The public API of `agent.workflows`: arguments and documentation. The logic is in `perdure.work.workflows`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from perdure.api.aio.base import AsyncFacade
from perdure.api.aio.run import ASYNC, AsyncRun
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import drive_sync as block
from perdure.kernel.protocol import read_protocol
from perdure.records import StepStatus
from perdure.work.workflows import changes, rendering
from perdure.work.workflows.definition import StepInput
from perdure.work.workflows.plan import WorkflowSnapshot, WorkflowStep
from perdure.work.workflows.read import StepRef, WorkflowRef, reader_for
from perdure.work.workflows.resume import ActionHandlers, ClaimedStep, WorkflowResume

R = TypeVar("R")


class AsyncWorkflows(AsyncFacade):
    """`agent.workflows`: plans with a status for each step, which any process, agent or model can continue.

    >>> wf = await agent.workflows.create(name="report", steps=["scrape", "analyse", "write", "send"])
    >>> step = await wf.next_incomplete_step()
    """

    __slots__ = ()

    async def create(self, name: str, steps: Iterable[StepInput]) -> AsyncWorkflow:
        """Create a workflow. Called again with the same steps, it returns the existing one with its progress.

        A step is the name of an action, or a dict: `step` (a number or a name), `action`, `args`, `depends_on`,
        `status`, `result`, `note`, `title`. Without any `depends_on` the steps run in sequence. Other steps under the
        same name make the next version: steps with the same action and arguments keep their status. Raises
        `WorkflowInvalid`.
        """
        return AsyncWorkflow(self._engine, await self._do(changes.create(self._engine, name, steps)))

    async def get(self, name: str, version: int | None = None, *, of: str | None = None) -> AsyncWorkflow:
        """Return a workflow by name. `of` names another agent that owns it. Old versions are read-only."""
        which = WorkflowRef(of or self._engine.name, name, version)
        await self._read(lambda: reader_for(self._engine).look(which))
        return AsyncWorkflow(self._engine, which)

    async def list(self, *, of: str | None = None) -> builtins.list[AsyncWorkflow]:
        """Return all workflows of this agent, or of another one, sorted by name."""
        found = await self._read(lambda: reader_for(self._engine).list_workflows(of or self._engine.name))
        return [AsyncWorkflow(self._engine, which) for which in found]

    async def versions(self, name: str, *, of: str | None = None) -> builtins.list[AsyncWorkflow]:
        """Return every version of a workflow, oldest first, each in its last state."""
        found = await self._read(lambda: reader_for(self._engine).versions(of or self._engine.name, name))
        return [AsyncWorkflow(self._engine, which) for which in found]


class AsyncWorkflow(AsyncFacade):
    """A workflow. Every access reads its current state."""

    __slots__ = ("_which", "name")

    def __init__(self, engine: Engine, which: WorkflowRef) -> None:
        super().__init__(engine)
        self._which = which
        self.name = which.name

    # -- asking -------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version: 1, plus one for each change of the steps."""
        return self._bare.version

    @property
    def progress(self) -> int:
        """The share of finished steps in percent; 100 only when all are finished."""
        return self._bare.progress

    @property
    def status(self) -> StepStatus:
        """The status of the whole: pending, in_progress, completed, failed or blocked."""
        return self._bare.status

    @property
    def steps(self) -> builtins.list[WorkflowStep]:
        """All steps, in order."""
        return list(self._now.steps)

    @property
    def results(self) -> dict[int | str, Any]:
        """The results of the completed steps, by number or name."""
        return self._now.results()

    async def step(self, step: StepRef) -> WorkflowStep:
        """Return one step by its number or name. Raises `WorkflowNotFound`."""
        return await self._read(lambda: reader_for(self._engine).read_step(self._which, step))

    async def next_incomplete_step(self) -> WorkflowStep | None:
        """Return the first unfinished step whose dependencies are finished; None when all are finished."""
        found = await self._select_steps(lambda plan: plan.possible()[:1])
        return found[0] if found else None

    async def ready_steps(self) -> builtins.list[WorkflowStep]:
        """Return the steps that can start now: their dependencies are finished, and no live process has claimed them.

        Failed and blocked steps are not included: they need a decision.
        """
        return await self._select_steps(WorkflowSnapshot.list_ready)

    # -- moving -------------------------------------------------------------------------------------------------------

    async def start(self, step: StepRef, note: str | None = None) -> WorkflowStep:
        """Claim a step for this agent in this process. Raises `StepClaimed` if another live process has it.

        The claim lasts until the step is completed, failed, blocked, skipped or reset, or until this process ends.
        """
        return await self._move(step, StepStatus.IN_PROGRESS, None, note)

    async def complete(self, step: StepRef, result: Any = None, note: str | None = None) -> WorkflowStep:
        """Complete a step with a result. It need not have been started."""
        return await self._move(step, StepStatus.COMPLETED, result, note)

    async def fail(self, step: StepRef, note: str | None = None, result: Any = None) -> WorkflowStep:
        """Mark a step as failed. The next `resume` retries it. A completed step can only be reset."""
        return await self._move(step, StepStatus.FAILED, result, note)

    async def block(self, step: StepRef, note: str | None = None, result: Any = None) -> WorkflowStep:
        """Block a step that waits for something outside. Continue it with `reset` or `start`."""
        return await self._move(step, StepStatus.BLOCKED, result, note)

    async def skip(self, step: StepRef, note: str | None = None, result: Any = None) -> WorkflowStep:
        """Skip a step that is not needed. Steps that depend on it may start."""
        return await self._move(step, StepStatus.SKIPPED, result, note)

    async def reset(self, step: StepRef, note: str | None = None) -> WorkflowStep:
        """Reset a step, so that it is executed from the beginning, again if necessary."""
        return await self._move(step, StepStatus.PENDING, None, note)

    # -- doing --------------------------------------------------------------------------------------------------------

    async def resume(
        self, handlers: ActionHandlers | None = None, *, wait: float | None = None
    ) -> dict[int | str, Any]:
        """Execute all remaining steps durably, and return the results of all steps by number or name.

        >>> await wf.resume(handlers={"scrape": fetch_pages, "send": send_mail})

        An action is a function in `handlers`, or a step or effect of this agent with that name. It receives the `args`
        of its step. If it has a parameter `results` or `step` (a plain function also `run`), it receives that too. Each
        step is a run of its own, `name@version/step`: after a crash, finished steps are not repeated, and effects in
        doubt are settled as in every run. Steps of other live processes are left to them. When nothing else remains,
        the call waits for them, or raises `StepClaimed` after `wait` seconds.
        """
        work = WorkflowResume(self._engine, self._which, handlers, wait, ASYNC)
        await self._do(work.begin())
        while (job := await self._do(work.take())) is not None:
            await self._perform(work, job, wait)
        return await self._do(work.results())

    async def _perform(self, work: WorkflowResume, job: ClaimedStep, wait: float | None) -> None:
        options = {"wait": wait, "on_change": "error", "parallel": False}
        try:
            async with AsyncRun(self._engine, job.run, job.step.args, **options) as run:
                run.result = await self._do(work.perform(run._core, job, run))
        except BaseException as error:
            await self._do(work.give_up(job, error))
            raise
        finally:
            work.leave(job)

    # -- showing ------------------------------------------------------------------------------------------------------

    async def markdown(self) -> str:
        """Return the workflow as a Markdown checklist."""
        return rendering.markdown(await self._read(lambda: reader_for(self._engine).read_without_values(self._which)))

    async def mermaid(self) -> str:
        """Return the workflow as a Mermaid flow chart."""
        return rendering.mermaid(await self._read(lambda: reader_for(self._engine).read_without_values(self._which)))

    def __str__(self) -> str:
        return rendering.text(self._bare)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {rendering.headline(self._bare)}>"

    async def _move(self, step: StepRef, to: StepStatus, result: Any, note: str | None) -> WorkflowStep:
        return await self._do(changes.move(self._engine, self._which, step, to, result=result, note=note))

    # Properties cannot be awaited, so each blocks for one read of the store.

    @property
    def _bare(self) -> WorkflowSnapshot:
        return block(self._engine.store, read_protocol(reader_for(self._engine).read_without_values, self._which))

    @property
    def _now(self) -> WorkflowSnapshot:
        return block(self._engine.store, read_protocol(reader_for(self._engine).plan, self._which))

    async def _select_steps(
        self, choose: Callable[[WorkflowSnapshot], Iterable[WorkflowStep]]
    ) -> builtins.list[WorkflowStep]:
        return await self._read(lambda: reader_for(self._engine).read_steps(self._which, choose))
