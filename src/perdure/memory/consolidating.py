"""What happened becomes what is known: episodes that are old enough, week by week, with links to them.

The episodes stay; they are not taken twice. What comes of them is trusted as little as the least trusted of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..limits import CONSOLIDATED_MAX
from .extracting import extracted
from .found import Memory, Query
from .given import Wish, read_text
from .reading import listed, marks_between

if TYPE_CHECKING:
    from ..engine import Engine

SOURCE = "consolidation"
Summarise = Callable[[list[str]], Any]
"""From texts, in their order, to one text or several; None is nothing."""


class Group(msgspec.Struct, frozen=True):
    """Episodes of one week, about the same and with the same user, in the order of their time."""

    memories: tuple[Memory, ...]

    @property
    def texts(self) -> list[str]:
        """What was said."""
        return [it.text for it in self.memories]


def groups(engine: Engine, older_than: float, user: str, about: str) -> list[Group]:
    """The episodes that are old enough and were not taken yet, the oldest first."""
    if not engine.is_known():
        return []
    until = engine.store.clock.wall_ms() - int(older_than * 1000)
    found = listed(engine, Query(kind="episodic", user=user, about=about, until=until))
    taken = {row[2] for row in marks_between(engine, [it.id for it in found]) if row[1] == "derived"}
    weeks: dict[tuple[object, ...], list[Memory]] = {}
    for it in sorted(found, key=lambda it: (it.valid_from, it.thread, it.place, it.id)):
        if it.id not in taken:
            weeks.setdefault((it.user, it.about, *it.valid_from.isocalendar()[:2]), []).append(it)
    return [
        Group(tuple(its[start : start + CONSOLIDATED_MAX]))
        for its in weeks.values()
        for start in range(0, len(its), CONSOLIDATED_MAX)
    ]


def essence(texts: list[str]) -> str:
    """What is kept when nobody says how: the few texts that say most of what all of them say, as they are."""
    return "\n".join(texts[place] for place in extracted(texts, max(1, round(math.sqrt(len(texts))))))


def wishes(group: Group, said: object) -> list[Wish]:
    """What somebody has made of a group, as memories."""
    first = group.memories[0]
    shared = [tag for tag in first.tags if all(tag in it.tags for it in group.memories)]
    return [
        Wish(
            text,
            about=first.about,
            user=first.user,
            tags=tuple(shared),
            source=SOURCE,
            importance=max(it.importance for it in group.memories),
            valid_from=int(first.valid_from.timestamp() * 1000),
            derived_from=tuple(it.id for it in group.memories),
        )
        for text in _texts(said)
    ]


def _texts(said: object) -> Sequence[str]:
    if said is None or (isinstance(said, str) and not said.strip()):
        return []
    if isinstance(said, str):
        return [said]
    if not isinstance(said, Iterable):
        raise TypeError(f"summarise= gives a text, a list of texts or None, not {type(said).__name__}")
    return [read_text(one) for one in said]
