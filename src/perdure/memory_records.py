"""The records of memories: each an entry of its own, so that one can be erased and nothing else is lost.

Everything that is about a person lies in `MemoryKept` and `MemorySeen`. `forget` takes the body of such an entry away
and leaves its digest, which begins with random bytes and tells nothing; the chain still verifies. What stays, the ids
in other entries, is random too.
"""

from __future__ import annotations

from .plan_records import Record

TRUSTED = 0.5
"""From here on a memory is trusted; below it is shown as data, not as instructions."""


class Followed(Record, frozen=True):
    """A memory that was there already, and goes on where a new one ends that was put before it."""

    id: str
    valid: int
    """From when on it holds."""


class MemoryKept(Record, frozen=True):
    """Something that the agent knows from now on. Times are in milliseconds since 1970; 0 is never."""

    owner: int
    """The stream of the agent."""
    id: str
    kind: str
    """`semantic`, `episodic` or `procedural`."""
    value: bytes
    """The packed text."""
    about: str = ""
    user: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""
    trust: float = 1.0
    importance: float = 0.5
    valid_from: int = 0
    valid_to: int = 0
    expires: int = 0
    supersedes: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    """Others that may say the opposite, found when it was kept."""
    derived: tuple[str, ...] = ()
    """What it was made of: it is trusted no more than they are."""
    meta: bytes = b""
    """Packed."""
    run: str = ""
    step: str = ""
    """The step that it landed with, by its name."""
    writer: str = ""
    thread: str = ""
    """What was said together."""
    place: int = 0
    """Its number within the thread."""
    sketch: bytes = b""
    """A keyed hash of its words in their order of the alphabet: those that say the same have the same one."""
    followed: tuple[Followed, ...] = ()
    """What takes its place, of what was there already."""


class MemorySeen(Record, frozen=True):
    """The same was to be kept once more: the first one is counted again, and found by the second id too."""

    owner: int
    id: str
    again: str
    """The id that the second one was given when it was asked for."""
    source: str = ""
    trust: float = 1.0
    run: str = ""
    step: str = ""
    writer: str = ""


class Bridged(Record, frozen=True):
    """A memory whose successor was withdrawn: what had taken the place of that one takes its place."""

    id: str
    by: str
    valid: int
    """From when on."""


class MemoryWithdrawn(Record, frozen=True):
    """Memories that do not count any more, because of where they came from. They can still be read."""

    owner: int
    ids: tuple[str, ...]
    reason: str
    by: str
    touched: tuple[str, ...] = ()
    """Others that count again, or otherwise, because of it."""
    bridged: tuple[Bridged, ...] = ()
    """Those of them that something else had replaced by then."""


class Ended(Record, frozen=True):
    """Of a memory whose successor was erased: it stays replaced, as of these times."""

    id: str
    at: int
    valid: int


class MemoryForgotten(Record, frozen=True):
    """Memories that were erased: from the journal, the views and the index, by this very commit."""

    owner: int
    ids: tuple[str, ...]
    erased: tuple[tuple[int, int], ...]
    """The entries whose bodies are gone, by stream and number."""
    reason: str
    by: str
    touched: tuple[str, ...] = ()
    """Others of which an erased entry said something."""
    ended: tuple[Ended, ...] = ()
