"""Workflows that are wanted, and steps of them that get somewhere, decided inside the commit: who may do it, and what
becomes of what was done under an older version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from .. import records as r
from ..errors import StepClaimed, StepNotReady, WorkflowChanged, WorkflowNotFound
from ..failpoints import Site
from ..leases import Lease, Tenancy, read_lease
from ..plan_records import decode_standing, decode_steps
from ..process import Holder, this_process
from ..store.base import Overtaken, Row, Rows, Script, Statement, Store
from .append import Append, Head
from .departures import departure

Status = r.StepStatus
Flow = tuple[int, str]
"""Whose workflow, and its name."""
Leases = Mapping[int, Lease]
"""By the number of the holder."""


class Draft(msgspec.Struct, frozen=True):
    """A workflow as somebody wants it to be; one that is there already with these steps is left alone."""

    flow: Flow
    steps: tuple[r.PlannedStep, ...]
    objects: Sequence[Statement] = ()


class Move(msgspec.Struct, frozen=True):
    """A step that is to get another status."""

    flow: Flow
    aim: r.PlannedStep
    """As the caller knows it: it must still be the same work."""
    to: Status
    by: str
    tenancy: Tenancy
    result: bytes = b""
    objects: Sequence[Statement] = ()
    note: str = ""
    claim: int = 0
    """The claim under which the caller has worked at it; 0 when it has none."""
    runs: bool = False
    """The step is begun by `resume`, in a run of its own."""
    leave: bool = False
    """It stays in progress, and nobody is at it any more."""
    by_hand: bool = False
    """Somebody says how far the step is, and not the run in which it is worked at."""

    def ends(self, standing: r.Standing) -> bool:
        """Whether nobody will go on with the run in which the step was worked at.

        One that has failed or is blocked is gone on with, in that run: it alone knows what is in doubt.
        """
        return self.by_hand and bool(standing.run) and (self.to.over or self.to == Status.PENDING)


class Sheet(msgspec.Struct, frozen=True):
    """The newest version of a workflow, each step as it stands."""

    version: int = 0
    revision: int = 0
    steps: tuple[r.PlannedStep, ...] = ()

    def after(self, landing: r.WorkflowMade | r.WorkflowMoved) -> Sheet:
        """With one change more."""
        if isinstance(landing, r.WorkflowMade):
            return Sheet(landing.version, landing.revision, landing.steps)
        steps = (
            msgspec.structs.replace(it, standing=landing.standing) if it.step == landing.step else it
            for it in self.steps
        )
        return Sheet(self.version, landing.revision, tuple(steps))


def sheet_of(made: Rows, standings: Iterable[Row]) -> Sheet:
    """Out of the rows of a version and of its steps."""
    if not made:
        return Sheet()
    version, revision, packed, _ = made[0]
    stands = {step: decode_standing(standing) for step, _, standing, _ in standings}
    steps = decode_steps(packed)
    latest = max([revision, *(row[1] for row in standings)])
    now = (msgspec.structs.replace(it, standing=stands.get(it.step, it.standing)) for it in steps)
    return Sheet(version, latest, tuple(now))


def holders_of(sheets: Iterable[Sheet]) -> list[int]:
    """Everybody who has claimed a step."""
    claims = (it.standing for sheet in sheets for it in sheet.steps)
    return sorted({it.holder for it in claims if it.status == Status.IN_PROGRESS and it.holder})


def _lease_from(holder: int, rows: Rows, one_host: bool) -> Lease:
    """What the store says of somebody who has claimed something: nothing of one that has left."""
    if not rows:
        return Lease(0, holder, None, 0, 0, one_host)
    boot, namespace, pid, started, host, at, left = rows[0]
    return Lease(0, holder, Holder(boot, namespace, pid, started, host), at, left, one_host)


def decided_moves(asks: Sequence[Draft | Move], store: Store) -> Script[tuple[list[r.Landing], list[Statement]]]:
    """What they come to, under the locks of their workflows; and what is written beside it."""
    flows = sorted({ask.flow for ask in asks})
    rows = yield [
        *(Statement("lock_space", (owner, f"workflow {name}")) for owner, name in flows),
        *(Statement("newest_workflow", flow) for flow in flows),
        *(Statement("newest_standings", flow) for flow in flows),
    ]
    made, standings = rows[len(flows) : 2 * len(flows)], rows[2 * len(flows) :]
    sheets = {flow: sheet_of(*both) for flow, *both in zip(flows, made, standings, strict=True)}
    leases = yield from leases_of(holders_of(sheets.values()), store)
    landed: list[r.Landing] = []
    written: list[Statement] = []
    for ask in asks:
        before, landing = sheets[ask.flow], outcome(sheets[ask.flow], ask, leases)
        if landing is None:
            continue
        if isinstance(ask, Move) and isinstance(landing, r.WorkflowMoved):
            yield from _without_its_run(before, ask, landing, store)
        sheets[ask.flow] = sheets[ask.flow].after(landing)
        landed.append(landing)
        written += ask.objects
        if isinstance(landing, r.WorkflowMoved) and landing.standing.holder and isinstance(ask, Move):
            written.append(ask.tenancy.presence(store.clock.boot_ms()))  # a claim must name somebody, who has time left
    return landed, written


def leases_of(holders: Sequence[int], store: Store) -> Script[Leases]:
    """What the store says of those who have claimed something."""
    if not holders:
        return {}
    now = store.clock.boot_ms()
    rows = yield [Statement("get_holder", (holder, now)) for holder in holders]
    return {holder: _lease_from(holder, found, store.one_host) for holder, found in zip(holders, rows, strict=True)}


def outcome(sheet: Sheet, ask: Draft | Move, leases: Leases) -> r.WorkflowMade | r.WorkflowMoved | None:
    """What one of them comes to; None when nothing is changed by it."""
    if isinstance(ask, Draft):
        return _drafted(sheet, ask)
    step = _aimed_at(sheet, ask)
    _refuse_claimed(step, ask, leases)
    if ask.to == Status.IN_PROGRESS and not ask.leave:
        _refuse_unready(sheet, step)
    elif _undoes(step.standing.status, ask):
        raise _over_already(step)
    standing = _moved(sheet, step, ask)
    if standing == step.standing:
        return None
    return r.WorkflowMoved(*ask.flow, sheet.version, sheet.revision + 1, step.step, standing)


# -- versions ---------------------------------------------------------------------------------------------------------


def _drafted(sheet: Sheet, draft: Draft) -> r.WorkflowMade | None:
    if sheet.version and list(map(_plan_of, sheet.steps)) == list(map(_plan_of, draft.steps)):
        return None  # a program that was started again: what has been done stays done
    steps = carried(sheet.steps, draft.steps)
    return r.WorkflowMade(*draft.flow, sheet.version + 1, sheet.revision + 1, steps)


def _plan_of(it: r.PlannedStep) -> tuple[str, bytes, tuple[str, ...], str]:
    return it.step, it.digest, it.depends_on, it.title


def carried(before: Sequence[r.PlannedStep], after: Sequence[r.PlannedStep]) -> tuple[r.PlannedStep, ...]:
    """The steps of the next version, each as far as the same work was: an action with the same arguments.

    Under the same number or name first. A number is only a place in the list: a numbered one is looked for under the
    others too, so that a step inserted in front costs nobody what he has done.
    """
    left = {it.step: it for it in before}
    found: dict[str, r.Standing] = {}
    for it in after:
        if it.step in left and left[it.step].digest == it.digest:
            found[it.step] = left.pop(it.step).standing
    for it in after:
        if it.numbered and it.step not in found:
            same = next((old for old in left.values() if old.numbered and old.digest == it.digest), None)
            if same is not None:
                found[it.step] = left.pop(same.step).standing
    return tuple(msgspec.structs.replace(it, standing=found.get(it.step, it.standing)) for it in after)


# -- steps ------------------------------------------------------------------------------------------------------------


def _aimed_at(sheet: Sheet, move: Move) -> r.PlannedStep:
    """The step that is meant; in a newer version than the caller knows it may have another number."""
    aim, name = move.aim, move.flow[1]
    if move.claim:
        for it in sheet.steps:
            if it.standing.claim == move.claim and it.standing.status == Status.IN_PROGRESS:
                return it
    for it in sheet.steps:
        if it.step == aim.step:
            if it.digest != aim.digest:
                raise WorkflowChanged(f"step {aim.step} of workflow {name!r} is {it.action} by now, not {aim.action}")
            return it
    raise WorkflowNotFound(f"step {aim.step} is not in workflow {name!r} any more")


def _refuse_claimed(step: r.PlannedStep, move: Move, leases: Leases) -> None:
    """Whoever is alive and at it keeps it; whoever was taken for dead, and replaced, has lost it."""
    standing, label = step.standing, f"step {step.step} ({step.action}) of workflow {move.flow[1]!r}"
    if standing.claim < move.claim:
        raise WorkflowChanged(f"{label} is another one since this process has started it")
    if move.claim and standing.claim != move.claim:
        raise StepClaimed(
            f"{label} was taken over by agent {standing.by!r} meanwhile, and is {standing.status}",
            hint="what this process did for it is not recorded: its lease had run out",
        )
    if standing.status != Status.IN_PROGRESS or not standing.holder:
        return
    ours = standing.holder == move.tenancy.holder and standing.by == move.by
    starts = move.to == Status.IN_PROGRESS and not move.leave
    if ours and not starts:
        return
    if ours:
        raise StepClaimed(f"{label} is in progress already, in this process", hint="complete it, fail it or reset it")
    lease = leases.get(standing.holder)
    if lease is not None and lease.alive() and not move.tenancy.outlasts(lease):
        raise StepClaimed(f"{label} is in progress: agent {standing.by!r} is at it, in {lease.process}")


def _undoes(status: Status, move: Move) -> bool:
    """Whether what was done would be lost, or what depends on it would have begun too early: only a reset may do so."""
    if move.to in (Status.FAILED, Status.BLOCKED):
        return status.over
    return move.to == Status.SKIPPED and status == Status.COMPLETED


def _over_already(step: r.PlannedStep) -> StepNotReady:
    text = f"step {step.step} ({step.action}) is {step.standing.status} already"
    return StepNotReady(text, hint="wf.reset(step) opens it again")


def _refuse_unready(sheet: Sheet, step: r.PlannedStep) -> None:
    if step.standing.status.over:
        raise _over_already(step)
    status = {it.step: it.standing.status for it in sheet.steps}
    open_ones = [f"{name} ({status[name]})" for name in step.depends_on if not status[name].over]
    if open_ones:
        raise StepNotReady(
            f"step {step.step} ({step.action}) waits for {', '.join(open_ones)}", hint="wf.ready_steps() can be started"
        )


def _moved(sheet: Sheet, step: r.PlannedStep, move: Move) -> r.Standing:
    old, to = step.standing, move.to
    if move.leave:
        return msgspec.structs.replace(old, holder=0)
    again = old.status == to
    attempt, run = old.attempt, old.run
    if to == Status.PENDING:
        # What its old run has recorded must not be taken for the new work.
        attempt, run = (attempt + 1, "") if run else (attempt, run)
    if move.runs and not run:
        run = f"{move.flow[1]}@{sheet.version}/{step.step}" + (f".{attempt + 1}" if attempt else "")
    starts = to == Status.IN_PROGRESS
    return r.Standing(
        to,
        move.result or (old.result if again else b""),
        move.note or (old.note if again else ""),
        holder=move.tenancy.holder if starts else 0,
        by=move.by,
        claim=sheet.revision + 1 if starts else old.claim,
        attempt=attempt,
        run=run,
    )


# -- runs of steps that are settled by hand ---------------------------------------------------------------------------

_IN_WORDS = {Status.COMPLETED: "completed by hand", Status.SKIPPED: "skipped", Status.PENDING: "reset"}


def _without_its_run(before: Sheet, move: Move, landing: r.WorkflowMoved, store: Store) -> Script[None]:
    """The run of a step that somebody has settled ends with it, and what is part of that run: nobody waits there."""
    [old] = [it.standing for it in before.steps if it.step == landing.step]
    if not move.ends(old):
        return
    reason = f"step {landing.step} of workflow {landing.name!r} was {_IN_WORDS[move.to]}"
    [rows] = yield [Statement("get_run", (old.by, old.run))]
    parts = (yield [Statement("parts_of", (rows[0][0],))])[0] if rows else []
    for agent, run in [(old.by, old.run), *((agent, run) for agent, run, *_ in parts)]:
        cancelled = r.RunCancelled(reason, f"agent {move.by!r}")
        yield from _end_run((agent, run), cancelled, move.tenancy, store)


def _end_run(which: tuple[str, str], entry: r.RunCancelled, tenancy: Tenancy, store: Store) -> Script[None]:
    """As a takeover that gives the run back at once. One that is open somewhere is left to who has it open."""
    now = store.clock.boot_ms()
    [rows, gone] = yield [Statement("get_run", which), departure(which[0])]
    if not rows or gone or r.Status(rows[0][3]).over:
        return
    stream = rows[0][0]
    lease = yield from read_lease(stream, now, store.one_host)
    ours = lease.process == this_process()
    if stream in tenancy.open_streams if ours else lease.alive():
        return
    take = Statement("take_lease", (stream, lease.fence, None), Overtaken)
    # Asked once more behind the take, which locks the lease: somebody may have renewed, or opened and left it.
    look = [Statement("time_left", (lease.holder, now)), Statement("get_run", which), departure(which[0])]
    [_, [(seq, link)], left, [run], gone] = yield [take, Statement("head_of", (stream,)), *look]
    if gone or run[3] != rows[0][3] or (left and left[0][0] > lease.left_ms):
        raise Overtaken
    head = Head(store.identity, stream, lease.fence + 1, seq, link)
    statements, _, _ = Append(Site.ORDER, head, [entry], store.clock).entries(seq, link)
    yield statements
