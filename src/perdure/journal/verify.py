"""Verifies every entry, signature and object, and locates what has changed.

    report = verify(store)
    report.ok, report.findings

Safe while agents run: streams only grow, so seals are read before the entries that they cover, and the number of
streams last. Memory does not grow with the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import records as r
from perdure.errors import JournalDamaged, StoreTooNew, StoreUnavailable, ValueProblem
from perdure.journal import chain, objects, trees
from perdure.journal.keys import file_message, is_signed_by
from perdure.journal.stream_reader import ChainWalk, check_ascending, compaction_in, iterate_streams, pages
from perdure.journal.verify_report import ArrivedAgent, FindingKind, FindingList, Severity, VerifyFinding, VerifyReport
from perdure.store.base import Rows, Store
from perdure.store.rows import EntryRow, entry_in, first_number
from perdure.store.sqlite.mark import describe_lost

VerifyProgress = Callable[[int, int, int], None]
"""Called now and then with the streams done, the streams in total and the entries seen."""

HeadCallback = Callable[[int, int, bytes], None]
"""Called for every verified stream with its id, the number of its last entry and that entry's link."""

_TRIES = 3
OBJECTS_PAGE = 500
KNOWN_OBJECTS_MAX = 50_000

ENDS = frozenset({r.EntryKind.RUN_FINISHED, r.EntryKind.RUN_FAILED, r.EntryKind.RUN_INTERRUPTED})
"""The last entry of an ended run is sealed, if the key was available."""

FIRST_OF: dict[str, tuple[type[r.Record], ...]] = {
    "agent": (r.AgentCreated,),
    "run": (r.RunStarted, r.Forked),
    "process": (r.Answered, r.Landed, r.MemoryKept, r.MemorySeen, r.MemoryWithdrawn, r.MemoryForgotten),
}
"""The possible first entries of each kind of stream."""


def verify(store: Store, progress: VerifyProgress | None = None, on_head: HeadCallback | None = None) -> VerifyReport:
    """Verify the whole store."""
    inspection = _StoreInspection(store, on_head)
    inspection.look_at_file()
    inspection.look_for_losses()
    inspection.look_at_objects()
    inspection.look_at_streams(progress)
    inspection.look_for_strays()
    return inspection.report()


def agent_keys(store: Store) -> dict[str, bytes]:
    """Return the public key of each agent from the first entry of its stream."""
    keys = {}
    for stream, kind, *_ in iterate_streams(store):
        if kind == "agent":
            record = _record(store.read("journal_entry", (stream, 1)))
            if isinstance(record, r.AgentCreated):
                keys[record.name] = record.public_key
    return keys


def _record(rows: Rows) -> r.Record | None:
    entry = entry_in(rows)
    if entry is None or type(entry.body) is not bytes:
        return None
    try:
        return r.decode(entry.kind, entry.body)
    except (JournalDamaged, StoreTooNew):
        return None  # located when its stream is walked


class _StoreInspection:
    """One verification in progress."""

    def __init__(self, store: Store, on_head: HeadCallback | None) -> None:
        self.store = store
        self.findings = FindingList()
        self.keys: dict[str, bytes] = {}
        self.streams = self.entries = self.seals = self.objects = self.erased = self.unsealed = 0
        self.most_streams = 0
        self._on_head = on_head
        self._bad_objects: dict[bytes, bool] = {}
        """Objects whose content does not match their id, and whether an entry refers to them."""
        self.sound: set[bytes] = set()
        """Objects that exist and whose children have all been checked."""
        self.dropped: objects.DroppedVersions | None = None
        """Versions whose objects may be gone."""
        self.arrivals: dict[tuple[int, int], ArrivedAgent] = {}
        self.moved_in: dict[str, int] = {}
        """When agents with a valid signature moved here, by name."""

    def report_problem(self, what: FindingKind, text: str, stream: int = 0, seq: int = 0, run: str = "") -> None:
        severity = Severity.UNSIGNED if what == FindingKind.UNSIGNED else Severity.DAMAGE
        self.findings.add(VerifyFinding(what, text, stream, seq, run, severity))

    def look_at_file(self) -> None:
        """Run the database's own check: a damaged index would hide rows."""
        try:
            rows = self.store.read("check_file")
        except StoreUnavailable as error:
            rows = [(error.message,)]
        for (text,) in rows:
            if text != "ok":
                self.report_problem(FindingKind.FILE, f"the database file is damaged: {text}")

    def look_for_losses(self) -> None:
        """Report acknowledged entries that are missing according to the store's mark."""
        try:
            for one in self.store.losses():
                run = one.name.partition("/")[2] or one.name
                self.report_problem(FindingKind.ROLLED_BACK, describe_lost(one), one.stream, one.lost.first, run)
        except StoreUnavailable as error:
            self.report_problem(
                FindingKind.UNREADABLE, f"the journal cannot be compared with its mark: {error.message}"
            )

    def look_at_objects(self) -> None:
        """Check the content of every object against its id."""
        after = b""
        try:
            while page := self.store.read("object_ids", (after, OBJECTS_PAGE)):
                check_ascending(page, after)
                for (identity,) in page:
                    self.objects += 1
                    if not self._is_intact(identity):
                        self._bad_objects[identity] = False
                after = page[-1][0]
        except StoreUnavailable as error:
            self.report_problem(FindingKind.UNREADABLE, f"objects cannot be read: {error.message}")

    def _is_intact(self, identity: bytes) -> bool:
        try:
            objects.fetch(self.store, identity)
        except (JournalDamaged, ValueProblem):
            return False
        return True

    def look_at_streams(self, progress: VerifyProgress | None) -> None:
        """Check every stream, and that none is missing."""
        try:
            self.keys = agent_keys(self.store)
            self.dropped = objects.DroppedVersions(self.store)
            total = first_number(self.store.read("count_streams"))
            for stream, kind, name, _ in iterate_streams(self.store):
                if stream != self.streams + 1:
                    self._report_missing_streams(self.streams + 1, stream - 1)
                self._look_at_stream(stream, kind, name)
                self.streams = stream
                if progress is not None:
                    progress(stream, max(total, stream), self.entries)
        except StoreUnavailable as error:
            self.report_problem(FindingKind.UNREADABLE, f"streams after {self.streams} cannot be read: {error.message}")

    def _look_at_stream(self, stream: int, kind: str, name: str) -> None:
        """Check one stream; retry if entries were compacted or versions deleted meanwhile."""
        for _ in range(_TRIES):
            before = self.entries, self.seals, self.erased, self.unsealed
            known, more, seen = (
                len(self.findings.kept),
                self.findings.left_off,
                (self._compaction_of(stream), self.dropped),
            )
            _StreamInspection(self, stream, kind, name).walk()
            if len(self.findings.kept) == known and self.findings.left_off == more:
                return
            self.dropped = objects.DroppedVersions(self.store)
            if (self._compaction_of(stream), self.dropped) == seen:
                return
            self.entries, self.seals, self.erased, self.unsealed = before
            del self.findings.kept[known:]
            self.findings.left_off = more

    def _compaction_of(self, stream: int) -> int:
        return first_number(self.store.read("last_compaction", (stream,)))

    def _report_missing_streams(self, first: int, last: int) -> None:
        which = f"stream {first} is" if first == last else f"streams {first} to {last} are"
        self.report_problem(FindingKind.STREAM, f"{which} missing", first)

    def look_for_strays(self) -> None:
        """Report entries and seals without a stream, signed streams that are missing, and damaged unused objects."""
        if self.most_streams > self.streams:
            self._report_missing_streams(self.streams + 1, self.most_streams)
        try:
            for (stream,) in self.store.read("orphan_entries"):
                self.report_problem(
                    FindingKind.ADDED, f"there are entries of stream {stream}, which is not there", stream
                )
            for (stream,) in self.store.read("orphan_seals"):
                self.report_problem(FindingKind.SEAL, f"there are seals of stream {stream}, which is not there", stream)
        except StoreUnavailable as error:
            self.report_problem(FindingKind.UNREADABLE, f"the journal cannot be searched for strays: {error.message}")
        for identity, named in self._bad_objects.items():
            # The garbage collector may have removed it meanwhile.
            if not named and self.store.read("has_object", (identity,)):
                self.report_problem(
                    FindingKind.OBJECT, f"object {identity.hex()[:12]} has been changed; no entry refers to it"
                )

    def refer(self, identity: bytes, stream: int, seq: int, run: str) -> None:
        """Report an object that an entry refers to if it is missing or changed."""
        if identity in self._bad_objects:
            self._bad_objects[identity] = True
            self.report_problem(
                FindingKind.OBJECT, f"its object {identity.hex()[:12]} has been changed", stream, seq, run
            )
        elif identity not in self.sound:
            if not self.store.read("has_object", (identity,)):
                self.report_problem(
                    FindingKind.OBJECT, f"its object {identity.hex()[:12]} is missing", stream, seq, run
                )
            elif len(self.sound) < KNOWN_OBJECTS_MAX:
                self.sound.add(identity)

    def add_head(self, stream: int, seq: int, link: bytes) -> None:
        """Pass the head of a verified stream on."""
        if self._on_head is not None and seq:
            self._on_head(stream, seq, link)

    def report(self) -> VerifyReport:
        """Return the report."""
        return VerifyReport(
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
    """The verification of one stream."""

    def __init__(self, whole: _StoreInspection, stream: int, kind: str, name: str) -> None:
        self.whole = whole
        self.stream = stream
        self.kind = str(kind)
        self.name = self.run = str(name)
        self.agent = ""
        found = whole.store.read("last_compaction", (stream,))
        last = entry_in(found)
        self.compacted_at, self.compaction_time = (int(last.seq), last.at) if last is not None else (0, 0)
        cut = first_number(whole.store.read("fork_point_of", (stream,)))
        self.along = ChainWalk(whole.store.identity, stream, compaction_in(found), cut)
        self.last_kind = 0
        self.sealed_links: dict[int, tuple[bytes, ...]] = {}

    def report_problem(self, what: FindingKind, seq: int, text: str) -> None:
        self.whole.report_problem(what, text, self.stream, seq, self.run)

    def walk(self) -> None:
        """Check all entries and seals; stop at an unreadable page."""
        try:
            # Seals first: a running run may add entries and a seal meanwhile.
            seals = self.whole.store.read("seals_of", (self.stream,))
            self.sealed_links = {seal[1]: () for seal in seals}
            for page in pages(self.whole.store, self.stream):
                for row in page:
                    self._entry(row)
        except StoreUnavailable as error:
            self.report_problem(FindingKind.UNREADABLE, self.along.seq + 1, f"it cannot be read: {error.message}")
            return
        if self.along.compaction is not None and self.along.compaction.upto in self.sealed_links:
            self.sealed_links[self.along.compaction.upto] += (self.along.compaction.head,)
        if not self.along.seq and self.kind != "process":
            self.report_problem(FindingKind.TRUNCATED, 1, "the stream has no entries")
        last_sealed = max([0, *(self._seal(seal) for seal in seals)])
        if last_sealed < self.along.seq:
            last_sealed = max(last_sealed, self._check_late_seal())
        self._report_unsigned(last_sealed)
        self.whole.add_head(self.stream, self.along.seq, self.along.links[0])

    def _entry(self, row: tuple[Any, ...]) -> None:
        whole, entry, sound = self.whole, EntryRow(*row), True
        seq, kind = entry.seq, entry.kind
        whole.entries += 1
        for what, at, text in self.along.follow(row):
            self.report_problem(what, at, text)
            sound = sound and at != seq
        if seq in self.sealed_links:
            self.sealed_links[seq] = self.along.links
        if self.last_kind == r.EntryKind.RUN_FINISHED and kind not in r.AFTER_END:
            self.report_problem(FindingKind.ADDED, seq, "it stands after the end of its run")
        self.last_kind = kind
        if entry.body is None:
            whole.erased += 1
        elif sound:
            self._content(seq, kind, entry.at, entry.body)

    def _content(self, seq: int, kind: int, at: int, body: bytes) -> None:
        """Check that an entry and the objects it refers to are readable."""
        try:
            record = r.decode(kind, body)
            if seq == 1 or kind == r.EntryKind.FORKED:
                self._check_first_entry(record)
            if isinstance(record, r.AgentArrived) and record.how != "returned":
                self._check_arrival(seq, at, record)
            for packed in objects.iterate_packed(record, self.whole.dropped or ()):
                for identity in trees.references(self.whole.store, packed, self.whole.sound):
                    self.whole.refer(identity, self.stream, seq, self.run)
        except (JournalDamaged, ValueProblem) as error:
            self.report_problem(FindingKind.UNREADABLE, seq, error.message)
        except StoreTooNew as error:
            self.report_problem(FindingKind.UNREADABLE, seq, f"{error.message}; {error.hint}")

    def _check_arrival(self, seq: int, at: int, arrival: r.AgentArrived) -> None:
        if arrival.how == "moved" and (
            self.agent in self.whole.moved_in or _is_signed_arrival(arrival, self.whole.keys.get(self.agent))
        ):
            self.whole.moved_in[self.agent] = at
        about = (self.agent, arrival.how, at, arrival.store, arrival.number.hex(), arrival.file.hex())
        self.whole.arrivals[self.stream, seq] = ArrivedAgent(*about)

    def _check_first_entry(self, record: r.Record) -> None:
        """Compare the stream's row, which no chain protects, with the first entry."""
        expected = self.name
        if isinstance(record, r.Forked):
            self._check_shared_entry(record)
        if isinstance(record, r.RunStarted | r.Forked):
            self.agent, self.run, expected = record.agent, record.run, f"{record.agent}/{record.run}"
        elif isinstance(record, r.AgentCreated):
            self.agent = self.run = expected = record.name
            self.whole.keys[record.name] = record.public_key  # the agent may be newer than this verification
        if type(record) not in FIRST_OF.get(self.kind, ()) or self.name != expected:
            self.report_problem(
                FindingKind.STREAM, 1, f"the stream is listed as {self.kind} {self.name!r}, its first entry differs"
            )

    def _check_shared_entry(self, record: r.Forked) -> None:
        """Check that the last entry that a fork shares with its origin is unchanged."""
        if record.origin >= self.stream or self.whole.store.read("chain_at", (record.origin, record.cut)) != [
            (record.head,)
        ]:
            lost = f"it was forked at entry {record.cut} of stream {record.origin}, and that is gone, or another one"
            self.report_problem(FindingKind.REWRITTEN, record.cut + 1, lost)

    def _seal(self, seal: tuple[Any, ...]) -> int:
        """Check one signed head; returns its number when the signature is good."""
        _, seq, link, streams, public_key, _ = seal
        self.whole.seals += 1
        if type(seq) is not int:
            self.report_problem(FindingKind.SEAL, 0, "a seal has no number")
            return 0
        if public_key != self._key(public_key):
            self.report_problem(FindingKind.SEAL, seq, "the seal is made with a key that is not the agent's")
            return 0
        if not _is_signature_valid(self.whole.store.identity, seal):
            self.report_problem(FindingKind.SEAL, seq, "the seal has been changed: its signature does not fit")
            return 0
        self.whole.most_streams = max(self.whole.most_streams, streams)
        if seq > self.along.seq:
            lost = f"the stream was sealed at entry {seq}, and ends at {self.along.seq}"
            self.report_problem(FindingKind.TRUNCATED, self.along.seq + 1, lost)
        elif self.along.compaction is not None and seq < self.along.compaction.upto and not self.sealed_links[seq]:
            return seq  # compacted by the holder of the key
        elif link not in self.sealed_links[seq]:
            self.report_problem(
                FindingKind.REWRITTEN, seq, "another head was signed here: this entry or one before it was rewritten"
            )
        return seq

    def _check_late_seal(self) -> int:
        """Check the seal of a run that ended after its seals were read."""
        last = self.along.seq
        if last in self.sealed_links:
            return 0
        self.sealed_links[last] = self.along.links
        found = [seal for seal in self.whole.store.read("seals_of", (self.stream,)) if seal[1] == last]
        return self._seal(found[0]) if found else 0

    def _key(self, public_key: Any) -> bytes | None:
        if self.agent:
            return self.whole.keys.get(self.agent)
        # A process stream has several agents, and a first entry may be erased: accept the key of any agent.
        return public_key if public_key in self.whole.keys.values() else None

    def _report_unsigned(self, last_sealed: int) -> None:
        """Report entries that should be signed and are not."""
        last = self.along.seq
        self.whole.unsealed += max(0, last - last_sealed)
        moved_in = self.whole.moved_in.get(self.agent or self.name.rpartition("/process ")[0], 0)
        if self.kind == "agent" and not last_sealed and moved_in:
            self.report_problem(FindingKind.UNSIGNED, last, "the agent has moved in, and its key did not come along")
        elif self.kind == "agent" and not last_sealed:
            self.report_problem(FindingKind.SEAL, 1, "the agent's own stream is always sealed, and this one is not")
        elif (
            self.compacted_at
            and not last_sealed
            and type(self.compaction_time) is int
            and self.compaction_time <= moved_in
        ):
            self.report_problem(
                FindingKind.UNSIGNED, last, "it was compacted before the agent moved in, and its key did not come along"
            )
        elif self.compacted_at > last_sealed:
            self.report_problem(FindingKind.SEAL, self.compacted_at, "entries were compacted without a signature")
        elif self.last_kind in ENDS and last_sealed < last:
            which = "no entry" if not last_sealed else f"nothing after entry {last_sealed}"
            self.report_problem(FindingKind.UNSIGNED, last, f"{which} is signed: the agent's key was not there")


def _is_signed_arrival(arrival: r.AgentArrived, public_key: bytes | None) -> bool:
    """Whether the agent's key signed the file that the agent came in, or the stream that it left."""
    if arrival.public_key != public_key:
        return False
    message, signature = file_message(arrival.file, arrival.contents), arrival.signature
    if (seal := arrival.seal) is not None:
        message = chain.seal_message(arrival.store, seal.number, seal.seq, seal.link, seal.streams)
        signature = seal.signature
    return is_signed_by(public_key, message, signature)


def _is_signature_valid(store: str, seal: tuple[Any, ...]) -> bool:
    stream, seq, link, streams, public_key, signature = seal
    numbers = all(type(number) is int for number in (stream, seq, streams))
    blobs = all(type(blob) is bytes for blob in (link, public_key, signature))
    return (
        numbers and blobs and is_signed_by(public_key, chain.seal_message(store, stream, seq, link, streams), signature)
    )
