"""Is a file with an agent in it as it was written? Every chain and signature is looked at, and every large value.

Nothing is believed before that: who imports reads a file to its end first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

from .. import objects
from .. import records as r
from ..errors import ExportDamaged, JournalDamaged, StoreTooNew, ValueProblem
from ..journal import chain
from ..journal.walk import Chain, folded_in
from ..keys import file_message, signed_by
from ..memory.retaining import LET_GO
from ..trees.nodes import OBJECT_BYTES_MAX
from . import archives, waits
from .belonging import Belonging
from .contents import Contents, Digests
from .lines import Absent, Archive, Awaited, End, Entry, Header, LockedKey, Object, Seal, Stream, lines_of

Progress = Callable[[int, int], None]
_TOLD_EVERY = 100
_KEY_BYTES = 32
_STORE = re.compile("[0-9a-f]{32}")
"""The identity of a store."""


class Checked(msgspec.Struct, frozen=True):
    """A file that is whole: everything in it fits everything else."""

    path: str
    header: Header
    end: End
    key: LockedKey | None
    numbers: tuple[int, ...]
    """Of its streams, in their order."""
    head: tuple[int, bytes]
    """Where the agent's own stream ends."""
    arrivals: tuple[r.AgentArrived, ...] = ()
    """Where it has been before."""
    seal: r.Sealed | None = None
    """The last one of the agent's own stream."""
    archives: int = 0
    absent: tuple[Absent, ...] = ()
    """Archives that did not come along."""
    awaited: tuple[Awaited, ...] = ()
    """Runs of others that its runs wait for."""

    @property
    def agent(self) -> str:
        """Who is in it."""
        return self.header.agent

    @property
    def signed(self) -> bool:
        """By the agent's key; `check` has refused a signature that does not fit."""
        return bool(self.end.signature)

    @property
    def notes(self) -> tuple[str, ...]:
        """What has stayed behind, in words."""
        return (*archives.told(self.absent), *waits.told(self.awaited))


def check(path: str | os.PathLike[str], progress: Progress | None = None) -> Checked:
    """Read a file to its end; raises `ExportDamaged`, and says where."""
    try:
        return _Checking(os.fspath(path), progress or (lambda done, total: None)).checked()
    except (JournalDamaged, ValueProblem) as error:
        raise ExportDamaged(f"{path}: {error.message}") from error
    except StoreTooNew as error:
        raise ExportDamaged(f"{path}: {error.message}", hint=error.hint) from error


class _Checking:
    def __init__(self, path: str, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._header: Header | None = None
        self._key: LockedKey | None = None
        self._end: End | None = None
        self._stream: Stream | None = None
        self._along: Chain | None = None
        self._sealed: dict[int, bytes] = {}
        """The links that are signed, and have not been seen yet."""
        self._streams: dict[int, str] = {}
        """The kinds of the streams, by their numbers."""
        self._head = (0, b"")
        self._owner = 0
        self._arrivals: list[r.AgentArrived] = []
        self._own_seal: r.Sealed | None = None
        self._entries = self._objects = 0
        self._archives = 0
        self._expected: dict[str, bytes] = {}
        """The digests of archives, as the journal has them."""
        self._let_go: set[str] = set()
        """The ids of memories that were let go: their archives are named after them."""
        self._absent: list[Absent] = []
        self._awaited: list[Awaited] = []

    def checked(self) -> Checked:
        for line in lines_of(self._path):
            if isinstance(line, Header):
                self._head_line(line)
            elif isinstance(line, LockedKey):
                self._key = line
            elif isinstance(line, Stream):
                self._begin(line)
            elif isinstance(line, Entry):
                self._entry(line)
            elif isinstance(line, Object):
                self._object(line)
            elif isinstance(line, Seal):
                self._seal(line)
            elif isinstance(line, End):
                self._end = line
            else:
                self._beside(line)
        assert self._header is not None, "`lines_of` has seen to that"
        assert self._end is not None, "and to that"
        self._close()
        self._compare(self._header, self._end)
        if self._archives:
            archives.must_be_sound(self._path, self._end.sha256, self._expected, self._let_go)
        about = (self._path, self._header, self._end, self._key, tuple(self._streams), self._head)
        stays = (self._archives, tuple(self._absent), tuple(self._awaited))
        return Checked(*about, tuple(self._arrivals), self._own_seal, *stays)

    def _head_line(self, header: Header) -> None:
        if len(header.public_key) != _KEY_BYTES or not _STORE.fullmatch(header.store):
            raise ExportDamaged(f"{self._path} does not say whose it is")
        self._header = header

    def _beside(self, line: object) -> None:
        self._archives += isinstance(line, Archive)
        if isinstance(line, Absent):
            self._absent.append(line)
        elif isinstance(line, Awaited):
            self._awaited.append(line)
        if len(self._absent) + len(self._awaited) > self._entries:  # each has an entry that it comes from
            raise ExportDamaged(f"{self._path} says that more has stayed behind than there was")

    def _object(self, line: Object) -> None:
        self._objects += 1
        if len(line.id) != objects.ID_BYTES or (line.node and line.size > OBJECT_BYTES_MAX):
            raise ExportDamaged(f"{self._path}: an object is none")
        for _ in objects.pieces(line.size, line.data):
            pass
        self._tell()

    def _begin(self, stream: Stream) -> None:
        self._close()
        before = next(reversed(self._streams), 0)
        if stream.number in self._streams or 0 in self._streams or 0 < stream.number < before:
            raise ExportDamaged(f"{self._path}: stream {stream.number} is out of order, or in it twice")
        assert self._header is not None
        self._streams[stream.number] = stream.kind
        folded = folded_in([(0, r.Kind.FOLDED, 0, stream.folded)]) if stream.folded is not None else None
        self._stream, self._sealed = stream, {}
        self._along = Chain(self._header.store, stream.number, folded) if stream.number else None
        self._expected |= archives.expected_in(stream, self._header.store)

    def _entry(self, entry: Entry) -> None:
        self._entries += 1
        if self._stream is None:
            raise ExportDamaged(f"{self._path}: entry {entry.seq} is in no stream")
        if entry.body is not None:
            self._first(r.decode(entry.kind, entry.body))
        if self._along is not None:
            # Of what is not all there, the digest is what the chain covers.
            body = entry.body if entry.digest is None else None
            for what, seq, text in self._along.follow(
                (entry.seq, entry.kind, entry.at, body, entry.chain, entry.digest)
            ):
                raise ExportDamaged(f"{self._path}: stream {self._stream.number}, entry {seq} ({what}): {text}")
            if self._sealed.pop(entry.seq, entry.chain) != entry.chain:
                raise self._signed_otherwise(entry.seq)
        self._tell()

    def _tell(self) -> None:
        if (self._entries + self._objects) % _TOLD_EVERY == 0 and self._header is not None:
            self._progress(min(self._entries, self._header.entries), self._header.entries)

    def _first(self, record: r.Record) -> None:
        if isinstance(record, r.AgentArrived):
            self._arrivals.append(record)
        if isinstance(record, r.MemoryForgotten) and record.reason == LET_GO:
            self._let_go.update(record.ids)
        if isinstance(record, r.AgentCreated) and self._stream is not None and self._header is not None:
            if self._owner or self._stream.kind != "agent" or not self._stream.number:
                raise ExportDamaged(f"{self._path} has more than one agent in it")
            self._owner = self._stream.number
            if (record.name, record.public_key) != (self._header.agent, self._header.public_key):
                raise ExportDamaged(f"{self._path}: its first line tells of another agent than its journal")

    def _close(self) -> None:
        """A stream has been told."""
        if self._stream is None or self._along is None:
            return
        upto = self._along.folded.upto if self._along.folded is not None else 0
        for seq in self._sealed:
            if seq > upto:  # others were folded since
                raise self._signed_otherwise(seq)
        if self._stream.number == self._owner:
            self._head = (self._along.seq, self._along.links[0])

    def _signed_otherwise(self, seq: int) -> ExportDamaged:
        number = self._stream.number if self._stream is not None else 0
        return ExportDamaged(f"{self._path}: stream {number} was signed otherwise at entry {seq}")

    def _seal(self, seal: Seal) -> None:
        assert self._header is not None
        if self._stream is None or self._along is None:
            raise ExportDamaged(f"{self._path}: a seal is of no stream")
        message = chain.seal_message(self._header.store, self._stream.number, seal.seq, seal.chain, seal.streams)
        if seal.public_key != self._header.public_key or not signed_by(seal.public_key, message, seal.signature):
            raise self._signed_otherwise(seal.seq)
        self._sealed[seal.seq] = seal.chain
        if self._stream.kind == "agent":
            self._own_seal = r.Sealed(self._stream.number, seal.seq, seal.chain, seal.streams, seal.signature)

    def _compare(self, header: Header, end: End) -> None:
        if list(self._streams.values()).count("agent") > 1:
            raise ExportDamaged(f"{self._path} has more than one agent in it")
        if (len(self._streams), self._entries, self._objects) != (end.streams, end.entries, end.objects):
            raise ExportDamaged(f"{self._path} does not have all that it speaks of")
        if not self._owner:
            raise ExportDamaged(f"{self._path} has no stream of an agent in it")
        message = file_message(end.sha256, end.contents)
        if end.signature and not signed_by(header.public_key, message, end.signature):
            raise ExportDamaged(f"{self._path} is not signed by the agent that is in it")
        if self._contents(header) != Digests(end.contents, end.index):
            raise ExportDamaged(f"{self._path} has other contents than its last line says")

    def _contents(self, header: Header) -> Digests:
        """The hashes of what is in the file, all of which belongs to its agent."""
        counted = {number: place for place, number in enumerate(self._streams, start=1) if number}
        contents, belonging = Contents(header.agent, counted), Belonging(self._path, header, self._streams, self._owner)
        try:
            for line in lines_of(self._path, self._end.sha256 if self._end is not None else b""):
                belonging.take(line)
                contents.take(line)
            belonging.finish()
            return contents.digests()
        finally:
            contents.close()
            belonging.close()
