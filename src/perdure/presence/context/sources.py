"""The content of a context besides the conversation: workspace documents and relevant memories."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, Read
from perdure.memory.recall.search import recall
from perdure.memory.results import KINDS, Memory, MemoryQuery
from perdure.presence.context.fill import SectionText
from perdure.presence.context.layout import RECALLED
from perdure.presence.context.mask import shorten_text
from perdure.presence.context.refs import MEMORY
from perdure.presence.handoff import format_in_brackets
from perdure.presence.workspace.bootstrap import BootRole
from perdure.presence.workspace.wake_up import read_wake_sections
from perdure.values.lines import lines_of
from perdure.values.tokens import TokenCounter

_SECTIONS = {
    BootRole.IDENTITY: "identity",
    BootRole.CONTEXT: "identity",
    BootRole.USER: "user",
    BootRole.MEMORY: "memory",
    BootRole.DAYS: "days",
    BootRole.TASKS: "tasks",
    BootRole.PROGRESS: "tasks",
}
_MARKS = re.compile(r"<(?=[^\w<>]*(?:untrusted|context)\b)", re.IGNORECASE)
"""The start of one of our tags, even with spaces or zero-width characters that a model may overlook."""
_OPENING = str.maketrans(dict.fromkeys("<\ufe64\uff1c", "‹"))
"""Replaces every "<" in untrusted text, so that it cannot close the tag around it in any spelling."""

MEMORY_TOKENS = 160
"""Maximum tokens of one memory; a longer one is shortened."""


def pieces_of(engine: Engine, query: MemoryQuery, wanted: Set[str], count: TokenCounter) -> Protocol[list[SectionText]]:
    """Return the texts of the wanted sections. They belong to the agent, not to the run, so they are read now."""
    pieces: list[SectionText] = []
    if wanted & set(_SECTIONS.values()):
        pieces += yield Read(_documents, (engine, count))
    if RECALLED in wanted and query.text.strip():
        found = yield from recall(engine, query)
        pieces += [SectionText(RECALLED, memory_line(memory, count), whole=True) for memory in found]
    return pieces


def _documents(engine: Engine, count: TokenCounter) -> Sequence[SectionText]:
    pieces = []
    for section in read_wake_sections(engine, count):
        own = section.text.partition("\n")[2]  # without the line that names the file: `SectionText` has the name
        text = _MARKS.sub("‹", own)
        pieces.append(SectionText(_SECTIONS[section.part], text, section.path, newest=section.part == BootRole.DAYS))
    return pieces


def memory_line(memory: Memory, count: TokenCounter) -> str:
    """Render a memory as one item of a list.

    Of an untrusted memory, everything that others may have chosen (text, subject, source) stands between tags that it
    cannot close. Only facts that Perdure knows itself stand before them.
    """
    text = shorten_text(memory.text, MEMORY_TOKENS, count, f"{MEMORY}{memory.id}")
    known = [memory.valid_from.date().isoformat(), *([memory.kind] if memory.kind in KINDS else [])]
    doubt = ["others say otherwise"] if memory.contradicts else []
    said = [
        f"{name} {format_in_brackets(words)}"
        for name, words in (("about", memory.about), ("from", memory.source))
        if words
    ]
    if memory.trusted:
        return _item(_MARKS.sub("‹", f"({', '.join([*known, *said, *doubt])}) {text}"))
    marked = f"({', '.join(said)}) {text}" if said else text
    return _item(f"({', '.join([*known, *doubt])}) <untrusted>{marked.translate(_OPENING)}</untrusted>")


def _item(text: str) -> str:
    """Render an item. Continuation lines are indented, so that none looks like the next item."""
    return "- " + "\n  ".join(lines_of(text))
