"""The index of memories: pieces with their words and vectors, written in the commit of the memory.

Texts are split and embedded before the commit, because a model may be slow. Pieces of different memories share nothing,
so that erasing a memory erases its index. Like `journal/documents.py`, this is not a view: a rebuild leaves it alone,
and `memory/lifecycle/reembed.py` recreates it from the memories.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from operator import itemgetter
from typing import NamedTuple

import msgspec

from perdure import records as r
from perdure.memory.dates.days import DateSpan
from perdure.memory.dates.times import spans
from perdure.memory.recall import ranking
from perdure.memory.recall.embedders import Embedder, embed_texts
from perdure.memory.recall.lexical import MemoryPiece
from perdure.store.base import Floats, Row, Statement
from perdure.values.clock import moment

PUT_WORDS = Statement("put_chunk_words")
"""Must follow the statement that inserts a piece: it indexes the words of that row."""

_DROPS = ("drop_chunk_words", "drop_chunk_vectors", "drop_chunks")

_STAMP = re.compile(r"\s*[\[(]([^\])\n]{6,40})[\])]")
"""A time at the beginning of a text, such as that of a copied message."""


class MemoryText(msgspec.Struct, frozen=True):
    """A memory before it is split."""

    text: str
    at: int
    """The time of the memory, in milliseconds."""
    names: tuple[str, ...] = ()
    """User and subject: "prefers the aisle" of the user Alice answers a question that names Alice."""


class StoredPiece(msgspec.Struct, frozen=True):
    """One piece of a text, as stored."""

    length: int
    asks: int
    """The share of it that asks, in thousandths."""
    day: int
    told: bytes
    terms: str
    vector: Floats | None = None


class IndexPieces(msgspec.Struct, frozen=True):
    """A text split for the index, before the commit."""

    parts: tuple[StoredPiece, ...]
    embedder: str = ""


def split_all(embedder: Embedder | None, said: Sequence[MemoryText]) -> list[IndexPieces]:
    """Split many memories and embed them in one call, if there is an embedder."""
    found = [
        ranking.pieces(piece.text, memory=0, place=0, day=_read_leading_date(piece), names=piece.names)
        for piece in said
    ]
    every = [part for one in found for part, _ in one]
    vectors: Iterator[Floats | None] = iter(embed_texts(embedder, every) if embedder and every else [None] * len(every))
    named = embedder.id if embedder else ""
    return [IndexPieces(tuple(_part(piece, next(vectors)) for _, piece in one), named) for one in found]


def _read_leading_date(piece: MemoryText) -> date:
    """Return the day that the text begins with, if any: copied conversations often keep it."""
    day, stamp = moment(piece.at).date(), _STAMP.match(piece.text)
    found = [span.first for span in spans(stamp[1], day) if span.fixed and span.first == span.last] if stamp else []
    return found[0] if found else day


def _part(piece: MemoryPiece, vector: Floats | None) -> StoredPiece:
    terms = " ".join(term for term, count in piece.counts.items() for _ in range(count))
    told = msgspec.msgpack.encode([(span.first.toordinal(), span.last.toordinal(), span.yearly) for span in piece.told])
    return StoredPiece(piece.length, round(1000 * piece.asks), piece.day.toordinal(), told, terms, vector)


def index_statements(kept: r.MemoryKept, pieces: IndexPieces) -> list[Statement]:
    """Return the statements that index a memory once its place is known."""
    return list(puts("put_chunk", kept.owner, kept.id, (kept.thread, kept.place), pieces))


def puts(put: str, owner: int, memory: str, where: tuple[str, int], pieces: IndexPieces) -> Iterator[Statement]:
    """Yield the statements that index a memory at a given place."""
    for number, part in enumerate(pieces.parts):
        yield Statement(put, (owner, memory, number, *where, part.length, part.asks, part.day, part.told, part.terms))
        yield PUT_WORDS
        if part.vector is not None:
            yield Statement("put_chunk_vector", (owner, memory, number, pieces.embedder, part.vector))


def unindex_statements(owner: int, ids: Iterable[str]) -> list[Statement]:
    """Return the statements that remove memories from the index."""
    return [Statement(name, (owner, which)) for which in ids for name in _DROPS]


class ParsedPiece(NamedTuple):
    """A row of the index with its terms counted. It never changes: a piece is only written and erased."""

    id: int
    memory: str
    part: int
    thread: str
    place: int
    length: int
    asks: float
    day: date
    told: tuple[DateSpan, ...]
    counts: Mapping[str, int]


def parsed(row: Row, wanted: frozenset[str] | None = None) -> ParsedPiece:
    """Parse a row, with all terms or the wanted ones."""
    piece_id, memory, part, thread, place, length, asks, day, told, terms, *_ = row
    said, counts = _decode_times(told) if len(told) > 1 else (), _counts(terms, wanted)
    return ParsedPiece(piece_id, memory, part, thread, place, length, asks / 1000, _day(day), said, counts)


class ArrangedPieces(msgspec.Struct, frozen=True):
    """Pieces ready for ranking, in the order of their threads."""

    pieces: list[MemoryPiece]
    ids: list[int]
    """The number of each piece."""
    memories: list[str]
    """The ids of the memories, by their numbers in the pieces."""


def arrange_rows(rows: Iterable[ParsedPiece], near: Mapping[int, float] | None = None) -> ArrangedPieces:
    """Put pieces in order, with their similarity if it is known.

    Parts of one memory follow each other, and so do memories at consecutive places.
    """
    near = near or {}
    middle = _middle(near)
    made, ids, numbers = list[MemoryPiece](), list[int](), dict[str, int]()
    thread, place, before = 0, 0, ("", "", 0)
    for piece_id, memory, _, where, at, length, asks, day, told, counts in sorted(rows, key=_in_order):
        if where != before[1] or not made:
            thread, place = thread + 1, 0
        else:
            place += 1 if memory == before[0] else max(at - before[2], 1)
        number = numbers.setdefault(memory, len(numbers))
        made.append(MemoryPiece(number, place, thread, counts, length, asks, day, told, near.get(piece_id, middle)))
        ids.append(piece_id)
        before = (memory, where, at)
    return ArrangedPieces(made, ids, list(numbers))


def add_similarities(made: ArrangedPieces, near: Mapping[int, float]) -> list[MemoryPiece]:
    """Return the pieces with similarities that are only known now."""
    middle, pairs = _middle(near), zip(made.pieces, made.ids, strict=True)
    return [msgspec.structs.replace(piece, likeness=near.get(piece_id, middle)) for piece, piece_id in pairs]


def _middle(near: Mapping[int, float]) -> float:
    """Return the average similarity, which pieces without a vector get: they are found by their words."""
    return sum(near.values()) / len(near) if near else 0.0


_in_order = itemgetter(3, 4, 1, 2)
_day = functools.lru_cache(maxsize=4096)(date.fromordinal)


def _counts(terms: str, wanted: frozenset[str] | None) -> dict[str, int]:
    """Count terms. A Counter takes longer for so few, and most pieces have no wanted term."""
    cut = terms.split()
    if wanted is not None:
        return {term: cut.count(term) for term in wanted.intersection(cut)}
    counts = dict.fromkeys(cut, 0)
    for term in cut:
        counts[term] += 1
    return counts


def _decode_times(packed: bytes) -> tuple[DateSpan, ...]:
    return tuple(
        DateSpan(_day(first), _day(last), "", yearly) for first, last, yearly in msgspec.msgpack.decode(packed)
    )
