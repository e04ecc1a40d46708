"""The records of threads: the states of a conversation, one after the other, as frameworks for agents keep them.

A checkpoint of a thread is whole by itself: each of its channels is a packed value, and what two have in common is one
object. So one is let go without a look at its neighbours, and a copy of a thread is a copy of its records.
"""

from __future__ import annotations

from .plan_records import Record


class Channel(Record, frozen=True):
    """One part of a thread's state."""

    name: str
    value: bytes
    """Packed, as a tree."""
    form: str = ""
    """Empty: a value. Else bytes that somebody else's serializer wrote, and what it called them."""


class ThreadPut(Record, frozen=True, tag=80):
    """A state of a thread. Ids grow with time; the same one again takes the place of the first."""

    owner: int
    """The stream of the agent."""
    thread: str
    ns: str
    id: str
    parent: str
    life: int
    """How often something of the thread had been dropped before: what is dropped later has a higher number."""
    heading: bytes
    """Packed: which versions the channels have, and whatever else the framework needs to go on."""
    meta: bytes
    channels: tuple[Channel, ...] = ()
    run: str = ""
    """What it was made by, as the framework calls it."""
    form: str = ""
    """Of heading and meta, as in a channel."""
    since: tuple[str, ...] = ()
    """Channels that are not in it: what they hold is the nearest value before it, and what was written since."""


class ThreadWrite(Record, frozen=True):
    """What a task has written to a channel."""

    idx: int
    """From 0 the first word counts, below it the last one."""
    channel: str
    value: bytes
    form: str = ""
    alone: bool = False
    """What is packed is a list, and this its one element: so it is the same object as in the channel's list later."""


class ThreadWrote(Record, frozen=True, tag=81):
    """Writes of one task that go on from a checkpoint, which may come later than they do."""

    owner: int
    thread: str
    ns: str
    id: str
    life: int
    task: str
    path: str
    writes: tuple[ThreadWrite, ...]


class ThreadDropped(Record, frozen=True, tag=82):
    """Checkpoints of a thread, with their writes, that are not wanted any more; without any, the whole thread."""

    owner: int
    thread: str
    life: int
    """What was put with a lower number goes."""
    points: tuple[tuple[str, str], ...] = ()
    """By namespace and id."""
    floor: str = ""
    """Of a whole thread: the newest id that goes, so that who comes late is known."""
