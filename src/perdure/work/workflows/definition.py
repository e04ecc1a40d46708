"""Parses and checks the steps of a workflow as users write them.

"scrape"                                           an action, numbered by its position
{"step": 1, "action": "scrape", "args": {...}}     with arguments
{"step": "push", "depends_on": ["build"]}          named; the action has the name of the step
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure import records as r
from perdure.errors import WorkflowInvalid, WrongType
from perdure.journal import objects
from perdure.journal.workflow_writes import SaveWorkflow, WorkflowKey
from perdure.kernel.names import check_storable_name
from perdure.store.base import Statement
from perdure.values import codec
from perdure.values.hints import name_hint
from perdure.values.limits import WORKFLOW_STEPS_MAX
from perdure.work.workflows.plan import WorkflowStep

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

NAME_CHARACTERS_MAX = 200
"""Limit for names of workflows and steps: both are part of the id of a run."""
FIELDS = ("step", "action", "args", "depends_on", "status", "result", "note", "title")
ALSO_CALLED = {"id": "step", "name": "step", "input": "args", "description": "title"}
StepInput = str | Mapping[str, Any]
"""A step as users write it."""


def draft_of(engine: Engine, flow: WorkflowKey, given: Iterable[StepInput]) -> SaveWorkflow:
    """Check the steps and build a plan. Raises `WorkflowInvalid`."""
    name = flow[1]
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise WorkflowInvalid(f"steps={given!r}: pass a list of steps")
    wanted = [_fields(name, place, step) for place, step in enumerate(given, start=1)]
    if not 0 < len(wanted) <= WORKFLOW_STEPS_MAX:
        raise WorkflowInvalid(f"workflow {name!r} has {len(wanted)} steps; allowed are 1 to {WORKFLOW_STEPS_MAX:,}")
    keys = _keys(name, wanted)
    needs = _read_needs(name, wanted, keys)
    _refuse_cycle(name, needs)
    written: list[Statement] = []
    steps = [_plan_step(engine, step, key, needs[key], written) for step, key in zip(wanted, keys, strict=True)]
    return SaveWorkflow(flow, tuple(steps), written)


def check_name(text: object, what: str) -> str:
    """Check a name that is stored and becomes part of a run id."""
    return check_storable_name(text, what, empty=False, most=NAME_CHARACTERS_MAX, error=WorkflowInvalid)


# -- one step ---------------------------------------------------------------------------------------------------------


def _fields(name: str, place: int, given: StepInput) -> dict[str, Any]:
    if isinstance(given, str):
        return {"step": place, "action": given}
    if not isinstance(given, Mapping):
        raise WorkflowInvalid(
            f"step {place} of workflow {name!r} is {given!r}",
            hint='pass the name of an action, or a dict such as {"step": 1, "action": "scrape"}',
        )
    found: dict[str, Any] = {}
    for field, value in given.items():
        known = ALSO_CALLED.get(field, field)
        if known not in FIELDS:
            raise _unknown_field(name, place, field)
        if known in found:
            raise WorkflowInvalid(f"step {place} of workflow {name!r} has {known!r} twice: also as {field!r}")
        found[known] = value
    found.setdefault("step", place)
    return found


def _unknown_field(name: str, place: int, field: object) -> WorkflowInvalid:
    hint = name_hint(field, [*FIELDS, *ALSO_CALLED])
    return WorkflowInvalid(
        f"step {place} of workflow {name!r} has an unknown field {field!r}",
        hint=f'{hint}; arguments of the action belong in "args"',
    )


def _plan_step(
    engine: Engine, step: Mapping[str, Any], key: str, needs: tuple[str, ...], written: list[Statement]
) -> r.PlannedStep:
    numbered = not isinstance(step["step"], str)
    action = step.get("action") or ("" if numbered else key)
    if not action:
        raise WorkflowInvalid(f"step {key} has no action", hint='name one: {"step": 1, "action": "scrape"}')
    action = check_name(action, f"the action of step {key}")
    args, status = step.get("args"), _status(step, key)
    packed, made = objects.pack(engine.store, args, f"step {key}.args") if args is not None else (b"", ())
    result, more = (
        (b"", ()) if step.get("result") is None else objects.pack(engine.store, step["result"], f"step {key}")
    )
    written += [*made, *more]
    digest = codec.digest((action, args), f"step {key}.args")
    standing = r.StepState(status, result, str(step.get("note") or ""))
    return r.PlannedStep(key, numbered, action, packed, digest, needs, str(step.get("title") or ""), standing)


def _status(step: Mapping[str, Any], key: str) -> r.StepStatus:
    given = step.get("status") or r.StepStatus.PENDING
    try:
        status = r.StepStatus(given)
    except ValueError:
        hint = name_hint(str(given), [step_fields.value for step_fields in r.StepStatus])
        raise WorkflowInvalid(f"step {key} has an unknown status {given!r}", hint=hint) from None
    return status


# -- all of them ------------------------------------------------------------------------------------------------------


def _keys(name: str, wanted: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = [key_of(step["step"]) for step in wanted]
    seen: set[str] = set()
    for key in keys:
        check_name(key, f"the name of a step of workflow {name!r}")
        if key in seen:
            raise WorkflowInvalid(f"workflow {name!r} has two steps {key!r}", hint="give each its own number or name")
        seen.add(key)
    return keys


def key_of(step: object) -> str:
    """Return the stored key of a step: 3 and "3" are the same step."""
    if isinstance(step, WorkflowStep):
        step = step.step
    if isinstance(step, bool) or not isinstance(step, int | str):
        raise WrongType(f"a step is identified by its number or name, not by {step!r}")
    return str(step)


def _read_needs(name: str, wanted: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the dependencies of each step. If no step names any, each step depends on the previous one."""
    if all(step_fields.get("depends_on") is None for step_fields in wanted):
        return {key: (before,) if before else () for before, key in zip(["", *keys], keys, strict=False)}
    needs: dict[str, tuple[str, ...]] = {}
    known = set(keys)
    for step, key in zip(wanted, keys, strict=True):
        said = step.get("depends_on")
        listed = [said] if isinstance(said, int | str) else list(said or ())
        needs[key] = tuple(dict.fromkeys(map(key_of, listed)))
        for other in needs[key]:
            if other not in known:
                text = f"step {key!r} of workflow {name!r} depends on {other!r}, which is not in it"
                raise WorkflowInvalid(text, hint=name_hint(other, keys))
    return needs


def _refuse_cycle(name: str, needs: Mapping[str, Sequence[str]]) -> None:
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        # List the steps in dependency order.
        circle = " -> ".join(reversed(error.args[1]))
        raise WorkflowInvalid(
            f"the steps of workflow {name!r} depend on each other in a cycle: {circle}",
            hint="remove one of them from depends_on",
        ) from None
