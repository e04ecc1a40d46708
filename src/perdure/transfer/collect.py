"""Collects everything of an agent in a store: its streams, what others wrote for it, and what these refer to.

The end of every stream is read in one transaction, and the journal before that does not change. Data of other agents
stays behind: of an entry shared by several, only the agent's part is exported, with the digest of the whole, so that
the chain still verifies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import msgspec

from perdure import records as r
from perdure.errors import AgentNotFound, JournalDamaged, StoreBusy
from perdure.journal import chain, objects
from perdure.journal.stream_reader import ChainWalk, decoded_compaction, pages
from perdure.journal.trees import TREE
from perdure.journal.trees.nodes import PieceKind, PieceLink, TreePiece, parse_node
from perdure.maintenance.compaction import writer_of
from perdure.platform.failpoints import Site
from perdure.store.base import Row, Script, Statement, Store, UnitOfWork
from perdure.store.rows import entry_in, first_number, upto
from perdure.store.spill import ScratchTable
from perdure.transfer.file_format import (
    ExportDocument,
    ExportEntry,
    ExportObject,
    ExportPiece,
    ExportSeal,
    ExportStream,
    ExportUse,
    ExportVector,
)
from perdure.transfer.translate import object_key

OF_OTHERS = "/process of others"
PAGE_OBJECTS = 16
PAGE_BESIDE = 100
_LOOKS_MAX = 20
_ENCODER = msgspec.msgpack.Encoder()

_CARRIERS = frozenset(
    kind
    for kind, record in r.CLASS_OF.items()
    if {"landed", "owner"} & set(record.__struct_fields__) or record is r.Answered
)
"""Kinds of entries that may hold data of other agents than the stream's."""


class AgentInventory(msgspec.Struct, frozen=True):
    """Everything of an agent at one moment."""

    name: str
    owner: int
    public_key: bytes
    streams: tuple[ExportStream, ...]
    ends: dict[int, int]
    """The last entry of each stream of the store that has any."""
    entries: int
    dropped: objects.DroppedVersions
    """The versions dropped by then, whose values stay behind."""


class _ReadStreamEnds(UnitOfWork[tuple[Row, list[Row], dict[int, int], dict[int, Row]]]):
    """Reads where every stream ends, at one moment."""

    site = Site.LEAVE
    snapshot = long = True

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def script(self) -> Script[tuple[Row, list[Row], dict[int, int], dict[int, Row]]]:
        [agents, runs, streams, ends] = yield [
            Statement("get_agent", (self._agent,)),
            Statement("run_streams", (self._agent,)),
            Statement("all_streams"),
            Statement("stream_heads"),
        ]
        if not agents:
            raise AgentNotFound(f"the store has no agent {self._agent!r}")
        its = {first_number(agents), *(stream for (stream,) in runs)}
        ours = [
            (number, kind, name, at)
            for number, kind, name, at in streams
            if number in its or (kind == "process" and writer_of(name) == self._agent)
        ]
        leases = yield [Statement("lease_at", (number,)) for number, *_ in ours]
        held = {number: rows[0] for (number, *_), rows in zip(ours, leases, strict=True)}
        return agents[0], ours, {stream: seq for stream, seq in ends if seq}, held


def belongings(store: Store, agent: str) -> AgentInventory:
    """Take the inventory of an agent."""
    dropped = objects.DroppedVersions(store)
    for _ in range(_LOOKS_MAX):
        (owner, public_key), rows, ends, held = store.submit(_ReadStreamEnds(agent))
        before, dropped = dropped, objects.DroppedVersions(store)
        if before == dropped:  # so all entries that drop something are included
            break
    else:
        raise StoreBusy("versions are dropped faster than the export can read", hint="export it again")
    streams = []
    for number, kind, name, at in rows:
        last = entry_in(store.read("last_compaction", (number,))) if number in ends else None
        compaction = last.body if last is not None and last.seq <= ends[number] else None
        fence, ordered = held[number]
        streams.append(ExportStream(number, kind, name, at, fence, ordered, compaction))
    entries = sum(ends.get(stream.number, 0) for stream in streams)
    return AgentInventory(agent, owner, public_key, tuple(streams), ends, entries, dropped)


class RecordOwnership:
    """Decides which records belong to an agent."""

    def __init__(self, owner: int, streams: set[int]) -> None:
        self._owner = owner
        self.streams = streams

    @classmethod
    def from_inventory(cls, its: AgentInventory) -> Self:
        """Return the ownership rules for an inventory."""
        return cls(its.owner, {stream.number for stream in its.streams})

    def part(self, record: r.Record) -> r.Record | None:
        """Return the agent's part of an entry in its own streams; the entry itself if all of it is."""
        if not self.has(record):
            return None
        landed: Sequence[r.Record] = getattr(record, "landed", ())
        ours = tuple(one for one in landed if self.has(one))
        return record if len(ours) == len(landed) else msgspec.structs.replace(record, landed=ours)

    def is_whole(self, record: r.Record) -> bool:
        """Return whether all of an entry is the agent's."""
        return self.part(record) is record

    def has(self, record: r.Record) -> bool:
        """Return whether a record is the agent's, apart from the writes committed with it."""
        owner = getattr(record, "owner", None)
        if owner is not None:
            return bool(owner == self._owner)
        return record.stream in self.streams if isinstance(record, r.OrderGiven | r.Answered) else True


ExportItem = (
    ExportStream | ExportEntry | ExportObject | ExportSeal | ExportDocument | ExportPiece | ExportVector | ExportUse
)


class ExportReader:
    """Reads everything of an agent, in little memory."""

    def __init__(self, store: Store, its: AgentInventory) -> None:
        self._store = store
        self._its = its
        self._own = RecordOwnership.from_inventory(its)
        self.dropped = its.dropped
        self._sent = ScratchTable()

    def close(self) -> None:
        """Delete the temporary table."""
        self._sent.close()

    def iterate_all(self) -> Iterator[ExportItem]:
        """Yield streams with their entries, then entries in streams of others, then the indexes."""
        for stream in self._its.streams:
            yield stream
            yield from self._stream(stream)
        yield from self._iterate_foreign_entries()
        for _, kind, space, key, part, version, text, embedder, vector, words in self._rows_outside_journal(
            "documents_of"
        ):
            yield ExportDocument(kind, space, key, part, version, text, embedder, vector, bool(words))
        for _, *row in self._rows_outside_journal("chunks_of"):
            yield ExportPiece(*row)
        for _, memory, part, embedder, vector in self._rows_outside_journal("vectors_of"):
            yield ExportVector(memory, part, embedder, bytes(vector))
        for memory, uses, last in self._rows_outside_journal("uses_of", ""):
            yield ExportUse(memory, uses, last)

    # -- entries ------------------------------------------------------------------------------------------------------

    def _stream(self, stream: ExportStream) -> Iterator[ExportItem]:
        last = self._its.ends.get(stream.number, 0)
        for _, seq, link, streams, public_key, signature in self._store.read("seals_of", (stream.number,)):
            if seq <= last:
                yield ExportSeal(seq, link, streams, public_key, signature)
        compaction = decoded_compaction(stream.compaction)
        along = ChainWalk(self._store.identity, stream.number, compaction)
        for row in self._rows(stream.number, last):
            self._verify_entry(stream, along, row)
            yield from self._entry(row)
        if along.seq != last:
            raise StoreBusy(f"stream {stream.number} was compacted while it was exported", hint="export it again")

    def _rows(self, stream: int, last: int) -> Iterator[Row]:
        for page in pages(self._store, stream):
            rows = list(upto(page, last))
            yield from rows
            if len(rows) < len(page):
                return

    def _verify_entry(self, stream: ExportStream, along: ChainWalk, row: Row) -> None:
        """Verify an entry before it is exported. A mismatch after a concurrent compaction is not damage."""
        for what, seq, text in along.follow(row):
            now = entry_in(self._store.read("last_compaction", (stream.number,)))
            if (now.body if now is not None else None) != stream.compaction:
                raise StoreBusy(f"stream {stream.number} was compacted while it was exported", hint="export it again")
            raise JournalDamaged(f"stream {stream.number}, entry {seq} ({what}): {text}", hint="`perdure verify`")

    def _entry(self, row: Row) -> Iterator[ExportItem]:
        seq, kind, at, body, link, digest = row
        if body is not None:
            record = r.decode(kind, body)
            own = self._own.part(record)
            if own is not record:
                digest = chain.body_digest(body)
                body = None if own is None else body[: r.SALT_BYTES] + _ENCODER.encode(own)
            if own is not None:
                yield from self._objects_of(own)
        yield ExportEntry(seq, kind, at, body, link, digest)

    def _iterate_foreign_entries(self) -> Iterator[ExportItem]:
        """Yield what runs and processes of other agents wrote for this one, as a stream of its own."""
        seq = 0
        for number, last in self._its.ends.items():
            if number in self._own.streams:
                continue
            for _, kind, at, body, _, _ in self._rows(number, last):
                part = self._part_of(kind, body)
                if part is None:
                    continue
                if not seq:
                    yield ExportStream(0, "process", f"{self._its.name}{OF_OTHERS}", at)
                seq += 1
                yield from self._objects_of(part)
                yield ExportEntry(seq, r.KIND_OF[type(part)], at, body[: r.SALT_BYTES] + _ENCODER.encode(part), b"")

    def _part_of(self, kind: int, body: Any) -> r.Record | None:
        if kind not in _CARRIERS or body is None:
            return None
        record = r.decode(kind, body)
        if hasattr(record, "owner") or isinstance(record, r.Answered):
            return record if self._own.has(record) else None
        ours = tuple(one for one in getattr(record, "landed", ()) if self._own.has(one))
        return r.Landed(ours) if ours else None

    # -- objects ------------------------------------------------------------------------------------------------------

    def _objects_of(self, record: r.Record) -> Iterator[ExportObject]:
        plain: list[bytes] = []
        for packed in objects.iterate_packed(record, self.dropped):
            if packed[:1] == TREE:
                yield from self._iterate_node_objects(parse_node(packed[1:]))
            else:
                plain.append(objects.reference(packed))
        yield from self._leaves(plain)

    def _leaves(self, identities: Sequence[bytes]) -> Iterator[ExportObject]:
        new = [identity for identity in dict.fromkeys(identities) if not self.is_sent(identity, False)]
        for start in range(0, len(new), PAGE_OBJECTS):
            for identity, (size, data) in self._fetch(new[start : start + PAGE_OBJECTS]):
                yield self._make_export_object(ExportObject(identity, False, size, data))

    def _iterate_node_objects(self, pieces: Sequence[TreePiece]) -> Iterator[ExportObject]:
        """Yield what a node refers to, parts first."""
        links = [body for _, body in pieces if isinstance(body, PieceLink)]
        yield from self._leaves([link.identity for link in links if link.kind == PieceKind.LEAF])
        nodes = [link.identity for link in links if link.kind != PieceKind.LEAF]
        new = [identity for identity in dict.fromkeys(nodes) if not self.is_sent(identity, True)]
        for identity, (size, data) in self._fetch(new):
            yield from self._iterate_node_objects(parse_node(objects.decompress_object(size, data)))
            yield self._make_export_object(ExportObject(identity, True, size, data))

    def is_sent(self, identity: bytes, node: bool) -> bool:
        """Return whether an object was exported already."""
        return self._sent.get(object_key(identity, node)) is not None

    def _make_export_object(self, stored_object: ExportObject) -> ExportObject:
        self._sent.put(object_key(stored_object.id, stored_object.node), b"")
        return stored_object

    def _fetch(self, identities: Sequence[bytes]) -> Iterator[tuple[bytes, tuple[int, bytes]]]:
        found = objects.rows_of(self._store, identities)
        for identity in identities:
            rows = found.get(identity, [])
            if not rows and objects.DroppedVersions(self._store) != self.dropped:
                raise StoreBusy("an object was deleted during the export", hint="export it again")
            objects.content(self._store, identity, rows)  # checks it against its id
            yield identity, rows[0]

    # -- indexes ------------------------------------------------------------------------------------------------------

    def _rows_outside_journal(self, query: str, after: int | str = 0) -> Iterator[Row]:
        """Yield rows outside the journal that cannot be recreated from it."""
        while page := self._store.read(query, (self._its.owner, after, PAGE_BESIDE)):
            yield from page
            after = page[-1][0]
