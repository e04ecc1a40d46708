"""What is asked of an agent's memory, and what comes back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from ..memory_records import TRUSTED

EVER = (1 << 62) - 1

KINDS = ("semantic", "episodic", "procedural")
_SHOWN = 60


class Query(msgspec.Struct, frozen=True):
    """A question to the memory; times are in milliseconds since 1970. What is empty says nothing."""

    text: str = ""
    k: int = 5
    kind: str = ""
    about: str = ""
    user: str = ""
    source: str = ""
    run: str = ""
    tags: tuple[str, ...] = ()
    since: int = -EVER
    """Of the memory's own time, `valid_from`; up to but without `until`."""
    until: int = EVER
    as_of: int = 0
    """What held at that time; 0 is now."""
    known_at: int = 0
    """What was recorded by then; 0 is all."""
    min_trust: float = 0.0
    around: int = 0
    """How many of what was said just before and after each result come along."""
    all: bool = False
    """Also what was superseded, withdrawn, or is out of date."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an agent knows, and where it comes from."""

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
    """From when on it holds; when nobody said, since it was recorded."""
    valid_to: datetime | None = None
    recorded: datetime
    expires: datetime | None = None
    ended: datetime | None = None
    """Since when it does not count any more, as recorded: superseded or withdrawn."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    supersedes: tuple[str, ...] = ()
    superseded_by: str = ""
    contradicts: tuple[str, ...] = ()
    """Others that count and may say the opposite."""
    derived_from: tuple[str, ...] = ()
    """What it was made of."""
    withdrawn: bool = False
    """Undone by `rollback`."""
    count: int = 1
    """How often the same was to be remembered."""
    uses: int = 0
    """How often it was recalled, as far as that is known."""
    last_used: datetime | None = None
    run: str = ""
    step: str = ""
    writer: str = ""
    thread: str = ""
    place: int = 0
    entry: tuple[int, int] = (0, 0)
    """The entry of the journal that has it: number of the stream, and within it. (0, 0) until it has landed."""

    @property
    def current(self) -> bool:
        """Whether nothing has taken its place."""
        return self.ended is None

    @property
    def trusted(self) -> bool:
        """Whether it may be more than data."""
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
        return f"<{type(self).__name__} {self.id} {' '.join(parts)}{self._more()}>"

    def _more(self) -> str:
        return ""


class Why(msgspec.Struct, frozen=True):
    """Why a memory was found: what each signal brought."""

    words: tuple[str, ...] = ()
    """Words of the question that it has."""
    neighbours: tuple[str, ...] = ()
    """Words that what was said just before or after it has."""
    time: float = 0.0
    """How near it is to a time in the question: 1 is within."""
    meaning: float = 0.0
    """How near its meaning is: 1 is the same."""
    event: str = ""
    """The entry of the journal that it came from."""
    alike: tuple[str, ...] = ()
    """Words of the question that it has in other words: `vehicle ~ car`."""

    def __str__(self) -> str:
        parts = [f"words {', '.join(self.words)}"] if self.words else []
        parts += [f"alike {', '.join(self.alike)}"] if self.alike else []
        parts += [f"neighbours have {', '.join(self.neighbours)}"] if self.neighbours else []
        parts += [f"meaning {self.meaning:.2f}"] if self.meaning else []
        parts += [f"time {self.time:.2f}"] if self.time else []
        return f"{'; '.join(parts) or 'the newest'} (from {self.event})"


class Recalled(Memory, frozen=True, kw_only=True):
    """A memory that was found."""

    score: float = 0.0
    """Says which fits better, of those that one question has found, and nothing more."""
    confidence: float = 0.0
    """How much of the question it speaks of, from 0 to 1: can be compared between questions."""
    why: Why = Why()
    around: tuple[Memory, ...] = ()
    """What was said just before and after it, in its order."""

    def _more(self) -> str:
        return f" score={self.score:.2f} confidence={self.confidence:.2f}"
