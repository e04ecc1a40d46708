"""Anchors: the heads of all streams, kept outside the store to detect a rollback of the whole store.

The chain and its signatures prove that a copy of the store is genuine, not that it is the newest. An anchor
is a small JSON file for another disk, a ticket or a repository; `verify` compares the store with it later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.errors import CorruptValue, WrongStore
from perdure.journal.keys import SigningKey, is_signed_by
from perdure.journal.stream_reader import compaction_in
from perdure.journal.verify_report import FindingKind, Severity, VerifyFinding
from perdure.store.base import Store
from perdure.store.rows import EntryRow, first_number

FORMAT = "perdure anchor 1"


class AnchoredHead(msgspec.Struct, frozen=True, array_like=True):
    """Where a stream ended."""

    stream: int
    seq: int
    chain: str


class AnchorSignature(msgspec.Struct, frozen=True):
    """An agent's signature of the anchor."""

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
        """The signed bytes: everything but the signatures."""
        content = (self.format, self.store, self.at, self.heads)
        return b"perdure anchor " + msgspec.json.encode(content)


def make_anchor(store: Store, heads: Sequence[AnchoredHead], signers: Mapping[str, SigningKey]) -> Anchor:
    """Make an anchor of these heads, signed by every agent in `signers`."""
    anchor = Anchor(FORMAT, store.identity, store.clock.wall_ms(), tuple(heads))
    message = anchor.message()
    signatures = [
        AnchorSignature(agent, key.public_key.hex(), key.sign(message).hex()) for agent, key in signers.items()
    ]
    return msgspec.structs.replace(anchor, signatures=tuple(signatures))


def write_anchor(anchor: Anchor) -> bytes:
    """Encode an anchor as its JSON file."""
    return msgspec.json.format(msgspec.json.encode(anchor), indent=1) + b"\n"


def decode_anchor(data: bytes) -> Anchor:
    """Decode an anchor from its JSON file."""
    try:
        anchor = msgspec.json.decode(data, type=Anchor)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptValue(
            f"this is no anchor: {error}", hint="make one with `perdure verify --export-anchor`"
        ) from error
    if anchor.format != FORMAT:
        raise CorruptValue(f"the anchor has the format {anchor.format!r}, this version knows {FORMAT!r}")
    return anchor


def compare(store: Store, anchor: Anchor, keys: Mapping[str, bytes]) -> Iterator[VerifyFinding]:
    """Report where the store differs from the anchor other than by having grown.

    Raises WrongStore at once for an anchor of another store.
    """
    if anchor.store != store.identity:
        raise WrongStore(f"the anchor was made of another store: {anchor.store!r}, and this one is {store.identity!r}")
    return _differences(store, anchor, keys)


def _differences(store: Store, anchor: Anchor, keys: Mapping[str, bytes]) -> Iterator[VerifyFinding]:
    yield from _signatures(anchor, keys)
    for head in anchor.heads:
        rows = store.read("journal_entry", (head.stream, head.seq))
        compaction = compaction_in(store.read("last_compaction", (head.stream,))) if not rows else None
        if compaction is not None and compaction.upto >= head.seq:
            # Only the last compacted entry can be compared here; `verify` checks the signature of the compaction.
            if compaction.upto == head.seq and compaction.head != _bytes(head.chain):
                yield VerifyFinding(
                    FindingKind.FORKED, "the compacted entry differs from the anchored one", head.stream, head.seq
                )
        elif not rows:
            text = f"stream {head.stream} had {head.seq} entries when the anchor was made"
            yield VerifyFinding(FindingKind.ROLLED_BACK, text, head.stream, _read_last_seq(store, head.stream) + 1)
        elif EntryRow(*rows[0]).chain != _bytes(head.chain):
            text = "the entry differs from the anchored one: the stream forked here or earlier"
            yield VerifyFinding(FindingKind.FORKED, text, head.stream, head.seq)


def _read_last_seq(store: Store, stream: int) -> int:
    return first_number(store.read("head_of", (stream,)))


def _signatures(anchor: Anchor, keys: Mapping[str, bytes]) -> Iterator[VerifyFinding]:
    if not anchor.signatures:
        text = "the anchor is not signed: trust it only as far as the place where it was kept"
        yield VerifyFinding(FindingKind.ANCHOR, text, severity=Severity.UNSIGNED)
    message = anchor.message()
    for signature in anchor.signatures:
        if not is_signed_by(_bytes(signature.public_key), message, _bytes(signature.signature)):
            yield VerifyFinding(
                FindingKind.ANCHOR, f"the anchor has been changed: the signature of {signature.agent!r} does not fit"
            )
        elif keys.get(signature.agent, b"") not in (b"", _bytes(signature.public_key)):
            yield VerifyFinding(
                FindingKind.FORKED, f"agent {signature.agent!r} had another key when the anchor was made"
            )


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""  # fits no link and no signature
