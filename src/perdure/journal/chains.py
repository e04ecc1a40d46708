"""Facts in the order in which they held: where one ends that is put between others, and what one takes along.

Paris since 2020, Oslo since 2024 in its place. Who says afterwards that it was Rome since 2022, in the place of Paris,
has said nothing of Oslo: Rome ends where Oslo begins. And who says that it is Bergen since 2021, in the place of Oslo,
means that there was no Oslo: what that had taken the place of ends where Bergen begins.

This goes by what was said to replace what, of one kind, about the same and of the same user; words decide nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from .. import records as r
from ..memory_records import TRUSTED, Followed
from ..store.base import Row, Rows, Statement
from .fold_memories import listed

_ASKED_MAX = 500
"""Ids of one query."""

Thing = tuple[str, str, str]
"""Kind, what it is about, and whose it is."""


class Link(msgspec.Struct, frozen=True):
    """A memory among those that took each other's place."""

    id: str
    thing: Thing
    trust: float
    valid_from: int
    valid_to: int


class Chains:
    """What took the place of what, as far as some new memories of an agent have to do with it."""

    def __init__(self, owner: int, new: Sequence[r.MemoryKept]) -> None:
        self._owner = owner
        self._new = [kept for kept in new if kept.supersedes]
        self._links: dict[str, Link] = {}
        self._after: dict[str, dict[str, None]] = defaultdict(dict)
        self._before: dict[str, dict[str, None]] = defaultdict(dict)
        self._beginning: dict[tuple[Thing, int], dict[str, None]] = defaultdict(dict)
        self._void: set[str] = set()
        """Withdrawn, or replaced before they began: they never held."""
        self._asked: set[object] = set()

    def __bool__(self) -> bool:
        return bool(self._new)

    def asking(self) -> list[Statement]:
        """What is to be read next; of most nothing more, once what they replace was read."""
        concerned = dict.fromkeys(which for kept in self._new for which in self._concerned(kept))
        ids = [which for which in concerned if which not in self._asked]
        ends = [self._links[which] for which in concerned if which in self._links]
        begin = dict.fromkeys((it.thing, it.valid_to) for it in ends if it.valid_to and it.thing[1])
        days = [one for one in begin if one not in self._asked]
        self._asked.update(ids, days)
        looks = [Statement(name, (self._owner, part)) for part in _parts(ids) for name in ("links_of", "standing_of")]
        return looks + [Statement("links_beginning", (self._owner, *thing, at)) for thing, at in days]

    def read(self, looks: Sequence[Statement], rows: Sequence[Rows]) -> None:
        """What came of it."""
        for look, found in zip(looks, rows, strict=True):
            for row in found:
                if look.name != "standing_of":
                    self._learn(row)
                elif row[1] == "superseded" and row[2]:
                    self._replace([(row[0], row[2])])
                elif row[1] == "withdrawn":
                    self._void.add(row[0])

    def _learn(self, row: Row) -> None:
        which, kind, about, person, trust, valid_from, valid_to, replaced = row
        self._know(Link(which, (kind, about, person), trust, valid_from, valid_to))
        if replaced and replaced <= valid_from:
            self._void.add(which)

    def chained(self, kept: r.MemoryKept) -> r.MemoryKept:
        """A new one with all that it takes the place of, and where it ends. Those that come after it know of it."""
        self._know(Link(kept.id, _thing(kept), kept.trust, kept.valid_from, kept.valid_to))
        if not kept.supersedes:
            return kept
        over = {it: None for it in self._over(kept) if it in kept.supersedes or it in self._links}
        beside = (self._links.get(it) for it in self._following(over))
        after = [it for it in beside if it is not None and it.valid_from > kept.valid_from and self._is_of(kept, it)]
        # What is not trusted does not take the place of what is: it stands against it.
        against = [it.id for it in after if it.trust < TRUSTED <= kept.trust]
        ends = [(it.valid_from, it.id) for it in after if it.id not in against]
        ends = [it for it in ends if not kept.valid_to or kept.valid_to > it[0]]
        kept = msgspec.structs.replace(
            kept,
            supersedes=tuple(over),
            contradicts=tuple(dict.fromkeys((*kept.contradicts, *against))),
            followed=tuple(Followed(which, valid) for valid, which in sorted(ends)[:1]),
        )
        self._void.update(it for it in over if it in self._links and self._links[it].valid_from >= kept.valid_from)
        self._replace([(old, kept.id) for old in over] + [(kept.id, it.id) for it in kept.followed])
        return kept

    def _concerned(self, kept: r.MemoryKept) -> list[str]:
        over = self._over(kept)
        return [*over, *self._following(over)]

    def _over(self, kept: r.MemoryKept) -> dict[str, None]:
        """What it takes the place of: if that had not begun by then, also of what that had replaced."""
        over, todo = dict.fromkeys(kept.supersedes), list(kept.supersedes)
        while todo:
            link = self._links.get(todo.pop())
            if link is not None and link.valid_from >= kept.valid_from:
                new = [it for it in self._before[link.id] if it not in over and self._goes_along(kept, it)]
                over.update(dict.fromkeys(new))
                todo += new
        return over

    def _goes_along(self, kept: r.MemoryKept, which: str) -> bool:
        link = self._links.get(which)
        # One that was not read yet is read now.
        return link is None or (self._is_of(kept, link) and not kept.trust < TRUSTED <= link.trust)

    def _is_of(self, kept: r.MemoryKept, link: Link) -> bool:
        return link.thing == _thing(kept) and link.id not in self._void

    def _following(self, over: Collection[str]) -> dict[str, None]:
        """What took the place of some, or begins on the day on which one of them was said to end."""
        found: dict[str, None] = {}
        for which in over:
            found.update(self._after[which])
            if (link := self._links.get(which)) is not None and link.valid_to:
                found.update(self._beginning[link.thing, link.valid_to])
        return {it: None for it in found if it not in over}

    def _know(self, link: Link) -> None:
        self._links[link.id] = link
        self._beginning[link.thing, link.valid_from][link.id] = None

    def _replace(self, pairs: Iterable[tuple[str, str]]) -> None:
        for old, new in pairs:
            self._after[old][new] = None
            self._before[new][old] = None


def _thing(kept: r.MemoryKept) -> Thing:
    return kept.kind, kept.about, kept.user


def _parts(ids: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(ids), _ASKED_MAX):
        yield listed(ids[start : start + _ASKED_MAX])
