"""What an agent reads when it wakes up: its identity first, then what it knows, and where it was, within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

import msgspec

from ..tokens import Tokens, estimated
from .documents import Shelf
from .layout import (
    AGENTS,
    CONTEXTS,
    LOGS,
    MEMORY,
    OLD_PROGRESS,
    PROGRESS,
    SOUL,
    TASKS,
    USER,
    is_active,
    log_of,
)
from .progress_text import NOTHING

BUDGET = 10_000
"""Tokens, when nobody says how many."""

_SHARES = {SOUL: 0.15, USER: 0.10, AGENTS: 0.15, MEMORY: 0.20, CONTEXTS: 0.10, LOGS: 0.10, TASKS: 0.10, PROGRESS: 0.10}
"""Of the budget, by kind of file: so much each may have whatever the others want. What one does not need, the first of
the others gets: a long MEMORY.md must not push out what was going on."""


LEAST = 40
"""Tokens with which a file can say something."""


class Section(msgspec.Struct, frozen=True):
    """One file of the bootstrap, or as much of it as there was room for."""

    path: str
    text: str
    tokens: int
    left_out: int = 0
    """Tokens of the file that did not fit."""


class Bootstrap(msgspec.Struct, frozen=True):
    """What an agent reads when it wakes up. `str()` of it is the text."""

    text: str
    tokens: int
    """Of the text. An estimate, unless a tokeniser was given."""
    budget: int
    sections: tuple[Section, ...]
    dropped: tuple[str, ...] = ()
    """What did not fit, and how much of it."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        files = ", ".join(section.path for section in self.sections)
        return f"<Bootstrap of {self.tokens} tokens, at most {self.budget}: {files}>"


def bootstrap(shelf: Shelf, today: date, budget: int = BUDGET, tokens: Tokens | None = None) -> Bootstrap:
    """The files that matter, in order, in at most so many tokens."""
    if type(budget) is not int or budget < 1:
        raise ValueError(f"budget={budget!r}: a number of tokens, from 1")
    count = tokens or estimated
    sections = _fitted(list(_chosen(shelf, today)), budget, count)
    text = "\n".join(section.text for section in sections if section.text)
    dropped = tuple(
        f"{section.path}: {'all' if not section.text else 'part'} of it, about {section.left_out} tokens"
        for section in sections
        if section.left_out
    )
    return Bootstrap(text, count(text), budget, tuple(it for it in sections if it.text), dropped)


def _chosen(shelf: Shelf, today: date) -> Iterator[tuple[str, str, str]]:
    """Path, kind and text, in the order in which they are read."""
    documents = {path: it.text for path, it in shelf.documents.items() if it.text.strip()}
    wanted = [(path, path) for path in (SOUL, USER, AGENTS, MEMORY)]
    wanted += [(f"{CONTEXTS}/{shelf.context}.md", CONTEXTS)] if shelf.context else []
    wanted += [(log_of(today - timedelta(days=1)), LOGS), (log_of(today), LOGS)]
    tasks = sorted(path for path in documents if path.startswith(f"{TASKS}/"))
    wanted += [(path, TASKS) for path in tasks if is_active(documents[path])]
    wanted += [(path, PROGRESS) for path in (PROGRESS, OLD_PROGRESS) if documents.get(path) != NOTHING]
    yield from ((path, kind, documents[path]) for path, kind in wanted if path in documents)


def _fitted(found: Sequence[tuple[str, str, str]], budget: int, count: Tokens) -> tuple[Section, ...]:
    """Each gets what is left, but for the shares of those after it. One too small to say anything is none."""
    kinds = [kind for _, kind, _ in found]
    sizes = [count(_shown(path, text)) + 1 for path, _, text in found]  # and one between two of them
    shares = [
        min(size, int(budget * _SHARES[kind] / kinds.count(kind))) for kind, size in zip(kinds, sizes, strict=True)
    ]
    kept = [share if share >= min(size, LEAST) else 0 for share, size in zip(shares, sizes, strict=True)]
    sections, left = list[Section](), budget
    for place, (path, kind, text) in enumerate(found):
        sections.append(_section(path, kind, text, left - sum(kept[place + 1 :]) - 1, count))
        left -= sections[-1].tokens + 1 if sections[-1].text else 0
    return tuple(sections)


def _shown(path: str, text: str) -> str:
    return f"<!-- {path} -->\n{text.strip()}\n"


def _section(path: str, kind: str, text: str, room: int, count: Tokens) -> Section:
    whole = _shown(path, text)
    size = count(whole)
    if size <= room:
        return Section(path, whole, size)
    kept = _cut(path, text.strip().split("\n"), room, count, newest=kind == LOGS)
    used = count(kept) if kept else 0
    return Section(path, kept, used, max(1, size - used))


def _cut(path: str, lines: list[str], room: int, count: Tokens, *, newest: bool) -> str:
    """As many whole lines as fit, the first ones, or of a log the last; and a line that says what is missing."""

    def made(kept: int) -> str:
        said = f"[... {len(lines) - kept} more lines are in {path}]"
        part = lines[len(lines) - kept :] if newest else lines[:kept]
        return _shown(path, "\n".join([said, *part] if newest else [*part, said]))

    low, high = 0, len(lines)
    while low < high:  # the text grows with its lines, so the last that fits is found by halving
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(made(middle)) <= room else (low, middle - 1)
    return made(low) if low else ""
