"""Is everything as it was written? Every entry, signature and object is looked at, and what is not gets located.

    report = verify(store)
    report.ok, report.findings

Works beside running agents: streams only grow, so seals are read before the entries that they cover, and the
number of streams after everything. Memory does not grow with the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import objects, trees
from .. import records as r
from ..errors import JournalDamaged, StoreTooNew, StoreUnavailable, ValueProblem
from ..keys import file_message, signed_by
from ..store.base import Rows, Store
from ..store.sqlite_mark import lost_in_words
from . import chain
from .findings import Arrived, Finding, Findings, Report, Severity, What
from .walk import Chain, all_streams, folded_in, must_ascend, pages

Progress = Callable[[int, int, int], None]
"""Told now and then: streams done, streams in all, entries seen."""

OnHead = Callable[[int, int, bytes], None]
"""Told the end of every stream as it was verified: stream, number of the last entry, its link."""

_TRIES = 3
OBJECTS_PAGE = 500
KNOWN_OBJECTS_MAX = 50_000

ENDS = frozenset({r.Kind.RUN_FINISHED, r.Kind.RUN_FAILED, r.Kind.RUN_INTERRUPTED})
"""A run that has ended is sealed with its last entry, if the key was there."""

FIRST_OF: dict[str, tuple[type[r.Record], ...]] = {
    "agent": (r.AgentCreated,),
    "run": (r.RunStarted, r.Forked),
    "process": (r.Answered, r.Landed, r.MemoryKept, r.MemorySeen, r.MemoryWithdrawn, r.MemoryForgotten),
}
"""What a stream of each kind begins with."""


def verify(store: Store, progress: Progress | None = None, on_head: OnHead | None = None) -> Report:
    """Look at the whole store."""
    inspection = _Inspection(store, on_head)
    inspection.look_at_file()
    inspection.look_for_losses()
    inspection.look_at_objects()
    inspection.look_at_streams(progress)
    inspection.look_for_strays()
    return inspection.report()


def agent_keys(store: Store) -> dict[str, bytes]:
    """The public key of each agent, as the first entry of the agent's own stream has it."""
    keys = {}
    for stream, kind, *_ in all_streams(store):
        if kind == "agent":
            record = _record(store.read("event_at", (stream, 1)))
            if isinstance(record, r.AgentCreated):
                keys[record.name] = record.public_key
    return keys


def _record(rows: Rows) -> r.Record | None:
    if not rows or type(rows[0][3]) is not bytes:
        return None
    try:
        return r.decode(rows[0][1], rows[0][3])
    except (JournalDamaged, StoreTooNew):
        return None  # located when its stream is walked


class _Inspection:
    """One verification under way."""

    def __init__(self, store: Store, on_head: OnHead | None) -> None:
        self.store = store
        self.findings = Findings()
        self.keys: dict[str, bytes] = {}
        self.streams = self.entries = self.seals = self.objects = self.erased = self.unsealed = 0
        self.most_streams = 0
        self._on_head = on_head
        self._bad_objects: dict[bytes, bool] = {}
        """Objects that are not what their id says, and whether an entry that refers to them was found."""
        self.sound: set[bytes] = set()
        """Objects that are there, and of which everything below them has been looked at."""
        self.dropped: objects.Drops | None = None
        """Checkpoints whose objects may be gone."""
        self.arrivals: dict[tuple[int, int], Arrived] = {}
        self.moved_in: dict[str, int] = {}
        """Agents that moved here, and were signed where they come from; and when."""

    def found(self, what: What, text: str, stream: int = 0, seq: int = 0, run: str = "") -> None:
        severity = Severity.UNSIGNED if what == What.UNSIGNED else Severity.DAMAGE
        self.findings.add(Finding(what, text, stream, seq, run, severity))

    def look_at_file(self) -> None:
        """The database's own order: an index that lost a row would hide it from us."""
        try:
            rows = self.store.read("check_file")
        except StoreUnavailable as error:
            rows = [(error.message,)]
        for (text,) in rows:
            if text != "ok":
                self.found(What.FILE, f"the database file is damaged: {text}")

    def look_for_losses(self) -> None:
        """Entries that the store's own mark knows of."""
        try:
            for one in self.store.losses():
                run = one.name.partition("/")[2] or one.name
                self.found(What.ROLLED_BACK, lost_in_words(one), one.stream, one.lost.first, run)
        except StoreUnavailable as error:
            self.found(What.UNREADABLE, f"the journal cannot be compared with its mark: {error.message}")

    def look_at_objects(self) -> None:
        """Every object has the content that its id was made of."""
        after = b""
        try:
            while page := self.store.read("object_ids", (after, OBJECTS_PAGE)):
                must_ascend(page, after)
                for (identity,) in page:
                    self.objects += 1
                    if not self._intact(identity):
                        self._bad_objects[identity] = False
                after = page[-1][0]
        except StoreUnavailable as error:
            self.found(What.UNREADABLE, f"objects cannot be read: {error.message}")

    def _intact(self, identity: bytes) -> bool:
        try:
            objects.fetch(self.store, identity)
        except (JournalDamaged, ValueProblem):
            return False
        return True

    def look_at_streams(self, progress: Progress | None) -> None:
        """Every stream, and that none is missing between them."""
        try:
            self.keys = agent_keys(self.store)
            self.dropped = objects.Drops(self.store)
            total = int(self.store.read("count_streams")[0][0])
            for stream, kind, name, _ in all_streams(self.store):
                if stream != self.streams + 1:
                    self._missing_streams(self.streams + 1, stream - 1)
                self._look_at_stream(stream, kind, name)
                self.streams = stream
                if progress is not None:
                    progress(stream, max(total, stream), self.entries)
        except StoreUnavailable as error:
            self.found(What.UNREADABLE, f"streams after {self.streams} cannot be read: {error.message}")

    def _look_at_stream(self, stream: int, kind: str, name: str) -> None:
        """One of them; once more, if something seems to be missing that was folded or deleted while we looked."""
        for _ in range(_TRIES):
            before = self.entries, self.seals, self.erased, self.unsealed
            known, more, seen = len(self.findings.kept), self.findings.left_off, (self._fold_of(stream), self.dropped)
            _StreamInspection(self, stream, kind, name).walk()
            if len(self.findings.kept) == known and self.findings.left_off == more:
                return
            self.dropped = objects.Drops(self.store)
            if (self._fold_of(stream), self.dropped) == seen:
                return
            self.entries, self.seals, self.erased, self.unsealed = before
            del self.findings.kept[known:]
            self.findings.left_off = more

    def _fold_of(self, stream: int) -> int:
        rows = self.store.read("last_folded", (stream,))
        return int(rows[0][0]) if rows else 0

    def _missing_streams(self, first: int, last: int) -> None:
        which = f"stream {first} is" if first == last else f"streams {first} to {last} are"
        self.found(What.STREAM, f"{which} missing", first)

    def look_for_strays(self) -> None:
        """What belongs to no stream, streams that a signature knows of, objects that nobody names."""
        if self.most_streams > self.streams:
            self._missing_streams(self.streams + 1, self.most_streams)
        try:
            for (stream,) in self.store.read("orphan_events"):
                self.found(What.ADDED, f"there are entries of stream {stream}, which is not there", stream)
            for (stream,) in self.store.read("orphan_seals"):
                self.found(What.SEAL, f"there are seals of stream {stream}, which is not there", stream)
        except StoreUnavailable as error:
            self.found(What.UNREADABLE, f"the journal cannot be searched for strays: {error.message}")
        for identity, named in self._bad_objects.items():
            # A collector may have removed it meanwhile.
            if not named and self.store.read("has_object", (identity,)):
                self.found(What.OBJECT, f"object {identity.hex()[:12]} has been changed; no entry refers to it")

    def refer(self, identity: bytes, stream: int, seq: int, run: str) -> None:
        """An entry refers to an object: it must be there, and be what it was."""
        if identity in self._bad_objects:
            self._bad_objects[identity] = True
            self.found(What.OBJECT, f"its object {identity.hex()[:12]} has been changed", stream, seq, run)
        elif identity not in self.sound:
            if not self.store.read("has_object", (identity,)):
                self.found(What.OBJECT, f"its object {identity.hex()[:12]} is missing", stream, seq, run)
            elif len(self.sound) < KNOWN_OBJECTS_MAX:
                self.sound.add(identity)

    def ended(self, stream: int, seq: int, link: bytes) -> None:
        """A stream has been walked to its end."""
        if self._on_head is not None and seq:
            self._on_head(stream, seq, link)

    def report(self) -> Report:
        """What came out."""
        return Report(
            self.streams,
            self.entries,
            self.seals,
            self.objects,
            self.erased,
            self.unsealed,
            tuple(self.findings.kept),
            self.findings.left_off,
            tuple(self.arrivals.values()),
        )


class _StreamInspection:
    """One stream of it."""

    def __init__(self, whole: _Inspection, stream: int, kind: str, name: str) -> None:
        self.whole = whole
        self.stream = stream
        self.kind = str(kind)
        self.name = self.run = str(name)
        self.agent = ""
        found = whole.store.read("last_folded", (stream,))
        self.folded_at = int(found[0][0]) if found else 0
        self.folded_time = found[0][2] if found else 0
        cuts = whole.store.read("cut_of", (stream,))
        self.along = Chain(whole.store.identity, stream, folded_in(found), int(cuts[0][0]) if cuts else 0)
        self.last_kind = 0
        self.sealed_links: dict[int, tuple[bytes, ...]] = {}

    def found(self, what: What, seq: int, text: str) -> None:
        self.whole.found(what, text, self.stream, seq, self.run)

    def walk(self) -> None:
        """From the first entry to the last; an unreadable page ends it, and the next stream follows."""
        try:
            # Seals first: a run at work may add entries and a seal while we walk.
            seals = self.whole.store.read("seals_of", (self.stream,))
            self.sealed_links = {seal[1]: () for seal in seals}
            for page in pages(self.whole.store, self.stream):
                for row in page:
                    self._entry(row)
        except StoreUnavailable as error:
            self.found(What.UNREADABLE, self.along.seq + 1, f"it cannot be read: {error.message}")
            return
        if self.along.folded is not None and self.along.folded.upto in self.sealed_links:
            self.sealed_links[self.along.folded.upto] += (self.along.folded.head,)
        if not self.along.seq and self.kind != "process":
            self.found(What.TRUNCATED, 1, "the stream has no entries")
        last_sealed = max([0, *(self._seal(seal) for seal in seals)])
        if last_sealed < self.along.seq:
            last_sealed = max(last_sealed, self._late_seal())
        self._unsigned(last_sealed)
        self.whole.ended(self.stream, self.along.seq, self.along.links[0])

    def _entry(self, row: tuple[Any, ...]) -> None:
        whole, seq, sound = self.whole, row[0], True
        whole.entries += 1
        for what, at, text in self.along.follow(row):
            self.found(what, at, text)
            sound = sound and at != seq
        if seq in self.sealed_links:
            self.sealed_links[seq] = self.along.links
        if self.last_kind == r.Kind.RUN_FINISHED and row[1] != r.Kind.FOLDED:
            self.found(What.ADDED, seq, "it stands after the end of its run")
        self.last_kind = row[1]
        if row[3] is None:
            whole.erased += 1
        elif sound:
            self._content(seq, row[1], row[2], row[3])

    def _content(self, seq: int, kind: int, at: int, body: bytes) -> None:
        """What an entry that fits the chain says: it must be readable, and so must what it refers to."""
        try:
            record = r.decode(kind, body)
            if seq == 1 or kind == r.Kind.FORKED:
                self._first(record)
            if isinstance(record, r.AgentArrived) and record.how != "returned":
                self._arrived(seq, at, record)
            for packed in objects.packed_in(record, self.whole.dropped or ()):
                for identity in trees.references(self.whole.store, packed, self.whole.sound):
                    self.whole.refer(identity, self.stream, seq, self.run)
        except (JournalDamaged, ValueProblem) as error:
            self.found(What.UNREADABLE, seq, error.message)
        except StoreTooNew as error:
            self.found(What.UNREADABLE, seq, f"{error.message}; {error.hint}")

    def _arrived(self, seq: int, at: int, it: r.AgentArrived) -> None:
        if it.how == "moved" and (self.agent in self.whole.moved_in or _signed(it, self.whole.keys.get(self.agent))):
            self.whole.moved_in[self.agent] = at
        about = (self.agent, it.how, at, it.store, it.number.hex(), it.file.hex())
        self.whole.arrivals[self.stream, seq] = Arrived(*about)

    def _first(self, record: r.Record) -> None:
        """The row of a stream is not chained: it must say what the first entry says."""
        expected = self.name
        if isinstance(record, r.Forked):
            self._shared(record)
        if isinstance(record, r.RunStarted | r.Forked):
            self.agent, self.run, expected = record.agent, record.run, f"{record.agent}/{record.run}"
        elif isinstance(record, r.AgentCreated):
            self.agent = self.run = expected = record.name
            self.whole.keys[record.name] = record.public_key  # it may have been created after we began
        if type(record) not in FIRST_OF.get(self.kind, ()) or self.name != expected:
            self.found(What.STREAM, 1, f"the stream is listed as {self.kind} {self.name!r}, its first entry differs")

    def _shared(self, it: r.Forked) -> None:
        """What a fork begins with is the origin's, up to the entry that it names."""
        if it.origin >= self.stream or self.whole.store.read("chain_at", (it.origin, it.cut)) != [(it.head,)]:
            lost = f"it was forked at entry {it.cut} of stream {it.origin}, and that is gone, or another one"
            self.found(What.REWRITTEN, it.cut + 1, lost)

    def _seal(self, seal: tuple[Any, ...]) -> int:
        """Check one signed head; returns its number when the signature is good."""
        _, seq, link, streams, public_key, _ = seal
        self.whole.seals += 1
        if type(seq) is not int:
            self.found(What.SEAL, 0, "a seal has no number")
            return 0
        if public_key != self._key(public_key):
            self.found(What.SEAL, seq, "the seal is made with a key that is not the agent's")
            return 0
        if not _good_signature(self.whole.store.identity, seal):
            self.found(What.SEAL, seq, "the seal has been changed: its signature does not fit")
            return 0
        self.whole.most_streams = max(self.whole.most_streams, streams)
        if seq > self.along.seq:
            lost = f"the stream was sealed at entry {seq}, and ends at {self.along.seq}"
            self.found(What.TRUNCATED, self.along.seq + 1, lost)
        elif self.along.folded is not None and seq < self.along.folded.upto and not self.sealed_links[seq]:
            return seq  # folded by who has the key: nobody needs to compare it any more
        elif link not in self.sealed_links[seq]:
            self.found(What.REWRITTEN, seq, "another head was signed here: this entry or one before it was rewritten")
        return seq

    def _late_seal(self) -> int:
        """A run that ended while we walked was sealed after its seals were read."""
        last = self.along.seq
        if last in self.sealed_links:
            return 0
        self.sealed_links[last] = self.along.links
        found = [seal for seal in self.whole.store.read("seals_of", (self.stream,)) if seal[1] == last]
        return self._seal(found[0]) if found else 0

    def _key(self, public_key: Any) -> bytes | None:
        if self.agent:
            return self.whole.keys.get(self.agent)
        # A process writes for several agents, and a first entry may be erased: then it is one of them.
        return public_key if public_key in self.whole.keys.values() else None

    def _unsigned(self, last_sealed: int) -> None:
        """Say what no signature covers, where one should be."""
        last = self.along.seq
        self.whole.unsealed += max(0, last - last_sealed)
        moved_in = self.whole.moved_in.get(self.agent or self.name.rpartition("/process ")[0], 0)
        if self.kind == "agent" and not last_sealed and moved_in:
            self.found(What.UNSIGNED, last, "the agent has moved in, and its key did not come along")
        elif self.kind == "agent" and not last_sealed:
            self.found(What.SEAL, 1, "the agent's own stream is always sealed, and this one is not")
        elif self.folded_at and not last_sealed and type(self.folded_time) is int and self.folded_time <= moved_in:
            self.found(What.UNSIGNED, last, "it was folded before the agent moved in, and its key did not come along")
        elif self.folded_at > last_sealed:
            self.found(What.SEAL, self.folded_at, "entries were folded, and nobody has signed that")
        elif self.last_kind in ENDS and last_sealed < last:
            which = "no entry" if not last_sealed else f"nothing after entry {last_sealed}"
            self.found(What.UNSIGNED, last, f"{which} is signed: the agent's key was not there")


def _signed(it: r.AgentArrived, public_key: bytes | None) -> bool:
    """The file that an agent came in, or its stream where it left, was signed by the key that is the agent's."""
    if it.public_key != public_key:
        return False
    message, signature = file_message(it.file, it.contents), it.signature
    if (seal := it.seal) is not None:
        message = chain.seal_message(it.store, seal.number, seal.seq, seal.link, seal.streams)
        signature = seal.signature
    return signed_by(public_key, message, signature)


def _good_signature(store: str, seal: tuple[Any, ...]) -> bool:
    stream, seq, link, streams, public_key, signature = seal
    numbers = all(type(number) is int for number in (stream, seq, streams))
    blobs = all(type(blob) is bytes for blob in (link, public_key, signature))
    return numbers and blobs and signed_by(public_key, chain.seal_message(store, stream, seq, link, streams), signature)
