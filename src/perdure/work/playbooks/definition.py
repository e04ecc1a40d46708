"""A playbook as data: its steps, and how they are read from a program, from storage and from distilled text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from perdure.errors import WrongType, WrongValue
from perdure.kernel.names import check_storable_name
from perdure.values.hints import name_hint
from perdure.values.limits import PLAYBOOK_STEPS_MAX

LISTS = ("inputs", "tools", "decisions", "pitfalls", "checks", "examples")
"""The fields of a step that are lists of texts, in the order in which a page shows them."""
DISTILLED = " [distilled]"
"""Marks a line that a model has added."""


class PlaybookStep(msgspec.Struct, frozen=True):
    """One step of a playbook: what to do, and what earlier runs learned about it."""

    name: str
    purpose: str = ""
    inputs: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    pitfalls: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class Playbook(msgspec.Struct, frozen=True):
    """A version of a playbook. `text` is the page that a person reads and edits."""

    name: str
    version: int = 0
    purpose: str = ""
    inputs: tuple[str, ...] = ()
    """The names of the values that differ from run to run."""
    steps: tuple[PlaybookStep, ...] = ()
    learned_from: tuple[str, ...] = ()
    """The runs or the workflow that it was learned from."""
    learned_cost: float | None = None
    """What a run without the playbook cost on average, in dollars; None if that is unknown."""

    @property
    def text(self) -> str:
        """The playbook as Markdown."""
        from perdure.work.playbooks.page import to_markdown

        return to_markdown(self)

    def step(self, name: str) -> PlaybookStep:
        """Return a step by its name. Raises `WrongValue`."""
        for step in self.steps:
            if step.name == name:
                return step
        hint = name_hint(name, [step.name for step in self.steps])
        raise WrongValue(f"playbook {self.name!r} has no step {name!r}", hint=hint)

    def render(self, step: PlaybookStep | str, budget: int = 2000, inputs: Mapping[str, Any] | None = None) -> str:
        """Return the smallest text that a model needs for a step, within a budget of tokens.

        It begins the same for every input, so that prompt caches of providers hit. The inputs come last.
        """
        from perdure.work.playbooks.page import render_step

        chosen = self.step(step) if isinstance(step, str) else step
        return render_step(self, chosen, budget, inputs or {}).text


def check_name(name: object) -> str:
    """Check the name of a playbook, which is also the name of its file."""
    text = check_storable_name(name, "a playbook's name", empty=False, most=128, error=WrongValue)
    if "/" in text or text.startswith("."):
        raise WrongValue(f"a playbook cannot be named {text!r}", hint="use letters, digits, `-` and `_`")
    return text


def read_steps(given: object) -> tuple[PlaybookStep, ...]:
    """Read the steps that a program gives: names, or dicts with the fields of a step."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise WrongType(f"steps must be a list of names or dicts, not {type(given).__name__}")
    return check_steps(tuple(_read_step(one) for one in given))


def check_steps(steps: tuple[PlaybookStep, ...]) -> tuple[PlaybookStep, ...]:
    """Check that there are steps, and that no two have the same name."""
    names = [step.name for step in steps]
    if not steps:
        raise WrongValue("a playbook needs at least one step")
    if len(steps) > PLAYBOOK_STEPS_MAX:
        raise WrongValue(f"a playbook has at most {PLAYBOOK_STEPS_MAX} steps, not {len(steps)}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise WrongValue(f"two steps are named {twice!r}", hint="give each step a name of its own")
    return steps


def _read_step(given: object) -> PlaybookStep:
    if isinstance(given, PlaybookStep):
        return given
    if isinstance(given, str):
        return PlaybookStep(check_step_name(given))
    if not isinstance(given, Mapping):
        raise WrongType(f"a step is a name or a dict, not {type(given).__name__}")
    known = PlaybookStep.__struct_fields__
    strange = next((field for field in given if field not in known), None)
    if strange is not None:
        raise WrongValue(f"a step has no field {strange!r}", hint=name_hint(str(strange), list(known)))
    lists = {field: _texts(field, given[field]) for field in LISTS if field in given}
    return PlaybookStep(check_step_name(given.get("name")), " ".join(str(given.get("purpose", "")).split()), **lists)


def check_step_name(name: object) -> str:
    """Check the name of a step."""
    return check_storable_name(name, "a step's name", empty=False, most=128, error=WrongValue)


def _texts(field: str, given: object) -> tuple[str, ...]:
    """Return the lines of a field; each is one line of the page."""
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Iterable):
        raise WrongType(f"{field} of a step is a list of texts, not {type(given).__name__}")
    return tuple(text for one in given if (text := " ".join(str(one).split())))


def describe(
    book: Playbook,
    purpose: str | None,
    inputs: Iterable[str] | None,
    steps: tuple[PlaybookStep, ...] | None = None,
) -> Playbook:
    """Return a playbook with another purpose, other inputs or other steps; None leaves them."""
    return msgspec.structs.replace(
        book,
        purpose=book.purpose if purpose is None else " ".join(str(purpose).split()),
        inputs=book.inputs if inputs is None else _texts("inputs", inputs),
        steps=book.steps if steps is None else steps,
    )


def mark_added(before: Playbook, after: Playbook) -> Playbook:
    """Mark every line of `after` that `before` does not have: a model wrote it."""
    known = {step.name: step for step in before.steps}
    steps = tuple(_mark_step(known.get(step.name), step) for step in after.steps)
    return msgspec.structs.replace(after, steps=steps)


def _mark_step(before: PlaybookStep | None, step: PlaybookStep) -> PlaybookStep:
    changed: dict[str, Any] = {}
    for field in ("decisions", "pitfalls", "checks", "examples"):
        old = getattr(before, field) if before is not None else ()
        lines = getattr(step, field)
        changed[field] = tuple(one if one in old or one.endswith(DISTILLED) else one + DISTILLED for one in lines)
    if step.purpose and not step.purpose.endswith(DISTILLED) and (before is None or step.purpose != before.purpose):
        changed["purpose"] = step.purpose + DISTILLED
    return msgspec.structs.replace(step, **changed)
