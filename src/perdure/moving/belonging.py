"""Everything in an agent file belongs to the agent of the file: looked at before anything is written.

The file names its agent once. Every stream, run, owner and agent that an entry names is compared with that, because
views are computed from entries: one that named another agent would change what that one has.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from .. import archive
from .. import records as r
from ..errors import ExportDamaged
from ..folding import writer_of
from ..journal.verify import FIRST_OF
from ..limits import ENTRY_NUMBER_MAX, NUMBER_MAX, VECTOR_DIMENSIONS_MAX
from ..store.notes import Notes
from .gathering import OF_OTHERS, Ownership
from .lines import Entry, Found, Header, Indexed, Line, Object, Stream, Used, Vector
from .references import References

_HASH_BYTES = 32
_MARK_BYTES = 36
_FENCE_MAX = 1 << 53
_OF_AGENT = (r.AgentCreated, r.AgentLeft, r.AgentArrived)
"""Only the agent's own stream has these."""
_ENTRY_FIELDS = frozenset({"seq", "upto", "cut", "to"})
"""Fields that number an entry."""
_FLOAT_BYTES = 4


class Belonging:
    """Goes along the lines of a file whose streams are known, and raises `ExportDamaged` at the first that is wrong."""

    def __init__(self, path: str, header: Header, streams: dict[int, str], owner: int) -> None:
        self._path = path
        self._agent = header.agent
        self._ownership = Ownership(owner, set(streams) - {0})
        self._stream: Stream | None = None
        self._before = 0
        """The number of the entry before; 0 at the beginning of a stream."""
        self._finished = False
        """Whether that one was the end of a run."""
        self._folded: bytes | None = None
        """The last entry of this stream that tells of folding."""
        self._runs: set[str] = set()
        self._references = References()
        self._seen = Notes()
        self._used = ""

    def close(self) -> None:
        """Remove what was noted meanwhile."""
        self._references.close()
        self._seen.close()

    def take(self, line: Line) -> None:
        """One line more."""
        if isinstance(line, Stream):
            self._end_stream()
            self._begin(line)
        elif isinstance(line, Entry):
            self._entry(line)
        elif isinstance(line, Object):
            if not self._references.put(line):
                raise self._wrong("an object is in it twice, or refers to one that is not there")
        elif isinstance(line, Found | Indexed | Vector):
            self._index(line)
        elif isinstance(line, Used):
            if line.memory <= self._used:
                raise self._wrong(f"the uses of memory {line.memory!r} are out of order")
            self._used = line.memory

    def finish(self) -> None:
        """The file is at its end."""
        self._end_stream()
        if not self._references.is_whole():
            raise self._wrong("a large value is missing that was not dropped, or there although it was")

    def _end_stream(self) -> None:
        if self._stream is not None and self._stream.kind == "run" and not self._before:
            raise self._wrong(f"run {self._stream.name!r} has no entries")
        if self._stream is not None and self._folded != self._stream.folded:
            raise self._wrong(f"stream {self._stream.number} was folded otherwise than it says")

    # -- streams and entries ------------------------------------------------------------------------------------------

    def _begin(self, stream: Stream) -> None:
        self._stream, self._before, self._folded, self._finished = stream, 0, None, False
        agent, name = self._agent, stream.name
        fits = {
            "agent": name == agent,
            "run": name.startswith(f"{agent}/"),
            "process": writer_of(name) == agent and (stream.number > 0 or name == agent + OF_OTHERS),
        }
        if not fits.get(stream.kind) or not (stream.number or stream.kind == "process"):
            raise self._wrong(f"stream {stream.number} ({stream.kind} {name!r}) is not of agent {agent!r}")
        if not 0 <= stream.fence <= _FENCE_MAX or stream.ordered > _FENCE_MAX:
            raise self._wrong(f"stream {stream.number} has a fence that no store gives")
        if stream.kind == "run":
            if name in self._runs:
                raise self._wrong(f"run {name.removeprefix(agent)[1:]!r} is in it twice")
            self._runs.add(name)

    def _entry(self, entry: Entry) -> None:
        stream, first, self._before = self._stream, not self._before, entry.seq
        assert stream is not None, "the file was checked"
        if len(entry.chain) != (_HASH_BYTES if stream.number else 0) or len(entry.digest or bytes(32)) != _HASH_BYTES:
            raise self._wrong(f"entry {entry.seq} of stream {stream.number} has a link that is none")
        if entry.kind == r.Kind.FOLDED:
            self._folded = entry.body
        elif self._finished:
            raise self._wrong(f"entry {entry.seq} of stream {stream.number} stands after the end of its run")
        self._finished = entry.kind == r.Kind.RUN_FINISHED
        if stream.kind == "run" and first and entry.kind not in (r.Kind.RUN_STARTED, r.Kind.FORKED):
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
            raise self._wrong(f"{what} refers to a large value that is not there, or to none of those before it")
        self._look_into(record, what)

    def _is_placed(self, record: r.Record, stream: Stream, seq: int, first: bool) -> bool:
        """Whether an entry may stand in this stream, at this place."""
        if isinstance(record, _OF_AGENT):
            return stream.kind == "agent" and (seq == 1) == isinstance(record, r.AgentCreated)
        if isinstance(record, r.RunStarted | r.Forked):
            origin = record.origin if isinstance(record, r.Forked) else 0
            is_named = stream.name == f"{self._agent}/{record.run}"
            return stream.kind == "run" and first and is_named and origin < stream.number
        if isinstance(record, r.Folded):
            name = record.archive
            told = not name or bool(archive.name_at("", "", name))
            sound = len(record.head) == _HASH_BYTES and len(record.kept) % _MARK_BYTES == 0
            return told and sound and record.upto < seq
        return stream.kind == "run" or (stream.kind == "process" and isinstance(record, FIRST_OF["process"]))

    def _look_into(self, record: Any, what: str) -> None:
        """Every name of an agent is the file's own, and every number is one that a store can keep."""
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if name == "agent" and value != self._agent and not isinstance(record, r.Want):
                raise self._wrong(f"{what} is about agent {value!r}, and the file is of {self._agent!r}")
            if name in _ENTRY_FIELDS and type(value) is int and value > ENTRY_NUMBER_MAX:
                raise self._wrong(f"{what} names an entry that cannot be there")
            self._look_at(value, what)

    def _look_at(self, value: Any, what: str) -> None:
        if type(value) is int and abs(value) > NUMBER_MAX:
            raise self._wrong(f"{what} has a number that no store keeps")
        if type(value) is float and not math.isfinite(value):
            raise self._wrong(f"{what} has a number that is none")
        if isinstance(value, tuple):
            for part in value:
                self._look_at(part, what)
        elif isinstance(value, msgspec.Struct):
            self._look_into(value, what)

    # -- what values are found by -------------------------------------------------------------------------------------

    def _index(self, line: Found | Indexed | Vector) -> None:
        vector = line.vector if not isinstance(line, Indexed) else b""
        if len(vector) % _FLOAT_BYTES or len(vector) > VECTOR_DIMENSIONS_MAX * _FLOAT_BYTES:
            raise self._wrong("a vector is none")
        if isinstance(line, Found):
            key: tuple[object, ...] = (line.kind, line.space, line.key, line.part)
            try:
                line.text.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise self._wrong(f"the text that {line.key!r} is found by is none") from error
        elif isinstance(line, Indexed):
            key = (line.memory, line.part)
        else:
            key = (line.memory, line.part, line.embedder)
            if self._seen.get(_note((line.memory, line.part))) is None:
                raise self._wrong(f"a vector is of memory {line.memory!r}, of which nothing else is there")
        self._once(_note(key), "what a value is found by")

    def _once(self, key: bytes, what: str) -> None:
        if self._seen.get(key) is not None:
            raise self._wrong(f"{what} is in it twice")
        self._seen.put(key, b"")

    def _wrong(self, text: str) -> ExportDamaged:
        return ExportDamaged(f"{self._path}: {text}; nothing was imported")


def _note(key: tuple[object, ...]) -> bytes:
    return b"found" + msgspec.msgpack.encode(key)
