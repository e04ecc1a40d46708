"""Collects the progress of an agent, its runs and its workflows, from reports and from the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.journal.trees.tolerant_read import tolerant
from perdure.presence.handoff import HandoffBrief, handoff_of
from perdure.presence.handoff.progress import FLOW, Progress
from perdure.records import StepStatus
from perdure.store.base import Store
from perdure.work.workflows.plan import WorkflowSnapshot
from perdure.work.workflows.read import WorkflowReader
from perdure.work.workflows.rendering import label

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.presence.handoff.pending import AgentHandoff

OVER_TOLD = 5
"""How many finished runs with open boxes are shown in full, most recent first. Each is read again every time."""
SHORT = 200
"""Maximum length of an input used as the goal, and of an error shown as a blocker."""


def gather(desk: AgentHandoff) -> list[Progress]:
    """Return the progress of the agent, its runs and its workflows, and of everything else with open boxes."""
    plans = list(_plans(desk.store, desk.agent))
    steps = {step.run for plan in plans for step in plan.steps}
    briefs = [brief for brief in desk.briefs if not brief.summary.parent and brief.summary.id not in steps]
    briefs = briefs or list(_iterate_last_finished(desk, steps))
    own = desk.spoken.get("", Progress())
    found = [
        *([own] if own != Progress() else []),
        *(complete_progress(brief, desk.read_progress(brief.summary.id)) for brief in briefs),
        *(
            _make_plan_progress(plan, desk.spoken.get(FLOW + plan.name))
            for plan in plans
            if plan.status != StepStatus.COMPLETED
        ),
    ]
    return [*found, *_iterate_other_progress(desk, {progress.run for progress in found})]


def _iterate_other_progress(desk: AgentHandoff, shown: set[str]) -> Iterator[Progress]:
    """Yield the reported progress of other unfinished runs, and of finished ones with open boxes."""
    statuses, whole = {run.id: run.status for run in desk.runs}, _read_finished_runs(desk, shown)
    going_on = {run.id for run in desk.left}
    for name, progress in desk.spoken.items():
        told = whole.get(name) or progress.apply_status(statuses.get(name, ""))
        if name and name not in shown and (told.left or name in going_on or name in desk.heard):
            yield msgspec.structs.replace(told, goal=told.goal or (name if name.startswith(FLOW) else f"run {name}"))


def _read_finished_runs(desk: AgentHandoff, shown: set[str]) -> dict[str, Progress]:
    """Return the most recently finished runs that stay on the page, completed from their journals."""
    spoken = {name for name, progress in desk.spoken.items() if progress.left or name in desk.heard} - shown
    over = [run.id for run in desk.runs if run.status.over and run.id in spoken]
    return {name: complete_progress(_brief(desk, name), desk.read_progress(name)) for name in over[:OVER_TOLD]}


def _brief(desk: AgentHandoff, run: str) -> HandoffBrief:
    return handoff_of(desk.store, desk.agent, run, unpack=tolerant(desk.store), progress=desk.read_progress(run))


def names_of(desk: AgentHandoff) -> dict[str, str]:
    """Map the section titles of PROGRESS.md to names of runs and workflows."""
    runs = [run.id for run in desk.runs]
    return {
        " ".join(name.split()): name for name in (*runs, *(FLOW + plan.name for plan in _plans(desk.store, desk.agent)))
    }


def progress_of(engine: Engine, run: str) -> Progress:
    """Return the progress of one run."""
    brief = handoff_of(engine.store, engine.name, run, unpack=tolerant(engine.store))
    return complete_progress(brief, brief.progress)


def complete_progress(brief: HandoffBrief, spoken: Progress) -> Progress:
    """Complete the reported progress of a run from its journal."""
    spoken = spoken.apply_status(brief.summary.status)
    known = {one.partition(" (")[0] for one in spoken.done}
    auto = [_format_count(name, count) for name, count in brief.counts.items() if name not in known]
    return msgspec.structs.replace(
        spoken,
        goal=spoken.goal or _goal(brief),
        done=(*spoken.done, *(one for one in auto if one not in spoken.done)),
        left=tuple(one for one in spoken.left if one not in brief.counts),
        blockers=spoken.blockers or tuple(_blockers(brief)),
        next_action=spoken.next_action or _describe_next(brief),
    )


def _format_count(name: str, count: int) -> str:
    return f"{name} ({count} times)" if count > 1 else name


def _goal(brief: HandoffBrief) -> str:
    given = brief.input
    if isinstance(given, Mapping):
        given = next((given[key] for key in ("goal", "task", "question", "prompt") if key in given), given)
    text = given if isinstance(given, str) else "" if given is None else repr(given)
    return _shorten(text) or f"run {brief.summary.id}"


def _blockers(brief: HandoffBrief) -> Iterator[str]:
    for effect in brief.in_doubt:
        yield f"effect {effect.name} is in doubt: find out whether it happened"
    for question in () if brief.summary.status.over else brief.questions:
        yield _shorten(f"waits: {question.kind} {question.text}")
    if brief.summary.error and brief.summary.status == r.RunStatus.FAILED:
        yield _shorten(f"failed: {brief.summary.error}")


def _describe_next(brief: HandoffBrief) -> str:
    run = brief.summary
    if run.status.over:
        return f"nothing: run {run.id} is {run.status}"
    if run.status == r.RunStatus.RUNNING:
        return f"run {run.id} is at work"
    return f"start the program that opens run {run.id}: it goes on where it was"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"


def _plans(store: Store, agent: str) -> Iterator[WorkflowSnapshot]:
    reader = WorkflowReader(store, unpack=tolerant(store))
    yield from (reader.read_without_values(which) for which in reader.list_workflows(agent))


def _make_plan_progress(plan: WorkflowSnapshot, spoken: Progress | None) -> Progress:
    stuck = [step for step in plan.steps if step.status in (StepStatus.BLOCKED, StepStatus.FAILED)]
    possible = plan.possible()
    own = Progress(
        FLOW + plan.name,
        goal=f"workflow {plan.name}, version {plan.version}",
        done=tuple(label(step) for step in plan.steps if step.done),
        left=tuple(label(step) for step in plan.steps if not step.done),
        blockers=tuple(
            _shorten(f"{label(step)}: {step.status}{f', {step.note}' if step.note else ''}") for step in stuck
        ),
        next_action=label(possible[0]) if possible else "",
    )
    if spoken is None:
        return own
    fields = {name: getattr(spoken, name) for name in ("goal", "next_action", "context") if getattr(spoken, name)}
    lists = {"done": spoken.done, "left": spoken.left, "blockers": spoken.blockers or own.blockers}
    return own.apply_report({**fields, **lists})


def _iterate_last_finished(desk: AgentHandoff, steps: set[str]) -> Iterator[HandoffBrief]:
    """Yield the run that finished last, if nothing is unfinished."""
    for run in desk.runs:
        if run.stream and not run.parent and run.id not in steps:
            yield _brief(desk, run.id)
            return
