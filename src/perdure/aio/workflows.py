"""The public face of `agent.workflows`. Only arguments and documentation: `perdure.workflows` decides."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..engine import Engine
from ..records import StepStatus
from ..run.requests import drive_sync as block
from ..run.requests import reading
from ..workflows import acts, shown
from ..workflows.given import Given
from ..workflows.plan import Plan, WorkflowStep
from ..workflows.reading import Key, Which, reader_for
from ..workflows.work import Handlers, Job, Work
from .face import AsyncFace
from .run import ASYNC, AsyncRun

R = TypeVar("R")


class AsyncWorkflows(AsyncFace):
    """`agent.workflows`: plans with a status for each step, that any process, agent or model can go on with.

    >>> wf = await agent.workflows.create(name="report", steps=["scrape", "analyse", "write", "send"])
    >>> step = await wf.next_incomplete_step()
    """

    async def create(self, name: str, steps: Iterable[Given]) -> AsyncWorkflow:
        """Make a workflow; called again with the same steps, it is the same one, as far as it has got.

        A step is the name of an action, or a dict: `step` (a number or a name), `action`, `args`, `depends_on`,
        `status`, `result`, `note`, `title`. Without any `depends_on` the steps follow each other. Other steps under
        the same name are the next version: what has the same action and arguments keeps its status.
        """
        return AsyncWorkflow(self._engine, await self._do(acts.create(self._engine, name, steps)))

    async def get(self, name: str, version: int | None = None, *, of: str | None = None) -> AsyncWorkflow:
        """A workflow by its name; `of` names another agent whose workflow it is. Old versions can only be read."""
        which = Which(of or self._engine.name, name, version)
        await self._read(lambda: reader_for(self._engine).look(which))
        return AsyncWorkflow(self._engine, which)

    async def list(self, *, of: str | None = None) -> builtins.list[AsyncWorkflow]:
        """All workflows of this agent, or of another one, by name."""
        found = await self._read(lambda: reader_for(self._engine).listed(of or self._engine.name))
        return [AsyncWorkflow(self._engine, which) for which in found]

    async def versions(self, name: str, *, of: str | None = None) -> builtins.list[AsyncWorkflow]:
        """Every version of a workflow, oldest first; each as it was left."""
        found = await self._read(lambda: reader_for(self._engine).versions(of or self._engine.name, name))
        return [AsyncWorkflow(self._engine, which) for which in found]


class AsyncWorkflow(AsyncFace):
    """A workflow, always as it stands now: whatever is asked of it is read anew."""

    def __init__(self, engine: Engine, which: Which) -> None:
        super().__init__(engine)
        self._which = which
        self.name = which.name

    # -- asking -------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Its version: 1, and one more for each change of its steps."""
        return self._bare.version

    @property
    def progress(self) -> int:
        """How much is done, in percent; 100 only when nothing is left."""
        return self._bare.progress

    @property
    def status(self) -> StepStatus:
        """Of the whole: pending, in_progress, completed, failed or blocked."""
        return self._bare.status

    @property
    def steps(self) -> builtins.list[WorkflowStep]:
        """All steps, in their order."""
        return list(self._now.steps)

    @property
    def results(self) -> dict[int | str, Any]:
        """What the completed steps came to, by their numbers or names."""
        return self._now.results()

    async def step(self, step: Key) -> WorkflowStep:
        """One step by its number or name."""
        return await self._read(lambda: reader_for(self._engine).one(self._which, step))

    async def next_incomplete_step(self) -> WorkflowStep | None:
        """The first step that is neither completed nor skipped, and that waits for no other; None when all are done."""
        found = await self._some(lambda plan: plan.possible()[:1])
        return found[0] if found else None

    async def ready_steps(self) -> builtins.list[WorkflowStep]:
        """The steps that can be started now: what they depend on is done, and nobody who is alive is at them.

        Failed and blocked ones are not among them: somebody has to decide.
        """
        return await self._some(Plan.ready)

    # -- moving -------------------------------------------------------------------------------------------------------

    async def start(self, step: Key, note: str | None = None) -> WorkflowStep:
        """Claim a step for this agent in this process. `StepClaimed` names who else is at it.

        The claim lasts until the step is completed, failed, blocked, skipped or reset, or this process is gone.
        """
        return await self._move(step, StepStatus.IN_PROGRESS, None, note)

    async def complete(self, step: Key, result: Any = None, note: str | None = None) -> WorkflowStep:
        """It is done, with this result. Need not have been started."""
        return await self._move(step, StepStatus.COMPLETED, result, note)

    async def fail(self, step: Key, note: str | None = None, result: Any = None) -> WorkflowStep:
        """It has failed; the next `resume` tries it again. What is completed can only be reset."""
        return await self._move(step, StepStatus.FAILED, result, note)

    async def block(self, step: Key, note: str | None = None, result: Any = None) -> WorkflowStep:
        """It waits for something outside; `reset` or `start` goes on with it."""
        return await self._move(step, StepStatus.BLOCKED, result, note)

    async def skip(self, step: Key, note: str | None = None, result: Any = None) -> WorkflowStep:
        """It is not needed; what depends on it may begin."""
        return await self._move(step, StepStatus.SKIPPED, result, note)

    async def reset(self, step: Key, note: str | None = None) -> WorkflowStep:
        """It is to be done, or done again, from its beginning."""
        return await self._move(step, StepStatus.PENDING, None, note)

    # -- doing --------------------------------------------------------------------------------------------------------

    async def resume(self, handlers: Handlers | None = None, *, wait: float | None = None) -> dict[int | str, Any]:
        """Do everything that is left, durably, and return the results of all steps by number or name.

        >>> await wf.resume(handlers={"scrape": fetch_pages, "send": send_mail})

        An action is a function in `handlers`, or a step or effect of this agent by that name. It gets the `args` of its
        step, and `results` or `step` (a plain function also `run`) if it has such a parameter. Each step is a run of
        its own, `name@version/step`: after a crash, finished ones are not done again, and effects in doubt are settled
        as in every run. What another live process is at is left to it; when nothing else is left, this waits for it,
        or raises `StepClaimed` after `wait` seconds.
        """
        work = Work(self._engine, self._which, handlers, wait, ASYNC)
        await self._do(work.begin())
        while (job := await self._do(work.take())) is not None:
            await self._perform(work, job, wait)
        return await self._do(work.results())

    async def _perform(self, work: Work, job: Job, wait: float | None) -> None:
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
        """A checklist in Markdown."""
        return shown.markdown(await self._read(lambda: reader_for(self._engine).bare(self._which)))

    async def mermaid(self) -> str:
        """A flow chart as Mermaid text."""
        return shown.mermaid(await self._read(lambda: reader_for(self._engine).bare(self._which)))

    def __str__(self) -> str:
        return shown.text(self._bare)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shown.headline(self._bare)}>"

    async def _move(self, step: Key, to: StepStatus, result: Any, note: str | None) -> WorkflowStep:
        return await self._do(acts.move(self._engine, self._which, step, to, result=result, note=note))

    # Properties cannot be awaited: each blocks for one look at the store.

    @property
    def _bare(self) -> Plan:
        return block(self._engine.store, reading(reader_for(self._engine).bare, self._which))

    @property
    def _now(self) -> Plan:
        return block(self._engine.store, reading(reader_for(self._engine).plan, self._which))

    async def _some(self, choose: Callable[[Plan], Iterable[WorkflowStep]]) -> builtins.list[WorkflowStep]:
        return await self._read(lambda: reader_for(self._engine).some(self._which, choose))
