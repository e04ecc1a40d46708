"""`wf.resume()`: executes the rest of a workflow, each step in a run of its own.

A run has one writer, but several processes share a workflow: so each step is a run. The process that works on it has
claimed the step and holds the lease of its run. Effects in doubt after a crash are settled there, as in every run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import (
    EffectInsideStep,
    LeaseLost,
    RunBusy,
    RunWaiting,
    StepClaimed,
    StepNotReady,
    StoreProblem,
    UnknownAction,
    WorkflowBlocked,
    WorkflowChanged,
    WorkflowInvalid,
    WorkflowNotFound,
    WorkflowProblem,
    WrongAgent,
    WrongType,
)
from perdure.journal.lineage import events_of
from perdure.journal.workflow_writes import ChangeStepStatus, SaveWorkflow
from perdure.kernel.awaitables import is_async, refuse_generators
from perdure.kernel.protocol import Invoke, Pause, Protocol, Read
from perdure.kernel.scope import current_frame
from perdure.run.core import RunCore
from perdure.run.cost import FinishedWork, work_of
from perdure.run.declarations import Declarations
from perdure.run.durable import Durable
from perdure.run.function import signature_of
from perdure.run.step import describe
from perdure.store.rows import read_run
from perdure.values.codec.restored import Restored
from perdure.values.hints import name_hint
from perdure.values.limits import WAIT_POLL_SECONDS, WAIT_POLL_SECONDS_MAX
from perdure.work.workflows.changes import claims_of, commit, make_step_change
from perdure.work.workflows.plan import WorkflowSnapshot, WorkflowStep
from perdure.work.workflows.read import StepStatus, WorkflowRef, reader_for

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

ActionHandlers = Mapping[str, Callable[..., Any]]
SCOPE = "work/"
"""The single item of a step's run: what the handler writes lands with the end of the item."""
OFFERED = ("results", "step")
"""Optional parameters of a handler, passed by name. A plain function may also have `run`."""
_EFFECTS = (r.EntryKind.EFFECT_INTENDED, r.EntryKind.EFFECT_DONE)


class ClaimedStep(msgspec.Struct, frozen=True):
    """A step that this process has claimed."""

    step: WorkflowStep
    run: str
    begun: ChangeStepStatus
    """The change that claimed the step, including the claim number."""
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def make_arguments(self, run: Any) -> dict[str, Any]:
        """Return the keyword arguments, with the run if the function takes one."""
        return {**self.kwargs, "run": run} if self.kwargs.get("run", ...) is None else self.kwargs


def _check_handlers(handlers: ActionHandlers | None) -> dict[str, Callable[..., Any]]:
    if handlers is not None and not isinstance(handlers, Mapping):
        raise WrongType(
            f"handlers must be a dict of functions, not {type(handlers).__name__}",
            hint='name the function of each action: wf.resume({"scrape": fetch_pages})',
        )
    return dict(handlers or {})


class WorkflowResume:
    """One call of `resume`."""

    def __init__(
        self, engine: Engine, which: WorkflowRef, handlers: ActionHandlers | None, wait: float | None, awaits: bool
    ) -> None:
        self._engine = engine
        self._which = which
        self._handlers = _check_handlers(handlers)
        self._wait = wait
        self._awaits = awaits
        """Whether coroutines can be awaited here."""
        self._passed: list[FinishedWork] = []
        """What earlier calls have done, and a restart from zero would repeat: credited with the next step."""
        self._again: set[int | str] = set()
        """Steps that had failed before: each is retried once."""

    def begin(self) -> Protocol[None]:
        """Resolve the function of every remaining step before any of them runs."""
        _refuse_inside(self._which)
        left: list[WorkflowStep] = yield Read(
            self._read_steps, (lambda plan: [item for item in plan.steps if not item.done],)
        )
        if left:
            self._passed = yield Read(self._list_finished_work)
        for step in left:
            if step.status != StepStatus.BLOCKED:  # a blocked step may be for a person outside to do
                self._call_for(step, {})
            if step.status == StepStatus.FAILED:
                self._again.add(step.step)

    def take(self) -> Protocol[ClaimedStep | None]:
        """Claim the next step; None when all are done. Waits while other processes work on the rest."""
        waited = pause = 0.0
        while True:
            plan = yield from self._plan()
            if plan.done == len(plan.steps):
                return None
            ready = self._list_ready(plan)
            if (job := (yield from self._claim(ready))) is not None:
                return job
            if not ready:  # else other processes were faster, and the plan has changed
                self._refuse_stuck(plan, waited)
            most = WAIT_POLL_SECONDS * 2 if self._engine.store.one_host else WAIT_POLL_SECONDS_MAX
            pause = min(max(pause * 1.5, WAIT_POLL_SECONDS), most)
            yield Pause(pause)
            waited += pause

    def perform(self, run: RunCore, job: ClaimedStep, public: Any) -> Protocol[Any]:
        """Execute a step in its run.

        Its completion lands with the end of the run. `public` is the run that handlers see.
        """
        passed, self._passed = self._passed, []
        run.account.credit_work(passed)
        frame = run.whole = run.root.item(SCOPE)
        assert frame.buffer is not None
        if isinstance(job.call, Durable):
            result = yield from job.call.options(id="work").call_in_frame(frame, job.args, job.kwargs)
        else:
            result = yield Invoke(job.call, job.args, job.make_arguments(public), frame)
        packed, made = run.pack(result, f"step {job.step.step}") if result is not None else (b"", ())
        frame.buffer.asks.append(_make_followup(job.begun, StepStatus.COMPLETED, result=packed, objects=made))
        return result

    def leave(self, job: ClaimedStep) -> None:
        """Release the claim of a step, done or not."""
        place = (*job.begun.flow, job.begun.aim.step)
        claims = claims_of(self._engine)
        claims.held.pop(place, None)
        claims.jobs.discard(place)

    def give_up(self, job: ClaimedStep, error: BaseException) -> Protocol[None]:
        """Mark a step as failed, or release it if it waits or was interrupted."""
        if isinstance(error, LeaseLost | StoreProblem):
            return  # another process has it, or the store cannot be written: the claim ends with this process
        waits = isinstance(error, RunWaiting | RunBusy) or not isinstance(error, Exception)
        wanted = _make_followup(job.begun, StepStatus.IN_PROGRESS, leave=True)
        if not waits:
            wanted = _make_followup(job.begun, StepStatus.FAILED, note=describe(error))
        with suppress(WorkflowProblem, StoreProblem):  # the first error is the one to raise
            yield from commit(self._engine, wanted)

    def results(self) -> Protocol[dict[int | str, Any]]:
        """Return the results of all completed steps."""
        plan: WorkflowSnapshot = yield Read(reader_for(self._engine).plan, (self._which,))
        return plan.results()

    def _list_finished_work(self) -> list[FinishedWork]:
        """Return what the completed steps have done, as far as `resume` executed them."""
        store, found = self._engine.store, list[FinishedWork]()
        for step in self._read_steps(lambda plan: [item for item in plan.steps if item.status == StepStatus.COMPLETED]):
            run = read_run(store, step.by, step.run) if step.run else None
            if run is not None:
                found += work_of(events_of(store, run.stream, fork=run.is_fork))
        return found

    # -- choosing -----------------------------------------------------------------------------------------------------

    def _list_ready(self, plan: WorkflowSnapshot) -> list[WorkflowStep]:
        again = [step for step in plan.possible() if step.status == StepStatus.FAILED and step.step in self._again]
        ready = {step.step for step in (*plan.list_ready(), *again)}
        return [step for step in plan.steps if step.step in ready]

    def _claim(self, ready: list[WorkflowStep]) -> Protocol[ClaimedStep | None]:
        for chosen in ready:
            yield Read(self._refuse_others_effects, (chosen,))
            [step] = yield Read(self._read_steps, (lambda _, chosen=chosen: [chosen],))
            results = (yield from self.results()) if "results" in self._read_parameters(step) else {}
            call, args, kwargs = self._call_for(step, results)
            try:
                wanted, _ = yield Read(make_step_change, (self._engine, self._which, step, StepStatus.IN_PROGRESS))
                standing = yield from commit(self._engine, msgspec.structs.replace(wanted, runs=True))
            except (StepClaimed, StepNotReady, WorkflowChanged):
                continue  # another process was faster
            self._again.discard(step.step)
            claims_of(self._engine).jobs.add((*wanted.flow, wanted.aim.step))
            begun = msgspec.structs.replace(wanted, claim=standing.claim)
            return ClaimedStep(step, standing.run, begun, call, args, kwargs)
        return None

    def _refuse_stuck(self, plan: WorkflowSnapshot, waited: float) -> None:
        """Raise if no step can start: because of other processes after `wait`, or because nothing can continue."""
        possible = plan.possible()
        busy = [planned for planned in possible if planned.claimed_by]
        if not busy:
            told = "; ".join(f"{planned}{f': {planned.note}' if planned.note else ''}" for planned in possible)
            raise WorkflowBlocked(
                f"workflow {plan.name!r} cannot continue: {told}",
                hint="call wf.reset(step), wf.complete(step) or wf.skip(step), then wf.resume()",
            )
        for step in busy:
            if step.ours and not any(
                place[1:] == (plan.name, str(step.step)) for place in claims_of(self._engine).jobs
            ):
                raise StepClaimed(
                    f"{step} was started by hand in this process", hint="complete or reset it before wf.resume()"
                )
        if self._wait is not None and waited >= self._wait:
            raise StepClaimed(f"{busy[0]} is still in progress, claimed by {busy[0].claimed_by}")

    def _refuse_others_effects(self, step: WorkflowStep) -> None:
        """Refuse a step with effects of another agent: only that agent's own run can settle them."""
        store = self._engine.store
        if not step.run or step.by in ("", self._engine.name):
            return
        run = read_run(store, step.by, step.run)
        kinds = {kind for kind, _ in store.read("entry_counts", (run.stream,))} if run is not None else set()
        if kinds.intersection(_EFFECTS):
            raise WrongAgent(
                f"{step} was started by agent {step.by!r}, whose run {step.run!r} holds its effects",
                hint=f"resume it with agent {step.by!r}, or wf.reset(step) to repeat it",
            )

    # -- calling ------------------------------------------------------------------------------------------------------

    def _call_for(
        self, step: WorkflowStep, results: dict[int | str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Return the function of an action, and its arguments."""
        call = self._bind_function(step)
        function = _require_plain(call)
        refuse_generators(function, str(step.action))
        if not self._awaits and is_async(function):
            raise WrongType(f"{step.action} is async: use AsyncAgent")
        args, kwargs = _make_call_arguments(step)
        asked = self._read_parameters(step)
        offers: dict[str, Any] = {"results": results, "step": _to_restored(step)}
        if not isinstance(call, Durable):
            offers["run"] = None  # the run is opened once the step is claimed
        named = set(kwargs) | set(list(asked)[: len(args)])
        kwargs |= {name: value for name, value in offers.items() if name in asked and name not in named}
        _refuse_misfit(step, call, args, kwargs)
        return call, args, kwargs

    def _bind_function(self, step: WorkflowStep) -> Callable[..., Any]:
        call = self._handlers.get(step.action) or self._engine.parts.get(Declarations).find(step.action)
        if call is None:
            known = sorted({*self._handlers, *self._engine.parts.get(Declarations)})
            todo = "declare it with @agent.step or @agent.effect, or pass handlers="
            raise UnknownAction(
                f"{step} of workflow {self._which.name!r}: no step, effect or handler is named {step.action!r}",
                hint="; ".join(filter(None, [name_hint(step.action, known), todo])),
            )
        return call

    def _read_parameters(self, step: WorkflowStep) -> Mapping[str, inspect.Parameter]:
        return signature_of(_require_plain(self._bind_function(step))).parameters

    def _plan(self) -> Protocol[WorkflowSnapshot]:
        plan: WorkflowSnapshot = yield Read(reader_for(self._engine).read_without_values, (self._which,))
        return plan

    def _read_steps(self, choose: Callable[[WorkflowSnapshot], list[WorkflowStep]]) -> list[WorkflowStep]:
        return reader_for(self._engine).read_steps(self._which, choose)


def _refuse_inside(which: WorkflowRef) -> None:
    """Refuse to resume inside a body: its writes are not visible before it ends, so nobody could claim a step."""
    frame = current_frame()
    while frame is not None:
        if frame.inside:
            raise EffectInsideStep(
                f"workflow {which.name!r} cannot be resumed inside a {frame.inside}",
                hint="call wf.resume() outside of it",
            )
        asks = frame.buffer.asks if frame.buffer is not None else []
        if any(isinstance(ask, SaveWorkflow) and ask.flow[1] == which.name for ask in asks):
            raise WorkflowNotFound(
                f"workflow {which.name!r} was created in this item and does not exist before the item ends",
                hint="create it before the loop",
            )
        frame = frame.parent


def _require_plain(call: Callable[..., Any]) -> Callable[..., Any]:
    return call.definition.call if isinstance(call, Durable) else call


def _refuse_misfit(step: WorkflowStep, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = call.definition.signature.inject(kwargs, "", 0) if isinstance(call, Durable) else kwargs
    try:
        signature_of(_require_plain(call)).bind(*args, **given)
    except TypeError as error:
        raise WorkflowInvalid(
            f"{step} cannot be called: {error}",
            hint=f'pass arguments in "args" of the step; {" and ".join(OFFERED)} are optional parameters',
        ) from None


def _make_followup(begun: ChangeStepStatus, to: StepStatus, **changes: Any) -> ChangeStepStatus:
    """Return a follow-up change of a claimed step, under the same claim."""
    return msgspec.structs.replace(begun, to=to, **changes)


def _make_call_arguments(step: WorkflowStep) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a step: a dict by name, a list or tuple by position, anything else as one argument."""
    args = step.args
    if args is None:
        return (), {}
    if isinstance(args, dict) and all(isinstance(name, str) for name in args):
        return (), dict(args)
    return (tuple(args), {}) if isinstance(args, list | tuple) else ((args,), {})


def _to_restored(step: WorkflowStep) -> Restored:
    """Return the parts of a step that an effect can store among its arguments."""
    fields = ("step", "action", "args", "depends_on", "note", "title")
    return Restored({name: getattr(step, name) for name in fields})
