"""The hash chain of a stream.

An entry's link covers the link before it, its place, kind and time, and the *digest* of its body, not the body:
the body begins with sixteen random bytes, so that erasing it later leaves a chain that still verifies and a
digest that tells nothing. SHA-256, for which most processors have instructions: it is a good part of
what resuming a long run takes.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

_PLACE = Struct(">QQQQ")


def genesis(store: str, stream: int) -> bytes:
    """What the first entry of a stream is chained to: a stream cannot be moved to another place or store."""
    return sha256(b"perdure stream %s %d" % (store.encode(), stream)).digest()


def body_digest(body: bytes) -> bytes:
    """What stays of a body when it is erased."""
    return sha256(body).digest()


def link(before: bytes, stream: int, seq: int, kind: int, at: int, digest: bytes) -> bytes:
    """The chain value of an entry."""
    return sha256(before + _PLACE.pack(stream, seq, kind, at) + digest).digest()


def mark(stream: int, seq: int, kind: int, at: int, digest: bytes, stored: bytes) -> bytes:
    """Stands for an entry that is kept while those around it were folded: its content, its place and its own link."""
    return link(stored, stream, seq, kind, at, digest)


def marks_in(kept: bytes) -> dict[int, bytes]:
    """The marks of the entries that were kept, by number: four bytes and 32 for each."""
    return {
        int.from_bytes(kept[place : place + 4], "big"): kept[place + 4 : place + 36]
        for place in range(0, len(kept), 36)
    }


def seal_message(store: str, stream: int, seq: int, chain: bytes, streams: int) -> bytes:
    """What the agent's key signs: this stream had this head when the store had this many streams."""
    return b"perdure seal %s %d %d %d " % (store.encode(), stream, seq, streams) + chain
