"""What an agent reads when it starts: identity, knowledge and progress, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from enum import StrEnum

import msgspec

from perdure.errors import WrongValue
from perdure.presence.handoff import readable
from perdure.presence.handoff.progress_text import NOTHING
from perdure.presence.workspace.documents import DocumentSet
from perdure.presence.workspace.layout import AGENTS, CONTEXTS, MEMORY, PROGRESS, SOUL, TASKS, USER, is_active, log_of
from perdure.values.lines import normalize_newlines
from perdure.values.tokens import TokenCounter, counter

BUDGET = 10_000
"""The default budget, in tokens."""


class BootRole(StrEnum):
    """The role of a file in the bootstrap."""

    IDENTITY = "identity"
    USER = "user"
    MEMORY = "memory"
    CONTEXT = "context"
    DAYS = "days"
    TASKS = "tasks"
    PROGRESS = "progress"


_SHARES = {
    BootRole.IDENTITY: 0.30,
    BootRole.USER: 0.10,
    BootRole.MEMORY: 0.20,
    BootRole.CONTEXT: 0.10,
    BootRole.DAYS: 0.10,
    BootRole.TASKS: 0.10,
    BootRole.PROGRESS: 0.10,
}
"""Guaranteed shares of the budget. What one does not need goes to the first of the others. A long MEMORY.md must not
push out current work."""

_BEGINNING = {BootRole.DAYS: 0.0, BootRole.MEMORY: 0.5}
"""If a part is cut, the share of the kept text that comes from its beginning, the rest from its end. Default: all."""

_BOM = "\ufeff"
"""The byte order mark that some editors write."""

LEAST = 40
"""The fewest tokens that are worth showing of a file."""


class BootSection(msgspec.Struct, frozen=True):
    """One file of the bootstrap, or the part of it that fits."""

    path: str
    part: BootRole
    text: str
    tokens: int
    left_out: int = 0
    """Tokens of the file that did not fit."""


class Bootstrap(msgspec.Struct, frozen=True):
    """What an agent reads when it starts. `str()` of it is the text."""

    text: str
    tokens: int
    budget: int
    sections: tuple[BootSection, ...]
    dropped: tuple[str, ...] = ()
    """What did not fit, and how much of it."""
    estimated: bool = True
    """Whether token counts are estimates: no tokenizer was given or found."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        files = ", ".join(section.path for section in self.sections)
        about = "about " if self.estimated else ""
        return f"<Bootstrap of {about}{self.tokens} tokens, at most {self.budget}: {files}>"


def bootstrap(sections: Sequence[BootSection], budget: int = BUDGET, tokens: TokenCounter | None = None) -> Bootstrap:
    """Return as much of the sections as fits into the budget."""
    if type(budget) is not int or budget < 1:
        raise WrongValue(f"budget={budget!r}: give a number of tokens, from 1")
    count, is_estimate = counter(tokens)
    fitted = _fit_sections(sections, budget, count)
    text = "\n".join(section.text for section in fitted if section.text)
    dropped = tuple(
        f"{section.path}: {'all' if not section.text else 'part'} of it, about {section.left_out} tokens"
        for section in fitted
        if section.left_out
    )
    shown = tuple(section for section in fitted if section.text)
    return Bootstrap(text, count(text), budget, shown, dropped, is_estimate)


def sections_of(shelf: DocumentSet, today: date, tokens: TokenCounter | None = None) -> tuple[BootSection, ...]:
    """Return the relevant files, whole, in reading order."""
    count, _ = counter(tokens)
    documents = {path: document.text for path, document in shelf.documents.items() if document.text.strip()}
    wanted = [(SOUL, BootRole.IDENTITY), (USER, BootRole.USER), (AGENTS, BootRole.IDENTITY), (MEMORY, BootRole.MEMORY)]
    wanted += [(f"{CONTEXTS}/{shelf.context}.md", BootRole.CONTEXT)] if shelf.context else []
    wanted += [(log_of(day), BootRole.DAYS) for day in (today - timedelta(days=1), today)]
    tasks = sorted(path for path in documents if path.startswith(f"{TASKS}/"))
    wanted += [(path, BootRole.TASKS) for path in tasks if is_active(documents[path])]
    wanted += [(PROGRESS, BootRole.PROGRESS)] if documents.get(PROGRESS) != NOTHING else []
    shown = [(path, part, _render_section(path, documents[path])) for path, part in wanted if path in documents]
    return tuple(BootSection(path, part, text, count(text)) for path, part, text in shown)


def _fit_sections(found: Sequence[BootSection], budget: int, count: TokenCounter) -> tuple[BootSection, ...]:
    """Fit the sections: each gets what is left minus the shares of those after it. Tiny remainders are dropped."""
    parts = [section.part for section in found]
    sizes = [section.tokens + 1 for section in found]  # one for the separator
    shares = [
        min(size, int(budget * _SHARES[part] / parts.count(part))) for part, size in zip(parts, sizes, strict=True)
    ]
    kept = [share if share >= min(size, LEAST) else 0 for share, size in zip(shares, sizes, strict=True)]
    sections, left = list[BootSection](), budget
    for place, whole in enumerate(found):
        sections.append(_cut_section(whole, left - sum(kept[place + 1 :]) - 1, count))
        left -= sections[-1].tokens + 1 if sections[-1].text else 0
    return tuple(sections)


def _render_section(path: str, text: str) -> str:
    return f"<!-- {path} -->\n{normalize_newlines(readable(text)).removeprefix(_BOM).strip()}\n"


def _cut_section(section: BootSection, room: int, count: TokenCounter) -> BootSection:
    """Return as many whole lines as fit, from beginning and end, and a line that says what is missing between."""
    if section.tokens <= room:
        return section
    _, *lines = section.text.rstrip().split("\n")

    def render(kept: int) -> str:
        first = round(kept * _BEGINNING.get(section.part, 1.0))
        said = f"[... {len(lines) - kept} more lines are in {section.path}]"
        return _render_section(section.path, "\n".join([*lines[:first], said, *lines[len(lines) - kept + first :]]))

    low, high = 0, len(lines)
    while low < high:  # binary search: more lines take more tokens
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(render(middle)) <= room else (low, middle - 1)
    text = render(low) if low else ""
    used = count(text) if text else 0
    return msgspec.structs.replace(section, text=text, tokens=used, left_out=max(1, section.tokens - used))
