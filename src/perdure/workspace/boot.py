"""What an agent reads when it wakes up: its identity first, then what it knows, and where it was, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from enum import StrEnum

import msgspec

from ..handoff import readable
from ..handoff.progress_text import NOTHING
from ..lines import with_newlines_only
from ..tokens import Tokens, counter
from .documents import Shelf
from .layout import (
    AGENTS,
    CONTEXTS,
    MEMORY,
    PROGRESS,
    SOUL,
    TASKS,
    USER,
    is_active,
    log_of,
)

BUDGET = 10_000
"""Tokens, when nobody says how many."""


class Part(StrEnum):
    """What a file is to an agent that wakes up."""

    IDENTITY = "identity"
    USER = "user"
    MEMORY = "memory"
    CONTEXT = "context"
    DAYS = "days"
    TASKS = "tasks"
    PROGRESS = "progress"


_SHARES = {
    Part.IDENTITY: 0.30,
    Part.USER: 0.10,
    Part.MEMORY: 0.20,
    Part.CONTEXT: 0.10,
    Part.DAYS: 0.10,
    Part.TASKS: 0.10,
    Part.PROGRESS: 0.10,
}
"""Of the budget: so much each may have, whatever the others want. What one does not need, the first of the others gets:
a long MEMORY.md must not push out what was going on."""

_BEGINNING = {Part.DAYS: 0.0, Part.MEMORY: 0.5}
"""Of a part that is cut, how much of what is kept is its beginning, and not its end, where news are. Else all of it."""

_BOM = "\ufeff"
"""Some editors begin a file with it: it is no text."""

LEAST = 40
"""Tokens with which a file can say something."""


class Section(msgspec.Struct, frozen=True):
    """One file of the bootstrap, or as much of it as there was room for."""

    path: str
    part: Part
    text: str
    tokens: int
    left_out: int = 0
    """Tokens of the file that did not fit."""


class Bootstrap(msgspec.Struct, frozen=True):
    """What an agent reads when it wakes up. `str()` of it is the text."""

    text: str
    tokens: int
    budget: int
    sections: tuple[Section, ...]
    dropped: tuple[str, ...] = ()
    """What did not fit, and how much of it."""
    estimated: bool = True
    """Whether tokens are estimated: no tokeniser was given, and none is installed."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        files = ", ".join(section.path for section in self.sections)
        about = "about " if self.estimated else ""
        return f"<Bootstrap of {about}{self.tokens} tokens, at most {self.budget}: {files}>"


def bootstrap(sections: Sequence[Section], budget: int = BUDGET, tokens: Tokens | None = None) -> Bootstrap:
    """As much of the sections as fits into so many tokens."""
    if type(budget) is not int or budget < 1:
        raise ValueError(f"budget={budget!r}: a number of tokens, from 1")
    count, is_estimate = counter(tokens)
    fitted = _fitted(sections, budget, count)
    text = "\n".join(section.text for section in fitted if section.text)
    dropped = tuple(
        f"{section.path}: {'all' if not section.text else 'part'} of it, about {section.left_out} tokens"
        for section in fitted
        if section.left_out
    )
    shown = tuple(it for it in fitted if it.text)
    return Bootstrap(text, count(text), budget, shown, dropped, is_estimate)


def sections_of(shelf: Shelf, today: date, tokens: Tokens | None = None) -> tuple[Section, ...]:
    """The files that matter, whole, in the order in which they are read."""
    count, _ = counter(tokens)
    documents = {path: it.text for path, it in shelf.documents.items() if it.text.strip()}
    wanted = [(SOUL, Part.IDENTITY), (USER, Part.USER), (AGENTS, Part.IDENTITY), (MEMORY, Part.MEMORY)]
    wanted += [(f"{CONTEXTS}/{shelf.context}.md", Part.CONTEXT)] if shelf.context else []
    wanted += [(log_of(day), Part.DAYS) for day in (today - timedelta(days=1), today)]
    tasks = sorted(path for path in documents if path.startswith(f"{TASKS}/"))
    wanted += [(path, Part.TASKS) for path in tasks if is_active(documents[path])]
    wanted += [(PROGRESS, Part.PROGRESS)] if documents.get(PROGRESS) != NOTHING else []
    shown = [(path, part, _shown(path, documents[path])) for path, part in wanted if path in documents]
    return tuple(Section(path, part, text, count(text)) for path, part, text in shown)


def _fitted(found: Sequence[Section], budget: int, count: Tokens) -> tuple[Section, ...]:
    """Each gets what is left, but for the shares of those after it. One too small to say anything is none."""
    parts = [it.part for it in found]
    sizes = [it.tokens + 1 for it in found]  # and one between two of them
    shares = [
        min(size, int(budget * _SHARES[part] / parts.count(part))) for part, size in zip(parts, sizes, strict=True)
    ]
    kept = [share if share >= min(size, LEAST) else 0 for share, size in zip(shares, sizes, strict=True)]
    sections, left = list[Section](), budget
    for place, whole in enumerate(found):
        sections.append(_cut(whole, left - sum(kept[place + 1 :]) - 1, count))
        left -= sections[-1].tokens + 1 if sections[-1].text else 0
    return tuple(sections)


def _shown(path: str, text: str) -> str:
    return f"<!-- {path} -->\n{with_newlines_only(readable(text)).removeprefix(_BOM).strip()}\n"


def _cut(it: Section, room: int, count: Tokens) -> Section:
    """As many whole lines as fit, from its beginning and its end; and a line that says what is missing between."""
    if it.tokens <= room:
        return it
    _, *lines = it.text.rstrip().split("\n")

    def made(kept: int) -> str:
        first = round(kept * _BEGINNING.get(it.part, 1.0))
        said = f"[... {len(lines) - kept} more lines are in {it.path}]"
        return _shown(it.path, "\n".join([*lines[:first], said, *lines[len(lines) - kept + first :]]))

    low, high = 0, len(lines)
    while low < high:  # the text grows with its lines, so the last that fits is found by halving
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(made(middle)) <= room else (low, middle - 1)
    text = made(low) if low else ""
    used = count(text) if text else 0
    return msgspec.structs.replace(it, text=text, tokens=used, left_out=max(1, it.tokens - used))
