"""What people write for the steps of a workflow, made into a plan; and what is wrong with it, told at the call.

"scrape"                                           an action, numbered by its place
{"step": 1, "action": "scrape", "args": {...}}     with arguments
{"step": "push", "depends_on": ["build"]}          named; the action is named like the step
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import codec, objects
from .. import records as r
from ..errors import WorkflowInvalid
from ..hints import meant
from ..journal.plans import Draft, Flow
from ..limits import WORKFLOW_STEPS_MAX
from ..store.base import Statement, holds
from .plan import WorkflowStep

if TYPE_CHECKING:
    from ..engine import Engine

NAME_CHARACTERS_MAX = 200
"""Of a workflow and of a step: both are in the name of a run."""
FIELDS = ("step", "action", "args", "depends_on", "status", "result", "note", "title")
ALSO_CALLED = {"id": "step", "name": "step", "input": "args", "description": "title"}
Given = str | Mapping[str, Any]
"""A step as people write it."""


def draft_of(engine: Engine, flow: Flow, given: Iterable[Given]) -> Draft:
    """A plan that makes sense, or an error that says what does not."""
    name = flow[1]
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise WorkflowInvalid(f"steps={given!r}: give a list of steps")
    wanted = [_fields(name, place, it) for place, it in enumerate(given, start=1)]
    if not 0 < len(wanted) <= WORKFLOW_STEPS_MAX:
        raise WorkflowInvalid(f"workflow {name!r} has {len(wanted)} steps: 1 to {WORKFLOW_STEPS_MAX:,} make one")
    keys = _keys(name, wanted)
    needs = _needs(name, wanted, keys)
    _refuse_cycle(name, needs)
    written: list[Statement] = []
    steps = [_planned(engine, it, key, needs[key], written) for it, key in zip(wanted, keys, strict=True)]
    return Draft(flow, tuple(steps), written)


def checked(text: object, what: str) -> str:
    """A name that can be stored, and be part of another one."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {text!r}")
    if not 0 < len(text) <= NAME_CHARACTERS_MAX:
        raise WorkflowInvalid(f"{what} has 1 to {NAME_CHARACTERS_MAX} characters, not {len(text)}")
    if not holds(text):
        raise WorkflowInvalid(f"{what} has no NUL character and no lone surrogate, unlike {text!r}")
    return text


# -- one step ---------------------------------------------------------------------------------------------------------


def _fields(name: str, place: int, given: Given) -> dict[str, Any]:
    if isinstance(given, str):
        return {"step": place, "action": given}
    if not isinstance(given, Mapping):
        raise WorkflowInvalid(
            f"step {place} of workflow {name!r} is {given!r}",
            hint='give the name of an action, or a dict like {"step": 1, "action": "scrape"}',
        )
    found: dict[str, Any] = {}
    for field, value in given.items():
        known = ALSO_CALLED.get(field, field)
        if known not in FIELDS:
            raise _unknown_field(name, place, field)
        if known in found:
            raise WorkflowInvalid(f"step {place} of workflow {name!r} says {known!r} twice, as {field!r} too")
        found[known] = value
    found.setdefault("step", place)
    return found


def _unknown_field(name: str, place: int, field: object) -> WorkflowInvalid:
    hint = meant(field, [*FIELDS, *ALSO_CALLED])
    return WorkflowInvalid(
        f"step {place} of workflow {name!r} has a field {field!r}",
        hint=f'{hint}; what its action needs goes into "args"',
    )


def _planned(
    engine: Engine, it: Mapping[str, Any], key: str, needs: tuple[str, ...], written: list[Statement]
) -> r.PlannedStep:
    numbered = not isinstance(it["step"], str)
    action = it.get("action") or ("" if numbered else key)
    if not action:
        raise WorkflowInvalid(f"step {key} has no action", hint='say what is done: {"step": 1, "action": "scrape"}')
    action = checked(action, f"the action of step {key}")
    args, status = it.get("args"), _status(it, key)
    packed, made = objects.pack(engine.store, args, f"step {key}.args") if args is not None else (b"", ())
    result, more = (b"", ()) if it.get("result") is None else objects.pack(engine.store, it["result"], f"step {key}")
    written += [*made, *more]
    digest = codec.digest((action, args), f"step {key}.args")
    standing = r.Standing(status, result, str(it.get("note") or ""))
    return r.PlannedStep(key, numbered, action, packed, digest, needs, str(it.get("title") or ""), standing)


def _status(it: Mapping[str, Any], key: str) -> r.StepStatus:
    given = it.get("status") or r.StepStatus.PENDING
    try:
        status = r.StepStatus(given)
    except ValueError:
        hint = meant(str(given), [it.value for it in r.StepStatus])
        raise WorkflowInvalid(f"step {key} has the status {given!r}", hint=hint) from None
    return status


# -- all of them ------------------------------------------------------------------------------------------------------


def _keys(name: str, wanted: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = [key_of(it["step"]) for it in wanted]
    seen: set[str] = set()
    for key in keys:
        checked(key, f"the name of a step of workflow {name!r}")
        if key in seen:
            raise WorkflowInvalid(f"workflow {name!r} has two steps {key!r}", hint="give each its own number or name")
        seen.add(key)
    return keys


def key_of(step: object) -> str:
    """A step as the store knows it: 3 and "3" are the same one."""
    if isinstance(step, WorkflowStep):
        step = step.step
    if isinstance(step, bool) or not isinstance(step, int | str):
        raise TypeError(f"a step is known by its number or name, not by {step!r}")
    return str(step)


def _needs(name: str, wanted: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What each step waits for. A list in which nobody says anything about it is done one after the other."""
    if all(it.get("depends_on") is None for it in wanted):
        return {key: (before,) if before else () for before, key in zip(["", *keys], keys, strict=False)}
    needs: dict[str, tuple[str, ...]] = {}
    known = set(keys)
    for it, key in zip(wanted, keys, strict=True):
        said = it.get("depends_on")
        listed = [said] if isinstance(said, int | str) else list(said or ())
        needs[key] = tuple(dict.fromkeys(map(key_of, listed)))
        for other in needs[key]:
            if other not in known:
                text = f"step {key!r} of workflow {name!r} depends on {other!r}, which is not in it"
                raise WorkflowInvalid(text, hint=meant(other, keys))
    return needs


def _refuse_cycle(name: str, needs: Mapping[str, Sequence[str]]) -> None:
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        # Told in the order in which they wait for each other.
        circle = " -> ".join(reversed(error.args[1]))
        raise WorkflowInvalid(
            f"the steps of workflow {name!r} wait for each other in a circle: {circle}",
            hint="take one of these out of its depends_on",
        ) from None
