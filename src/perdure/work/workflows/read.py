"""Finds and reads workflows from their views, including buffered changes around the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import WorkflowNotFound, WrongType
from perdure.journal import objects
from perdure.journal.leases import counts_as_alive
from perdure.journal.workflow_writes import (
    ChangeStepStatus,
    HolderLeases,
    SaveWorkflow,
    WorkflowKey,
    WorkflowVersion,
    holders_of,
    leases_of,
    outcome,
    sheet_of,
)
from perdure.kernel.scope import list_buffered_writes
from perdure.store.base import Store, read_through
from perdure.store.rows import first_number
from perdure.values.clock import moment
from perdure.values.hints import name_hint
from perdure.values.limits import NUMBER_MAX
from perdure.work.workflows.definition import check_name, key_of
from perdure.work.workflows.plan import WorkflowSnapshot, WorkflowStep

if TYPE_CHECKING:
    from perdure.journal.leases import LeaseKeeper
    from perdure.kernel.engine import Engine

StepStatus = r.StepStatus
StepRef = int | str | WorkflowStep


class WorkflowRef(msgspec.Struct, frozen=True):
    """Identifies a workflow: its agent, its name and, for an old version, the version."""

    agent: str
    name: str
    version: int | None = None


class WorkflowState(msgspec.Struct, frozen=True):
    """A workflow as read, including buffered changes."""

    flow: WorkflowKey
    sheet: WorkflowVersion
    made_at: int
    moved_at: dict[str, int]
    leases: HolderLeases


class WorkflowReader:
    """Reads workflows for an agent in this process, or for a person at the command line."""

    def __init__(
        self,
        store: Store,
        agent: str = "",
        lease_keeper: LeaseKeeper | None = None,
        unpack: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._store = store
        self._agent = agent
        self._lease_keeper = lease_keeper
        self._unpack = unpack or partial(objects.unpack, store)

    # -- finding ------------------------------------------------------------------------------------------------------

    def list_workflows(self, agent: str) -> list[WorkflowRef]:
        """Return the workflows of an agent, sorted by name."""
        return [WorkflowRef(agent, name) for name in dict.fromkeys(name for name, _ in self._list_all(agent))]

    def versions(self, agent: str, name: str) -> list[WorkflowRef]:
        """Return every version of a workflow, oldest first. Raises `WorkflowNotFound`."""
        found = [WorkflowRef(agent, name, version) for other, version in self._list_all(agent) if other == name]
        if not found:
            raise self._not_found_error(WorkflowRef(agent, name))
        return found

    def _list_all(self, agent: str) -> list[tuple[str, int]]:
        owner = first_number(self._store.read("get_agent", (agent,)))
        return [(name, version) for name, version in self._store.read("workflows_of", (owner,))] if owner else []

    def _not_found_error(self, which: WorkflowRef) -> WorkflowNotFound:
        there = self._list_all(which.agent)
        numbers = [version for name, version in there if name == which.name]
        if which.version is not None and numbers:
            text = f"workflow {which.name!r} has no version {which.version}"
            return WorkflowNotFound(text, hint=f"the newest version is {max(numbers)}")
        names = list(dict.fromkeys(name for name, _ in there))
        hint = name_hint(which.name, names, "create one with agent.workflows.create(name, steps=[...])")
        return WorkflowNotFound(f"agent {which.agent!r} has no workflow {which.name!r}", hint=hint)

    # -- reading ------------------------------------------------------------------------------------------------------

    def look(self, which: WorkflowRef) -> WorkflowState:
        """Return a workflow as the caller sees it."""
        read, name = self._store.read, check_name(which.name, "a workflow's name")
        if which.version is not None and type(which.version) is not int:
            raise WrongType(f"version={which.version!r} must be an int, not {type(which.version).__name__}")
        if which.version is not None and not 0 < which.version <= NUMBER_MAX:
            raise self._not_found_error(which)
        flow = (first_number(read("get_agent", (which.agent,))), name)
        if which.version is None:
            made, standings = read("newest_workflow", flow), read("newest_workflow_steps", flow)
        else:
            made = read("get_workflow", (*flow, which.version))
            standings = read("workflow_steps_of", (*flow, which.version))
        sheet = sheet_of(made, standings)
        leases = read_through(self._store, leases_of(holders_of([sheet]), self._store))
        if which.version is None:
            sheet = _apply_buffered(self._store, flow, sheet, leases)
        if not sheet.version:
            raise self._not_found_error(which)
        made_at = next((at for *_, at in made), self._store.clock.wall_ms())
        return WorkflowState(flow, sheet, made_at, {step: at for step, *_, at in standings}, leases)

    def plan(self, which: WorkflowRef) -> WorkflowSnapshot:
        """Return a workflow with the arguments and results of its steps."""
        return self._plan(which, self.look(which), self._value)

    def read_without_values(self, which: WorkflowRef) -> WorkflowSnapshot:
        """Return a workflow without arguments and results, which may be large."""
        return self._plan(which, self.look(which), _skip_value)

    def read_steps(
        self, which: WorkflowRef, choose: Callable[[WorkflowSnapshot], Iterable[WorkflowStep]]
    ) -> list[WorkflowStep]:
        """Return selected steps with their values, in order."""
        seen = self.look(which)
        chosen = {str(step.step) for step in choose(self._plan(which, seen, _skip_value))}
        names = _names(seen.sheet)
        return [self._step(seen, step, names, self._value) for step in seen.sheet.steps if step.step in chosen]

    def read_step(self, which: WorkflowRef, step: StepRef) -> WorkflowStep:
        """Return one step by its number or name."""
        seen, key = self.look(which), key_of(step)
        for planned in seen.sheet.steps:
            if planned.step == key:
                return self._step(seen, planned, _names(seen.sheet), self._value)
        raise no_step_error(which.name, key, seen.sheet)

    def _plan(self, which: WorkflowRef, seen: WorkflowState, value: Callable[[bytes], Any]) -> WorkflowSnapshot:
        names = _names(seen.sheet)
        steps = tuple(self._step(seen, step, names, value) for step in seen.sheet.steps)
        return WorkflowSnapshot(which.agent, which.name, seen.sheet.version, moment(seen.made_at), steps)

    def _step(
        self, seen: WorkflowState, step: r.PlannedStep, names: dict[str, int | str], value: Callable[[bytes], Any]
    ) -> WorkflowStep:
        stands = step.standing
        claimed_by, ours = self._claimant(seen, stands)
        return WorkflowStep(
            names[step.step],
            step.action,
            value(step.arguments),
            tuple(names[other] for other in step.depends_on),
            stands.status,
            value(stands.result),
            stands.note,
            step.title,
            claimed_by=claimed_by,
            run=stands.run,
            by=stands.by,
            ours=ours,
            changed_at=moment(seen.moved_at.get(step.step, seen.made_at)),
        )

    def _value(self, packed: bytes) -> Any:
        if not packed:
            return None
        if identity := objects.reference(packed):
            for ask in _list_buffered(self._store):  # values of buffered changes are not stored yet
                for made in ask.objects:
                    if made.args[0] == identity:
                        return objects.decode_packed(packed, [made])
        return self._unpack(packed)

    def _claimant(self, seen: WorkflowState, stands: r.StepState) -> tuple[str, bool]:
        """Return the live claimant of a step, and whether that is the reader."""
        if stands.status != StepStatus.IN_PROGRESS or not stands.holder:
            return "", False
        us = self._lease_keeper
        if us is not None and stands.holder == us.holder_id and stands.by == self._agent:
            return f"agent {stands.by!r} in this process", True
        lease = seen.leases.get(stands.holder)
        if lease is None or not counts_as_alive(lease, us):
            return "", False
        return f"agent {stands.by!r} in {lease.process}", False


def reader_for(engine: Engine) -> WorkflowReader:
    """Return a reader for an agent of this process. Without a lease_keeper, it holds no claims yet."""
    return WorkflowReader(engine.store, engine.name, engine.place.lease_keeper_if_any)


def no_step_error(name: str, key: str, sheet: WorkflowVersion) -> WorkflowNotFound:
    """Return the error for a step that a workflow does not have."""
    by_action = [step.step for step in sheet.steps if step.action == key]
    hint = name_hint(key, [step.step for step in sheet.steps])
    if by_action:
        hint = f"that is the action of step {', '.join(by_action[:5])}"
    return WorkflowNotFound(f"workflow {name!r} has no step {key!r}", hint=hint)


def _names(sheet: WorkflowVersion) -> dict[str, int | str]:
    return {step.step: int(step.step) if step.numbered else step.step for step in sheet.steps}


def _skip_value(packed: bytes) -> None:
    return None


def _apply_buffered(store: Store, flow: WorkflowKey, sheet: WorkflowVersion, leases: HolderLeases) -> WorkflowVersion:
    """Apply the buffered changes of the enclosing body or item."""
    for ask in _list_buffered(store):
        if ask.flow == flow:
            landing = outcome(sheet, ask, leases)
            sheet = sheet if landing is None else sheet.apply(landing)
    return sheet


def _list_buffered(store: Store) -> list[SaveWorkflow | ChangeStepStatus]:
    return [ask for ask in list_buffered_writes(store) if isinstance(ask, SaveWorkflow | ChangeStepStatus)]
