"""Memories that are written with something else, each as an entry of its own: what about them is decided in the commit.

Which number one has in its thread, and whether it was known before: then there is no second one, the first is counted.
However many are kept at once, each is compared with as few as if it came alone, and what the store has is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from .. import records as r
from ..limits import MEMORIES_COMPARED_MAX
from ..memory_records import TRUSTED
from ..store.base import Rows, Script, Statement, Store
from .chains import Chains

SILENT_MAX = 500
"""Memories that are decided before the store hears something."""


class Near(msgspec.Struct, frozen=True):
    """A memory that counts now, of the same kind and user, which may say the same as a new one or the opposite."""

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


class Verdict(msgspec.Struct, frozen=True):
    """What a new memory is beside those that are there."""

    twin: Near | None = None
    """The one that says the same."""
    contradicts: tuple[str, ...] = ()
    ends: Near | None = None
    """One that says the same and goes on for longer: the new one takes its place, as somebody says when it is over."""


class Keep(msgspec.Struct, frozen=True):
    """A memory that is wanted."""

    kept: r.MemoryKept
    """As it will be, but for what the commit decides."""
    objects: Sequence[Statement]
    judge: Callable[[Sequence[Near]], Verdict]
    """Called inside the commit, with those that are near."""
    indexed: Callable[[r.MemoryKept], Sequence[Statement]]
    """What makes it found again, once it is decided."""
    compares: bool = True
    """False for what happened: it happened once more."""


class Told(msgspec.Struct, frozen=True):
    """An entry about memories that lands as it is, and what is to be done in the same commit."""

    record: r.MemoryWithdrawn | r.MemoryForgotten
    also: Sequence[Statement] = ()


Decided = tuple[list[r.Record], list[Statement]]
"""Entries, and what is written with them."""


def decided_memories(asks: Sequence[Keep | Told], store: Store, first: r.Record) -> Script[Decided]:
    """What some asks come to; `first` is the entry that they land with."""
    keeps = [ask for ask in asks if isinstance(ask, Keep)]
    told = [ask for ask in asks if isinstance(ask, Told)]
    entries: list[r.Record] = [it.record for it in told]
    made = [put for it in told for put in it.also]
    if keeps:
        deciding = _Deciding(store, keeps, _step_of(first))
        yield from deciding.run()
        entries += deciding.entries
        made += deciding.made
    return entries, made


def _step_of(first: r.Record) -> str:
    return first.call.name if isinstance(first, r.StepDone) else ""


class _Deciding:
    """Goes through the memories of one commit, in their order: a later one may say the same as an earlier one."""

    def __init__(self, store: Store, keeps: Sequence[Keep], step: str) -> None:
        self._now = store.clock.wall_ms()
        self._keeps = keeps
        self._step = step
        self._places: dict[tuple[int, str], int] = {}
        self._there = _There()
        owners = {it.kept.owner for it in keeps}
        self._chains = {one: Chains(one, [it.kept for it in keeps if it.kept.owner == one]) for one in sorted(owners)}
        self._twins: dict[str, Near] = {}
        """By the id that something was asked for under: what it came to, since that was there already."""
        self.entries: list[r.Record] = []
        self.made: list[Statement] = []

    def run(self) -> Script[None]:
        """One lock for each agent: in it nobody else gives the same number, or keeps the same."""
        owners = sorted({it.kept.owner for it in self._keeps})
        threads = sorted({(it.kept.owner, it.kept.thread) for it in self._keeps})
        looks = list(dict.fromkeys(look for it in self._keeps if it.compares for look in self._looks(it.kept)))
        first = [
            *(Statement("lock_space", (owner, "memory")) for owner in owners),
            *(Statement("last_place", thread) for thread in threads),
            *looks,
        ]
        found = (yield from self._with_chains(first))[len(owners) :]
        self._places = {thread: int(last[0][0]) for thread, last in zip(threads, found, strict=False)}
        for look, there in zip(looks, found[len(threads) :], strict=True):
            self._there.begin(look, (Near(*row) for row in reversed(there)))
        for number, it in enumerate(self._keeps, 1):
            self._decide(it)
            if number % SILENT_MAX == 0:
                # A server ends a transaction in which nothing is said for long.
                yield [Statement("lock_space", (owners[0], "memory"))]

    def _with_chains(self, first: Sequence[Statement]) -> Script[list[Rows]]:
        """Read some things, and what has to do with what is replaced: most often that is all in one go."""
        looks = {owner: it.asking() for owner, it in self._chains.items()}
        rows = yield [*first, *(look for some in looks.values() for look in some)]
        found = rows[: len(first)]
        while any(looks.values()):
            told = iter(rows[-sum(map(len, looks.values())) :])
            for owner, some in looks.items():
                self._chains[owner].read(some, [next(told) for _ in some])
            looks = {owner: it.asking() for owner, it in self._chains.items()}
            if any(looks.values()):
                rows = yield [look for some in looks.values() for look in some]
        return found

    def _looks(self, kept: r.MemoryKept) -> list[Statement]:
        """Where those are that may say the same, or the opposite."""
        whose = (kept.owner, kept.user, kept.kind, kept.about)
        looks = [Statement("memories_alike", (*whose, kept.sketch, self._now, MEMORIES_COMPARED_MAX))]
        if kept.about:
            looks.append(Statement("memories_near", (*whose, self._now, MEMORIES_COMPARED_MAX)))
        return looks

    def _decide(self, it: Keep) -> None:
        kept = self._meant(it.kept)
        chains = self._chains[kept.owner]
        kept = chains.chained(kept) if chains else kept
        looks = self._looks(kept)
        # What it takes the place of is neither its twin nor against it, nor is it that of those that follow.
        self._there.end(kept.supersedes)
        verdict = it.judge(self._there.newest(looks)) if it.compares else Verdict()
        if verdict.twin is not None:
            self._twins[kept.id] = verdict.twin
            said = (kept.source, kept.trust, kept.run, self._step, kept.writer)
            self.entries.append(r.MemorySeen(kept.owner, verdict.twin.id, kept.id, *said))
            return
        if verdict.ends is not None:
            self._there.end((verdict.ends.id,))
            kept = _in_place_of(kept, verdict.ends)
        kept = msgspec.structs.replace(
            kept,
            contradicts=tuple(dict.fromkeys((*kept.contradicts, *verdict.contradicts))),
            step=self._step,
            place=self._place(kept),
        )
        if not kept.followed:
            self._there.add(looks, _near(kept))
        self.entries.append(kept)
        self.made += it.objects
        self.made += it.indexed(kept)

    def _meant(self, kept: r.MemoryKept) -> r.MemoryKept:
        """One that it names may have been asked for in this commit, and have been there already: then that is meant."""
        twins = self._twins
        if twins.keys().isdisjoint((*kept.supersedes, *kept.contradicts, *kept.derived)):
            return kept
        # What was there may be trusted more than what said it again: then it is not replaced by what is not.
        stay = [it for it in kept.supersedes if it in twins and kept.trust < TRUSTED <= twins[it].trust]
        return msgspec.structs.replace(
            kept,
            supersedes=self._known(it for it in kept.supersedes if it not in stay),
            contradicts=self._known((*kept.contradicts, *stay)),
            derived=self._known(kept.derived),
        )

    def _known(self, ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._twins[it].id if it in self._twins else it for it in ids))

    def _place(self, kept: r.MemoryKept) -> int:
        thread = (kept.owner, kept.thread)
        self._places[thread] += 1
        return self._places[thread]


def _in_place_of(kept: r.MemoryKept, one: Near) -> r.MemoryKept:
    """The same fact with its end: what else was known of it is still so."""
    tags = msgspec.json.decode(one.tags, type=list[str])
    return msgspec.structs.replace(
        kept,
        supersedes=(*kept.supersedes, one.id),
        importance=max(kept.importance, one.importance),
        meta=kept.meta or one.meta,
        tags=tuple(dict.fromkeys((*kept.tags, *tags))),
    )


class _There:
    """What new memories are compared with: what counts, in the store and of this commit, by where it is looked for."""

    def __init__(self) -> None:
        self._found: dict[Statement, dict[str, Near]] = {}
        """The newest last."""
        self._holding: dict[str, list[dict[str, Near]]] = {}

    def begin(self, look: Statement, stored: Iterable[Near]) -> None:
        """What the store has, the oldest first."""
        self._found[look] = {}
        for near in stored:
            self.add([look], near)

    def add(self, looks: Iterable[Statement], near: Near) -> None:
        """One more, where somebody looks."""
        for look in looks:
            if (there := self._found.get(look)) is not None:
                there[near.id] = near
                self._holding.setdefault(near.id, []).append(there)

    def end(self, ids: Iterable[str]) -> None:
        """Some do not count any more."""
        for which in ids:
            for there in self._holding.pop(which, ()):
                there.pop(which, None)

    def newest(self, looks: Iterable[Statement]) -> list[Near]:
        """Those that are looked for, newest first, and not too many."""
        found = [islice(reversed(self._found[look].values()), MEMORIES_COMPARED_MAX) for look in looks]
        return list({near.id: near for some in found for near in some}.values())


def _near(one: r.MemoryKept) -> Near:
    lives = (one.valid_from, one.valid_to, one.expires)
    tags = msgspec.json.encode(one.tags).decode()
    return Near(one.id, one.about, one.trust, one.sketch, one.value, one.importance, *lives, one.thread, tags, one.meta)
