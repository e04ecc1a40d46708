"""What a body has asked to remember, among what recall has found: ranked as it will be when it has landed.

It is not in the index yet, and nobody else sees it. Its words and vectors were made when it was asked for, so that
ranking needs nothing more than their places: behind what was said before in the same thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..journal.memories import Keep
from ..search.vectors import product
from ..store.base import Statement
from . import fusion
from .boards import AFTER, Piece, Question, Scope
from .candidates import Candidates
from .embedders import Embedder, read
from .found import Memory, Query
from .pieces import arranged
from .seeing import passes, promised, replaced

if TYPE_CHECKING:
    from ..engine import Engine


class Once:
    """An embedder that reads a question once, however often it is asked: a model may be slow, and cost money."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._read: dict[tuple[str, ...], Any] = {}
        self.id = embedder.id

    @property
    def dims(self) -> int:
        """As the embedder says."""
        return self._embedder.dims

    def embed(self, texts: Sequence[str]) -> Any:
        """What the embedder says, or has said."""
        which = tuple(texts)
        if which not in self._read:
            self._read[which] = self._embedder.embed(texts)
        return self._read[which]


class _Spot(msgspec.Struct, frozen=True):
    """Where a piece is."""

    memory: str
    part: int
    thread: str
    place: int


class Unlanded:
    """What waits around the caller, beside one question."""

    def __init__(self, engine: Engine, keeps: Sequence[Keep], query: Query) -> None:
        self._engine = engine
        self._now = engine.store.clock.wall_ms()
        self._keeps = keeps
        self._places = self._placed()
        self.over = replaced(keeps, query, self._now)
        """What does not count any more when they have landed."""
        self.memories = {it.id: it for it in self._passing(query)}
        """Those that pass the filter, in the order in which they were said."""

    def _placed(self) -> dict[str, int]:
        """The places that they will have in their threads, if nobody else speaks there meanwhile."""
        owner, store = self._engine.stream, self._engine.store
        threads = dict.fromkeys(it.kept.thread for it in self._keeps)
        last = {thread: int(store.read("last_place", (owner, thread))[0][0]) for thread in threads}
        places = {}
        for it in self._keeps:
            last[it.kept.thread] += 1
            places[it.kept.id] = last[it.kept.thread]
        return places

    def _passing(self, query: Query) -> list[Memory]:
        found = [it for it in self._keeps if passes(it.kept, query, self._now) and it.kept.id not in self.over]
        return [msgspec.structs.replace(promised(it, self._now), place=self._places[it.kept.id]) for it in found]

    def together(self, it: Memory, query: Query) -> list[Memory]:
        """Those that are said just before and after a memory, and may be shown to who asks this."""
        near = [one for one in self._passing(query) if one.thread == it.thread and one.id != it.id]
        return [one for one in near if abs(one.place - it.place) <= query.around]

    def among(self, found: Candidates, asked: Question, embedder: Embedder | None) -> Candidates:
        """What was found, with these, and without what they replace."""
        if not self.memories and not self.over:
            return found
        left = [piece for piece in found.pieces if found.memories[piece.memory] not in self.over]
        puts = self._puts()
        rows = [(n, *put.args[1:]) for n, put in enumerate(it for it in puts if it.name == "put_piece")]
        new = arranged(rows, None)
        stored = [_Spot(*rows[n][1:5]) for n in new.ids]
        near = _nearness(puts, fusion.meant(asked, found.scope), embedder)
        middle = sum(piece.likeness for piece in left) / max(len(left), 1)
        ends, top = self._ends(left, found.memories, stored), max((piece.thread for piece in left), default=0)
        made = []
        for piece, it in zip(new.pieces, stored, strict=True):
            thread, place = ends.get(it.thread, (top + piece.thread, 0))
            where = {"memory": len(found.memories) + piece.memory, "thread": thread, "place": place + piece.place}
            made.append(msgspec.structs.replace(piece, **where, likeness=near.get((it.memory, it.part), middle)))
        names = [*found.memories, *new.memories]
        return Candidates([*left, *made], names, _scope(found, left, new.pieces), found.sure)

    def _puts(self) -> list[Statement]:
        """What the commit will write of those that pass."""
        mine = [it for it in self._keeps if it.kept.id in self.memories]
        placed = [(it, msgspec.structs.replace(it.kept, place=self._places[it.kept.id])) for it in mine]
        return [put for it, kept in placed for put in it.indexed(kept)]

    def _ends(self, left: Sequence[Piece], names: Sequence[str], new: Sequence[_Spot]) -> dict[str, tuple[int, int]]:
        """Where threads go on: the number of each among the pieces, and its next place; of those that were found."""
        first = {it.thread: it.place for it in reversed(new)}
        ranges = msgspec.json.encode([(thread, place - len(AFTER), place - 1) for thread, place in first.items()])
        rows = self._engine.store.read("pieces_around", (self._engine.stream, ranges.decode()))
        last = {names[piece.memory]: piece for piece in left}  # of a long memory, its last part
        ends = {}
        for it in sorted((_Spot(*row[1:5]) for row in rows), key=lambda it: it.place):
            if (piece := last.get(it.memory)) is not None:
                ends[it.thread] = piece.thread, piece.place + max(first[it.thread] - it.place, 1)
        return ends


def _nearness(puts: Sequence[Statement], text: str, embedder: Embedder | None) -> dict[tuple[str, int], float]:
    """How near pieces are to a question, by memory and part; of those that this model has read."""
    if embedder is None:
        return {}
    made = [put.args for put in puts if put.name == "put_piece_vector"]
    [question] = read(embedder, [text])
    return {(memory, part): product(it, question) for _, memory, part, model, it in made if model == embedder.id}


def _scope(found: Candidates, left: Sequence[Piece], new: Sequence[Piece]) -> Scope:
    """What is known of all pieces, with the new ones."""
    known = found.scope
    if known.total == len(found.pieces):
        return Scope.of([*left, *new])
    more = Counter(term for piece in new for term in piece.counts)
    having = {**known.having, **{term: known.having.get(term, 0) + count for term, count in more.items()}}
    total, length = known.total + len(new), known.total * known.mean + sum(piece.length for piece in new)
    return Scope(total, length / max(total, 1), having)
