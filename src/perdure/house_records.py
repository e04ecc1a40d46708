"""Records about the place of a store: agents that leave or arrive, entries that were lost. See also `records.py`."""

from __future__ import annotations

from .plan_records import Record
from .process import Holder


class AgentLeft(Record, frozen=True):
    """The agent is not at work in this store any more: nothing is written for it until it has arrived again."""

    how: str
    """`moved` or `retired`."""
    to: str = ""
    """Of one that has moved: the file that it went into."""
    by: str = ""
    reason: str = ""
    file: bytes = b""
    """The SHA-256 of what is in the file that it has arrived in, once that is known here."""
    store: str = ""
    """The identity of the store in which it arrives, if that was said here; and how people call it."""
    url: str = ""


class Sealed(Record, frozen=True):
    """A head of the agent's own stream that it has signed in the store that it comes from."""

    number: int
    """Of the stream there."""
    seq: int
    link: bytes
    streams: int
    signature: bytes


class AgentArrived(Record, frozen=True):
    """The agent has come out of a file; what is before this in its streams was written in another store."""

    how: str
    """`moved`: it is the same one. `copied`: a child of the one that is named. `returned`: it never went anywhere."""
    name: str
    """What it was called there."""
    public_key: bytes
    store: str
    """The identity of the store that it comes from."""
    contents: bytes
    """The hash of all that it brought along, in a form that is the same in every store."""
    file: bytes
    """The SHA-256 of what is in the file."""
    signature: bytes = b""
    """Of the file, by the key that is named; empty when that was not there."""
    number: bytes = b""
    """Random: a file that was imported twice has arrived under two numbers."""
    seal: Sealed | None = None
    """What proves that it was there, if the file is not signed because the key was elsewhere."""


class LostIntent(Record, frozen=True):
    """An effect that had begun, and whose entry the store has lost. `<store>-mark` still knows of it."""

    call: bytes
    """A keyed digest of its `Call`. Empty when it began again under an intent that is still there."""
    name: str
    key: str
    holder: Holder
    """The process that ran the body."""
    timeout_ms: int
    at: int
    again: int = 0
    """The intent that it renews, if it does."""


class Lost(Record, frozen=True):
    """Entries of a run which were acknowledged, and which the store has lost."""

    first: int
    last: int
    intents: tuple[LostIntent, ...]
    complete: bool
    """Whether `intents` are all effects that began in the lost entries."""
