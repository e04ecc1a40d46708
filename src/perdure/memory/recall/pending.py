"""Adds the uncommitted memories of the enclosing body to the candidates, ranked as after their commit.

They are not in the index and nobody else sees them. Their words and vectors exist already, so only their places are
missing: at the ends of their threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data.search.vectors import product
from perdure.journal.memory_writes import SaveMemory
from perdure.memory.pieces import arrange_rows, parsed
from perdure.memory.recall import ranking
from perdure.memory.recall.candidates import RecallCandidates
from perdure.memory.recall.embedders import Embedder, embed_texts
from perdure.memory.recall.lexical import AFTER, IndexStatistics, MemoryPiece, RecallQuestion
from perdure.memory.results import Memory, MemoryQuery
from perdure.memory.visible import find_replaced, passes_filter, preview_memory
from perdure.store.base import Statement
from perdure.store.rows import first_number

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class CachingEmbedder:
    """Caches the vectors of questions: a model may be slow and cost money."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._read: dict[tuple[str, ...], Any] = {}
        self.id = embedder.id

    @property
    def dims(self) -> int:
        """The dimensions of the embedder."""
        return self._embedder.dims

    def embed(self, texts: Sequence[str]) -> Any:
        """Embed texts, or return the cached vectors."""
        which = tuple(texts)
        if which not in self._read:
            self._read[which] = self._embedder.embed(texts)
        return self._read[which]


class _PieceAddress(msgspec.Struct, frozen=True):
    """The position of a piece."""

    memory: str
    part: int
    thread: str
    place: int


class BufferedMemories:
    """The uncommitted memories of the caller, for one question."""

    def __init__(self, engine: Engine, keeps: Sequence[SaveMemory], query: MemoryQuery) -> None:
        self._engine = engine
        self._now = engine.store.clock.wall_ms()
        self._keeps = keeps
        self._places = self._assign_places()
        self.over = find_replaced(keeps, query, self._now)
        """Memories that are no longer current once these are committed."""
        self.memories = {memory.id: memory for memory in self._filter_memories(query)}
        """Those that pass the filter, in order."""

    def _assign_places(self) -> dict[str, int]:
        """Return the places that they will have in their threads, unless another writer comes first."""
        owner, store = self._engine.stream, self._engine.store
        threads = dict.fromkeys(proposed.kept.thread for proposed in self._keeps)
        last = {thread: first_number(store.read("last_thread_position", (owner, thread))) for thread in threads}
        places = {}
        for new_memory in self._keeps:
            last[new_memory.kept.thread] += 1
            places[new_memory.kept.id] = last[new_memory.kept.thread]
        return places

    def _filter_memories(self, query: MemoryQuery) -> list[Memory]:
        found = [
            new_memory
            for new_memory in self._keeps
            if passes_filter(new_memory.kept, query, self._now) and new_memory.kept.id not in self.over
        ]
        return [
            msgspec.structs.replace(preview_memory(new_memory, self._now), place=self._places[new_memory.kept.id])
            for new_memory in found
        ]

    def find_neighbours(self, memory: Memory, query: MemoryQuery) -> list[Memory]:
        """Return the uncommitted neighbours of a memory that pass a filter."""
        near = [one for one in self._filter_memories(query) if one.thread == memory.thread and one.id != memory.id]
        return [one for one in near if abs(one.place - memory.place) <= query.around]

    def merge_into(self, found: RecallCandidates, asked: RecallQuestion, embedder: Embedder | None) -> RecallCandidates:
        """Add these to the candidates, and remove those that they supersede."""
        if not self.memories and not self.over:
            return found
        left = [piece for piece in found.pieces if found.memories[piece.memory] not in self.over]
        puts = self._puts()
        rows = [(n, *put.args[1:]) for n, put in enumerate(row for row in puts if row.name == "put_chunk")]
        new = arrange_rows(map(parsed, rows))
        stored = [_PieceAddress(*rows[n][1:5]) for n in new.ids]
        near = _nearness(puts, ranking.make_embedding_query(asked, found.scope), embedder)
        middle = sum(piece.likeness for piece in left) / max(len(left), 1)
        ends, top = (
            self._find_thread_ends(left, found.memories, stored),
            max((piece.thread for piece in left), default=0),
        )
        made = []
        for piece, row in zip(new.pieces, stored, strict=True):
            thread, place = ends.get(row.thread, (top + piece.thread, 0))
            where = {"memory": len(found.memories) + piece.memory, "thread": thread, "place": place + piece.place}
            made.append(msgspec.structs.replace(piece, **where, likeness=near.get((row.memory, row.part), middle)))
        names = [*found.memories, *new.memories]
        return RecallCandidates([*left, *made], names, _scope(found, left, new.pieces), found.sure)

    def _puts(self) -> list[Statement]:
        """Return the statements that the commit will execute for those that pass."""
        mine = [new_memory for new_memory in self._keeps if new_memory.kept.id in self.memories]
        placed = [
            (new_memory, msgspec.structs.replace(new_memory.kept, place=self._places[new_memory.kept.id]))
            for new_memory in mine
        ]
        return [put for new_memory, kept in placed for put in new_memory.indexed(kept)]

    def _find_thread_ends(
        self, left: Sequence[MemoryPiece], names: Sequence[str], new: Sequence[_PieceAddress]
    ) -> dict[str, tuple[int, int]]:
        """Return for each thread among the candidates its number and its next place."""
        first = {position.thread: position.place for position in reversed(new)}
        ranges = msgspec.json.encode([(thread, place - len(AFTER), place - 1) for thread, place in first.items()])
        rows = self._engine.store.read("all_chunks_in_ranges", (self._engine.stream, ranges.decode()))
        last = {names[piece.memory]: piece for piece in left}  # the last part of a long memory
        ends = {}
        for spot in sorted((_PieceAddress(*row[1:5]) for row in rows), key=lambda position: position.place):
            if (piece := last.get(spot.memory)) is not None:
                ends[spot.thread] = piece.thread, piece.place + max(first[spot.thread] - spot.place, 1)
        return ends


def _nearness(puts: Sequence[Statement], text: str, embedder: Embedder | None) -> dict[tuple[str, int], float]:
    """Return the similarity of pieces to a question, by memory and part, if they have a vector of this model."""
    if embedder is None:
        return {}
    made = [put.args for put in puts if put.name == "put_chunk_vector"]
    [question] = embed_texts(embedder, [text])
    return {
        (memory, part): product(vector, question) for _, memory, part, model, vector in made if model == embedder.id
    }


def _scope(found: RecallCandidates, left: Sequence[MemoryPiece], new: Sequence[MemoryPiece]) -> IndexStatistics:
    """Return the statistics of all pieces including the new ones."""
    known = found.scope
    if known.total == len(found.pieces):
        return IndexStatistics.from_pieces([*left, *new])
    more = Counter(term for piece in new for term in piece.counts)
    having = {**known.having, **{term: known.having.get(term, 0) + count for term, count in more.items()}}
    total, length = known.total + len(new), known.total * known.mean + sum(piece.length for piece in new)
    return IndexStatistics(total, length / max(total, 1), having)
