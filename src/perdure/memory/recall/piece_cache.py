"""Keeps the parsed pieces of a small memory in this process: they never change, and parsing takes most of a recall.

Every question lists the pieces that count anew, and reads the chosen memories from the store. What is kept here only
saves parsing: it never adds a piece, and a forgotten memory is not found by it. A kept piece that is no longer listed
is dropped, and `forget` drops everything at once. For each filter, only the latest list is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.memory.pieces import ArrangedPieces, ParsedPiece, arrange_rows, parsed
from perdure.memory.recall.lexical import IndexStatistics, TermIndex
from perdure.memory.recall.terms import drop_cached_words
from perdure.values.limits import RECALL_CACHED
from perdure.values.locks import rlock

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.store.base import Store


class IndexedPieces(msgspec.Struct, frozen=True):
    """Parsed pieces in order, where their terms are, and their statistics."""

    ids: tuple[int, ...]
    """As they were listed."""
    parsed: dict[int, ParsedPiece]
    arranged: ArrangedPieces
    terms: TermIndex
    scope: IndexStatistics


class PieceCache:
    """The pieces of an agent, by filter; the least recently used go first."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], IndexedPieces] = {}
        self._lock = rlock()

    def among(self, store: Store, filters: tuple[Any, ...], ids: Sequence[int]) -> IndexedPieces:
        """Return the pieces with these numbers, which a filter has just listed."""
        listed = tuple(ids)
        with self._lock:
            before = self._kept.pop(filters, None)
            if before is not None and before.ids == listed:
                self._kept[filters] = before
                return before
        made = _made(store, listed, before.parsed if before is not None else {})
        with self._lock:
            if before is not None and not before.parsed.keys() <= made.parsed.keys():
                self._kept.clear()  # what is gone from one list may have been forgotten
            self._kept[filters] = made
            self._make_room()
        return made

    def drop(self) -> None:
        """Drop everything."""
        with self._lock:
            self._kept.clear()

    def _make_room(self) -> None:
        room = RECALL_CACHED - sum(len(made.ids) for made in self._kept.values())
        for filters in list(self._kept)[:-1]:
            if room >= 0:
                return
            room += len(self._kept.pop(filters).ids)


def cache_of(engine: Engine) -> PieceCache:
    """Return the cache of an agent in this process."""
    found: PieceCache = engine.place.vectors.setdefault((engine.stream, "pieces", ""), PieceCache())
    return found


def drop_cached(engine: Engine) -> None:
    """Drop what this process keeps of memories, after some were forgotten."""
    cache_of(engine).drop()
    drop_cached_words()


def _made(store: Store, ids: tuple[int, ...], known: dict[int, ParsedPiece]) -> IndexedPieces:
    new = [piece_id for piece_id in ids if piece_id not in known]
    rows = store.read("chunks_among", (msgspec.json.encode(new).decode(),)) if new else []
    there = {piece_id: known[piece_id] for piece_id in ids if piece_id in known}
    there.update((piece.id, piece) for piece in map(parsed, rows))
    made = arrange_rows(there.values())
    terms = TermIndex(made.pieces)
    return IndexedPieces(ids, there, made, terms, IndexStatistics.from_pieces(made.pieces, terms))
