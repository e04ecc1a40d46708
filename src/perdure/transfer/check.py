"""Verifies an agent file: every chain, signature and large value.

An import reads the file to its end first and trusts nothing before that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

from perdure import records as r
from perdure.errors import ExportDamaged, JournalDamaged, StoreTooNew, ValueProblem
from perdure.journal import chain, objects
from perdure.journal.keys import file_message, is_signed_by
from perdure.journal.stream_reader import ChainWalk, decoded_compaction
from perdure.journal.trees.nodes import OBJECT_BYTES_MAX
from perdure.memory.lifecycle.retention import LET_GO
from perdure.records.stores import SealedHead
from perdure.transfer import archives, waits
from perdure.transfer.content_hash import ContentDigests, ContentHasher
from perdure.transfer.file_format import (
    ExportAbsentArchive,
    ExportArchive,
    ExportAwaitedRun,
    ExportEnd,
    ExportEntry,
    ExportHeader,
    ExportObject,
    ExportSeal,
    ExportStream,
    LockedKey,
    lines_of,
)
from perdure.transfer.ownership import OwnershipCheck

CheckProgress = Callable[[int, int], None]
_TOLD_EVERY = 100
_KEY_BYTES = 32
_STORE = re.compile("[0-9a-f]{32}")
"""The identity of a store."""


class VerifiedExport(msgspec.Struct, frozen=True):
    """A verified file."""

    path: str
    header: ExportHeader
    end: ExportEnd
    key: LockedKey | None
    numbers: tuple[int, ...]
    """The numbers of its streams, in order."""
    head: tuple[int, bytes]
    """The head of the agent's own stream."""
    arrivals: tuple[r.AgentArrived, ...] = ()
    """Its earlier arrivals."""
    seal: SealedHead | None = None
    """The last seal of the agent's own stream."""
    archives: int = 0
    absent: tuple[ExportAbsentArchive, ...] = ()
    """Archives that are not in the file."""
    awaited: tuple[ExportAwaitedRun, ...] = ()
    """Runs of other agents that its runs wait for."""

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return self.header.agent

    @property
    def signed(self) -> bool:
        """Whether it is signed by the agent's key; `check` refuses wrong signatures."""
        return bool(self.end.signature)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about what stayed behind."""
        return (*archives.note_missing_archives(self.absent), *waits.wait_notes(self.awaited))


def check(path: str | os.PathLike[str], progress: CheckProgress | None = None) -> VerifiedExport:
    """Verify a file. Raises `ExportDamaged` with the position of the damage."""
    try:
        return _ExportCheck(os.fspath(path), progress or (lambda done, total: None)).check()
    except (JournalDamaged, ValueProblem) as error:
        raise ExportDamaged(f"{path}: {error.message}") from error
    except StoreTooNew as error:
        raise ExportDamaged(f"{path}: {error.message}", hint=error.hint) from error


class _ExportCheck:
    def __init__(self, path: str, progress: CheckProgress) -> None:
        self._path = path
        self._progress = progress
        self._header: ExportHeader | None = None
        self._key: LockedKey | None = None
        self._end: ExportEnd | None = None
        self._stream: ExportStream | None = None
        self._along: ChainWalk | None = None
        self._sealed: dict[int, bytes] = {}
        """Signed links that were not reached yet."""
        self._streams: dict[int, str] = {}
        """The kinds of the streams, by number."""
        self._head = (0, b"")
        self._owner = 0
        self._arrivals: list[r.AgentArrived] = []
        self._own_seal: SealedHead | None = None
        self._entries = self._objects = 0
        self._archives = 0
        self._expected: dict[str, bytes] = {}
        """The digests of archives, as recorded in the journal."""
        self._let_go: set[str] = set()
        """The ids of dropped memories, which their archives are named by."""
        self._absent: list[ExportAbsentArchive] = []
        self._awaited: list[ExportAwaitedRun] = []

    def check(self) -> VerifiedExport:
        for line in lines_of(self._path):
            if isinstance(line, ExportHeader):
                self._head_line(line)
            elif isinstance(line, LockedKey):
                self._key = line
            elif isinstance(line, ExportStream):
                self._begin(line)
            elif isinstance(line, ExportEntry):
                self._entry(line)
            elif isinstance(line, ExportObject):
                self._object(line)
            elif isinstance(line, ExportSeal):
                self._seal(line)
            elif isinstance(line, ExportEnd):
                self._end = line
            else:
                self._check_other_line(line)
        assert self._header is not None, "`lines_of` checks it"
        assert self._end is not None, "`lines_of` checks it"
        self._close()
        self._compare(self._header, self._end)
        if self._archives:
            archives.check_archives(self._path, self._end.sha256, self._expected, self._let_go)
        about = (self._path, self._header, self._end, self._key, tuple(self._streams), self._head)
        stays = (self._archives, tuple(self._absent), tuple(self._awaited))
        return VerifiedExport(*about, tuple(self._arrivals), self._own_seal, *stays)

    def _head_line(self, header: ExportHeader) -> None:
        if len(header.public_key) != _KEY_BYTES or not _STORE.fullmatch(header.store):
            raise ExportDamaged(f"{self._path} does not name its agent")
        self._header = header

    def _check_other_line(self, line: object) -> None:
        self._archives += isinstance(line, ExportArchive)
        if isinstance(line, ExportAbsentArchive):
            self._absent.append(line)
        elif isinstance(line, ExportAwaitedRun):
            self._awaited.append(line)
        if len(self._absent) + len(self._awaited) > self._entries:  # each results from an entry
            raise ExportDamaged(f"{self._path} lists more missing things than it has entries")

    def _object(self, line: ExportObject) -> None:
        self._objects += 1
        if len(line.id) != objects.ID_BYTES or (line.node and line.size > OBJECT_BYTES_MAX):
            raise ExportDamaged(f"{self._path}: an object is malformed")
        for _ in objects.pieces(line.size, line.data):
            pass
        self._tell()

    def _begin(self, stream: ExportStream) -> None:
        self._close()
        before = next(reversed(self._streams), 0)
        if stream.number in self._streams or 0 in self._streams or 0 < stream.number < before:
            raise ExportDamaged(f"{self._path}: stream {stream.number} is out of order or repeated")
        assert self._header is not None
        self._streams[stream.number] = stream.kind
        compaction = decoded_compaction(stream.compaction)
        self._stream, self._sealed = stream, {}
        self._along = ChainWalk(self._header.store, stream.number, compaction) if stream.number else None
        self._expected |= archives.find_expected(stream, self._header.store)

    def _entry(self, entry: ExportEntry) -> None:
        self._entries += 1
        if self._stream is None:
            raise ExportDamaged(f"{self._path}: entry {entry.seq} is in no stream")
        if entry.body is not None:
            self._check_first_record(r.decode(entry.kind, entry.body))
        if self._along is not None:
            # For an incomplete body the chain covers the stored digest.
            body = entry.body if entry.digest is None else None
            for what, seq, text in self._along.follow(
                (entry.seq, entry.kind, entry.at, body, entry.chain, entry.digest)
            ):
                raise ExportDamaged(f"{self._path}: stream {self._stream.number}, entry {seq} ({what}): {text}")
            if self._sealed.pop(entry.seq, entry.chain) != entry.chain:
                raise self._other_signature_error(entry.seq)
        self._tell()

    def _tell(self) -> None:
        if (self._entries + self._objects) % _TOLD_EVERY == 0 and self._header is not None:
            self._progress(min(self._entries, self._header.entries), self._header.entries)

    def _check_first_record(self, record: r.Record) -> None:
        if isinstance(record, r.AgentArrived):
            self._arrivals.append(record)
        if isinstance(record, r.MemoryForgotten) and record.reason == LET_GO:
            self._let_go.update(record.ids)
        if isinstance(record, r.AgentCreated) and self._stream is not None and self._header is not None:
            if self._owner or self._stream.kind != "agent" or not self._stream.number:
                raise ExportDamaged(f"{self._path} has more than one agent in it")
            self._owner = self._stream.number
            if (record.name, record.public_key) != (self._header.agent, self._header.public_key):
                raise ExportDamaged(f"{self._path}: its first line and its journal name different agents")

    def _close(self) -> None:
        """Finish a stream."""
        if self._stream is None or self._along is None:
            return
        upto = self._along.compaction.upto if self._along.compaction is not None else 0
        for seq in self._sealed:
            if seq > upto:  # the others were compacted
                raise self._other_signature_error(seq)
        if self._stream.number == self._owner:
            self._head = (self._along.seq, self._along.links[0])

    def _other_signature_error(self, seq: int) -> ExportDamaged:
        number = self._stream.number if self._stream is not None else 0
        return ExportDamaged(f"{self._path}: the signature of stream {number} at entry {seq} does not match")

    def _seal(self, seal: ExportSeal) -> None:
        assert self._header is not None
        if self._stream is None or self._along is None:
            raise ExportDamaged(f"{self._path}: a seal belongs to no stream")
        message = chain.seal_message(self._header.store, self._stream.number, seal.seq, seal.chain, seal.streams)
        if seal.public_key != self._header.public_key or not is_signed_by(seal.public_key, message, seal.signature):
            raise self._other_signature_error(seal.seq)
        self._sealed[seal.seq] = seal.chain
        if self._stream.kind == "agent":
            self._own_seal = SealedHead(self._stream.number, seal.seq, seal.chain, seal.streams, seal.signature)

    def _compare(self, header: ExportHeader, end: ExportEnd) -> None:
        if list(self._streams.values()).count("agent") > 1:
            raise ExportDamaged(f"{self._path} has more than one agent in it")
        if (len(self._streams), self._entries, self._objects) != (end.streams, end.entries, end.objects):
            raise ExportDamaged(f"{self._path} is incomplete: its last line counts more or less than it has")
        if not self._owner:
            raise ExportDamaged(f"{self._path} has no stream of an agent in it")
        message = file_message(end.sha256, end.contents)
        if end.signature and not is_signed_by(header.public_key, message, end.signature):
            raise ExportDamaged(f"{self._path} is not signed by its agent")
        if self._contents(header) != ContentDigests(end.contents, end.index):
            raise ExportDamaged(f"{self._path}: its contents do not match its last line")

    def _contents(self, header: ExportHeader) -> ContentDigests:
        """Return the hashes of the file's contents, all of which must belong to its agent."""
        counted = {number: place for place, number in enumerate(self._streams, start=1) if number}
        contents, belonging = (
            ContentHasher(header.agent, counted),
            OwnershipCheck(self._path, header, self._streams, self._owner),
        )
        try:
            for line in lines_of(self._path, self._end.sha256 if self._end is not None else b""):
                belonging.take(line)
                contents.take(line)
            belonging.finish()
            return contents.digests()
        finally:
            contents.close()
            belonging.close()
