"""`wf.resume()`: what is left of a workflow, done step by step, each in a run of its own.

A run has one writer, and several processes share a workflow: so it is the step that is a run. Who works at it has
claimed the step, and holds the lease of its run; what is in doubt after a crash is settled there, as in every run.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from ..codec.restored import Restored
from ..errors import (
    EffectInsideStep,
    InDoubt,
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
)
from ..hints import meant
from ..journal.plans import Draft, Move
from ..limits import WAIT_POLL_SECONDS, WAIT_POLL_SECONDS_MAX
from ..run.awaitables import is_async, refuse_generators
from ..run.core import RunCore
from ..run.durable import Durable
from ..run.functions import signature_of
from ..run.requests import Invoke, Pause, Protocol, Read
from ..run.scope import current
from ..run.steps import describe
from .acts import aimed, commit
from .plan import Plan, WorkflowStep
from .reading import Status, Which, reader_for

if TYPE_CHECKING:
    from ..engine import Engine

Handlers = Mapping[str, Callable[..., Any]]
SCOPE = "work/"
"""The item that a step's run consists of: what its handler writes lands with the end."""
OFFERED = ("results", "step")
"""What a function gets that asks for it by the name of a parameter; a plain one may ask for its `run` too."""
_EFFECTS = (r.Kind.EFFECT_INTENDED, r.Kind.EFFECT_DONE)


class Job(msgspec.Struct, frozen=True):
    """A step that is ours to do now."""

    step: WorkflowStep
    run: str
    begun: Move
    """By which it was claimed, with its claim."""
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def with_run(self, run: Any) -> dict[str, Any]:
        """What it is called with by name; the run where it has asked for one."""
        return {**self.kwargs, "run": run} if self.kwargs.get("run", ...) is None else self.kwargs


class Work:
    """One call of `resume`."""

    def __init__(
        self, engine: Engine, which: Which, handlers: Handlers | None, wait: float | None, awaits: bool
    ) -> None:
        self._engine = engine
        self._which = which
        self._handlers = dict(handlers or {})
        self._wait = wait
        self._awaits = awaits
        """Whether coroutines can be awaited here."""
        self._again: set[int | str] = set()
        """Steps that had failed before: each is tried once more."""

    def begin(self) -> Protocol[None]:
        """Find what every step that is left needs, before any of them runs."""
        _refuse_inside(self._which)
        left: list[WorkflowStep] = yield Read(self._some, (lambda plan: [it for it in plan.steps if not it.done],))
        for step in left:
            if step.status != Status.BLOCKED:  # what waits for somebody outside may be for him to do
                self._call_for(step, {})
            if step.status == Status.FAILED:
                self._again.add(step.step)

    def take(self) -> Protocol[Job | None]:
        """The next step, claimed for us; None when all are done. Waits while others work at what is left."""
        waited = pause = 0.0
        while True:
            plan = yield from self._plan()
            if plan.done == len(plan.steps):
                return None
            ready = self._ready(plan)
            if (job := (yield from self._claim(ready))) is not None:
                return job
            if not ready:  # else others were quicker, and the plan is another by now
                self._refuse_stuck(plan, waited)
            most = WAIT_POLL_SECONDS * 2 if self._engine.store.one_host else WAIT_POLL_SECONDS_MAX
            pause = min(max(pause * 1.5, WAIT_POLL_SECONDS), most)
            yield Pause(pause)
            waited += pause

    def perform(self, run: RunCore, job: Job, public: Any) -> Protocol[Any]:
        """Do a step in its run, `public` to who asks for it. That it is completed lands with the end of the run."""
        frame = run.whole = run.root.item(SCOPE)
        assert frame.buffer is not None
        try:
            if isinstance(job.call, Durable):
                result = yield from job.call.options(id="work").within(frame, job.args, job.kwargs)
            else:
                result = yield Invoke(job.call, job.args, job.with_run(public), frame)
        except InDoubt as error:
            _name_the_run(error, run)
            raise
        packed, made = run.pack(result, f"step {job.step.step}") if result is not None else (b"", ())
        frame.buffer.asks.append(_then(job.begun, Status.COMPLETED, result=packed, objects=made))
        return result

    def leave(self, job: Job) -> None:
        """Nobody is at this step any more, done or not."""
        place = (*job.begun.flow, job.begun.aim.step)
        self._engine.claims.pop(place, None)
        self._engine.jobs.discard(place)

    def give_up(self, job: Job, error: BaseException) -> Protocol[None]:
        """A step has failed, or waits, or was interrupted: others may go on with it."""
        if isinstance(error, LeaseLost | StoreProblem):
            return  # it is another's by now, or cannot be written: the claim ends with this process
        waits = isinstance(error, RunWaiting | RunBusy) or not isinstance(error, Exception)
        wanted = _then(job.begun, Status.IN_PROGRESS, leave=True)
        if not waits:
            wanted = _then(job.begun, Status.FAILED, note=describe(error))
        with suppress(WorkflowProblem, StoreProblem):  # what went wrong first is raised
            yield from commit(self._engine, wanted)

    def results(self) -> Protocol[dict[int | str, Any]]:
        """What all that is completed came to."""
        plan: Plan = yield Read(reader_for(self._engine).plan, (self._which,))
        return plan.results()

    # -- choosing -----------------------------------------------------------------------------------------------------

    def _ready(self, plan: Plan) -> list[WorkflowStep]:
        again = [it for it in plan.possible() if it.status == Status.FAILED and it.step in self._again]
        ready = {it.step for it in (*plan.ready(), *again)}
        return [it for it in plan.steps if it.step in ready]

    def _claim(self, ready: list[WorkflowStep]) -> Protocol[Job | None]:
        for chosen in ready:
            yield Read(self._refuse_others_effects, (chosen,))
            [step] = yield Read(self._some, (lambda _, chosen=chosen: [chosen],))
            results = (yield from self.results()) if "results" in self._asked_by(step) else {}
            call, args, kwargs = self._call_for(step, results)
            try:
                wanted, _ = yield Read(aimed, (self._engine, self._which, step, Status.IN_PROGRESS))
                standing = yield from commit(self._engine, msgspec.structs.replace(wanted, runs=True))
            except (StepClaimed, StepNotReady, WorkflowChanged):
                continue  # somebody was quicker
            self._again.discard(step.step)
            self._engine.jobs.add((*wanted.flow, wanted.aim.step))
            begun = msgspec.structs.replace(wanted, claim=standing.claim)
            return Job(step, standing.run, begun, call, args, kwargs)
        return None

    def _refuse_stuck(self, plan: Plan, waited: float) -> None:
        """Nothing can be begun: is it that others are at work, or will it never go on?"""
        possible = plan.possible()
        busy = [it for it in possible if it.claimed_by]
        if not busy:
            told = "; ".join(f"{it}{f': {it.note}' if it.note else ''}" for it in possible)
            raise WorkflowBlocked(
                f"workflow {plan.name!r} cannot go on: {told}",
                hint="wf.reset(step), wf.complete(step) or wf.skip(step), then wf.resume()",
            )
        for it in busy:
            if it.ours and not any(place[1:] == (plan.name, str(it.step)) for place in self._engine.jobs):
                raise StepClaimed(
                    f"{it} was started in this process itself", hint="complete or reset it before wf.resume()"
                )
        if self._wait is not None and waited >= self._wait:
            raise StepClaimed(f"{busy[0]} is still in progress: {busy[0].claimed_by} is at it")

    def _refuse_others_effects(self, step: WorkflowStep) -> None:
        """An effect that another agent has begun can only be settled in that agent's own run."""
        store = self._engine.store
        if not step.run or step.by in ("", self._engine.name):
            return
        rows = store.read("get_run", (step.by, step.run))
        kinds = {kind for kind, _ in store.read("progress_of", (rows[0][0],))} if rows else set()
        if kinds.intersection(_EFFECTS):
            raise WrongAgent(
                f"{step} was begun by agent {step.by!r}, with effects that only its run {step.run!r} knows of",
                hint=f"let agent {step.by!r} resume it, or wf.reset(step) to have it done again",
            )

    # -- calling ------------------------------------------------------------------------------------------------------

    def _call_for(
        self, step: WorkflowStep, results: dict[int | str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function behind an action, and what it is called with."""
        call = self._bound_to(step)
        function = _plain(call)
        refuse_generators(function, str(step.action))
        if not self._awaits and is_async(function):
            raise TypeError(f"{step.action} is async: use AsyncAgent")
        args, kwargs = _given(step)
        asked = self._asked_by(step)
        offers: dict[str, Any] = {"results": results, "step": _as_dict(step)}
        if not isinstance(call, Durable):
            offers["run"] = None  # which is opened when the step is claimed
        named = set(kwargs) | set(list(asked)[: len(args)])
        kwargs |= {name: value for name, value in offers.items() if name in asked and name not in named}
        _refuse_misfit(step, call, args, kwargs)
        return call, args, kwargs

    def _bound_to(self, step: WorkflowStep) -> Callable[..., Any]:
        call = self._handlers.get(step.action) or self._engine.declared(step.action)
        if call is None:
            known = sorted({*self._handlers, *self._engine.functions})
            todo = "declare it with @agent.step or @agent.effect, or give handlers="
            raise UnknownAction(
                f"{step} of workflow {self._which.name!r}: nothing is called {step.action!r} here",
                hint="; ".join(filter(None, [meant(step.action, known), todo])),
            )
        return call

    def _asked_by(self, step: WorkflowStep) -> Mapping[str, inspect.Parameter]:
        return signature_of(_plain(self._bound_to(step))).parameters

    def _plan(self) -> Protocol[Plan]:
        plan: Plan = yield Read(reader_for(self._engine).bare, (self._which,))
        return plan

    def _some(self, choose: Callable[[Plan], list[WorkflowStep]]) -> list[WorkflowStep]:
        return reader_for(self._engine).some(self._which, choose)


def _refuse_inside(which: Which) -> None:
    """What a body has written is not there before it ends: nobody could claim a step of it."""
    frame = current()
    while frame is not None:
        if frame.inside:
            raise EffectInsideStep(
                f"workflow {which.name!r} cannot be resumed inside a {frame.inside}", hint="call wf.resume() beside it"
            )
        asks = frame.buffer.asks if frame.buffer is not None else []
        if any(isinstance(ask, Draft) and ask.flow[1] == which.name for ask in asks):
            raise WorkflowNotFound(
                f"workflow {which.name!r} was created in this item, and is there when the item ends",
                hint="create it before the loop",
            )
        frame = frame.parent


def _name_the_run(error: InDoubt, run: RunCore) -> None:
    """Who follows a plan has not opened the run, and does not know its id. It may be in doubt in another one."""
    if error.hint == InDoubt.hint and run.ledger.in_doubt():
        error.hint = InDoubt.hint.replace("RUN", f"{shlex.quote(run.id)}{run.store_option}")


def _plain(call: Callable[..., Any]) -> Callable[..., Any]:
    return call.definition.call if isinstance(call, Durable) else call


def _refuse_misfit(step: WorkflowStep, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = call.definition.signature.injected(kwargs, "", 0) if isinstance(call, Durable) else kwargs
    try:
        signature_of(_plain(call)).bind(*args, **given)
    except TypeError as error:
        raise WorkflowInvalid(
            f"{step} cannot be called: {error}",
            hint=f'give it in "args" of the step; {" and ".join(OFFERED)} are given to whoever asks for them',
        ) from None


def _then(begun: Move, to: Status, **changes: Any) -> Move:
    """What becomes of a step that was begun, under the same claim."""
    return msgspec.structs.replace(begun, to=to, **changes)


def _given(step: WorkflowStep) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A dict of arguments goes by name, a list or tuple by place; anything else is the one argument."""
    args = step.args
    if args is None:
        return (), {}
    if isinstance(args, dict) and all(isinstance(name, str) for name in args):
        return (), dict(args)
    return (tuple(args), {}) if isinstance(args, list | tuple) else ((args,), {})


def _as_dict(step: WorkflowStep) -> Restored:
    """A step that an effect can store among its arguments."""
    fields = ("step", "action", "args", "depends_on", "note", "title")
    return Restored({name: getattr(step, name) for name in fields})
