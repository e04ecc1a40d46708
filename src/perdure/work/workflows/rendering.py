"""Formats a workflow for people: a Markdown checklist, a Mermaid flow chart, lines in a terminal."""

from __future__ import annotations

import unicodedata

from perdure.records import StepStatus
from perdure.work.workflows.plan import WorkflowSnapshot, WorkflowStep

SIGNS = {
    StepStatus.PENDING: "·",
    StepStatus.IN_PROGRESS: "▶",
    StepStatus.COMPLETED: "✓",
    StepStatus.FAILED: "✗",
    StepStatus.BLOCKED: "■",
    StepStatus.SKIPPED: "-",
}
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Must match `cli/output.py`."""
_COLOURS = {
    StepStatus.PENDING: "#eeeeee",
    StepStatus.IN_PROGRESS: "#fff3b0",
    StepStatus.COMPLETED: "#c8e6c9",
    StepStatus.FAILED: "#ffcdd2",
    StepStatus.BLOCKED: "#ffe0b2",
    StepStatus.SKIPPED: "#dddddd",
}


def headline(plan: WorkflowSnapshot) -> str:
    """Return the workflow in one line."""
    done = f"{plan.done} of {len(plan.steps)} steps done, {plan.progress}%"
    return visible(f"{plan.name}, version {plan.version}: {done}")


def label(step: WorkflowStep) -> str:
    """Return the display name of a step."""
    said = step.title or step.action
    return f"{step.step}" if str(step.step) == said else f"{step.step} {said}"


def remark(plan: WorkflowSnapshot, step: WorkflowStep) -> str:
    """Return details of a step that its sign does not show; empty for most steps."""
    parts = []
    if step.status not in (StepStatus.PENDING, StepStatus.COMPLETED):
        parts.append(step.status.value.replace("_", " "))
    if step.claimed_by:
        parts.append(step.claimed_by)
    elif step.status == StepStatus.IN_PROGRESS:
        parts.append("not claimed")
    if step.note:
        parts.append(" ".join(step.note.split()))
    if not plan.sequential and step.depends_on and not step.done:
        parts.append(f"after {', '.join(map(str, step.depends_on))}")
    return ": ".join(parts)


def text(plan: WorkflowSnapshot) -> str:
    """Return the text that `print` shows."""
    lines = [headline(plan)]
    for depth, step in tree(plan):
        told = remark(plan, step)
        line = f"{SIGNS[step.status]} {label(step)}" + (f"  ({told})" if told else "")
        lines.append("  " * (depth + 1) + visible(line))
    return "\n".join(lines)


def visible(text: str) -> str:
    r"""Escape control characters, so that text can neither move the cursor nor start a line.

    >>> visible("\x1b[2Jgone\n")
    '\\x1b[2Jgone\\n'
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _UNPRINTABLE:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def tree(plan: WorkflowSnapshot) -> list[tuple[int, WorkflowStep]]:
    """Return the steps with their depth, each below its last dependency. A sequence is flat."""
    if plan.sequential:
        return [(0, step) for step in plan.steps]
    place = {step.step: number for number, step in enumerate(plan.steps)}
    below: dict[int, list[int]] = {}
    for number, step in enumerate(plan.steps):
        above = max((place[other] for other in step.depends_on), default=-1)
        below.setdefault(above, []).append(number)
    found: list[tuple[int, WorkflowStep]] = []
    waiting = [(0, number) for number in reversed(below.get(-1, []))]
    while waiting:
        depth, number = waiting.pop()
        found.append((depth, plan.steps[number]))
        waiting += [(depth + 1, under) for under in reversed(below.get(number, []))]
    return found


# -- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(plan: WorkflowSnapshot) -> str:
    """Return a Markdown checklist. A box is ticked when its step is finished."""
    lines = [
        f"## {_escape_markdown(plan.name)}",
        "",
        f"Version {plan.version}, {plan.done} of {len(plan.steps)} steps done.",
        "",
    ]
    for step in plan.steps:
        told = remark(plan, step)
        skipped = (
            f"~~{_escape_markdown(label(step))}~~"
            if step.status == StepStatus.SKIPPED
            else f"**{_escape_markdown(label(step))}**"
        )
        lines.append(f"- [{'x' if step.done else ' '}] {skipped}" + (f" ({_escape_markdown(told)})" if told else ""))
    return "\n".join(lines) + "\n"


def _escape_markdown(said: str) -> str:
    """Escape text for Markdown and put it on one line."""
    escaped = "".join(f"\\{character}" if character in "\\`*_[]<>#|~!" else character for character in said)
    return visible(" ".join(escaped.split()))


# -- Mermaid ----------------------------------------------------------------------------------------------------------


def mermaid(plan: WorkflowSnapshot) -> str:
    """Return a Mermaid flow chart: a box per step, coloured by status, and an arrow per dependency."""
    place = {step.step: number for number, step in enumerate(plan.steps, start=1)}
    boxes = [f's{place[step.step]}["{_escape_mermaid(label(step))}"]:::{step.status}' for step in plan.steps]
    lines = ["flowchart TD", *(f"    {box}" for box in boxes)]
    for step in plan.steps:
        lines += [f"    s{place[other]} --> s{place[step.step]}" for other in step.depends_on]
    used = sorted({step.status for step in plan.steps})
    lines += [f"    classDef {status} fill:{_COLOURS[status]},color:#000" for status in used]
    return "\n".join(lines) + "\n"


def _escape_mermaid(said: str) -> str:
    """Escape text for a quoted Mermaid label."""
    shown = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;", "`": "#96;"}
    return visible(" ".join("".join(shown.get(character, character) for character in said).split()))
