"""What a context is made of beside the conversation: the documents of the workspace, and memories that fit."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from ..engine import Engine
from ..handoff import in_brackets
from ..memory.found import Memory, Query
from ..memory.recalling import recall
from ..run.requests import Protocol, Read
from ..tokens import Tokens
from ..workspace.boot import Part
from ..workspace.waking import waking
from .filling import Piece
from .layout import RECALLED
from .masking import shortened
from .refs import MEMORY

_SECTIONS = {
    Part.IDENTITY: "identity",
    Part.CONTEXT: "identity",
    Part.USER: "user",
    Part.MEMORY: "memory",
    Part.DAYS: "days",
    Part.TASKS: "tasks",
    Part.PROGRESS: "tasks",
}
_MARKS = re.compile(r"<(?=\s*/?\s*(?:untrusted|context)\b)", re.IGNORECASE)

MEMORY_TOKENS = 160
"""Of one memory; a longer one is shortened."""


def pieces_of(engine: Engine, query: Query, wanted: Set[str], count: Tokens) -> Protocol[list[Piece]]:
    """The pieces of those sections that are wanted. They are read now: they are the agent's, and not the run's."""
    pieces: list[Piece] = []
    if wanted & set(_SECTIONS.values()):
        pieces += yield Read(_documents, (engine, count))
    if RECALLED in wanted and query.text.strip():
        found = yield from recall(engine, query)
        pieces += [Piece(RECALLED, told(it, count), whole=True) for it in found]
    return pieces


def _documents(engine: Engine, count: Tokens) -> Sequence[Piece]:
    pieces = []
    for section in waking(engine, count):
        text = section.text.partition("\n")[2]  # without the line that names the file: a piece has that by itself
        pieces.append(Piece(_SECTIONS[section.part], text, section.path, newest=section.part == Part.DAYS))
    return pieces


def told(it: Memory, count: Tokens) -> str:
    """A memory in a context. What is not trusted stands between marks, which it cannot end by itself."""
    text = _MARKS.sub("‹", shortened(it.text, MEMORY_TOKENS, count, f"{MEMORY}{it.id}"))
    about = [it.valid_from.date().isoformat(), it.kind]
    said = [(name, in_brackets(words)) for name, words in (("about", it.about), ("from", it.source)) if words]
    about += [f"{name} {_MARKS.sub('‹', words)}" for name, words in said]
    about += ["others say otherwise"] if it.contradicts else []
    line = text if it.trusted else f"<untrusted>{text}</untrusted>"
    return f"- ({', '.join(about)}) {line}"
