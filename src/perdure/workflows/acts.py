"""Creates workflows and changes the status of their steps. Protocols without I/O, as in `run/`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from .. import objects
from .. import records as r
from ..errors import StepClaimed, WorkflowChanged, WorkflowNotFound
from ..failpoints import Site
from ..journal.plans import Draft, Move, outcome
from ..run.requests import Protocol, Read
from ..state import land, waiting_room, write
from .given import Given, checked, draft_of, key_of
from .plan import WorkflowStep
from .reading import Key, Look, Status, Which, no_step, reader_for

if TYPE_CHECKING:
    from ..engine import Engine


def create(engine: Engine, name: str, steps: Iterable[Given]) -> Protocol[Which]:
    """Create a workflow or its next version. A workflow that already has these steps stays as it is."""
    draft = yield Read(_draft, (engine, checked(name, "a workflow's name"), steps))
    if draft is not None:  # else a restarted program created the same workflow again
        yield from write(engine, Site.WORKFLOW, [draft])
    return Which(engine.name, name)


def _draft(engine: Engine, name: str, steps: Iterable[Given]) -> Draft | None:
    """Return the new workflow, or None if it already exists with these steps."""
    engine.ensure_agent()
    draft = draft_of(engine, (engine.stream, name), steps)
    try:
        seen = reader_for(engine).look(Which(engine.name, name))
    except WorkflowNotFound:
        return draft
    return draft if outcome(seen.sheet, draft, {}) is not None else None


def move(
    engine: Engine, which: Which, step: Key, to: Status, *, result: Any = None, note: str | None = None
) -> Protocol[WorkflowStep]:
    """Change the status of a step: now, or with the enclosing step, effect or item."""
    wanted, seen = yield Read(aimed, (engine, which, step, to, result, note))
    wanted = msgspec.structs.replace(wanted, by_hand=True)
    room = waiting_room(engine)
    if room is not None:
        outcome(seen.sheet, wanted, seen.leases)  # report a conflict at the call, not at the end of the body
        room.asks.append(wanted)
    else:
        yield from commit(engine, wanted)
    moved: WorkflowStep = yield Read(reader_for(engine).one, (which, step))
    return moved


def aimed(
    engine: Engine, which: Which, step: Key, to: Status, result: Any = None, note: str | None = None
) -> tuple[Move, Look]:
    """Return the change of a step, and the workflow state that it was checked against."""
    engine.ensure_agent()
    seen = reader_for(engine).look(Which(which.agent, which.name))
    if which.version not in (None, seen.sheet.version):
        text = f"version {which.version} of workflow {which.name!r} is read-only: the newest is {seen.sheet.version}"
        raise WorkflowChanged(text)
    key = key_of(step)
    found = {it.step: it for it in seen.sheet.steps}
    if key not in found:
        raise no_step(which.name, key, seen.sheet)
    packed, made = objects.pack(engine.store, result, f"step {key}") if result is not None else (b"", ())
    # Starting a step needs no earlier claim; every other change does.
    claim = 0 if to == Status.IN_PROGRESS else engine.claims.get((*seen.flow, key), 0)
    wanted = Move(seen.flow, found[key], to, engine.name, engine.tenancy, packed, made, str(note or ""), claim)
    return wanted, seen


def commit(engine: Engine, wanted: Move) -> Protocol[r.Standing]:
    """Change a step at once, whatever encloses the caller. Returns its new status record."""
    place = (*wanted.flow, wanted.aim.step)
    try:
        landed = yield from land(engine, Site.WORKFLOW, [wanted])
    except (StepClaimed, WorkflowChanged):
        if wanted.claim:
            engine.claims.pop(place, None)  # the claim was ours and is lost
        raise
    standing = next((it.standing for it in landed if isinstance(it, r.WorkflowMoved)), wanted.aim.standing)
    # A newer version of the workflow may have renumbered the step since it was started.
    same = [it for it, claim in engine.claims.items() if it[:2] == wanted.flow and claim == standing.claim]
    for known in same:
        del engine.claims[known]
    if standing.holder:
        engine.claims[place] = standing.claim
    return standing
