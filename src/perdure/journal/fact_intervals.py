"""Validity intervals of facts that supersede each other, also when they are remembered out of order.

Paris since 2020; Oslo since 2024 supersedes it. A later "Rome since 2022, superseding Paris" does not affect Oslo:
Rome ends where Oslo begins. A later "Bergen since 2021, superseding Oslo" voids Oslo, so Paris, which Oslo had
superseded, ends where Bergen begins.

Only explicit supersession counts, among facts of the same kind, subject and user. The text decides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from perdure import records as r
from perdure.journal.project_memories import encode_texts
from perdure.records.memories import TRUSTED, SuccessorLink
from perdure.store.base import Row, Rows, Statement
from perdure.store.rows import RelationRow

_ASKED_MAX = 500
"""Ids per query."""

MemorySubject = tuple[str, str, str]
"""Kind, subject and user."""


class SupersessionLink(msgspec.Struct, frozen=True):
    """One memory in a chain of supersessions."""

    id: str
    thing: MemorySubject
    trust: float
    valid_from: int
    valid_to: int


class SupersessionChains:
    """The supersessions of one agent that affect some new memories."""

    def __init__(self, owner: int, new: Sequence[r.MemoryKept]) -> None:
        self._owner = owner
        self._new = [kept for kept in new if kept.supersedes]
        self._links: dict[str, SupersessionLink] = {}
        self._after: dict[str, dict[str, None]] = defaultdict(dict)
        self._before: dict[str, dict[str, None]] = defaultdict(dict)
        self._beginning: dict[tuple[MemorySubject, int], dict[str, None]] = defaultdict(dict)
        self._void: set[str] = set()
        """Withdrawn, or superseded before they began: never valid."""
        self._asked: set[object] = set()

    def __bool__(self) -> bool:
        return bool(self._new)

    def next_queries(self) -> list[Statement]:
        """Return the next queries; usually empty after one round."""
        concerned = dict.fromkeys(which for kept in self._new for which in self._collect_ids(kept))
        ids = [which for which in concerned if which not in self._asked]
        ends = [self._links[which] for which in concerned if which in self._links]
        begin = dict.fromkeys((link.thing, link.valid_to) for link in ends if link.valid_to and link.thing[1])
        days = [one for one in begin if one not in self._asked]
        self._asked.update(ids, days)
        looks = [
            Statement(name, (self._owner, part))
            for part in _parts(ids)
            for name in ("links_of", "memory_relations_but_repeats")
        ]
        return looks + [Statement("links_valid_from", (self._owner, *thing, at)) for thing, at in days]

    def add_rows(self, looks: Sequence[Statement], rows: Sequence[Rows]) -> None:
        """Take over the rows of the queries that `next_queries` returned."""
        for look, found in zip(looks, rows, strict=True):
            for row in found:
                if look.name == "memory_relations_but_repeats":
                    self._relate(RelationRow(*row))
                else:
                    self._learn(row)

    def _relate(self, relation: RelationRow) -> None:
        if relation.what == "superseded" and relation.other:
            self._replace([(relation.id, relation.other)])
        elif relation.what == "withdrawn":
            self._void.add(relation.id)

    def _learn(self, row: Row) -> None:
        which, kind, about, person, trust, valid_from, valid_to, replaced = row
        self._know(SupersessionLink(which, (kind, about, person), trust, valid_from, valid_to))
        if replaced and replaced <= valid_from:
            self._void.add(which)

    def complete(self, kept: r.MemoryKept) -> r.MemoryKept:
        """Complete a new memory with all that it supersedes and with its end; later calls take it into account."""
        self._know(SupersessionLink(kept.id, _make_subject(kept), kept.trust, kept.valid_from, kept.valid_to))
        if not kept.supersedes:
            return kept
        over = {
            memory_id: None
            for memory_id in self._find_superseded(kept)
            if memory_id in kept.supersedes or memory_id in self._links
        }
        beside = (self._links.get(memory_id) for memory_id in self._find_successors(over))
        after = [
            link
            for link in beside
            if link is not None and link.valid_from > kept.valid_from and self._is_of(kept, link)
        ]
        # An untrusted memory does not supersede a trusted one: it contradicts it.
        against = [link.id for link in after if link.trust < TRUSTED <= kept.trust]
        ends = [(link.valid_from, link.id) for link in after if link.id not in against]
        ends = [end for end in ends if not kept.valid_to or kept.valid_to > end[0]]
        kept = msgspec.structs.replace(
            kept,
            supersedes=tuple(over),
            contradicts=tuple(dict.fromkeys((*kept.contradicts, *against))),
            followed=tuple(SuccessorLink(which, valid) for valid, which in sorted(ends)[:1]),
        )
        self._void.update(
            memory_id
            for memory_id in over
            if memory_id in self._links and self._links[memory_id].valid_from >= kept.valid_from
        )
        self._replace([(old, kept.id) for old in over] + [(kept.id, successor.id) for successor in kept.followed])
        return kept

    def _collect_ids(self, kept: r.MemoryKept) -> list[str]:
        over = self._find_superseded(kept)
        return [*over, *self._find_successors(over)]

    def _find_superseded(self, kept: r.MemoryKept) -> dict[str, None]:
        """All memories that `kept` supersedes, including those superseded by a memory that it voids."""
        over, todo = dict.fromkeys(kept.supersedes), list(kept.supersedes)
        while todo:
            link = self._links.get(todo.pop())
            if link is not None and link.valid_from >= kept.valid_from:
                new = [
                    memory_id
                    for memory_id in self._before[link.id]
                    if memory_id not in over and self._is_superseded_too(kept, memory_id)
                ]
                over.update(dict.fromkeys(new))
                todo += new
        return over

    def _is_superseded_too(self, kept: r.MemoryKept, which: str) -> bool:
        link = self._links.get(which)
        # Memories that were not read yet are read in the next round.
        return link is None or (self._is_of(kept, link) and not kept.trust < TRUSTED <= link.trust)

    def _is_of(self, kept: r.MemoryKept, link: SupersessionLink) -> bool:
        return link.thing == _make_subject(kept) and link.id not in self._void

    def _find_successors(self, over: Collection[str]) -> dict[str, None]:
        """Return the memories that supersede one of `over`, or begin when one of them ends."""
        found: dict[str, None] = {}
        for which in over:
            found.update(self._after[which])
            if (link := self._links.get(which)) is not None and link.valid_to:
                found.update(self._beginning[link.thing, link.valid_to])
        return {memory_id: None for memory_id in found if memory_id not in over}

    def _know(self, link: SupersessionLink) -> None:
        self._links[link.id] = link
        self._beginning[link.thing, link.valid_from][link.id] = None

    def _replace(self, pairs: Iterable[tuple[str, str]]) -> None:
        for old, new in pairs:
            self._after[old][new] = None
            self._before[new][old] = None


def _make_subject(kept: r.MemoryKept) -> MemorySubject:
    return kept.kind, kept.about, kept.user


def _parts(ids: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(ids), _ASKED_MAX):
        yield encode_texts(ids[start : start + _ASKED_MAX])
