"""Memories, decided inside the commit and written as one entry each.

The commit decides the position of a memory in its thread, and whether an equal memory exists: then that one is counted
instead. A batch reads the store once and compares each memory with no more candidates than a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from perdure import records as r
from perdure.journal.fact_intervals import SupersessionChains
from perdure.records.memories import TRUSTED
from perdure.store.base import Rows, Script, Statement, Store
from perdure.store.rows import first_number
from perdure.values.limits import MEMORIES_COMPARED_MAX

SILENT_MAX = 500
"""Memories decided between two statements, so that the transaction does not idle."""


class SimilarMemory(msgspec.Struct, frozen=True):
    """A current memory of the same kind and user that a new one may repeat or contradict."""

    id: str
    about: str
    trust: float
    sketch: bytes
    text: bytes
    """Packed."""
    importance: float
    valid_from: int
    valid_to: int
    expires: int
    thread: str
    tags: str
    """In JSON."""
    meta: bytes


class MemoryVerdict(msgspec.Struct, frozen=True):
    """How a new memory relates to the existing ones."""

    twin: SimilarMemory | None = None
    """The existing memory that says the same."""
    contradicts: tuple[str, ...] = ()
    ends: SimilarMemory | None = None
    """An existing memory that says the same with a later end: the new one supersedes it."""


class SaveMemory(msgspec.Struct, frozen=True):
    """A memory to save."""

    kept: r.MemoryKept
    """The record, without the fields that the commit decides."""
    objects: Sequence[Statement]
    judge: Callable[[Sequence[SimilarMemory]], MemoryVerdict]
    """Called inside the commit with the similar memories."""
    indexed: Callable[[r.MemoryKept], Sequence[Statement]]
    """Returns the statements that index the decided memory."""
    compares: bool = True
    """False for events: the same event again is a new one."""


class Retraction(msgspec.Struct, frozen=True):
    """A withdrawal or erasure of memories, with the statements of the same commit."""

    record: r.MemoryWithdrawn | r.MemoryForgotten
    also: Sequence[Statement] = ()


DecidedMemories = tuple[list[r.Record], list[Statement]]
"""Entries, and the statements that go with them."""


def decide_memories(asks: Sequence[SaveMemory | Retraction], store: Store, first: r.Record) -> Script[DecidedMemories]:
    """Decide the requested memories; `first` is the first entry of the same commit."""
    keeps = [ask for ask in asks if isinstance(ask, SaveMemory)]
    told = [ask for ask in asks if isinstance(ask, Retraction)]
    entries: list[r.Record] = [retraction.record for retraction in told]
    made = [put for retraction in told for put in retraction.also]
    if keeps:
        deciding = _MemoryDecider(store, keeps, _step_of(first))
        yield from deciding.run()
        entries += deciding.entries
        made += deciding.made
    return entries, made


def _step_of(first: r.Record) -> str:
    return first.call.name if isinstance(first, r.StepDone) else ""


class _MemoryDecider:
    """Decides the memories of one commit in order: a later one may repeat an earlier one."""

    def __init__(self, store: Store, keeps: Sequence[SaveMemory], step: str) -> None:
        self._now = store.clock.wall_ms()
        self._keeps = keeps
        self._step = step
        self._places: dict[tuple[int, str], int] = {}
        self._there = _MemoryCandidates()
        owners = {new_memory.kept.owner for new_memory in keeps}
        self._chains = {
            one: SupersessionChains(one, [new_memory.kept for new_memory in keeps if new_memory.kept.owner == one])
            for one in sorted(owners)
        }
        self._twins: dict[str, SimilarMemory] = {}
        """By requested id: the existing memory that was counted instead."""
        self.entries: list[r.Record] = []
        self.made: list[Statement] = []

    def run(self) -> Script[None]:
        """Decide all memories under one lock per agent, which prevents equal numbers and duplicates."""
        owners = sorted({proposed.kept.owner for proposed in self._keeps})
        threads = sorted({(proposed.kept.owner, proposed.kept.thread) for proposed in self._keeps})
        looks = list(
            dict.fromkeys(look for proposed in self._keeps if proposed.compares for look in self._looks(proposed.kept))
        )
        first = [
            *(Statement("lock_namespace", (owner, "memory")) for owner in owners),
            *(Statement("last_thread_position", thread) for thread in threads),
            *looks,
        ]
        found = (yield from self._read_with_chains(first))[len(owners) :]
        self._places = {thread: first_number(last) for thread, last in zip(threads, found, strict=False)}
        for look, there in zip(looks, found[len(threads) :], strict=True):
            self._there.begin(look, (SimilarMemory(*row) for row in reversed(there)))
        for number, new_memory in enumerate(self._keeps, 1):
            self._decide(new_memory)
            if number % SILENT_MAX == 0:
                # A server ends a transaction that idles for too long.
                yield [Statement("lock_namespace", (owners[0], "memory"))]

    def _read_with_chains(self, first: Sequence[Statement]) -> Script[list[Rows]]:
        """Execute `first` together with the queries of the supersession chains; usually one round trip."""
        looks = {owner: chains.next_queries() for owner, chains in self._chains.items()}
        rows = yield [*first, *(look for some in looks.values() for look in some)]
        found = rows[: len(first)]
        while any(looks.values()):
            told = iter(rows[-sum(map(len, looks.values())) :])
            for owner, some in looks.items():
                self._chains[owner].add_rows(some, [next(told) for _ in some])
            looks = {owner: chains.next_queries() for owner, chains in self._chains.items()}
            if any(looks.values()):
                rows = yield [look for some in looks.values() for look in some]
        return found

    def _looks(self, kept: r.MemoryKept) -> list[Statement]:
        """Return the queries for memories that `kept` may repeat or contradict."""
        whose = (kept.owner, kept.user, kept.kind, kept.about)
        looks = [Statement("memories_with_same_words", (*whose, kept.sketch, self._now, MEMORIES_COMPARED_MAX))]
        if kept.about:
            looks.append(Statement("memories_on_subject", (*whose, self._now, MEMORIES_COMPARED_MAX)))
        return looks

    def _decide(self, new_memory: SaveMemory) -> None:
        kept = self._replace_counted_ids(new_memory.kept)
        chains = self._chains[kept.owner]
        kept = chains.complete(kept) if chains else kept
        looks = self._looks(kept)
        # A superseded memory no longer counts as a twin or a contradiction, for this memory and later ones.
        self._there.end(kept.supersedes)
        verdict = new_memory.judge(self._there.find_newest(looks)) if new_memory.compares else MemoryVerdict()
        if verdict.twin is not None:
            self._twins[kept.id] = verdict.twin
            said = (kept.source, kept.trust, kept.run, self._step, kept.writer)
            self.entries.append(r.MemorySeen(kept.owner, verdict.twin.id, kept.id, *said))
            return
        if verdict.ends is not None:
            self._there.end((verdict.ends.id,))
            kept = _supersede_with_end(kept, verdict.ends)
        kept = msgspec.structs.replace(
            kept,
            contradicts=tuple(dict.fromkeys((*kept.contradicts, *verdict.contradicts))),
            step=self._step,
            place=self._place(kept),
        )
        if not kept.followed:
            self._there.add(looks, _make_similar(kept))
        self.entries.append(kept)
        self.made += new_memory.objects
        self.made += new_memory.indexed(kept)

    def _replace_counted_ids(self, kept: r.MemoryKept) -> r.MemoryKept:
        """Replace ids requested in this commit by those of the existing memories that were counted instead."""
        twins = self._twins
        if twins.keys().isdisjoint((*kept.supersedes, *kept.contradicts, *kept.derived)):
            return kept
        # An untrusted memory does not supersede a trusted twin.
        stay = [
            memory_id
            for memory_id in kept.supersedes
            if memory_id in twins and kept.trust < TRUSTED <= twins[memory_id].trust
        ]
        return msgspec.structs.replace(
            kept,
            supersedes=self._map_ids(memory_id for memory_id in kept.supersedes if memory_id not in stay),
            contradicts=self._map_ids((*kept.contradicts, *stay)),
            derived=self._map_ids(kept.derived),
        )

    def _map_ids(self, ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(self._twins[memory_id].id if memory_id in self._twins else memory_id for memory_id in ids)
        )

    def _place(self, kept: r.MemoryKept) -> int:
        thread = (kept.owner, kept.thread)
        self._places[thread] += 1
        return self._places[thread]


def _supersede_with_end(kept: r.MemoryKept, one: SimilarMemory) -> r.MemoryKept:
    """Supersede a memory by the same fact with its end; importance, tags and metadata carry over."""
    tags = msgspec.json.decode(one.tags, type=list[str])
    return msgspec.structs.replace(
        kept,
        supersedes=(*kept.supersedes, one.id),
        importance=max(kept.importance, one.importance),
        meta=kept.meta or one.meta,
        tags=tuple(dict.fromkeys((*kept.tags, *tags))),
    )


class _MemoryCandidates:
    """The current memories to compare with, from the store and from this commit, by query."""

    def __init__(self) -> None:
        self._found: dict[Statement, dict[str, SimilarMemory]] = {}
        """By query and id, newest last."""
        self._holding: dict[str, list[dict[str, SimilarMemory]]] = {}

    def begin(self, look: Statement, stored: Iterable[SimilarMemory]) -> None:
        """Add the stored memories of a query, oldest first."""
        self._found[look] = {}
        for near in stored:
            self.add([look], near)

    def add(self, looks: Iterable[Statement], near: SimilarMemory) -> None:
        """Add a memory to those of the queries that are in use."""
        for look in looks:
            if (there := self._found.get(look)) is not None:
                there[near.id] = near
                self._holding.setdefault(near.id, []).append(there)

    def end(self, ids: Iterable[str]) -> None:
        """Remove memories that are no longer current."""
        for which in ids:
            for there in self._holding.pop(which, ()):
                there.pop(which, None)

    def find_newest(self, looks: Iterable[Statement]) -> list[SimilarMemory]:
        """Return the newest memories of some queries, at most MEMORIES_COMPARED_MAX of each."""
        found = [islice(reversed(self._found[look].values()), MEMORIES_COMPARED_MAX) for look in looks]
        return list({near.id: near for some in found for near in some}.values())


def _make_similar(one: r.MemoryKept) -> SimilarMemory:
    lives = (one.valid_from, one.valid_to, one.expires)
    tags = msgspec.json.encode(one.tags).decode()
    return SimilarMemory(
        one.id, one.about, one.trust, one.sketch, one.value, one.importance, *lives, one.thread, tags, one.meta
    )
