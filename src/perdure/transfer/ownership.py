"""Checks that everything in an agent file belongs to its agent, before anything is written.

Views are computed from entries, so an entry that names another agent would change that agent's data. Every stream, run,
owner and agent in an entry is compared with the agent of the file.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import ExportDamaged
from perdure.journal import archive
from perdure.journal.verify import FIRST_OF
from perdure.maintenance.compaction import writer_of
from perdure.store.spill import ScratchTable
from perdure.transfer.collect import OF_OTHERS, RecordOwnership
from perdure.transfer.file_format import (
    ExportDocument,
    ExportEntry,
    ExportHeader,
    ExportLine,
    ExportObject,
    ExportPiece,
    ExportStream,
    ExportUse,
    ExportVector,
)
from perdure.transfer.references import ReferenceCheck
from perdure.values.limits import ENTRY_NUMBER_MAX, NUMBER_MAX, VECTOR_DIMENSIONS_MAX

_HASH_BYTES = 32
_MARK_BYTES = 36
_FENCE_MAX = 1 << 53
_OF_AGENT = (r.AgentCreated, r.AgentLeft, r.AgentArrived)
"""Entries that only the agent's own stream may have."""
_ENTRY_FIELDS = frozenset({"seq", "upto", "cut", "to"})
"""Fields that number an entry."""
_FLOAT_BYTES = 4


class OwnershipCheck:
    """Checks the lines of a file whose streams are known. Raises `ExportDamaged` at the first wrong one."""

    def __init__(self, path: str, header: ExportHeader, streams: dict[int, str], owner: int) -> None:
        self._path = path
        self._agent = header.agent
        self._ownership = RecordOwnership(owner, set(streams) - {0})
        self._stream: ExportStream | None = None
        self._before = 0
        """The number of the previous entry; 0 at the beginning of a stream."""
        self._finished = False
        """Whether the previous entry was the end of a run."""
        self._compaction: bytes | None = None
        """The last entry of this stream that records compaction."""
        self._runs: set[str] = set()
        self._references = ReferenceCheck()
        self._seen = ScratchTable()
        self._used = ""

    def close(self) -> None:
        """Delete the temporary table."""
        self._references.close()
        self._seen.close()

    def take(self, line: ExportLine) -> None:
        """Check one line."""
        if isinstance(line, ExportStream):
            self._end_stream()
            self._begin(line)
        elif isinstance(line, ExportEntry):
            self._entry(line)
        elif isinstance(line, ExportObject):
            if not self._references.put(line):
                raise self._wrong("an object is repeated, or refers to one that is missing")
        elif isinstance(line, ExportDocument | ExportPiece | ExportVector):
            self._index(line)
        elif isinstance(line, ExportUse):
            if line.memory <= self._used:
                raise self._wrong(f"the uses of memory {line.memory!r} are out of order")
            self._used = line.memory

    def finish(self) -> None:
        """Check the end of the file."""
        self._end_stream()
        if not self._references.is_whole():
            raise self._wrong("a large value is missing that was not dropped, or present although it was")

    def _end_stream(self) -> None:
        if self._stream is not None and self._stream.kind == "run" and not self._before:
            raise self._wrong(f"run {self._stream.name!r} has no entries")
        if self._stream is not None and self._compaction != self._stream.compaction:
            raise self._wrong(f"stream {self._stream.number} was compacted differently than it states")

    # -- streams and entries ------------------------------------------------------------------------------------------

    def _begin(self, stream: ExportStream) -> None:
        self._stream, self._before, self._compaction, self._finished = stream, 0, None, False
        agent, name = self._agent, stream.name
        fits = {
            "agent": name == agent,
            "run": name.startswith(f"{agent}/"),
            "process": writer_of(name) == agent and (stream.number > 0 or name == agent + OF_OTHERS),
        }
        if not fits.get(stream.kind) or not (stream.number or stream.kind == "process"):
            raise self._wrong(f"stream {stream.number} ({stream.kind} {name!r}) does not belong to agent {agent!r}")
        if not 0 <= stream.fence <= _FENCE_MAX or stream.ordered > _FENCE_MAX:
            raise self._wrong(f"stream {stream.number} has an invalid fence")
        if stream.kind == "run":
            if name in self._runs:
                raise self._wrong(f"run {name.removeprefix(agent)[1:]!r} is repeated")
            self._runs.add(name)

    def _entry(self, entry: ExportEntry) -> None:
        stream, first, self._before = self._stream, not self._before, entry.seq
        assert stream is not None, "the file was checked"
        if len(entry.chain) != (_HASH_BYTES if stream.number else 0) or len(entry.digest or bytes(32)) != _HASH_BYTES:
            raise self._wrong(f"entry {entry.seq} of stream {stream.number} has an invalid link")
        if entry.kind == r.EntryKind.STREAM_COMPACTED:
            self._compaction = entry.body
        elif self._finished and entry.kind not in r.AFTER_END:
            raise self._wrong(f"entry {entry.seq} of stream {stream.number} comes after the end of its run")
        self._finished = entry.kind == r.EntryKind.RUN_FINISHED
        if stream.kind == "run" and first and entry.kind not in (r.EntryKind.RUN_STARTED, r.EntryKind.FORKED):
            raise self._wrong(f"run {stream.name!r} does not begin with its first entry")
        if entry.body is None:
            return
        record = r.decode(entry.kind, entry.body)
        what = f"entry {entry.seq} of stream {stream.number}, {type(record).__name__},"
        if not self._is_placed(record, stream, entry.seq, first):
            raise self._wrong(f"{what} does not belong there")
        if not self._ownership.is_whole(record):
            raise self._wrong(f"{what} is about another agent")
        if not self._references.take(record):
            raise self._wrong(f"{what} refers to a large value that is missing, or that does not precede it")
        self._look_into(record, what)

    def _is_placed(self, record: r.Record, stream: ExportStream, seq: int, first: bool) -> bool:
        """Return whether an entry may be at this position of this stream."""
        if isinstance(record, _OF_AGENT):
            return stream.kind == "agent" and (seq == 1) == isinstance(record, r.AgentCreated)
        if isinstance(record, r.RunStarted | r.Forked):
            origin = record.origin if isinstance(record, r.Forked) else 0
            is_named = stream.name == f"{self._agent}/{record.run}"
            return stream.kind == "run" and first and is_named and origin < stream.number
        if isinstance(record, r.StreamCompacted):
            name = record.archive
            told = not name or bool(archive.name_at("", "", name))
            sound = len(record.head) == _HASH_BYTES and len(record.kept) % _MARK_BYTES == 0
            return told and sound and record.upto < seq
        return stream.kind == "run" or (stream.kind == "process" and isinstance(record, FIRST_OF["process"]))

    def _look_into(self, record: Any, what: str) -> None:
        """Check that every agent named is the file's own, and that every number can be stored."""
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if name == "agent" and value != self._agent and not isinstance(record, r.WakeCondition):
                raise self._wrong(f"{what} is about agent {value!r}, but the file is of {self._agent!r}")
            if name in _ENTRY_FIELDS and type(value) is int and value > ENTRY_NUMBER_MAX:
                raise self._wrong(f"{what} names an impossible entry")
            self._look_at(value, what)

    def _look_at(self, value: Any, what: str) -> None:
        if type(value) is int and abs(value) > NUMBER_MAX:
            raise self._wrong(f"{what} has a number that no store accepts")
        if type(value) is float and not math.isfinite(value):
            raise self._wrong(f"{what} has an invalid number")
        if isinstance(value, tuple):
            for part in value:
                self._look_at(part, what)
        elif isinstance(value, msgspec.Struct):
            self._look_into(value, what)

    # -- indexes ------------------------------------------------------------------------------------------------------

    def _index(self, line: ExportDocument | ExportPiece | ExportVector) -> None:
        vector = line.vector if not isinstance(line, ExportPiece) else b""
        if len(vector) % _FLOAT_BYTES or len(vector) > VECTOR_DIMENSIONS_MAX * _FLOAT_BYTES:
            raise self._wrong("a vector is malformed")
        if isinstance(line, ExportDocument):
            key: tuple[object, ...] = (line.kind, line.space, line.key, line.part)
            try:
                line.text.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise self._wrong(f"the index text of {line.key!r} is malformed") from error
        elif isinstance(line, ExportPiece):
            key = (line.memory, line.part)
        else:
            key = (line.memory, line.part, line.embedder)
            if self._seen.get(_note((line.memory, line.part))) is None:
                raise self._wrong(f"a vector belongs to memory {line.memory!r}, which is not in the index")
        self._check_unique(_note(key), "an index entry")

    def _check_unique(self, key: bytes, what: str) -> None:
        if self._seen.get(key) is not None:
            raise self._wrong(f"{what} is repeated")
        self._seen.put(key, b"")

    def _wrong(self, text: str) -> ExportDamaged:
        return ExportDamaged(f"{self._path}: {text}; nothing was imported")


def _note(key: tuple[object, ...]) -> bytes:
    return b"found" + msgspec.msgpack.encode(key)
