"""Making workflows and moving their steps. Protocols without I/O, as in `run/`."""

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
    """Make a workflow, or its next version, or leave the one that has these steps as it is."""
    draft = yield Read(_draft, (engine, checked(name, "a workflow's name"), steps))
    if draft is not None:  # else a program was started again
        yield from write(engine, Site.WORKFLOW, [draft])
    return Which(engine.name, name)


def _draft(engine: Engine, name: str, steps: Iterable[Given]) -> Draft | None:
    """What is wanted, unless it is there already."""
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
    """Give a step another status: now, or with the step, effect or item around the caller."""
    wanted, seen = yield Read(aimed, (engine, which, step, to, result, note))
    wanted = msgspec.structs.replace(wanted, by_hand=True)
    room = waiting_room(engine)
    if room is not None:
        outcome(seen.sheet, wanted, seen.leases)  # what is wrong already is told at the call
        room.asks.append(wanted)
    else:
        yield from commit(engine, wanted)
    moved: WorkflowStep = yield Read(reader_for(engine).one, (which, step))
    return moved


def aimed(
    engine: Engine, which: Which, step: Key, to: Status, result: Any = None, note: str | None = None
) -> tuple[Move, Look]:
    """The move of a step, and the workflow by which it was made."""
    engine.ensure_agent()
    seen = reader_for(engine).look(Which(which.agent, which.name))
    if which.version not in (None, seen.sheet.version):
        text = f"version {which.version} of workflow {which.name!r} is only read: the newest is {seen.sheet.version}"
        raise WorkflowChanged(text)
    key = key_of(step)
    found = {it.step: it for it in seen.sheet.steps}
    if key not in found:
        raise no_step(which.name, key, seen.sheet)
    packed, made = objects.pack(engine.store, result, f"step {key}") if result is not None else (b"", ())
    # Starting relies on nothing that we had before; all else does.
    claim = 0 if to == Status.IN_PROGRESS else engine.claims.get((*seen.flow, key), 0)
    wanted = Move(seen.flow, found[key], to, engine.name, engine.tenancy, packed, made, str(note or ""), claim)
    return wanted, seen


def commit(engine: Engine, wanted: Move) -> Protocol[r.Standing]:
    """Move a step in the open, whatever is around the caller; returns how it stands then."""
    place = (*wanted.flow, wanted.aim.step)
    try:
        landed = yield from land(engine, Site.WORKFLOW, [wanted])
    except (StepClaimed, WorkflowChanged):
        if wanted.claim:
            engine.claims.pop(place, None)  # it was ours, and is no more
        raise
    standing = next((it.standing for it in landed if isinstance(it, r.WorkflowMoved)), wanted.aim.standing)
    # In a newer version the step may have had another number when it was started.
    same = [it for it, claim in engine.claims.items() if it[:2] == wanted.flow and claim == standing.claim]
    for known in same:
        del engine.claims[known]
    if standing.holder:
        engine.claims[place] = standing.claim
    return standing
