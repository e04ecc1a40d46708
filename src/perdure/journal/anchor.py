"""Anchors: the heads of all streams, kept somewhere else, so that a rollback of the whole store is noticed.

The chain and its signatures show that an old copy of the store is genuine, not that it is the newest. An anchor
is a small JSON file for another disk, a ticket or a repository; `verify` compares the store with it later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ..errors import CorruptValue, WrongStore
from ..keys import SigningKey, signed_by
from ..store.base import Store
from .findings import Finding, Severity, What
from .walk import folded_in

FORMAT = "perdure anchor 1"


class AnchoredHead(msgspec.Struct, frozen=True, array_like=True):
    """Where a stream ended."""

    stream: int
    seq: int
    chain: str


class AnchorSignature(msgspec.Struct, frozen=True):
    """An agent vouches for the anchor."""

    agent: str
    public_key: str
    signature: str


class Anchor(msgspec.Struct, frozen=True):
    """The heads of a store at one time."""

    format: str
    store: str
    at: int
    heads: tuple[AnchoredHead, ...]
    signatures: tuple[AnchorSignature, ...] = ()

    def message(self) -> bytes:
        """What is signed: everything but the signatures."""
        content = (self.format, self.store, self.at, self.heads)
        return b"perdure anchor " + msgspec.json.encode(content)


def make_anchor(store: Store, heads: Sequence[AnchoredHead], signers: Mapping[str, SigningKey]) -> Anchor:
    """An anchor of these heads, signed by every agent whose key is at hand."""
    anchor = Anchor(FORMAT, store.identity, store.clock.wall_ms(), tuple(heads))
    message = anchor.message()
    signatures = [
        AnchorSignature(agent, key.public_key.hex(), key.sign(message).hex()) for agent, key in signers.items()
    ]
    return msgspec.structs.replace(anchor, signatures=tuple(signatures))


def write_anchor(anchor: Anchor) -> bytes:
    """The file."""
    return msgspec.json.format(msgspec.json.encode(anchor), indent=1) + b"\n"


def read_anchor(data: bytes) -> Anchor:
    """An anchor from its file."""
    try:
        anchor = msgspec.json.decode(data, type=Anchor)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptValue(
            f"this is no anchor: {error}", hint="make one with `perdure verify --export-anchor`"
        ) from error
    if anchor.format != FORMAT:
        raise CorruptValue(f"the anchor has the format {anchor.format!r}, this version knows {FORMAT!r}")
    return anchor


def compare(store: Store, anchor: Anchor, keys: Mapping[str, bytes]) -> Iterator[Finding]:
    """How the store differs from what it was when the anchor was made: it may only have grown.

    An anchor of another store is refused at once, before anything is read.
    """
    if anchor.store != store.identity:
        raise WrongStore(f"the anchor was made of another store: {anchor.store!r}, and this one is {store.identity!r}")
    return _differences(store, anchor, keys)


def _differences(store: Store, anchor: Anchor, keys: Mapping[str, bytes]) -> Iterator[Finding]:
    yield from _signatures(anchor, keys)
    for head in anchor.heads:
        rows = store.read("event_at", (head.stream, head.seq))
        folded = folded_in(store.read("last_folded", (head.stream,))) if not rows else None
        if folded is not None and folded.upto >= head.seq:
            # Folding is signed, which `verify` has looked at. Only the last of what was folded can be compared here.
            if folded.upto == head.seq and folded.head != _bytes(head.chain):
                yield Finding(What.FORKED, "another entry was folded than was there before", head.stream, head.seq)
        elif not rows:
            text = f"stream {head.stream} had {head.seq} entries when the anchor was made"
            yield Finding(What.ROLLED_BACK, text, head.stream, _last(store, head.stream) + 1)
        elif rows[0][4] != _bytes(head.chain):
            text = "it is another than when the anchor was made: the stream forked here or before"
            yield Finding(What.FORKED, text, head.stream, head.seq)


def _last(store: Store, stream: int) -> int:
    rows = store.read("head_of", (stream,))
    return int(rows[0][0]) if rows else 0


def _signatures(anchor: Anchor, keys: Mapping[str, bytes]) -> Iterator[Finding]:
    if not anchor.signatures:
        text = "the anchor is not signed: it is worth as much as the place where it was kept"
        yield Finding(What.ANCHOR, text, severity=Severity.UNSIGNED)
    message = anchor.message()
    for it in anchor.signatures:
        if not signed_by(_bytes(it.public_key), message, _bytes(it.signature)):
            yield Finding(What.ANCHOR, f"the anchor has been changed: the signature of {it.agent!r} does not fit")
        elif keys.get(it.agent, b"") not in (b"", _bytes(it.public_key)):
            yield Finding(What.FORKED, f"agent {it.agent!r} had another key when the anchor was made")


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""  # fits no link and no signature
