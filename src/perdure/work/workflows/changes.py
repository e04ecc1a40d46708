"""Creates workflows and changes the status of their steps. Protocols without I/O, as in `run/`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import StepClaimed, WorkflowChanged, WorkflowNotFound
from perdure.journal import objects
from perdure.journal.workflow_writes import ChangeStepStatus, SaveWorkflow, outcome
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.write_routing import enclosing_buffer, land, write
from perdure.platform.failpoints import Site
from perdure.work.workflows.definition import StepInput, check_name, draft_of, key_of
from perdure.work.workflows.plan import WorkflowStep
from perdure.work.workflows.read import StepRef, StepStatus, WorkflowRef, WorkflowState, no_step_error, reader_for

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class Claims:
    """Steps of workflows that this agent has started in this process."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, str, str], int] = {}
        """The number of the claim, by workflow and step."""
        self.jobs: set[tuple[int, str, str]] = set()
        """Steps that a `resume` in this process executes."""


def claims_of(engine: Engine) -> Claims:
    """Return the claims of an agent, which last until it closes its store."""
    return engine.session.get(Claims)


def create(engine: Engine, name: str, steps: Iterable[StepInput]) -> Protocol[WorkflowRef]:
    """Create a workflow or its next version. A workflow that already has these steps stays as it is."""
    draft = yield Read(_draft, (engine, check_name(name, "a workflow's name"), steps))
    if draft is not None:  # else a restarted program created the same workflow again
        yield from write(engine, Site.WORKFLOW, [draft])
    return WorkflowRef(engine.name, name)


def _draft(engine: Engine, name: str, steps: Iterable[StepInput]) -> SaveWorkflow | None:
    """Return the new workflow, or None if it already exists with these steps."""
    engine.ensure_agent()
    draft = draft_of(engine, (engine.stream, name), steps)
    try:
        seen = reader_for(engine).look(WorkflowRef(engine.name, name))
    except WorkflowNotFound:
        return draft
    return draft if outcome(seen.sheet, draft, {}) is not None else None


def move(
    engine: Engine, which: WorkflowRef, step: StepRef, to: StepStatus, *, result: Any = None, note: str | None = None
) -> Protocol[WorkflowStep]:
    """Change the status of a step: now, or with the enclosing step, effect or item."""
    wanted, seen = yield Read(make_step_change, (engine, which, step, to, result, note))
    wanted = msgspec.structs.replace(wanted, by_hand=True)
    room = enclosing_buffer(engine)
    if room is not None:
        outcome(seen.sheet, wanted, seen.leases)  # report a conflict at the call, not at the end of the body
        room.asks.append(wanted)
    else:
        yield from commit(engine, wanted)
    moved: WorkflowStep = yield Read(reader_for(engine).read_step, (which, step))
    return moved


def make_step_change(
    engine: Engine, which: WorkflowRef, step: StepRef, to: StepStatus, result: Any = None, note: str | None = None
) -> tuple[ChangeStepStatus, WorkflowState]:
    """Return the change of a step, and the workflow state that it was checked against."""
    engine.ensure_agent()
    seen = reader_for(engine).look(WorkflowRef(which.agent, which.name))
    if which.version not in (None, seen.sheet.version):
        text = f"version {which.version} of workflow {which.name!r} is read-only: the newest is {seen.sheet.version}"
        raise WorkflowChanged(text)
    key = key_of(step)
    found = {planned.step: planned for planned in seen.sheet.steps}
    if key not in found:
        raise no_step_error(which.name, key, seen.sheet)
    packed, made = objects.pack(engine.store, result, f"step {key}") if result is not None else (b"", ())
    # Starting a step needs no earlier claim; every other change does.
    claim = 0 if to == StepStatus.IN_PROGRESS else claims_of(engine).held.get((*seen.flow, key), 0)
    wanted = ChangeStepStatus(
        seen.flow, found[key], to, engine.name, engine.lease_keeper, packed, made, str(note or ""), claim
    )
    return wanted, seen


def commit(engine: Engine, wanted: ChangeStepStatus) -> Protocol[r.StepState]:
    """Change a step at once, whatever encloses the caller. Returns its new status record."""
    place = (*wanted.flow, wanted.aim.step)
    try:
        landed = yield from land(engine, Site.WORKFLOW, [wanted])
    except (StepClaimed, WorkflowChanged):
        if wanted.claim:
            claims_of(engine).held.pop(place, None)  # the claim was ours and is lost
        raise
    standing = next(
        (landing.standing for landing in landed if isinstance(landing, r.WorkflowMoved)), wanted.aim.standing
    )
    # A newer version of the workflow may have renumbered the step since it was started.
    same = [
        claimed
        for claimed, claim in claims_of(engine).held.items()
        if claimed[:2] == wanted.flow and claim == standing.claim
    ]
    for known in same:
        del claims_of(engine).held[known]
    if standing.holder:
        claims_of(engine).held[place] = standing.claim
    return standing
