"""A playbook as text: a Markdown page that people edit, a skill file, and the prompt of one step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.errors import WrongValue
from perdure.values.tokens import estimate_tokens
from perdure.work.playbooks.definition import LISTS, Playbook, PlaybookStep, check_step_name, check_steps

_TITLE = "# Playbook: "
_STEP = re.compile(r"##\s+\d+\.\s+(.+)")
_FIELD = re.compile(r"\*\*([A-Z][a-z]+)\*\*")
_INPUTS = "Inputs: "
_PROMPT = ("inputs", "tools", "checks", "pitfalls", "decisions", "examples")
"""The order of the lists in a prompt. Lines are left out from its end, so shorter prompts begin like longer ones."""
_SKILL_NAME, _SKILL_DESCRIPTION = 64, 1024
"""How many characters the name and the description of a skill may have."""
_VALUE_CHARACTERS = 4000
"""Longer inputs are shown to a model by their beginning."""


def to_markdown(playbook: Playbook) -> str:
    """Write a playbook as a page. `from_markdown` reads it back."""
    lines = [_TITLE + playbook.name, ""]
    if playbook.purpose:
        lines += [playbook.purpose, ""]
    if playbook.inputs:
        lines += [_INPUTS + ", ".join(f"`{name}`" for name in playbook.inputs), ""]
    for number, step in enumerate(playbook.steps, 1):
        lines += [f"## {number}. {step.name}", "", *_step_lines(step)]
    return "\n".join(lines).rstrip() + "\n"


def _step_lines(step: PlaybookStep, fields: Sequence[str] = LISTS) -> Iterator[str]:
    if step.purpose:
        yield from (step.purpose, "")
    for field in fields:
        if texts := getattr(step, field):
            yield from (f"**{field.capitalize()}**", "", *(f"- {text}" for text in texts), "")


def from_markdown(before: Playbook, text: str) -> Playbook:
    """Read an edited page. Its title may change; the name of the playbook does not."""
    head, steps = _split(text)
    if not steps:
        raise WrongValue(
            f"the page of playbook {before.name!r} has no steps", hint="a step begins with a line like `## 1. search`"
        )
    purpose = " ".join(line for line in head if not line.startswith(_INPUTS))
    inputs = tuple(name for line in head if line.startswith(_INPUTS) for name in re.findall(r"`([^`]+)`", line))
    read = check_steps(tuple(_read_step(name, lines) for name, lines in steps))
    return msgspec.structs.replace(before, purpose=purpose, inputs=inputs, steps=read)


def _split(text: str) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Split a page into the lines of its head and those of each step, without blank lines."""
    head: list[str] = []
    steps: list[tuple[str, list[str]]] = []
    for line in (" ".join(line.split()) for line in text.splitlines()):
        found = _STEP.fullmatch(line)
        if found:
            steps.append((found[1], []))
        elif line and (steps or head or not line.startswith("# ")):
            (steps[-1][1] if steps else head).append(line)
    return head, steps


def _read_step(name: str, lines: list[str]) -> PlaybookStep:
    """Read a step. Text that belongs to no list is part of its purpose."""
    fields: dict[str, list[list[str]]] = {}
    purpose: list[str] = []
    current: list[list[str]] | None = None
    for line in lines:
        heading = _FIELD.fullmatch(line)
        if heading and heading[1].lower() in LISTS:
            current = fields.setdefault(heading[1].lower(), [])
        elif current is not None and line.startswith("- "):
            current.append([line[2:].strip()])
        elif current:
            current[-1].append(line)
        else:
            purpose.append(line)
    lists = {field: tuple(" ".join(text) for text in texts) for field, texts in fields.items()}
    return PlaybookStep(check_step_name(name), " ".join(purpose), **lists)


def to_skill(playbook: Playbook) -> str:
    """Write a playbook as a SKILL.md, which coding agents load by its description."""
    about = playbook.purpose or f"How to do {playbook.name}, in {len(playbook.steps)} steps."
    name = re.sub(r"[^a-z0-9]+", "-", playbook.name.lower()).strip("-")[:_SKILL_NAME].rstrip("-") or "playbook"
    short = about if len(about) <= _SKILL_DESCRIPTION else about[: _SKILL_DESCRIPTION - 1] + "…"
    front = f"---\nname: {name}\ndescription: {json.dumps(short, ensure_ascii=False)}\n---\n\n"
    return front + to_markdown(playbook)


class RenderedStep(msgspec.Struct, frozen=True):
    """The prompt of a step. Its first tokens are the same for every input."""

    text: str
    tokens: int
    stable_tokens: int


def render_step(playbook: Playbook, step: PlaybookStep, budget: int, inputs: Mapping[str, Any]) -> RenderedStep:
    """Write the prompt of a step within a budget of tokens. Examples are left out first, then older lessons."""
    shown = step
    while True:
        stable = _stable_part(playbook, shown)
        text = stable + _inputs_part(inputs)
        smaller = _leave_out(shown) if estimate_tokens(text) > budget else None
        if smaller is None:
            return RenderedStep(text, estimate_tokens(text), estimate_tokens(stable))
        shown = smaller


def _leave_out(step: PlaybookStep) -> PlaybookStep | None:
    """Drop the last line of the last list of the prompt that may go."""
    for field in reversed(_PROMPT[2:]):
        if lines := getattr(step, field):
            return msgspec.structs.replace(step, **{field: lines[:-1]})
    return None


def _stable_part(playbook: Playbook, step: PlaybookStep) -> str:
    names = [one.name for one in playbook.steps]
    position = names.index(step.name) + 1
    lines = [f"You follow a playbook: {playbook.name}.", *([playbook.purpose] if playbook.purpose else [])]
    lines += ["Steps: " + ", ".join(names) + ".", "", f"Now do step {position} of {len(names)}: {step.name}.", ""]
    return "\n".join([*lines, *_step_lines(step, _PROMPT)]).rstrip() + "\n"


def _inputs_part(inputs: Mapping[str, Any]) -> str:
    if not inputs:
        return ""
    return "\n**Given**\n\n" + "\n".join(f"- {name}: {_show(value)}" for name, value in inputs.items()) + "\n"


def _show(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}… ({len(text)} characters)"
