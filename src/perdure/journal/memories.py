"""Memories that are written with something else, each as an entry of its own: what about them is decided in the commit.

Which number one has in its thread, and whether it was known before: then there is no second one, the first is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from .. import records as r
from ..limits import MEMORIES_COMPARED_MAX
from ..store.base import Script, Statement, Store

ALONE = -1
"""The place of what is said with nothing else: its thread is its own, and is not looked up."""


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

    twin: str = ""
    """The one that says the same."""
    contradicts: tuple[str, ...] = ()


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
        self._new: list[r.MemoryKept] = []
        self.entries: list[r.Record] = []
        self.made: list[Statement] = []

    def run(self) -> Script[None]:
        """One lock for each agent: in it nobody else gives the same number, or keeps the same."""
        owners = sorted({it.kept.owner for it in self._keeps})
        threads = sorted({(it.kept.owner, it.kept.thread) for it in self._keeps if it.kept.place != ALONE})
        compared = [it for it in self._keeps if it.compares]
        rows = yield [
            *(Statement("lock_space", (owner, "memory")) for owner in owners),
            *(Statement("last_place", thread) for thread in threads),
            *(Statement("memories_alike", self._look(it.kept)) for it in compared),
        ]
        found = rows[len(owners) :]
        self._places = {thread: int(last[0][0]) for thread, last in zip(threads, found, strict=False)}
        near = {it.kept.id: there for it, there in zip(compared, found[len(threads) :], strict=True)}
        for it in self._keeps:
            self._decide(it, near.get(it.kept.id))

    def _look(self, kept: r.MemoryKept) -> tuple[Any, ...]:
        return kept.owner, kept.user, kept.kind, kept.about, kept.sketch, self._now, MEMORIES_COMPARED_MAX

    def _decide(self, it: Keep, rows: Sequence[tuple[Any, ...]] | None) -> None:
        kept, verdict = it.kept, Verdict()
        if rows is not None:
            # What it takes the place of is neither its twin nor against it.
            near = [*self._just_now(kept), *(Near(*row) for row in rows)]
            verdict = it.judge([one for one in near if one.id not in kept.supersedes])
        if verdict.twin:
            said = (kept.source, kept.trust, kept.run, self._step, kept.writer)
            self.entries.append(r.MemorySeen(kept.owner, verdict.twin, kept.id, *said))
            return
        kept = msgspec.structs.replace(
            kept,
            contradicts=tuple(dict.fromkeys((*kept.contradicts, *verdict.contradicts))),
            step=self._step,
            place=self._place(kept),
        )
        self._new.append(kept)
        self.entries.append(kept)
        self.made += it.objects
        self.made += it.indexed(kept)

    def _just_now(self, kept: r.MemoryKept) -> Iterator[Near]:
        """Those of this commit, newest first."""
        replaced = {old for one in self._new for old in one.supersedes}
        for one in reversed(self._new):
            same = (one.owner, one.user, one.kind) == (kept.owner, kept.user, kept.kind) and one.id not in replaced
            if same and ((one.about and one.about == kept.about) or one.sketch == kept.sketch):
                yield _near(one)

    def _place(self, kept: r.MemoryKept) -> int:
        if kept.place == ALONE:
            return 0
        thread = (kept.owner, kept.thread)
        self._places[thread] += 1
        return self._places[thread]


def _near(one: r.MemoryKept) -> Near:
    lives = (one.valid_from, one.valid_to, one.expires)
    tags = msgspec.json.encode(one.tags).decode()
    return Near(one.id, one.about, one.trust, one.sketch, one.value, one.importance, *lives, one.thread, tags, one.meta)
