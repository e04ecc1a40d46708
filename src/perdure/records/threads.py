"""Records of threads: the successive states of a conversation, as agent frameworks save them.

A checkpoint of a thread is self-contained: each channel is a packed value, and common parts are shared objects. So it
can be dropped without reading its neighbours, and copying a thread means copying its records.
"""

from __future__ import annotations

from perdure.records.base import Record


class ThreadChannel(Record, frozen=True):
    """One part of a thread's state."""

    name: str
    value: bytes
    """Packed as a tree."""
    form: str = ""
    """Empty for a value; otherwise the type name of bytes that a foreign serializer wrote."""


class ThreadPut(Record, frozen=True, tag=80):
    """A checkpoint of a thread. Ids grow with time; the same id again replaces the first."""

    owner: int
    """The stream of the agent."""
    thread: str
    ns: str
    id: str
    parent: str
    life: int
    """How often something of the thread had been dropped before. Later drops have a higher number."""
    heading: bytes
    """Packed: the channel versions, and whatever else the framework needs to continue."""
    meta: bytes
    channels: tuple[ThreadChannel, ...] = ()
    run: str = ""
    """The framework's run that made it."""
    form: str = ""
    """The form of heading and meta, as in a channel."""
    since: tuple[str, ...] = ()
    """Omitted channels: their value follows from an earlier checkpoint and the writes since."""


class ThreadWrite(Record, frozen=True):
    """A write of a task to a channel."""

    idx: int
    """From 0 on, the first write counts; below 0, the last one."""
    channel: str
    value: bytes
    form: str = ""
    alone: bool = False
    """The packed value is a list with this one element, so that the channel's list can share the object later."""


class ThreadWrote(Record, frozen=True, tag=81):
    """Writes of one task after a checkpoint, which may be stored later than they are."""

    owner: int
    thread: str
    ns: str
    id: str
    life: int
    task: str
    path: str
    writes: tuple[ThreadWrite, ...]


class ThreadDropped(Record, frozen=True, tag=82):
    """Checkpoints of a thread that were dropped with their writes; without points, the whole thread."""

    owner: int
    thread: str
    life: int
    """Everything stored with a lower number is dropped."""
    points: tuple[tuple[str, str], ...] = ()
    """By namespace and id."""
    floor: str = ""
    """For a whole thread: the highest id that was dropped, so that late writes are recognized."""
