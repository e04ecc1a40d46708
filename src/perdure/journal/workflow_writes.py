"""Workflow versions and step changes, decided inside the commit: who may make them, and what carries over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perdure import records as r
from perdure.errors import StepClaimed, StepNotReady, WorkflowChanged, WorkflowNotFound
from perdure.journal.append import Append
from perdure.journal.departures import departure
from perdure.journal.leases import Lease, LeaseKeeper, counts_as_alive
from perdure.journal.takeover import read_run_lease
from perdure.platform.failpoints import Site
from perdure.platform.process import Holder
from perdure.records.workflows import decode_standing, decode_steps
from perdure.store.base import Row, Rows, Script, Statement, Store
from perdure.store.rows import run_in

StepStatus = r.StepStatus
WorkflowKey = tuple[int, str]
"""Owner and name of a workflow."""
HolderLeases = Mapping[int, Lease]
"""Leases by holder."""


class SaveWorkflow(msgspec.Struct, frozen=True):
    """A workflow to save, unless it exists with these steps."""

    flow: WorkflowKey
    steps: tuple[r.PlannedStep, ...]
    objects: Sequence[Statement] = ()


class ChangeStepStatus(msgspec.Struct, frozen=True):
    """A requested status change of a step."""

    flow: WorkflowKey
    aim: r.PlannedStep
    """The step as the caller knows it; refused if it now means other work."""
    to: StepStatus
    by: str
    lease_keeper: LeaseKeeper
    result: bytes = b""
    objects: Sequence[Statement] = ()
    note: str = ""
    claim: int = 0
    """The claim under which the caller worked; 0 for none."""
    runs: bool = False
    """`resume` starts the step in a run of its own."""
    leave: bool = False
    """Release the claim; the step stays in progress."""
    by_hand: bool = False
    """A person, not the run of the step, sets the status."""

    def is_end_of_run(self, standing: r.StepState) -> bool:
        """Whether the run of the step ends with this change.

        A failed or blocked step continues in its run, which alone knows what is in doubt.
        """
        return self.by_hand and bool(standing.run) and (self.to.over or self.to == StepStatus.PENDING)


class WorkflowVersion(msgspec.Struct, frozen=True):
    """The newest version of a workflow with the state of each step."""

    version: int = 0
    revision: int = 0
    steps: tuple[r.PlannedStep, ...] = ()

    def apply(self, landing: r.WorkflowMade | r.WorkflowMoved) -> WorkflowVersion:
        """Return the version after one more change."""
        if isinstance(landing, r.WorkflowMade):
            return WorkflowVersion(landing.version, landing.revision, landing.steps)
        steps = (
            msgspec.structs.replace(step, standing=landing.standing) if step.step == landing.step else step
            for step in self.steps
        )
        return WorkflowVersion(self.version, landing.revision, tuple(steps))


def sheet_of(made: Rows, standings: Iterable[Row]) -> WorkflowVersion:
    """Build a version from its row and the rows of its steps."""
    if not made:
        return WorkflowVersion()
    version, revision, packed, _ = made[0]
    stands = {step: decode_standing(standing) for step, _, standing, _ in standings}
    steps = decode_steps(packed)
    latest = max([revision, *(moved for _, moved, *_ in standings)])
    now = (msgspec.structs.replace(step, standing=stands.get(step.step, step.standing)) for step in steps)
    return WorkflowVersion(version, latest, tuple(now))


def holders_of(sheets: Iterable[WorkflowVersion]) -> list[int]:
    """Return the holders of all claimed steps."""
    claims = (step.standing for sheet in sheets for step in sheet.steps)
    return sorted(
        {standing.holder for standing in claims if standing.status == StepStatus.IN_PROGRESS and standing.holder}
    )


def _lease_from(holder_id: int, rows: Rows, one_host: bool) -> Lease:
    """Build the lease of a holder from its row; without a row it has no process."""
    if not rows:
        return Lease(0, holder_id, None, 0, 0, one_host)
    boot, namespace, pid, started, host, at, left = rows[0]
    return Lease(0, holder_id, Holder(boot, namespace, pid, started, host), at, left, one_host)


def decide_moves(
    asks: Sequence[SaveWorkflow | ChangeStepStatus], store: Store
) -> Script[tuple[list[r.AgentChange], list[Statement]]]:
    """Decide under the locks of the workflows; return the changes and the statements they need."""
    flows = sorted({ask.flow for ask in asks})
    rows = yield [
        *(Statement("lock_namespace", (owner, f"workflow {name}")) for owner, name in flows),
        *(Statement("newest_workflow", flow) for flow in flows),
        *(Statement("newest_workflow_steps", flow) for flow in flows),
    ]
    made, standings = rows[len(flows) : 2 * len(flows)], rows[2 * len(flows) :]
    sheets = {flow: sheet_of(*both) for flow, *both in zip(flows, made, standings, strict=True)}
    leases = yield from leases_of(holders_of(sheets.values()), store)
    landed: list[r.AgentChange] = []
    written: list[Statement] = []
    for ask in asks:
        before, landing = sheets[ask.flow], outcome(sheets[ask.flow], ask, leases)
        if landing is None:
            continue
        if isinstance(ask, ChangeStepStatus) and isinstance(landing, r.WorkflowMoved):
            yield from _cancel_run(before, ask, landing, store)
        sheets[ask.flow] = sheets[ask.flow].apply(landing)
        landed.append(landing)
        written += ask.objects
        if isinstance(landing, r.WorkflowMoved) and landing.standing.holder and isinstance(ask, ChangeStepStatus):
            written.append(
                ask.lease_keeper.holder_statement(store.clock.boot_ms())
            )  # a claim must name a registered holder
    return landed, written


def leases_of(holders: Sequence[int], store: Store) -> Script[HolderLeases]:
    """Part of a script: read the leases of holders."""
    if not holders:
        return {}
    now = store.clock.boot_ms()
    rows = yield [Statement("get_holder", (holder, now)) for holder in holders]
    return {holder: _lease_from(holder, found, store.one_host) for holder, found in zip(holders, rows, strict=True)}


def outcome(
    sheet: WorkflowVersion, ask: SaveWorkflow | ChangeStepStatus, leases: HolderLeases
) -> r.WorkflowMade | r.WorkflowMoved | None:
    """Decide one request; None if it changes nothing."""
    if isinstance(ask, SaveWorkflow):
        return _decide_draft(sheet, ask)
    step = _find_target_step(sheet, ask)
    _refuse_claimed(step, ask, leases)
    if ask.to == StepStatus.IN_PROGRESS and not ask.leave:
        _refuse_unready(sheet, step)
    elif _undoes(step.standing.status, ask):
        raise _already_over_error(step)
    standing = _decide_move(sheet, step, ask)
    if standing == step.standing:
        return None
    return r.WorkflowMoved(*ask.flow, sheet.version, sheet.revision + 1, step.step, standing)


# -- versions ---------------------------------------------------------------------------------------------------------


def _decide_draft(sheet: WorkflowVersion, draft: SaveWorkflow) -> r.WorkflowMade | None:
    if sheet.version and list(map(_plan_of, sheet.steps)) == list(map(_plan_of, draft.steps)):
        return None  # the program was restarted: progress is kept
    steps = carry_steps(sheet.steps, draft.steps)
    return r.WorkflowMade(*draft.flow, sheet.version + 1, sheet.revision + 1, steps)


def _plan_of(step: r.PlannedStep) -> tuple[str, bytes, tuple[str, ...], str]:
    return step.step, step.digest, step.depends_on, step.title


def carry_steps(before: Sequence[r.PlannedStep], after: Sequence[r.PlannedStep]) -> tuple[r.PlannedStep, ...]:
    """Return the steps of the next version with the state of the same work, an action with the same arguments.

    The same number or name is tried first. Numbered steps are then matched under any number, so that inserting a step
    loses no progress.
    """
    left = {planned.step: planned for planned in before}
    found: dict[str, r.StepState] = {}
    for step in after:
        if step.step in left and left[step.step].digest == step.digest:
            found[step.step] = left.pop(step.step).standing
    for step in after:
        if step.numbered and step.step not in found:
            same = next((old for old in left.values() if old.numbered and old.digest == step.digest), None)
            if same is not None:
                found[step.step] = left.pop(same.step).standing
    return tuple(
        msgspec.structs.replace(planned, standing=found.get(planned.step, planned.standing)) for planned in after
    )


# -- steps ------------------------------------------------------------------------------------------------------------


def _find_target_step(sheet: WorkflowVersion, move: ChangeStepStatus) -> r.PlannedStep:
    """Find the caller's step; in a newer version it may have another number."""
    aim, name = move.aim, move.flow[1]
    if move.claim:
        for step in sheet.steps:
            if step.standing.claim == move.claim and step.standing.status == StepStatus.IN_PROGRESS:
                return step
    for step in sheet.steps:
        if step.step == aim.step:
            if step.digest != aim.digest:
                raise WorkflowChanged(f"step {aim.step} of workflow {name!r} is {step.action} by now, not {aim.action}")
            return step
    raise WorkflowNotFound(f"step {aim.step} is not in workflow {name!r} any more")


def _refuse_claimed(step: r.PlannedStep, move: ChangeStepStatus, leases: HolderLeases) -> None:
    """Refuse if another live process has claimed the step, or if the caller's claim was taken over."""
    standing, label = step.standing, f"step {step.step} ({step.action}) of workflow {move.flow[1]!r}"
    if standing.claim < move.claim:
        raise WorkflowChanged(f"{label} is another one since this process has started it")
    if move.claim and standing.claim != move.claim:
        raise StepClaimed(
            f"{label} was taken over by agent {standing.by!r} meanwhile, and is {standing.status}",
            hint="what this process did for it is not recorded: its lease had run out",
        )
    if standing.status != StepStatus.IN_PROGRESS or not standing.holder:
        return
    ours = standing.holder == move.lease_keeper.holder_id and standing.by == move.by
    starts = move.to == StepStatus.IN_PROGRESS and not move.leave
    if ours and not starts:
        return
    if ours:
        raise StepClaimed(f"{label} is in progress already, in this process", hint="complete it, fail it or reset it")
    lease = leases.get(standing.holder)
    if lease is not None and counts_as_alive(lease, move.lease_keeper):
        raise StepClaimed(f"{label} is in progress: agent {standing.by!r} is at it, in {lease.process}")


def _undoes(status: StepStatus, move: ChangeStepStatus) -> bool:
    """Whether a change would lose finished work or invalidate dependent steps; only a reset may do that."""
    if move.to in (StepStatus.FAILED, StepStatus.BLOCKED):
        return status.over
    return move.to == StepStatus.SKIPPED and status == StepStatus.COMPLETED


def _already_over_error(step: r.PlannedStep) -> StepNotReady:
    text = f"step {step.step} ({step.action}) is {step.standing.status} already"
    return StepNotReady(text, hint="wf.reset(step) opens it again")


def _refuse_unready(sheet: WorkflowVersion, step: r.PlannedStep) -> None:
    if step.standing.status.over:
        raise _already_over_error(step)
    status = {planned.step: planned.standing.status for planned in sheet.steps}
    open_ones = [f"{name} ({status[name]})" for name in step.depends_on if not status[name].over]
    if open_ones:
        raise StepNotReady(
            f"step {step.step} ({step.action}) waits for {', '.join(open_ones)}", hint="wf.ready_steps() can be started"
        )


def _decide_move(sheet: WorkflowVersion, step: r.PlannedStep, move: ChangeStepStatus) -> r.StepState:
    old, to = step.standing, move.to
    if move.leave:
        return msgspec.structs.replace(old, holder=0)
    again = old.status == to
    attempt, run = old.attempt, old.run
    if to == StepStatus.PENDING:
        # The new attempt must not replay the records of the old run.
        attempt, run = (attempt + 1, "") if run else (attempt, run)
    if move.runs and not run:
        run = f"{move.flow[1]}@{sheet.version}/{step.step}" + (f".{attempt + 1}" if attempt else "")
    starts = to == StepStatus.IN_PROGRESS
    return r.StepState(
        to,
        move.result or (old.result if again else b""),
        move.note or (old.note if again else ""),
        holder=move.lease_keeper.holder_id if starts else 0,
        by=move.by,
        claim=sheet.revision + 1 if starts else old.claim,
        attempt=attempt,
        run=run,
    )


# -- runs of steps that are settled by hand ---------------------------------------------------------------------------

_IN_WORDS = {StepStatus.COMPLETED: "completed by hand", StepStatus.SKIPPED: "skipped", StepStatus.PENDING: "reset"}


def _cancel_run(
    before: WorkflowVersion, move: ChangeStepStatus, landing: r.WorkflowMoved, store: Store
) -> Script[None]:
    """Cancel the run of a step that a person has settled, and its descendant runs."""
    [old] = [step.standing for step in before.steps if step.step == landing.step]
    if not move.is_end_of_run(old):
        return
    reason = f"step {landing.step} of workflow {landing.name!r} was {_IN_WORDS[move.to]}"
    [rows] = yield [Statement("get_run", (old.by, old.run))]
    whole = run_in(rows)
    parts = (yield [Statement("descendant_runs", (whole.stream,))])[0] if whole is not None else []
    for agent, run in [(old.by, old.run), *((agent, run) for agent, run, *_ in parts)]:
        cancelled = r.RunCancelledEntry(reason, f"agent {move.by!r}")
        yield from _end_run((agent, run), cancelled, move.lease_keeper, store)


def _end_run(
    which: tuple[str, str], entry: r.RunCancelledEntry, lease_keeper: LeaseKeeper, store: Store
) -> Script[None]:
    """Cancel a run by a takeover that releases the lease at once; leave a run alone that is open somewhere."""
    [rows, gone] = yield [Statement("get_run", which), departure(which[0])]
    run = run_in(rows)
    if run is None or gone or r.RunStatus(run.status).over:
        return
    seen = yield from read_run_lease(store, lease_keeper, run)
    if seen.held:
        return
    head = (yield from seen.take()).head
    statements, _, _ = Append(Site.ORDER, head, [entry], store.clock).entries(head.seq, head.chain)
    yield [*statements]  # more batches follow in this transaction
