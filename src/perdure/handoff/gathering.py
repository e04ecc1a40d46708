"""How far everything is that an agent has begun: what was said, and what steps and workflows tell by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from .. import records as r
from ..records import StepStatus
from ..store.base import Store
from ..trees.tolerant import tolerant
from ..workflows.plan import Plan
from ..workflows.reading import Reader
from ..workflows.shown import label
from . import Handoff, handoff_of
from .progress import FLOW, Progress

if TYPE_CHECKING:
    from ..engine import Engine
    from .desk import AgentHandoff

OVER_TOLD = 5
"""Runs that are over, and have something left to do, that are told in full: the last ones. Each is read anew."""
SHORT = 200
"""Characters of an input that stands in for a goal, and of an error that blocks."""


def gather(desk: AgentHandoff) -> list[Progress]:
    """The agent itself, its runs, its workflows; and whatever else has something left to do."""
    plans = list(_plans(desk.store, desk.agent))
    steps = {step.run for plan in plans for step in plan.steps}
    briefs = [brief for brief in desk.briefs if not brief.summary.parent and brief.summary.id not in steps]
    briefs = briefs or list(_last(desk, steps))
    own = desk.spoken.get("", Progress())
    found = [
        *([own] if own != Progress() else []),
        *(of_run(brief, desk.said_of(brief.summary.id)) for brief in briefs),
        *(_of_plan(plan, desk.spoken.get(FLOW + plan.name)) for plan in plans if plan.status != StepStatus.COMPLETED),
    ]
    return [*found, *_others(desk, {it.run for it in found})]


def _others(desk: AgentHandoff, shown: set[str]) -> Iterator[Progress]:
    """What was said of the other runs that are not over; and those that are, while a box of theirs is open."""
    statuses, whole = {run.id: run.status for run in desk.runs}, _over(desk, shown)
    going_on = {run.id for run in desk.left}
    for name, it in desk.spoken.items():
        told = whole.get(name) or it.standing(statuses.get(name, ""))
        if name and name not in shown and (told.left or name in going_on or name in desk.heard):
            yield msgspec.structs.replace(told, goal=told.goal or (name if name.startswith(FLOW) else f"run {name}"))


def _over(desk: AgentHandoff, shown: set[str]) -> dict[str, Progress]:
    """Of the runs that are over and stay on the page, those that ended last: with what their journals tell."""
    spoken = {name for name, it in desk.spoken.items() if it.left or name in desk.heard} - shown
    over = [run.id for run in desk.runs if run.status.over and run.id in spoken]
    return {name: of_run(_brief(desk, name), desk.said_of(name)) for name in over[:OVER_TOLD]}


def _brief(desk: AgentHandoff, run: str) -> Handoff:
    return handoff_of(desk.store, desk.agent, run, unpack=tolerant(desk.store), progress=desk.said_of(run))


def names_of(desk: AgentHandoff) -> dict[str, str]:
    """By the line that PROGRESS.md has of it, what a section may be of."""
    runs = [run.id for run in desk.runs]
    return {
        " ".join(name.split()): name for name in (*runs, *(FLOW + it.name for it in _plans(desk.store, desk.agent)))
    }


def progress_of(engine: Engine, run: str) -> Progress:
    """How far one run is."""
    brief = handoff_of(engine.store, engine.name, run, unpack=tolerant(engine.store))
    return of_run(brief, brief.progress)


def of_run(brief: Handoff, spoken: Progress) -> Progress:
    """What was said of a run, and for the rest what its journal tells."""
    spoken = spoken.standing(brief.summary.status)
    known = {one.partition(" (")[0] for one in spoken.done}
    auto = [_counted(name, count) for name, count in brief.counts.items() if name not in known]
    return msgspec.structs.replace(
        spoken,
        goal=spoken.goal or _goal(brief),
        done=(*spoken.done, *(one for one in auto if one not in spoken.done)),
        left=tuple(one for one in spoken.left if one not in brief.counts),
        blockers=spoken.blockers or tuple(_blockers(brief)),
        next_action=spoken.next_action or _next(brief),
    )


def _counted(name: str, count: int) -> str:
    return f"{name} ({count} times)" if count > 1 else name


def _goal(brief: Handoff) -> str:
    given = brief.input
    if isinstance(given, Mapping):
        given = next((given[key] for key in ("goal", "task", "question", "prompt") if key in given), given)
    text = given if isinstance(given, str) else "" if given is None else repr(given)
    return _short(text) or f"run {brief.summary.id}"


def _blockers(brief: Handoff) -> Iterator[str]:
    for effect in brief.in_doubt:
        yield f"effect {effect.name} is in doubt: find out whether it happened"
    for question in () if brief.summary.status.over else brief.questions:
        yield _short(f"waits: {question.kind} {question.text}")
    if brief.summary.error and brief.summary.status == r.Status.FAILED:
        yield _short(f"failed: {brief.summary.error}")


def _next(brief: Handoff) -> str:
    run = brief.summary
    if run.status.over:
        return f"nothing: run {run.id} is {run.status}"
    if run.status == r.Status.RUNNING:
        return f"run {run.id} is at work"
    return f"start the program that opens run {run.id}: it goes on where it was"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"


def _plans(store: Store, agent: str) -> Iterator[Plan]:
    reader = Reader(store, unpack=tolerant(store))
    yield from (reader.bare(which) for which in reader.listed(agent))


def _of_plan(plan: Plan, spoken: Progress | None) -> Progress:
    stuck = [it for it in plan.steps if it.status in (StepStatus.BLOCKED, StepStatus.FAILED)]
    possible = plan.possible()
    own = Progress(
        FLOW + plan.name,
        goal=f"workflow {plan.name}, version {plan.version}",
        done=tuple(label(it) for it in plan.steps if it.done),
        left=tuple(label(it) for it in plan.steps if not it.done),
        blockers=tuple(_short(f"{label(it)}: {it.status}{f', {it.note}' if it.note else ''}") for it in stuck),
        next_action=label(possible[0]) if possible else "",
    )
    if spoken is None:
        return own
    fields = {name: getattr(spoken, name) for name in ("goal", "next_action", "context") if getattr(spoken, name)}
    lists = {"done": spoken.done, "left": spoken.left, "blockers": spoken.blockers or own.blockers}
    return own.changed({**fields, **lists})


def _last(desk: AgentHandoff, steps: set[str]) -> Iterator[Handoff]:
    """When nothing is left to do, what was done last."""
    for run in desk.runs:
        if run.stream and not run.parent and run.id not in steps:
            yield _brief(desk, run.id)
            return
