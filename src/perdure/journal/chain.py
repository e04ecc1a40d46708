"""The hash chain of a stream.

An entry's link covers the previous link, the entry's place, kind and time, and the *digest* of its body. Erasing the
body therefore leaves a chain that verifies; 16 random bytes at the start of each body keep the digest from revealing
it. SHA-256, because most processors accelerate it and hashing is a large part of resuming a long run.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

_PLACE = Struct(">QQQQ")


def genesis(store: str, stream: int) -> bytes:
    """The link before the first entry; it binds the stream to its store and number."""
    return sha256(b"perdure stream %s %d" % (store.encode(), stream)).digest()


body_hash = sha256
"""The hash of a body, for loops that cannot afford another call: its digest is `body_digest`."""


def body_digest(body: bytes) -> bytes:
    """The digest of a body, which remains when the body is erased."""
    return body_hash(body).digest()


def link(before: bytes, stream: int, seq: int, kind: int, at: int, digest: bytes) -> bytes:
    """The chain value of an entry."""
    return sha256(before + _PLACE.pack(stream, seq, kind, at) + digest).digest()


def mark(stream: int, seq: int, kind: int, at: int, digest: bytes, stored: bytes) -> bytes:
    """Return the mark of an entry that compaction keeps: it covers the content, the place and the link."""
    return link(stored, stream, seq, kind, at, digest)


def marks_in(kept: bytes) -> dict[int, bytes]:
    """The marks of kept entries by number; each is stored as 4 bytes of number and 32 of mark."""
    return {
        int.from_bytes(kept[place : place + 4], "big"): kept[place + 4 : place + 36]
        for place in range(0, len(kept), 36)
    }


def seal_message(store: str, stream: int, seq: int, chain: bytes, streams: int) -> bytes:
    """The message that the agent's key signs: the stream's head, and the number of streams in the store."""
    return b"perdure seal %s %d %d %d " % (store.encode(), stream, seq, streams) + chain
