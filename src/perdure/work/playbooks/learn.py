"""Learns a playbook from finished runs: what the journal tells, without any model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import RunNotFinished, WrongValue
from perdure.journal import objects
from perdure.kernel.protocol import Protocol, Read
from perdure.records import StepStatus
from perdure.run import listing
from perdure.run.declarations import Declarations
from perdure.run.history import effective
from perdure.values.codec.exceptions import limited_repr
from perdure.work.playbooks.definition import Playbook, PlaybookStep, check_steps
from perdure.work.workflows.plan import WorkflowSnapshot
from perdure.work.workflows.read import WorkflowRef, reader_for

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.store.base import Store

_EXAMPLES = 2
_LINES = 8
_LONG = 200
_SHORTEST = 3
"""Shorter input values are not replaced in texts: they would match by accident."""
_DECISIONS = ("decision", "DECISION_MADE")
PLAN = "playbook "
"""The prefix of the step that plans a play, which is no step of the work."""
_INPUT_STEP = "do the work"
_CHECKING = re.compile("([Vv]erify|[Vv]alidate|[Cc]hecks?|[Tt]ests?)(?![a-z])")
"""Matches the name of a step that checks the step before it, such as `verify_total`; not `checkout`."""


class _Lessons:
    """What the runs tell about one step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loops = False
        self.effect = False
        self.decisions: dict[str, None] = {}
        self.pitfalls: dict[str, None] = {}
        self.checks: dict[str, None] = {}
        self.examples: dict[str, None] = {}


class _Reader:
    """Reads runs into lessons, one after the other, in the order of the first run."""

    def __init__(self, store: Store, inputs: Mapping[str, Any]) -> None:
        self._store = store
        self._inputs = inputs
        self.steps: dict[str, _Lessons] = {}
        self._names: dict[int, str] = {}
        self._decisions: list[str] = []
        self._current = ""
        self._checked = ""
        """The last step that is not a check of another one."""

    def read(self, events: Iterable[r.JournalEntry]) -> None:
        """Read the entries of one run."""
        for event in events:
            self._read_record(event.seq, event.record)
        if self._current:
            self._keep_decisions(self.steps[self._current])
        self._names.clear()
        self._current = self._checked = ""

    def _read_record(self, seq: int, record: r.Record) -> None:
        self._note_events(record)
        if isinstance(record, r.StepDone):
            self._finish(record.call, record.result, effect=False)
        elif isinstance(record, r.EffectIntended):
            self._names[seq] = record.call.name
        elif isinstance(record, r.EffectDone):
            self._finish(self._names.get(record.intent, "effect"), record.result, effect=True)
        elif isinstance(record, r.AttemptFailed | r.StepFailedEntry):
            self._fail(record.call, record)

    def _finish(self, call: r.CallIdentity | str, result: bytes, *, effect: bool) -> None:
        name = call if isinstance(call, str) else call.name
        if name.startswith(PLAN):
            return
        known = self.steps.setdefault(name, _Lessons(name))
        known.effect = known.effect or effect
        known.loops = known.loops or (not isinstance(call, str) and bool(call.scope))
        self._keep_decisions(known)
        self._current = name
        value = objects.unpack(self._store, result)
        if len(known.examples) < _EXAMPLES:
            known.examples[self._show(value)] = None
        if not _CHECKING.match(name):
            self._checked = name
        elif self._checked and value is not False:
            self.steps[self._checked].checks[_tell_check(name, None if value is None else self._show(value))] = None

    def _fail(self, call: r.CallIdentity, record: r.AttemptFailed | r.StepFailedEntry) -> None:
        error = objects.unpack(self._store, record.error) if record.error else getattr(record, "text", "an error")
        known = self.steps.setdefault(call.name, _Lessons(call.name))
        if isinstance(record, r.AttemptFailed):
            known.pitfalls[f"{self._show(error)}: trying again helped"] = None
        else:
            known.pitfalls[self._show(error)] = None

    def _note_events(self, record: r.Record) -> None:
        writes: Sequence[r.RunWrite] = (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())
        for write in writes:
            if write.op == r.WriteOp.EVENT and write.key in _DECISIONS and write.value:
                self._decisions.append(self._show_decision(objects.unpack(self._store, write.value)))

    def _keep_decisions(self, known: _Lessons) -> None:
        known.decisions |= dict.fromkeys(self._decisions)
        self._decisions.clear()

    def _show_decision(self, payload: Any) -> str:
        fields = payload if isinstance(payload, Mapping) else _fields_of(payload)
        what = fields.get("what") or fields.get("decision")
        why = fields.get("why") or fields.get("reason")
        if what or why:
            return self._show(f"{what}: {why}" if what and why else what or f"because {why}")
        return self._show(payload)

    def _show(self, value: Any) -> str:
        """Show a value on one line, with the inputs of the run replaced by their names."""
        text = value if isinstance(value, str) else str(value) if isinstance(value, BaseException) else _repr(value)
        text = " ".join(text.split())
        for name, given in sorted(self._inputs.items(), key=lambda one: -len(str(one[1]))):
            if isinstance(given, str) and len(given) >= _SHORTEST:
                text = text.replace(given, f"{{{name}}}")
        return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


def _tell_check(name: str, shown: str | None) -> str:
    """Tell that a step checked another one, and what it returned when the work went on."""
    return f"{name.replace('_', ' ')} passes" if shown is None else f"{name.replace('_', ' ')} gives {shown}"


def _fields_of(payload: Any) -> Mapping[str, Any]:
    found = msgspec.to_builtins(payload, enc_hook=repr) if isinstance(payload, msgspec.Struct) else {}
    return found if isinstance(found, Mapping) else {}


def _repr(value: Any) -> str:
    return limited_repr(value)


# -- from runs --------------------------------------------------------------------------------------------------------


def from_runs(engine: Engine, name: str, runs: Sequence[str]) -> Protocol[Playbook]:
    """Learn from finished runs. Several runs tell which of their inputs are parameters."""
    found: list[listing.RunInfo] = []
    for run in runs:
        info: listing.RunInfo = yield Read(listing.get_run, (engine.store, engine.name, run))
        if not info.finished:
            raise RunNotFinished(f"run {run!r} has not finished, so it cannot be learned from")
        found.append(info)
    learned: Playbook = yield Read(_learn, (engine, name, found))
    return learned


def _learn(engine: Engine, name: str, runs: Sequence[listing.RunInfo]) -> Playbook:
    inputs = parameters([info.input for info in runs])
    reader: _Reader | None = None
    for info in runs:
        given = info.input if isinstance(info.input, Mapping) else {}
        following = _Reader(engine.store, {one: given.get(one) for one in inputs})
        following.steps = reader.steps if reader is not None else {}
        following.read(effective(info.events))
        reader = following
    steps = tuple(_make_step(engine, one, inputs) for one in (reader.steps if reader else {}).values())
    costs = [info.usage.cost_usd for info in runs]
    known = [cost for cost, info in zip(costs, runs, strict=True) if cost is not None and info.usage.calls]
    return Playbook(
        name,
        0,
        _purpose_of(runs[0].input),
        inputs,
        check_steps(steps or (PlaybookStep(_INPUT_STEP),)),
        tuple(info.id for info in runs),
        sum(known) / len(known) if known else None,
    )


def parameters(inputs: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the inputs that are parameters: those that differ between runs, or all of a single run."""
    given = [one for one in inputs if isinstance(one, Mapping)]
    if not given:
        return ()
    names = [name for name in given[0] if isinstance(name, str)]
    if len(given) == 1:
        return tuple(names)
    differ = [name for name in names if any(one.get(name) != given[0][name] for one in given[1:])]
    return (*differ, *dict.fromkeys(name for one in given[1:] for name in one if name not in names))


def _purpose_of(given: Any) -> str:
    if isinstance(given, Mapping):
        given = next((given[key] for key in ("goal", "task", "question", "prompt") if key in given), "")
    return " ".join(given.split())[:_LONG] if isinstance(given, str) else ""


def _make_step(engine: Engine, known: _Lessons, inputs: tuple[str, ...]) -> PlaybookStep:
    declared = engine.parts.get(Declarations).get(known.name)
    purpose = _summary_of(declared.__doc__ if declared is not None else None) or known.name.replace("_", " ")
    if known.loops:
        purpose += ", for each item"
    checks = (*_declared_check(declared.check if declared is not None else None), *known.checks)
    texts = [*known.decisions, *known.pitfalls, *checks, *known.examples]
    return PlaybookStep(
        known.name,
        purpose,
        tuple(name for name in inputs if any(f"{{{name}}}" in text for text in texts)),
        (known.name,) if known.effect else (),
        tuple(known.decisions)[:_LINES],
        tuple(known.pitfalls)[:_LINES],
        checks[:_LINES],
        tuple(known.examples),
    )


def _declared_check(check: Callable[..., Any] | None) -> tuple[str, ...]:
    """Tell what the check of an effect looks at: the first sentence of its documentation, or its name."""
    name = getattr(check, "__name__", "")
    told = _summary_of(getattr(check, "__doc__", None)) if name else ""
    return (told or f"{name.replace('_', ' ')} finds it",) if name and name != "<lambda>" else ()


def _summary_of(text: str | None) -> str:
    return " ".join((text or "").strip().partition("\n\n")[0].split())


# -- from a workflow --------------------------------------------------------------------------------------------------


def from_workflow(engine: Engine, name: str, workflow: str) -> Protocol[Playbook]:
    """Learn from the steps of a workflow, with the results and notes that it has."""
    which = WorkflowRef(engine.name, workflow, None)
    plan: WorkflowSnapshot = yield Read(reader_for(engine).plan, (which,))
    steps = check_steps(tuple(_steps_of(plan)))
    return Playbook(name, steps=steps, learned_from=(f"workflow {workflow}",))


def _steps_of(plan: WorkflowSnapshot) -> Iterator[PlaybookStep]:
    checks = _checks_in(plan)
    for step in plan.steps:
        title = step.title or step.action.replace("_", " ")
        examples = (_repr(step.result),) if step.result is not None else ()
        notes = (" ".join(step.note.split()),) if step.note else ()
        unique = step.action if [one.action for one in plan.steps].count(step.action) == 1 else f"{step.step}"
        told = tuple(checks.get(step.step, ()))[:_LINES]
        yield PlaybookStep(unique, title, tools=(step.action,), decisions=notes, checks=told, examples=examples)


def _checks_in(plan: WorkflowSnapshot) -> dict[int | str, list[str]]:
    """Return what completed steps that check say, by the step of the work before them."""
    found: dict[int | str, list[str]] = {}
    checked: int | str | None = None
    for step in plan.steps:
        if not _CHECKING.match(step.action):
            checked = step.step
        elif checked is not None and step.status == StepStatus.COMPLETED and step.result is not False:
            shown = None if step.result is None else _repr(step.result)
            found.setdefault(checked, []).append(_tell_check(step.action, shown))
    return found


def check_sources(run: object, workflow: object, steps: object) -> None:
    """Check that a playbook is learned from exactly one kind of source."""
    if sum(given is not None for given in (run, workflow, steps)) != 1:
        raise WrongValue(
            "a playbook is learned from one kind of source",
            hint='pass run="r-17" (or a list of runs), workflow="name" or steps=[...]',
        )
