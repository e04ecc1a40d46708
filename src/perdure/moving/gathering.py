"""All that is an agent's in a store: its streams, what was written for it in those of others, and what they refer to.

As of one moment: where every stream ends is read in one transaction, and the journal up to there does not change any
more. What is other agents' stays behind: of an entry in which both have something, the agent's part is taken, and the
digest of the whole, by which the chain still verifies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import msgspec

from .. import objects
from .. import records as r
from ..errors import AgentNotFound, JournalDamaged, StoreBusy
from ..failpoints import Site
from ..folding import writer_of
from ..journal import chain
from ..journal.walk import Chain, folded_in, pages
from ..store.base import Row, Script, Statement, Store, Unit
from ..store.notes import Notes
from ..trees import TREE
from ..trees.nodes import Link, Piece, Ref, read_node
from .lines import Entry, Found, Indexed, Object, Seal, Stream, Used, Vector
from .translating import object_key

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
"""Kinds of entries in which something may be another agent's than that of the stream."""


class Belongings(msgspec.Struct, frozen=True):
    """What there is of an agent, at one moment."""

    name: str
    owner: int
    public_key: bytes
    streams: tuple[Stream, ...]
    ends: dict[int, int]
    """The last entry of each stream of the store, as far as it has any."""
    entries: int
    dropped: objects.Drops
    """What was dropped by then: its values stay behind."""


class _Look(Unit[tuple[Row, list[Row], dict[int, int], dict[int, Row]]]):
    """Where every stream ends, at one moment."""

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
        its = {agents[0][0], *(stream for (stream,) in runs)}
        ours = [row for row in streams if row[0] in its or (row[1] == "process" and writer_of(row[2]) == self._agent)]
        leases = yield [Statement("lease_at", (row[0],)) for row in ours]
        held = {row[0]: rows[0] for row, rows in zip(ours, leases, strict=True)}
        return agents[0], ours, {stream: seq for stream, seq in ends if seq}, held


def belongings(store: Store, agent: str) -> Belongings:
    """Look what there is."""
    dropped = objects.Drops(store)
    for _ in range(_LOOKS_MAX):
        (owner, public_key), rows, ends, held = store.submit(_Look(agent))
        before, dropped = dropped, objects.Drops(store)
        if before == dropped:  # so the entries that say what was dropped are among those that were seen
            break
    else:
        raise StoreBusy(
            "something is dropped all the time, and the export never sees one moment", hint="export it again"
        )
    streams = []
    for number, kind, name, at in rows:
        found = store.read("last_folded", (number,)) if number in ends else []
        folded = found[0][3] if found and found[0][0] <= ends[number] else None
        fence, ordered = held[number]
        streams.append(Stream(number, kind, name, at, fence, ordered, folded))
    entries = sum(ends.get(stream.number, 0) for stream in streams)
    return Belongings(agent, owner, public_key, tuple(streams), ends, entries, dropped)


class Ownership:
    """What is an agent's of what it and others have written."""

    def __init__(self, owner: int, streams: set[int]) -> None:
        self._owner = owner
        self.streams = streams

    @classmethod
    def of(cls, its: Belongings) -> Self:
        """Whose streams these are."""
        return cls(its.owner, {stream.number for stream in its.streams})

    def part(self, record: r.Record) -> r.Record | None:
        """What is the agent's of an entry in a stream of its own; the entry itself, if all of it is."""
        if not self.has(record):
            return None
        landed: Sequence[r.Record] = getattr(record, "landed", ())
        ours = tuple(one for one in landed if self.has(one))
        return record if len(ours) == len(landed) else msgspec.structs.replace(record, landed=ours)

    def is_whole(self, record: r.Record) -> bool:
        """Whether all of an entry is the agent's."""
        return self.part(record) is record

    def has(self, it: r.Record) -> bool:
        """Whether a record is the agent's, apart from what has landed with it."""
        owner = getattr(it, "owner", None)
        if owner is not None:
            return bool(owner == self._owner)
        return it.stream in self.streams if isinstance(it, r.OrderGiven | r.Answered) else True


Told = Stream | Entry | Object | Seal | Found | Indexed | Vector | Used


class Gathering:
    """Everything of an agent, one after the other, in little memory."""

    def __init__(self, store: Store, its: Belongings) -> None:
        self._store = store
        self._its = its
        self._own = Ownership.of(its)
        self.dropped = its.dropped
        self._sent = Notes()

    def close(self) -> None:
        """What was noted meanwhile is not needed any more."""
        self._sent.close()

    def all(self) -> Iterator[Told]:
        """All of it: streams with their entries, then what was written elsewhere, then what values are found by."""
        for stream in self._its.streams:
            yield stream
            yield from self._stream(stream)
        yield from self._elsewhere()
        for _, kind, space, key, part, version, text, embedder, vector, words in self._beside("documents_of"):
            yield Found(kind, space, key, part, version, text, embedder, vector, bool(words))
        for _, *row in self._beside("pieces_of"):
            yield Indexed(*row)
        for _, memory, part, embedder, vector in self._beside("vectors_of"):
            yield Vector(memory, part, embedder, bytes(vector))
        for memory, uses, last in self._beside("uses_of", ""):
            yield Used(memory, uses, last)

    # -- entries ------------------------------------------------------------------------------------------------------

    def _stream(self, stream: Stream) -> Iterator[Told]:
        last = self._its.ends.get(stream.number, 0)
        for _, seq, link, streams, public_key, signature in self._store.read("seals_of", (stream.number,)):
            if seq <= last:
                yield Seal(seq, link, streams, public_key, signature)
        folded = folded_in([(0, r.Kind.FOLDED, 0, stream.folded)]) if stream.folded is not None else None
        along = Chain(self._store.identity, stream.number, folded)
        for row in self._rows(stream.number, last):
            self._must_fit(stream, along, row)
            yield from self._entry(row)
        if along.seq != last:
            raise StoreBusy(f"stream {stream.number} was folded while it was exported", hint="export it again")

    def _rows(self, stream: int, last: int) -> Iterator[Row]:
        for page in pages(self._store, stream):
            for row in page:
                if row[0] > last:
                    return
                yield row

    def _must_fit(self, stream: Stream, along: Chain, row: Row) -> None:
        """Nothing leaves that does not verify; unless it was folded just now, and is another journal by that."""
        for what, seq, text in along.follow(row):
            now = self._store.read("last_folded", (stream.number,))
            if (now[0][3] if now else None) != stream.folded:
                raise StoreBusy(f"stream {stream.number} was folded while it was exported", hint="export it again")
            raise JournalDamaged(f"stream {stream.number}, entry {seq} ({what}): {text}", hint="`perdure verify`")

    def _entry(self, row: Row) -> Iterator[Told]:
        seq, kind, at, body, link, digest = row
        if body is not None:
            record = r.decode(kind, body)
            own = self._own.part(record)
            if own is not record:
                digest = chain.body_digest(body)
                body = None if own is None else body[: r.SALT_BYTES] + _ENCODER.encode(own)
            if own is not None:
                yield from self._objects_of(own)
        yield Entry(seq, kind, at, body, link, digest)

    def _elsewhere(self) -> Iterator[Told]:
        """What runs and processes of other agents have written for this one: as if in a stream of its own."""
        seq = 0
        for number, last in self._its.ends.items():
            if number in self._own.streams:
                continue
            for _, kind, at, body, _, _ in self._rows(number, last):
                part = self._part_of(kind, body)
                if part is None:
                    continue
                if not seq:
                    yield Stream(0, "process", f"{self._its.name}{OF_OTHERS}", at)
                seq += 1
                yield from self._objects_of(part)
                yield Entry(seq, r.KIND_OF[type(part)], at, body[: r.SALT_BYTES] + _ENCODER.encode(part), b"")

    def _part_of(self, kind: int, body: Any) -> r.Record | None:
        if kind not in _CARRIERS or body is None:
            return None
        record = r.decode(kind, body)
        if hasattr(record, "owner") or isinstance(record, r.Answered):
            return record if self._own.has(record) else None
        ours = tuple(one for one in getattr(record, "landed", ()) if self._own.has(one))
        return r.Landed(ours) if ours else None

    # -- objects ------------------------------------------------------------------------------------------------------

    def _objects_of(self, record: r.Record) -> Iterator[Object]:
        plain: list[bytes] = []
        for packed in objects.packed_in(record, self.dropped):
            if packed[:1] == TREE:
                yield from self._below(read_node(packed[1:]))
            else:
                plain.append(objects.reference(packed))
        yield from self._leaves(plain)

    def _leaves(self, identities: Sequence[bytes]) -> Iterator[Object]:
        new = [identity for identity in dict.fromkeys(identities) if not self.is_sent(identity, False)]
        for start in range(0, len(new), PAGE_OBJECTS):
            for identity, (size, data) in self._fetched(new[start : start + PAGE_OBJECTS]):
                yield self._sending(Object(identity, False, size, data))

    def _below(self, pieces: Sequence[Piece]) -> Iterator[Object]:
        """What a node refers to, parts before wholes."""
        links = [body for _, body in pieces if isinstance(body, Link)]
        yield from self._leaves([link.identity for link in links if link.kind == Ref.LEAF])
        nodes = [link.identity for link in links if link.kind != Ref.LEAF]
        new = [identity for identity in dict.fromkeys(nodes) if not self.is_sent(identity, True)]
        for identity, (size, data) in self._fetched(new):
            yield from self._below(read_node(objects.restored(size, data)))
            yield self._sending(Object(identity, True, size, data))

    def is_sent(self, identity: bytes, node: bool) -> bool:
        """Whether an object has been told already."""
        return self._sent.get(object_key(identity, node)) is not None

    def _sending(self, it: Object) -> Object:
        self._sent.put(object_key(it.id, it.node), b"")
        return it

    def _fetched(self, identities: Sequence[bytes]) -> Iterator[tuple[bytes, tuple[int, bytes]]]:
        found = objects.rows_of(self._store, identities)
        for identity in identities:
            rows = found.get(identity, [])
            if not rows and objects.Drops(self._store) != self.dropped:
                raise StoreBusy("something was deleted while it was exported", hint="export it again")
            objects.content(self._store, identity, rows)  # it is what its id says
            yield identity, rows[0]

    # -- what values are found by -------------------------------------------------------------------------------------

    def _beside(self, query: str, after: int | str = 0) -> Iterator[Row]:
        """What lies beside the journal, and cannot be made of it."""
        while page := self._store.read(query, (self._its.owner, after, PAGE_BESIDE)):
            yield from page
            after = page[-1][0]
