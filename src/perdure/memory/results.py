"""The query and result types of `agent.memory`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from perdure.records.memories import TRUSTED

EVER = (1 << 62) - 1

KINDS = ("semantic", "episodic", "procedural")
_SHOWN = 60


class MemoryQuery(msgspec.Struct, frozen=True):
    """A query of memories. Times are in milliseconds since 1970; empty fields do not restrict it."""

    text: str = ""
    k: int = 5
    kind: str = ""
    about: str = ""
    user: str = ""
    source: str = ""
    run: str = ""
    tags: tuple[str, ...] = ()
    since: int = -EVER
    """Lower bound of the memory's own time, `valid_from`; `until` is exclusive."""
    until: int = EVER
    as_of: int = 0
    """Only memories valid at that time; 0 is now."""
    known_at: int = 0
    """Only memories recorded by then; 0 is all."""
    min_trust: float = 0.0
    around: int = 0
    """How many neighbours before and after each result to return."""
    all: bool = False
    """Include superseded, withdrawn and expired memories."""
    after: tuple[int, str] = (EVER, "")
    """In a list: only memories that follow this place, which is a time of recording and an id."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A fact or event that an agent remembers, with its origin."""

    id: str
    text: str
    kind: str = "semantic"
    about: str = ""
    user: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""
    trust: float = 1.0
    importance: float = 0.5
    valid_from: datetime
    """The start of its validity; by default when it was recorded."""
    valid_to: datetime | None = None
    recorded: datetime
    expires: datetime | None = None
    ended: datetime | None = None
    """When it was superseded or withdrawn, as recorded."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    supersedes: tuple[str, ...] = ()
    superseded_by: str = ""
    contradicts: tuple[str, ...] = ()
    """Current memories that it may contradict."""
    derived_from: tuple[str, ...] = ()
    """The memories that it was derived from."""
    withdrawn: bool = False
    """Whether `rollback` has withdrawn it."""
    count: int = 1
    """How often it was remembered."""
    uses: int = 0
    """How often it was recalled, at least."""
    last_used: datetime | None = None
    run: str = ""
    step: str = ""
    writer: str = ""
    thread: str = ""
    place: int = 0
    entry: tuple[int, int] = (0, 0)
    """Its journal entry, as the number of the stream and the number within it; (0, 0) until it is committed."""

    @property
    def current(self) -> bool:
        """Whether it is neither superseded nor withdrawn."""
        return self.ended is None

    @property
    def trusted(self) -> bool:
        """Whether it may be used as more than data."""
        return self.trust >= TRUSTED

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[: _SHOWN - 1] + "…"
        said = {
            "kind": "" if self.kind == "semantic" else self.kind,
            "about": self.about,
            "user": self.user,
            "source": self.source,
            "superseded_by": self.superseded_by,
        }
        parts = [repr(text), *(f"{name}={value!r}" for name, value in said.items() if value)]
        parts += [f"trust={self.trust:g}"] if self.trust != 1.0 else []
        parts += [f"count={self.count}"] if self.count > 1 else []
        parts += ["withdrawn"] if self.withdrawn else []
        parts += [f"contradicts={len(self.contradicts)}"] if self.contradicts else []
        return f"<{type(self).__name__} {self.id} {' '.join(parts)}{self._format_details()}>"

    def _format_details(self) -> str:
        return ""


class RecallReason(msgspec.Struct, frozen=True):
    """Why a memory was found: the contribution of each signal."""

    words: tuple[str, ...] = ()
    """Words of the question that it has."""
    neighbours: tuple[str, ...] = ()
    """Words of the question that its neighbours have."""
    time: float = 0.0
    """Closeness to a time in the question; 1 is within."""
    meaning: float = 0.0
    """Similarity of meaning; 1 is equal."""
    event: str = ""
    """The journal entry that it came from."""
    alike: tuple[str, ...] = ()
    """Words of the question and the related words that match them: `vehicle ~ car`."""

    def __str__(self) -> str:
        parts = [f"words {', '.join(self.words)}"] if self.words else []
        parts += [f"alike {', '.join(self.alike)}"] if self.alike else []
        parts += [f"neighbours have {', '.join(self.neighbours)}"] if self.neighbours else []
        parts += [f"meaning {self.meaning:.2f}"] if self.meaning else []
        parts += [f"time {self.time:.2f}"] if self.time else []
        return f"{'; '.join(parts) or 'the newest'} (from {self.event})"


class Recalled(Memory, frozen=True, kw_only=True):
    """A memory found by `recall`."""

    score: float = 0.0
    """Ranks the results of one question; not comparable between questions."""
    confidence: float = 0.0
    """How much of the question it covers, from 0 to 1; comparable between questions."""
    why: RecallReason = RecallReason()
    around: tuple[Memory, ...] = ()
    """Its neighbours in the conversation, in order."""

    def _format_details(self) -> str:
        return f" score={self.score:.2f} confidence={self.confidence:.2f}"
