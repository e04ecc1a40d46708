"""Adding entries to a stream: the one place where the journal and its views are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from ..clock import Clock
from ..errors import JournalDamaged, LeaseLost
from ..failpoints import Site
from ..limits import SEAL_EVENTS
from ..records import KIND_OF, Event, Folded, Forked, Kind, Record, decode, remains
from ..store.base import Last, Proof, Row, Rows, Script, Statement, Unit
from . import chain
from .fold import fold

_ENCODER = msgspec.msgpack.Encoder()


class Signer(Protocol):
    """Signs the heads of an agent's streams."""

    @property
    def public_key(self) -> bytes: ...

    def sign(self, message: bytes) -> bytes: ...


class Head:
    """Where a stream ends, as its only writer knows it."""

    __slots__ = ("chain", "fence", "ordered", "sealed", "seq", "store", "stream")

    def __init__(self, store: str, stream: int, fence: int, seq: int = 0, link: bytes = b"") -> None:
        self.store = store
        self.stream = stream
        self.fence = fence
        self.seq = seq
        self.chain = link or chain.genesis(store, stream)
        self.sealed = seq
        self.ordered = 0
        """The number of the last order to whoever holds the stream, as the last commit was told."""

    def hear(self, rows: Sequence[Rows], place: int) -> None:
        """What the store has answered to an entry. Nothing, when the commit was found to have landed after all."""
        if 0 <= place < len(rows) and rows[place]:
            self.ordered = rows[place][0][0]


class Append(Unit[int]):
    """Entries for one stream, with the objects they refer to and what else must hold at the same moment."""

    __slots__ = (
        "_at", "_before", "_bodies", "_clock", "also", "head", "lane", "last", "objects", "records", "seal", "signer",
        "site",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        head: Head,
        records: Sequence[Record],
        clock: Clock,
        *,
        objects: Sequence[Statement] = (),
        also: Sequence[Statement] = (),
        signer: Signer | None = None,
        seal: bool = False,
    ) -> None:
        self.site = site
        self.lane = head.stream
        self.head = head
        self.objects = objects
        self.also = also
        self.signer = signer
        self.seal = seal
        self._clock = clock
        self.bring(records)
        self._before: tuple[int, bytes, int] | None = None
        self._at = 0
        """When it was first tried: tried again after a lost answer, it must make the same entries."""
        self.last = -1
        """Where among its statements the last entry is."""

    def bring(self, records: Sequence[Record]) -> None:
        """What is appended."""
        self.records = records
        self._bodies = [self._clock.salt() + _ENCODER.encode(record) for record in records]

    def script(self) -> Script[int]:
        """Append, fold, and seal when it is time. Returns the number of the last entry."""
        head = self.head
        statements, seq, link = self.entries(head.seq, head.chain)
        proof = _proof(head, seq, link)
        sealing = self.signer is not None and (self.seal or seq - head.sealed >= SEAL_EVENTS)
        if self.signer is not None and sealing:
            *rows, [(streams,)] = yield [*statements, Statement("count_streams")]
            yield Last([_seal(head, seq, link, streams, self.signer)], proof)
        else:
            rows = yield Last(statements, proof)
        head.hear(rows, self.last)
        # Only now, when this unit cannot fail any more by itself: a neighbour in the batch may build on the new head.
        self._before = head.seq, head.chain, head.sealed
        head.seq, head.chain, head.sealed = seq, link, seq if sealing else head.sealed
        return seq

    def entries(self, seq: int, link: bytes) -> tuple[list[Statement], int, bytes]:
        """The statements that follow an entry of that number and link; and the last number and link then."""
        at = self._at = self._at or self._clock.wall_ms()
        stream, fence = self.head.stream, self.head.fence
        statements = list(self.objects)
        for record, body in zip(self.records, self._bodies, strict=True):
            seq += 1
            kind = KIND_OF[type(record)]
            link = chain.link(link, stream, seq, kind, at, chain.body_digest(body))
            self.last = len(statements)
            statements.append(Statement("append_event", (stream, seq, kind, at, body, link, fence), LeaseLost))
            statements += fold(stream, seq, at, record)
        statements += self.also
        return statements, seq, link

    def joined(self, others: Sequence[Unit[Any]]) -> Unit[list[Any]] | None:
        """Entries of one head, none of which has to be sealed, follow each other in one commit."""
        # Only plain ones: what others append is decided inside their own transaction.
        units = [unit for unit in (self, *others) if type(unit) is Append]
        if len(units) <= len(others) or any(unit.head is not self.head or unit.signer is not None for unit in units):
            return None
        return _Joint(units)

    def settle(self, committed: bool) -> None:
        # Units settle in the order of the batch, so the first one that was undone takes the head furthest back.
        if not committed and self._before is not None and self._before[0] <= self.head.seq:
            self.head.seq, self.head.chain, self.head.sealed = self._before


class _Joint(Unit[list[int]]):
    """Several of them at once; undone together when one of them fails."""

    def __init__(self, units: Sequence[Append]) -> None:
        self.site = units[0].site
        self._units = units

    def script(self) -> Script[list[int]]:
        head = self._units[0].head
        seq, link, statements, numbers, last = head.seq, head.chain, list[Statement](), list[int](), -1
        for unit in self._units:
            made, seq, link = unit.entries(seq, link)
            last = len(statements) + unit.last
            statements += made
            numbers.append(seq)
        head.hear((yield Last(statements, _proof(head, seq, link))), last)
        head.seq, head.chain = seq, link
        return numbers


def _proof(head: Head, seq: int, link: bytes) -> Proof | None:
    return Proof(Statement("chain_at", (head.stream, seq)), [(link,)]) if seq > head.seq else None


def _seal(head: Head, seq: int, link: bytes, streams: int, signer: Signer) -> Statement:
    signature = signer.sign(chain.seal_message(head.store, head.stream, seq, link, streams))
    return Statement("add_seal", (head.stream, seq, link, streams, signer.public_key, signature))


def walk_events(head: Head, rows: Iterable[Row], folded: Folded | None = None) -> Iterator[Event]:
    """Decode a whole stream, entry by entry, and check its chain on the way: nothing is resumed from an edited journal.

    When it is through, the head is where the stream ends. Rows are let go as they pass: a long run is not in
    memory twice. Of what was folded, the entries that were kept come first.
    """
    stream, expected, link = head.stream, head.seq, head.chain
    kept = chain.marks_in(folded.kept) if folded is not None else None
    linked, digest_of = chain.link, chain.body_digest  # looked up once: a long run has many entries
    for seq, kind, at, body, stored, digest in rows:
        if folded is not None and kept is not None:
            if seq <= folded.upto:
                yield from _kept(stream, (seq, kind, at, body, stored, digest), kept)
                continue
            if kept:
                raise JournalDamaged(f"entry {min(kept)} of stream {stream} is missing")
            expected, link, kept = folded.upto, folded.head, None
        expected += 1
        link = linked(link, stream, seq, kind, at, digest_of(body) if body is not None else digest)
        if seq != expected or link != stored:
            if expected != 1 or link != stored or seq != first_of_fork(kind, body):
                raise JournalDamaged(f"entry {expected} of stream {stream} does not fit the chain")
            expected = seq
        if body is not None:
            yield Event(seq, at, decode(kind, body))
        elif (left := remains(kind)) is not None:
            yield Event(seq, at, left)
    head.seq = head.sealed = expected
    head.chain = link


def first_of_fork(kind: int, body: bytes | None) -> int:
    """The number that the first entry of a fork has: it follows the last one that it shares; 0 if it is none."""
    record = decode(kind, body) if kind == Kind.FORKED and body is not None else None
    return record.cut + 1 if isinstance(record, Forked) else 0


def _kept(stream: int, row: Row, kept: dict[int, bytes]) -> Iterator[Event]:
    """An entry that was kept; what remains of it, when it was erased since."""
    seq, kind, at, body, stored, digest = row
    covered = chain.body_digest(body) if body is not None else digest
    if chain.mark(stream, seq, kind, at, covered, stored) != kept.pop(seq, None):
        raise JournalDamaged(f"entry {seq} of stream {stream} is another than when those around it were folded")
    record = decode(kind, body) if body is not None else remains(kind)
    if record is not None:
        yield Event(seq, at, record)


def read_events(store: str, stream: int, rows: Iterable[Row], folded: Folded | None = None) -> tuple[list[Event], Head]:
    """The same, all at once."""
    head = Head(store, stream, 0)
    return list(walk_events(head, rows, folded)), head
