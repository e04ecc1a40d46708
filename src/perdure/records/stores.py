"""Records about a store as a whole: agents that leave or arrive, and entries that were lost."""

from __future__ import annotations

import msgspec

from perdure.platform.process import Holder
from perdure.records.base import Record


class AgentLeft(Record, frozen=True):
    """The agent has left this store: nothing is written for it until it arrives again."""

    how: str
    """`moved` or `retired`."""
    to: str = ""
    """For a moved agent: the file that it was exported to."""
    by: str = ""
    reason: str = ""
    file: bytes = b""
    """The SHA-256 of the contents of the imported file, once known here."""
    store: str = ""
    """The identity of the target store, if known; the URL follows."""
    url: str = ""


class SealedHead(Record, frozen=True):
    """A signed head of the agent's own stream in the store that it comes from."""

    number: int
    """The number of the stream there."""
    seq: int
    link: bytes
    streams: int
    signature: bytes


class AgentArrived(Record, frozen=True):
    """The agent was imported from a file; earlier entries of its streams were written in another store."""

    how: str
    """`moved`: the same agent. `copied`: a child of the named agent. `returned`: the move was undone."""
    name: str
    """Its name in the other store."""
    public_key: bytes
    store: str
    """The identity of the store that it comes from."""
    contents: bytes
    """The hash of all its contents, in a form that is the same in every store."""
    file: bytes
    """The SHA-256 of the contents of the file."""
    signature: bytes = b""
    """The signature of the file by `public_key`; empty if the key was not available."""
    number: bytes = b""
    """Random, to recognize a file that was imported twice."""
    seal: SealedHead | None = None
    """Proof of the origin if the file is unsigned because the key was not available."""


class LostIntent(Record, frozen=True):
    """An effect that had begun and whose entry is lost; known from `<store>-mark`."""

    call: bytes
    """A keyed digest of its `CallIdentity`; empty if it renews an intent that still exists."""
    name: str
    key: str
    holder: Holder
    """The process that ran the body."""
    timeout_ms: int
    at: int
    again: int = 0
    """The intent that it renews, if any."""


class EntriesLost(Record, frozen=True):
    """Acknowledged entries of a run that the store has lost."""

    first: int
    last: int
    intents: tuple[LostIntent, ...]
    complete: bool
    """Whether `intents` are all effects that began in the lost entries."""


class LostEntries(msgspec.Struct, frozen=True):
    """The lost entries of a stream; computed, never stored."""

    stream: int
    name: str
    """`agent/id` for a run; empty if the name is lost too."""
    lost: EntriesLost
