"""Records of memories: each is an entry of its own, so that one can be erased without losing others.

All personal content is in `MemoryKept` and `MemorySeen`. `forget` removes the body of such an entry and leaves its
digest, which is salted and reveals nothing; the chain still verifies. The ids in other entries are random too.
"""

from __future__ import annotations

from perdure.records.base import Record

TRUSTED = 0.5
"""From this value on a memory is trusted; below it is shown as data, not as instructions."""


class SuccessorLink(Record, frozen=True):
    """An existing memory that succeeds a new one which was inserted before it in time."""

    id: str
    valid: int
    """From when it is valid."""


class MemoryKept(Record, frozen=True):
    """A new memory. Times are in milliseconds since 1970; 0 means never."""

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
    """Memories that may say the opposite, found when this one was stored."""
    derived: tuple[str, ...] = ()
    """The memories it was derived from: it is trusted no more than they are."""
    meta: bytes = b""
    """Packed."""
    run: str = ""
    step: str = ""
    """The name of the step that it was written with."""
    writer: str = ""
    thread: str = ""
    """The conversation or group it belongs to."""
    place: int = 0
    """Its number within the thread."""
    sketch: bytes = b""
    """A keyed hash of its sorted words: memories that say the same have the same one."""
    followed: tuple[SuccessorLink, ...] = ()
    """Existing memories that supersede it."""


class MemorySeen(Record, frozen=True):
    """A memory that was stored again: the first one is counted again, and also found by the second id."""

    owner: int
    id: str
    again: str
    """The id that the second one was given when it was requested."""
    source: str = ""
    trust: float = 1.0
    run: str = ""
    step: str = ""
    writer: str = ""


class SuccessorBridge(Record, frozen=True):
    """A memory whose successor was retracted: the successor's own successor now supersedes it."""

    id: str
    by: str
    valid: int
    """From when."""


class MemoryWithdrawn(Record, frozen=True):
    """Memories that were retracted because of their source. They can still be read."""

    owner: int
    ids: tuple[str, ...]
    reason: str
    by: str
    touched: tuple[str, ...] = ()
    """Other memories whose validity changes because of it."""
    bridged: tuple[SuccessorBridge, ...] = ()
    """Those of them that something else had superseded by then."""


class SuccessorErased(Record, frozen=True):
    """A memory whose successor was erased: it stays superseded, as of these times."""

    id: str
    at: int
    valid: int


class MemoryForgotten(Record, frozen=True):
    """Memories that this commit erased from the journal, the views and the index."""

    owner: int
    ids: tuple[str, ...]
    erased: tuple[tuple[int, int], ...]
    """The entries whose bodies are gone, by stream and number."""
    reason: str
    by: str
    touched: tuple[str, ...] = ()
    """Other memories that an erased entry referred to."""
    ended: tuple[SuccessorErased, ...] = ()
