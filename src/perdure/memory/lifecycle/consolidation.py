"""Consolidation: summarizes old episodes week by week into facts that link to them.

The episodes stay and are consolidated once. A summary is as little trusted as its least trusted episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import WrongType
from perdure.memory.arguments import MemoryRequest, check_text
from perdure.memory.lifecycle.extraction import select_texts
from perdure.memory.read import list_memories, marks_between
from perdure.memory.results import Memory, MemoryQuery
from perdure.values.limits import CONSOLIDATED_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

SOURCE = "consolidation"
EpisodeSummarizer = Callable[[list[str]], Any]
"""Maps texts in order to one text or several; None means nothing to keep."""


class EpisodeGroup(msgspec.Struct, frozen=True):
    """Episodes of one week with the same subject and user, in order of time."""

    memories: tuple[Memory, ...]

    @property
    def texts(self) -> list[str]:
        """Return the texts of the episodes."""
        return [memory.text for memory in self.memories]


def groups(engine: Engine, older_than: float, user: str, about: str) -> list[EpisodeGroup]:
    """Return the episodes that are old enough and not yet consolidated, oldest first."""
    if not engine.is_known():
        return []
    until = engine.store.clock.wall_ms() - int(older_than * 1000)
    found = list_memories(engine, MemoryQuery(kind="episodic", user=user, about=about, until=until))
    marks = marks_between(engine, [recalled.id for recalled in found])
    taken = {relation.other for relation in marks if relation.what == "derived"}
    weeks: dict[tuple[object, ...], list[Memory]] = {}
    for memory in sorted(
        found, key=lambda recalled: (recalled.valid_from, recalled.thread, recalled.place, recalled.id)
    ):
        if memory.id not in taken:
            weeks.setdefault((memory.user, memory.about, *memory.valid_from.isocalendar()[:2]), []).append(memory)
    return [
        EpisodeGroup(tuple(its[start : start + CONSOLIDATED_MAX]))
        for its in weeks.values()
        for start in range(0, len(its), CONSOLIDATED_MAX)
    ]


def extractive_summary(texts: list[str]) -> str:
    """Return a default summary: the few texts that cover most of the others, unchanged."""
    return "\n".join(texts[place] for place in select_texts(texts, max(1, round(math.sqrt(len(texts))))))


def wishes(group: EpisodeGroup, said: object) -> list[MemoryRequest]:
    """Turn the summary of a group into memories."""
    first = group.memories[0]
    shared = [tag for tag in first.tags if all(tag in memory.tags for memory in group.memories)]
    return [
        MemoryRequest(
            text,
            about=first.about,
            user=first.user,
            tags=tuple(shared),
            source=SOURCE,
            importance=max(memory.importance for memory in group.memories),
            valid_from=int(first.valid_from.timestamp() * 1000),
            derived_from=tuple(memory.id for memory in group.memories),
        )
        for text in _texts(said)
    ]


def _texts(said: object) -> Sequence[str]:
    if said is None or (isinstance(said, str) and not said.strip()):
        return []
    if isinstance(said, str):
        return [said]
    if not isinstance(said, Iterable):
        raise WrongType(f"summarise= must return a text, a list of texts or None, not {type(said).__name__}")
    return [check_text(one) for one in said]
