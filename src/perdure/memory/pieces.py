"""What makes a memory found: its pieces, with their words and vectors, written by the commit of the memory.

A text is cut before the commit, where a model may take its time; the commit writes what was made of it. Nothing of one
memory is kept with another, so that a memory that is erased takes all of this along. Like `journal/documents.py` it is
no view: a rebuild leaves it alone, and `reembedding.py` makes it anew from the memories.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from operator import itemgetter

import msgspec

from .. import records as r
from ..clock import moment
from ..store.base import Floats, Row, Statement
from . import fusion
from .boards import Piece
from .days import Span
from .embedders import Embedder, read
from .times import spans

PUT_WORDS = Statement("put_piece_words")
"""Comes right after the statement that puts a piece: it indexes the words of the row that was inserted."""

_DROPS = ("drop_piece_words", "drop_piece_vectors", "drop_pieces")

_STAMP = re.compile(r"\s*[\[(]([^\])\n]{6,40})[\])]")
"""How a text begins that says itself when it was said."""


class Said(msgspec.Struct, frozen=True):
    """A memory before it is cut."""

    text: str
    at: int
    """Its time, in milliseconds."""
    names: tuple[str, ...] = ()
    """Whom and what it is about: "prefers the aisle" of the user Alice answers a question that names Alice."""


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


def cut_all(embedder: Embedder | None, said: Sequence[Said]) -> list[Pieces]:
    """Many memories, which a model reads at once; or none does."""
    found = [fusion.pieces(it.text, memory=0, place=0, day=_said_on(it), names=it.names) for it in said]
    every = [part for one in found for part, _ in one]
    vectors: Iterator[Floats | None] = iter(read(embedder, every) if embedder and every else [None] * len(every))
    named = embedder.id if embedder else ""
    return [Pieces(tuple(_part(piece, next(vectors)) for _, piece in one), named) for one in found]


def _said_on(it: Said) -> date:
    """The day that the text begins with, if it does: who copies a conversation often leaves it there."""
    day, stamp = moment(it.at).date(), _STAMP.match(it.text)
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
        yield PUT_WORDS
        if it.vector is not None:
            yield Statement("put_piece_vector", (owner, memory, number, pieces.embedder, it.vector))


def unindexed(owner: int, ids: Iterable[str]) -> list[Statement]:
    """What erases it."""
    return [Statement(name, (owner, which)) for which in ids for name in _DROPS]


class Arranged(msgspec.Struct, frozen=True):
    """Pieces as they are ranked, in the order of their threads."""

    pieces: list[Piece]
    ids: list[int]
    """Of each of them."""
    memories: list[str]
    """Ids, by the numbers that the pieces have."""


def arranged(rows: Sequence[Row], wanted: frozenset[str] | None, near: Mapping[int, float] | None = None) -> Arranged:
    """From what is stored of them: all terms or some; and how near each is, if that is known.

    Parts of one memory follow each other, and so do memories whose places do.
    """
    near = near or {}
    middle = _middle(near)
    made, ids, numbers = list[Piece](), list[int](), dict[str, int]()
    thread, place, before = 0, 0, ("", "", 0)
    for row in sorted(rows, key=_in_order):
        it, memory, _, where, at, length, asks, day, told, terms, *_ = row
        if where != before[1] or not made:
            thread, place = thread + 1, 0
        else:
            place += 1 if memory == before[0] else max(at - before[2], 1)
        number, counts = numbers.setdefault(memory, len(numbers)), _counts(terms, wanted)
        said = _told(told) if len(told) > 1 else ()
        made.append(Piece(number, place, thread, counts, length, asks / 1000, _day(day), said, near.get(it, middle)))
        ids.append(it)
        before = (memory, where, at)
    return Arranged(made, ids, list(numbers))


def nearer(made: Arranged, near: Mapping[int, float]) -> Arranged:
    """The same with how near each is, if that is known only now."""
    middle, pairs = _middle(near), zip(made.pieces, made.ids, strict=True)
    return msgspec.structs.replace(
        made, pieces=[msgspec.structs.replace(piece, likeness=near.get(it, middle)) for piece, it in pairs]
    )


def _middle(near: Mapping[int, float]) -> float:
    """What the model has not read yet is as near as others are: it is found by its words."""
    return sum(near.values()) / len(near) if near else 0.0


_in_order = itemgetter(3, 4, 1, 2)
_day = functools.lru_cache(maxsize=4096)(date.fromordinal)


def _counts(terms: str, wanted: frozenset[str] | None) -> dict[str, int]:
    """How often each comes: a Counter takes ten times as long for so few, and most have nothing that is wanted."""
    cut = terms.split()
    if wanted is not None:
        cut = [*filter(wanted.__contains__, cut)]
    counts = dict.fromkeys(cut, 1)
    if len(counts) < len(cut):
        for term in counts:
            counts[term] = cut.count(term)
    return counts


def _told(packed: bytes) -> tuple[Span, ...]:
    return tuple(Span(_day(first), _day(last), "", yearly) for first, last, yearly in msgspec.msgpack.decode(packed))
