"""What a context is made of beside the conversation: the documents of the workspace, and memories that fit."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from ..engine import Engine
from ..handoff import in_brackets
from ..lines import lines_of
from ..memory.found import KINDS, Memory, Query
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
_MARKS = re.compile(r"<(?=[^\w<>]*(?:untrusted|context)\b)", re.IGNORECASE)
"""How a mark of ours begins, with anything between that a model may overlook: spaces, or characters of no width."""
_OPENING = str.maketrans(dict.fromkeys("<\ufe64\uff1c", "‹"))
"""Nothing that is not trusted has one of them: so it cannot end the mark around it, however that is written."""

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
        own = section.text.partition("\n")[2]  # without the line that names the file: a piece has that by itself
        text = _MARKS.sub("‹", own)
        pieces.append(Piece(_SECTIONS[section.part], text, section.path, newest=section.part == Part.DAYS))
    return pieces


def told(it: Memory, count: Tokens) -> str:
    """A memory in a context, as one item of a list.

    Of a memory that is not trusted, everything that others may have chosen stands between marks: its text, what it is
    about and where it comes from. It cannot end the marks. Only what Perdure knows by itself stands before them.
    """
    text = shortened(it.text, MEMORY_TOKENS, count, f"{MEMORY}{it.id}")
    known = [it.valid_from.date().isoformat(), *([it.kind] if it.kind in KINDS else [])]
    doubt = ["others say otherwise"] if it.contradicts else []
    said = [f"{name} {in_brackets(words)}" for name, words in (("about", it.about), ("from", it.source)) if words]
    if it.trusted:
        return _item(_MARKS.sub("‹", f"({', '.join([*known, *said, *doubt])}) {text}"))
    marked = f"({', '.join(said)}) {text}" if said else text
    return _item(f"({', '.join([*known, *doubt])}) <untrusted>{marked.translate(_OPENING)}</untrusted>")


def _item(text: str) -> str:
    """One item: its other lines are indented, so that none of them is taken for the next one."""
    return "- " + "\n  ".join(lines_of(text))
