"""What makes a memory found: its pieces, with their words and vectors, written by the commit of the memory.

A text is cut before the commit, where a model may take its time; the commit writes what was made of it. Nothing of one
memory is kept with another, so that a memory that is erased takes all of this along. Like `journal/documents.py` it is
no view: a rebuild leaves it alone, and `reembedding.py` makes it anew from the memories.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from .. import records as r
from ..clock import moment
from ..store.base import Floats, Row, Statement
from . import fusion
from .boards import Piece
from .embedders import Embedder, embedder_in, read
from .times import Span, spans

if TYPE_CHECKING:
    from ..engine import Engine

_STAMP = re.compile(r"\s*[\[(]([^\])\n]{6,40})[\])]")
"""How a text begins that says itself when it was said."""


class Part(msgspec.Struct, frozen=True):
    """One piece of a text, as the store has it."""

    length: int
    asks: int
    """Thousandths."""
    day: int
    told: bytes
    terms: str
    vector: Floats | None = None


class Pieces(msgspec.Struct, frozen=True):
    """A text cut for the index, before the commit."""

    parts: tuple[Part, ...]
    embedder: str = ""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A piece as it is read."""

    id: int
    memory: str
    part: int
    thread: str
    place: int
    length: int
    asks: int
    day: int
    told: bytes
    terms: str


def cut(engine: Engine, text: str, at: int) -> Pieces:
    """Prepare a text that is of a time, in milliseconds."""
    return cut_all(embedder_in(engine), [(text, at)])[0]


def cut_all(embedder: Embedder | None, texts: Sequence[tuple[str, int]]) -> list[Pieces]:
    """Many texts, each with its time, which a model reads at once; or none does."""
    found = [fusion.pieces(text, memory=0, place=0, day=_said_on(text, moment(at).date())) for text, at in texts]
    every = [part for one in found for part, _ in one]
    vectors: Iterator[Floats | None] = iter(read(embedder, every) if embedder and every else [None] * len(every))
    named = embedder.id if embedder else ""
    return [Pieces(tuple(_part(piece, next(vectors)) for _, piece in one), named) for one in found]


def _said_on(text: str, day: date) -> date:
    """The day that the text begins with, if it does: who copies a conversation often leaves it there."""
    stamp = _STAMP.match(text)
    found = [it.first for it in spans(stamp[1], day) if it.fixed and it.first == it.last] if stamp else []
    return found[0] if found else day


def _part(piece: Piece, vector: Floats | None) -> Part:
    terms = " ".join(term for term, count in piece.counts.items() for _ in range(count))
    told = msgspec.msgpack.encode([(it.first.toordinal(), it.last.toordinal(), it.yearly) for it in piece.told])
    return Part(piece.length, round(1000 * piece.asks), piece.day.toordinal(), told, terms, vector)


def indexed(kept: r.MemoryKept, pieces: Pieces) -> list[Statement]:
    """What writes it, once its place is decided."""
    return list(puts("put_piece", kept.owner, kept.id, (kept.thread, kept.place), pieces))


def puts(put: str, owner: int, memory: str, where: tuple[str, int], pieces: Pieces) -> Iterator[Statement]:
    """The same for a memory at a place."""
    for number, it in enumerate(pieces.parts):
        yield Statement(put, (owner, memory, number, *where, it.length, it.asks, it.day, it.told, it.terms))
        if it.vector is not None:
            yield Statement("put_piece_vector", (owner, memory, number, pieces.embedder, it.vector))


def unindexed(owner: int, ids: Iterable[str]) -> list[Statement]:
    """What erases it."""
    return [Statement("drop_pieces", (owner, which)) for which in ids]


def arranged(rows: Sequence[Row], wanted: frozenset[str] | None) -> tuple[list[Piece], list[Stored]]:
    """Pieces as they are ranked, in the order of their threads, and what is stored of each; all terms, or some.

    Parts of one memory follow each other, and so do memories whose places do.
    """
    stored = [Stored(*row) for row in sorted(rows, key=_in_order)]
    made: list[Piece] = []
    numbers: dict[str, int] = {}
    thread = place = 0
    before: Stored | None = None
    for it in stored:
        if before is None or it.thread != before.thread:
            thread, place = thread + 1, 0
        else:
            place += 1 if it.memory == before.memory else max(it.place - before.place, 1)
        made.append(_ranked(it, numbers.setdefault(it.memory, len(numbers)), place, thread, wanted))
        before = it
    return made, stored


_in_order = itemgetter(3, 4, 1, 2)
_day = functools.lru_cache(maxsize=4096)(date.fromordinal)


def _ranked(it: Stored, memory: int, place: int, thread: int, wanted: frozenset[str] | None) -> Piece:
    terms = it.terms.split()
    if wanted is not None:
        terms = [term for term in terms if term in wanted]
    told = _told(it.told) if len(it.told) > 1 else ()
    return Piece(memory, place, thread, _counted(terms), it.length, it.asks / 1000, _day(it.day), told)


def _counted(terms: list[str]) -> dict[str, int]:
    """A Counter, which takes ten times as long for so few."""
    counts: dict[str, int] = {}
    for term in terms:
        counts[term] = counts.get(term, 0) + 1
    return counts


def _told(packed: bytes) -> tuple[Span, ...]:
    return tuple(Span(_day(first), _day(last), "", yearly) for first, last, yearly in msgspec.msgpack.decode(packed))
