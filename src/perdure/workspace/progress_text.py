"""PROGRESS.md: the shape that people know, written and read back. `claude-progress.txt` is read in the same way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .progress import Progress, Said

TITLE = "Progress"
_NOT_YET = "Nothing has been begun yet."
NOTHING = f"# {TITLE}\n\n{_NOT_YET}\n"
_NONE = "None."

_PARTS = {
    "goal": ("goal", "objective", "task"),
    "done": ("completed steps", "completed", "done", "steps", "completed tasks", "what was done", "what is done"),
    "blockers": ("current blocker", "blockers", "blocker", "blocked", "current blockers", "known issues"),
    "next_action": ("next action", "next", "next step", "next steps", "next actions"),
    "context": ("context", "notes", "important context"),
}
"""The headings that people use for each part; the first is ours."""
_LEFT = ("in progress", "to do", "todo", "remaining", "pending", "open")
_PART_OF = {heading: part for part, headings in {**_PARTS, "left": _LEFT}.items() for heading in headings}

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*")
_LABEL = re.compile(r"(?:[-*]\s+)?(?:\*\*)?([A-Za-z][A-Za-z ]{2,30}?)(?:\*\*)?:(?:\*\*)?\s*(.*)")
_BOX = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[([ xX])\]\s*(.*)")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+(.*)")


# -- writing ----------------------------------------------------------------------------------------------------------


def render(all_of_it: Sequence[Progress]) -> str:
    """All of it as one page."""
    return "\n".join("\n".join(_section(one)) + "\n" for one in all_of_it) if all_of_it else NOTHING


def _section(it: Progress) -> Iterator[str]:
    yield f"# {TITLE}: {one_line(it.run)}" if it.run else f"# {TITLE}"
    boxes = [*(f"- [x] {one_line(one)}" for one in it.done), *(f"- [ ] {one_line(one)}" for one in it.left)]
    for part, lines in (
        ("goal", _text(it.goal)),
        ("done", boxes),
        ("blockers", [f"- {one_line(one)}" for one in it.blockers]),
        ("next_action", _text(it.next_action)),
        ("context", _text(it.context)),
    ):
        if lines or part != "context":
            yield from ("", f"## {_PARTS[part][0].capitalize()}", "", *(lines or [_NONE]))


def one_line(text: str) -> str:
    """A text as an item of a list."""
    return " ".join(text.split())


def _text(text: str) -> list[str]:
    """Its lines; none of them can be taken for anything else on the page."""
    lines = text.strip().split("\n") if text.strip() else []
    return [f"\\{line}" if _is_marked(line) else line for line in lines]


def _is_marked(line: str) -> bool:
    """Whether a line would be taken for a heading or a box, or is one that would not, for a stroke before it."""
    return line.lstrip().startswith(("#", "\\")) or bool(_BOX.fullmatch(line)) or _label_of(line) is not None


# -- reading ----------------------------------------------------------------------------------------------------------


def parse(text: str) -> list[Progress]:
    """What a page says, section by section. What is under no heading that is known is context."""
    found: dict[str, _Section] = {}
    section = _Section()
    for line in text.split("\n"):
        heading = _HEADING.fullmatch(line)
        title = heading[2] if heading is not None and len(heading[1]) == 1 else ""
        if title == TITLE or title.startswith(f"{TITLE}: "):
            section = found.setdefault(title[len(TITLE) + 2 :], _Section())
            continue
        if not found:
            found[""] = section
        section.take(line, heading)
    made = [section.made(run) for run, section in found.items()]
    return [one for one in made if one != Progress()]


class _Section:
    def __init__(self) -> None:
        self._part = "context"
        self._done: list[str] = []
        self._left: list[str] = []
        self._blockers: list[str] = []
        self._lines: dict[str, list[str]] = {part: [] for part in ("goal", "next_action", "context")}

    def take(self, line: str, heading: re.Match[str] | None) -> None:
        """One more line of it."""
        if heading is not None:
            part = _PART_OF.get(heading[2].rstrip(":").casefold())
            self._part = part or "context"
            if part is None:
                self._lines["context"].append(line)
        elif label := _label_of(line):
            self._part = label[0]
            if label[1]:
                self._item(label[1])
        elif line.startswith("\\") and _is_marked(line[1:]):
            self._item(line[1:], plain=True)
        else:
            self._item(line)

    def _item(self, line: str, plain: bool = False) -> None:
        box, bullet = _BOX.fullmatch(line), _BULLET.fullmatch(line)
        if box is not None and not plain and self._part != "context":
            (self._done if box[1] in "xX" else self._left).append(box[2].strip())
        elif self._part in ("done", "left", "blockers"):
            items = {"done": self._done, "left": self._left}.get(self._part, self._blockers)
            items.append(bullet[1].strip() if bullet is not None else line.strip())
        else:
            self._lines[self._part].append(line.rstrip())

    def made(self, run: str) -> Progress:
        """All of it."""
        texts = {part: "\n".join(lines).strip() for part, lines in self._lines.items()}
        plain = {part: "" if _says_nothing(text) else text for part, text in texts.items()}
        lists = (self._done, self._left, self._blockers)
        done, left, blockers = (tuple(one for one in items if not _says_nothing(one)) for items in lists)
        return Progress(run, done=done, left=left, blockers=blockers, **plain)


def _label_of(line: str) -> tuple[str, str] | None:
    """`Next steps: ...`, as people write it where there are no headings."""
    found = _LABEL.fullmatch(line)
    part = _PART_OF.get(found[1].casefold()) if found is not None else None
    return (part, found[2]) if found is not None and part is not None else None


def _says_nothing(text: str) -> bool:
    return text.strip().rstrip(".").casefold() in ("", "none", "nothing", "n/a", "-") or text.strip() == _NOT_YET


# -- what somebody has changed ----------------------------------------------------------------------------------------


def edits(before: str, after: str) -> list[Said]:
    """What the changes of a page say."""
    old, new = {one.run: one for one in parse(before)}, {one.run: one for one in parse(after)}
    found = ((run, _changes(old.get(run, Progress(run)), it)) for run, it in new.items())
    return [(run, what) for run, what in found if what]


def _changes(old: Progress, new: Progress) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: getattr(new, name)
        for name in ("goal", "next_action", "context")
        if getattr(new, name) != getattr(old, name)
    }
    if new.blockers != old.blockers:
        found["blockers"] = list(new.blockers)
    lists = {
        "done": [one for one in new.done if one not in old.done],
        "undone": [one for one in old.done if one not in new.done],
        "left": [one for one in new.left if one not in old.left and one not in old.done],
        "dropped": [one for one in old.left if one not in (*new.left, *new.done)],
    }
    return found | {name: items for name, items in lists.items() if items}
