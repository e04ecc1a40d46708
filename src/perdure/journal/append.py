"""Appends entries to a stream: the way every commit writes the journal and its views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from perdure.errors import JournalDamaged, LeaseLost
from perdure.journal import chain
from perdure.journal.project import project
from perdure.platform.failpoints import Site
from perdure.records import (
    KIND_OF,
    AgentChange,
    EntryKind,
    Forked,
    JournalEntry,
    Record,
    StreamCompacted,
    decode,
    remains,
)
from perdure.store.base import CommitProof, FinalBatch, Row, Rows, Script, Statement, UnitOfWork
from perdure.values.clock import Clock
from perdure.values.limits import SEAL_EVENTS

_ENCODE = msgspec.msgpack.Encoder().encode


class Signer(Protocol):
    """Signs the heads of an agent's streams."""

    @property
    def public_key(self) -> bytes: ...

    def sign(self, message: bytes) -> bytes: ...


class StreamHead:
    """Where a stream ends, as its only writer knows it."""

    __slots__ = ("chain", "erased", "fence", "ordered", "sealed", "seq", "store", "stream")

    def __init__(self, store: str, stream: int, fence: int, seq: int = 0, link: bytes = b"") -> None:
        self.store = store
        self.stream = stream
        self.fence = fence
        self.seq = seq
        self.chain = link or chain.genesis(store, stream)
        self.sealed = seq
        self.ordered = 0
        """The number of the last order to the holder of the stream, as the last commit read it."""
        self.erased = False
        """Whether the body of an entry was erased: then recorded operations may be missing."""

    def apply_answer(self, rows: Sequence[Rows], place: int) -> None:
        """Take over the store's answer to an entry. It is missing if a lost commit was found to have landed."""
        if 0 <= place < len(rows) and rows[place]:
            self.ordered = rows[place][0][0]


class Append(UnitOfWork[int]):
    """Append entries to one stream, in one commit with the objects they refer to and further statements."""

    # Attributes of the class: most units keep these values, and setting each costs every step.
    _companions: tuple[Record, ...] = ()
    _before: tuple[int, bytes, int] | None = None
    _at = 0
    """The time of the first attempt: a retry after a lost answer must make the same entries."""
    last = -1
    """The index of the last entry among the statements."""

    def __init__(
        self,
        site: Site,
        head: StreamHead,
        records: Sequence[Record],
        clock: Clock,
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
        if len(records) == 1:  # nearly always
            self._bodies = [(records[0], clock.salt() + _ENCODE(records[0]))]
        else:
            self.set_records(records)

    def set_records(self, records: Sequence[Record]) -> None:
        """Set the records to append, each salted and encoded."""
        salt = self._clock.salt
        self._bodies = [(record, salt() + _ENCODE(record)) for record in (*records, *self._companions)]

    @property
    def records(self) -> list[Record]:
        """The records that it appends."""
        return [record for record, _ in self._bodies]

    def accompany(self, companions: Sequence[Record]) -> None:
        """Append further records in the same commit, after its own."""
        own = [record for record, _ in self._bodies]
        self._companions = tuple(companions)
        self.set_records(own)

    def recall(self, landed: Sequence[AgentChange]) -> None:
        """Take over what an earlier unit like this one has committed, instead of committing it."""

    @property
    def accompanied(self) -> bool:
        """Whether the further records were appended. They are not if the commit found nothing to append."""
        return self._before is not None and bool(self._companions)

    def script(self) -> Script[int]:
        """Append, project to the views, and seal when due. Returns the number of the last entry."""
        head, signer = self.head, self.signer
        before = head.seq, head.chain, head.sealed
        statements, seq, link = self.entries(before[0], before[1])
        proof = CommitProof(head.stream, seq, link) if seq > before[0] else None
        if signer is not None and (self.seal or seq - before[2] >= SEAL_EVENTS):
            *rows, [(streams,)] = yield [*statements, Statement("count_streams")]
            statements = FinalBatch([_seal(head, seq, link, streams, signer)])
            statements.proof = proof
            yield statements
            head.sealed = seq
        else:
            statements.proof = proof
            rows = yield statements
        head.apply_answer(rows, self.last)
        # Move the head only now that this unit cannot fail by itself: the next unit of the batch builds on it.
        self._before = before
        head.seq, head.chain = seq, link
        return seq

    def entries(self, seq: int, link: bytes) -> tuple[FinalBatch, int, bytes]:
        """Return the statements that append after entry `seq` with chain value `link`, and the new last of both."""
        at = self._at
        if not at:
            at = self._at = self._clock.wall_ms()
        head = self.head
        stream, fence = head.stream, head.fence
        statements = FinalBatch(self.objects)
        for record, body in self._bodies:
            seq += 1
            kind = KIND_OF[type(record)]
            link = chain.link(link, stream, seq, kind, at, chain.body_hash(body).digest())
            self.last = len(statements)
            statements.append(Statement("append_entry", (stream, seq, kind, at, body, link, fence), LeaseLost))
            statements += project(stream, seq, at, record)
        if self.also:
            statements += self.also
        return statements, seq, link

    @property
    def shareable(self) -> bool:
        """Whether it appends one entry and nothing else, unless the entry changes a view."""
        # Only plain appends: subclasses decide their entries inside their own transaction.
        return (
            type(self) is Append
            and len(self._bodies) == 1
            and self.signer is None
            and not self.objects
            and not self.also
        )

    def join(self, others: Sequence[UnitOfWork[Any]]) -> UnitOfWork[list[Any]] | None:
        """Join unsealed appends to the same head into one commit."""
        # Only plain appends: subclasses decide their entries inside their own transaction.
        units = [unit for unit in (self, *others) if type(unit) is Append]
        if len(units) <= len(others) or any(unit.head is not self.head or unit.signer is not None for unit in units):
            return None
        return _JointAppend(units)

    def settle(self, committed: bool) -> None:
        # Units settle in batch order, so the first rolled-back unit moves the head furthest back.
        if not committed and self._before is not None and self._before[0] <= self.head.seq:
            self.head.seq, self.head.chain, self.head.sealed = self._before


class _JointAppend(UnitOfWork[list[int]]):
    """Several appends in one commit; all are rolled back if one fails."""

    def __init__(self, units: Sequence[Append]) -> None:
        self.site = units[0].site
        self._units = units

    def script(self) -> Script[list[int]]:
        head = self._units[0].head
        seq, link, statements, numbers, last = head.seq, head.chain, FinalBatch(), list[int](), -1
        for unit in self._units:
            made, seq, link = unit.entries(seq, link)
            last = len(statements) + unit.last
            statements += made
            numbers.append(seq)
        statements.proof = CommitProof(head.stream, seq, link) if seq > head.seq else None
        head.apply_answer((yield statements), last)
        head.seq, head.chain = seq, link
        return numbers


def _seal(head: StreamHead, seq: int, link: bytes, streams: int, signer: Signer) -> Statement:
    signature = signer.sign(chain.seal_message(head.store, head.stream, seq, link, streams))
    return Statement("add_seal", (head.stream, seq, link, streams, signer.public_key, signature))


def walk_events(
    head: StreamHead, rows: Iterable[Row], compaction: StreamCompacted | None = None
) -> Iterator[JournalEntry]:
    """Decode a stream entry by entry and check its chain, so that no run resumes from an edited journal.

    At the end, `head` is the end of the stream. Rows are released as they pass: a long run is not in memory
    twice. Entries that a compaction kept come first.
    """
    stream, expected, link = head.stream, head.seq, head.chain
    kept = chain.marks_in(compaction.kept) if compaction is not None else None
    linked, hashed, decoded = chain.link, chain.body_hash, decode  # looked up once: a long run has many entries
    for seq, kind, at, body, stored, digest in rows:
        if compaction is not None and kept is not None:
            if seq <= compaction.upto:
                yield from _read_kept(stream, (seq, kind, at, body, stored, digest), kept)
                continue
            if kept:
                raise JournalDamaged(f"entry {min(kept)} of stream {stream} is missing")
            expected, link, kept = compaction.upto, compaction.head, None
        expected += 1
        link = linked(link, stream, seq, kind, at, hashed(body).digest() if body is not None else digest)
        if seq != expected or link != stored:
            if expected != 1 or link != stored or seq != find_fork_start(kind, body):
                raise JournalDamaged(f"entry {expected} of stream {stream} does not fit the chain")
            expected = seq
        if body is not None:
            yield JournalEntry(seq, at, decoded(kind, body))
        elif (left := remains(kind)) is not None:
            yield JournalEntry(seq, at, left)
        else:
            head.erased = True
    head.seq = head.sealed = expected
    head.chain = link


def find_fork_start(kind: int, body: bytes | None) -> int:
    """Return the number of a fork's first entry, which follows the last shared one; 0 if this is no fork."""
    record = decode(kind, body) if kind == EntryKind.FORKED and body is not None else None
    return record.cut + 1 if isinstance(record, Forked) else 0


def _read_kept(stream: int, row: Row, kept: dict[int, bytes]) -> Iterator[JournalEntry]:
    """Check and decode an entry that a compaction kept; yield its remains if it was erased since."""
    seq, kind, at, body, stored, digest = row
    covered = chain.body_digest(body) if body is not None else digest
    if chain.mark(stream, seq, kind, at, covered, stored) != kept.pop(seq, None):
        raise JournalDamaged(f"entry {seq} of stream {stream} is another than when those around it were compacted")
    record = decode(kind, body) if body is not None else remains(kind)
    if record is not None:
        yield JournalEntry(seq, at, record)


def read_events(
    store: str, stream: int, rows: Iterable[Row], compaction: StreamCompacted | None = None
) -> tuple[list[JournalEntry], StreamHead]:
    """Decode and check a whole stream; return its entries and its head."""
    head = StreamHead(store, stream, 0)
    return list(walk_events(head, rows, compaction)), head
