"""The agent file: JSON, one object per line, compressed with zstd (`zstd -dc FILE | jq`).

The first line names the agent. Its streams follow, each with its entries as stored, their chain links, and its signed
heads. Large values precede the entry that refers to them, and parts precede wholes. Then come the indexes, the archives
byte for byte, and a list of what stayed behind. The last line has the SHA-256 of all lines before it, the hash of the
contents (`content_hash.py`), and the signature of both. An included private key is the line before that, encrypted
for this file alone.

A file is not trusted: the order of lines is fixed, numbers are bounded, and nothing expands beyond what
`platform/bounded_lines.py` allows for the size of the file.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from hashlib import sha256
from typing import Any

import msgspec

from perdure.errors import ExportDamaged
from perdure.platform.bounded_lines import BoundedCount, EntryNumber, ExpansionGauge, lines_in, open_regular_file
from perdure.store.base import is_storable_name
from perdure.values.limits import NAME_CHARACTERS_MAX

FORMAT = "perdure agent 2"


class ExportHeader(msgspec.Struct, frozen=True, tag_field="line", tag="agent", forbid_unknown_fields=True):
    """The agent of the file, and its origin."""

    format: str
    agent: str
    public_key: bytes
    store: str
    at: BoundedCount
    move: bool
    streams: BoundedCount
    entries: BoundedCount
    """The approximate number of entries, to show progress."""
    private_key: bool = False
    """Whether the private key is in the file."""


class ExportStream(msgspec.Struct, frozen=True, tag_field="line", tag="stream", forbid_unknown_fields=True):
    """A stream; its entries follow. Number 0 has what was written for the agent in streams of others."""

    number: BoundedCount
    kind: str
    name: str
    at: BoundedCount
    fence: BoundedCount = 1
    ordered: BoundedCount = 0
    compaction: bytes | None = None
    """The body of the entry that records its compaction."""


class ExportEntry(msgspec.Struct, frozen=True, tag_field="line", tag="entry", forbid_unknown_fields=True):
    """One entry. If it has a digest, the body is missing or partial: the rest is erased, or belongs to others."""

    seq: EntryNumber
    kind: BoundedCount
    at: BoundedCount
    body: bytes | None
    chain: bytes
    digest: bytes | None = None


class ExportObject(msgspec.Struct, frozen=True, tag_field="line", tag="object", forbid_unknown_fields=True):
    """A large value or a part of one, as stored. A node contains references to others."""

    id: bytes
    node: bool
    size: BoundedCount
    data: bytes


class ExportSeal(msgspec.Struct, frozen=True, tag_field="line", tag="seal", forbid_unknown_fields=True):
    """A signed head of the current stream."""

    seq: EntryNumber
    chain: bytes
    streams: BoundedCount
    public_key: bytes
    signature: bytes


class ExportDocument(msgspec.Struct, frozen=True, tag_field="line", tag="document", forbid_unknown_fields=True):
    """The index of a value of state. Only its model can recreate the vector."""

    kind: str
    space: str
    key: str
    part: str
    version: BoundedCount
    text: bytes
    embedder: str
    vector: bytes
    words: bool


class ExportPiece(msgspec.Struct, frozen=True, tag_field="line", tag="piece", forbid_unknown_fields=True):
    """The index of a memory."""

    memory: str
    part: BoundedCount
    thread: str
    place: BoundedCount
    length: BoundedCount
    asks: BoundedCount
    day: BoundedCount
    told: bytes
    terms: str


class ExportVector(msgspec.Struct, frozen=True, tag_field="line", tag="vector", forbid_unknown_fields=True):
    """The vector of a piece."""

    memory: str
    part: BoundedCount
    embedder: str
    vector: bytes


class ExportUse(msgspec.Struct, frozen=True, tag_field="line", tag="use", forbid_unknown_fields=True):
    """How often a memory was recalled, and when last."""

    memory: str
    uses: BoundedCount
    last: BoundedCount


class ExportArchive(msgspec.Struct, frozen=True, tag_field="line", tag="archive", forbid_unknown_fields=True):
    """An archive of compacted entries or dropped memories; its parts follow."""

    name: str
    """Includes the identity of the store of origin if it is the archive of a stream."""
    size: BoundedCount


class ExportArchivePart(msgspec.Struct, frozen=True, tag_field="line", tag="part", forbid_unknown_fields=True):
    """The next bytes of an archive."""

    data: bytes


class ExportAbsentArchive(msgspec.Struct, frozen=True, tag_field="line", tag="absent", forbid_unknown_fields=True):
    """An archive that is not in the file."""

    name: str
    where: str
    """The folder in which it was expected."""
    why: str


class ExportAwaitedRun(msgspec.Struct, frozen=True, tag_field="line", tag="awaited", forbid_unknown_fields=True):
    """A run in the file that waits for a run of another agent, which is not in the file."""

    run: str
    agent: str
    of: str
    """The id of the other agent's run."""


class LockedKey(msgspec.Struct, frozen=True, tag_field="line", tag="key", forbid_unknown_fields=True):
    """The private key, encrypted with a passphrase (scrypt, then AES-GCM) and bound to this file."""

    salt: bytes
    cost: BoundedCount
    nonce: bytes
    sealed: bytes
    digest: bytes
    """The SHA-256 of all lines before this one: the encryption covers it."""


class ExportEnd(msgspec.Struct, frozen=True, tag_field="line", tag="end", forbid_unknown_fields=True):
    """The last line."""

    streams: BoundedCount
    entries: BoundedCount
    objects: BoundedCount
    sha256: bytes
    contents: bytes
    index: bytes
    """The hash of the indexes."""
    signature: bytes = b""


ExportSideLine = ExportArchive | ExportArchivePart | ExportAbsentArchive | ExportAwaitedRun
"""Lines that are not part of the agent's contents."""
ExportLine = (
    ExportHeader
    | ExportStream
    | ExportEntry
    | ExportObject
    | ExportSeal
    | ExportDocument
    | ExportPiece
    | ExportVector
    | ExportUse
    | ExportSideLine
    | LockedKey
    | ExportEnd
)
_DECODER: msgspec.json.Decoder[ExportLine] = msgspec.json.Decoder(ExportLine)
_ENCODER = msgspec.json.Encoder()

_ORDER: dict[type, int] = {
    **dict.fromkeys((ExportStream, ExportEntry, ExportObject, ExportSeal), 1),
    **{kind: place for place, kind in enumerate((ExportDocument, ExportPiece, ExportVector, ExportUse), start=2)},
    **dict.fromkeys((ExportArchive, ExportArchivePart), 6),
    ExportAbsentArchive: 7,
    ExportAwaitedRun: 8,
    LockedKey: 9,
    ExportEnd: 10,
}
"""Which lines may follow which. The header comes first."""


class ExportWriter:
    """Writes and counts lines."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._running = sha256()
        self._gauge = ExpansionGauge()
        self.streams = self.entries = self.objects = 0

    def put(self, line: ExportLine) -> None:
        """Write one line."""
        data = _ENCODER.encode(line) + b"\n"
        self._running.update(data)
        self._out.write(data)
        self._gauge.count_line(len(data))
        self._gauge.value(expands_to(line))
        self.streams += isinstance(line, ExportStream)
        self.entries += isinstance(line, ExportEntry)
        self.objects += isinstance(line, ExportObject)

    @property
    def digest(self) -> bytes:
        """Return the digest of all lines so far."""
        return self._running.digest()

    @property
    def needed(self) -> int:
        """The minimum size of the file, so that its reader accepts what it expands to."""
        return self._gauge.needed


def expands_to(line: ExportLine) -> int:
    """Return how many bytes a reader unpacks or copies because of a line, apart from the line itself."""
    return line.size if isinstance(line, ExportObject | ExportArchive) else 0


def lines_of(path: str | os.PathLike[str], expected: bytes = b"") -> Generator[ExportLine]:
    """Yield the lines of a file, checked against the digest in the last one and against the expected one."""
    import zstandard

    gauge, reading = ExpansionGauge(), _ExportReading(path, expected)
    try:
        with open_regular_file(path, ExportDamaged) as (file, size):
            for raw in lines_in(file, size, gauge, reading.problem):
                line = _DECODER.decode(raw)
                gauge.value(expands_to(line))
                reading.take(raw, line)
                yield line
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ExportDamaged(f"{path} holds no agent, or is damaged: {error}") from error
    reading.close()


class _ExportReading:
    """Checks the order of lines, and the digests among them."""

    def __init__(self, path: str | os.PathLike[str], expected: bytes) -> None:
        self._path = path
        self._expected = expected
        self._running = sha256()
        self._place = -1
        self._has_key = self._key_seen = False

    def problem(self, text: str) -> ExportDamaged:
        """Return an error that names the file."""
        return ExportDamaged(f"{self._path}: {text}")

    def take(self, raw: bytes, line: ExportLine) -> None:
        """Check one line."""
        place = _ORDER.get(type(line), 0)
        if self._place == _ORDER[ExportEnd]:
            raise ExportDamaged(f"{self._path} continues after its last line")
        if (self._place < 0) != isinstance(line, ExportHeader):
            raise ExportDamaged(f"{self._path} does not begin with a header")
        if place < self._place or (isinstance(line, LockedKey) and self._key_seen):
            raise ExportDamaged(f"{self._path}: its lines are out of order")
        self._place = place
        if isinstance(line, ExportHeader):
            self._begin(line)
        elif isinstance(line, LockedKey):
            self._key_seen = True
            self._must_be_digest(line.digest)
        elif isinstance(line, ExportEnd):
            self._end(line)
        self._running.update(raw)

    def close(self) -> None:
        """Check that the file is complete."""
        if self._place != _ORDER[ExportEnd]:
            raise ExportDamaged(f"{self._path} has no last line: it is truncated")

    def _begin(self, header: ExportHeader) -> None:
        if header.format != FORMAT:
            raise ExportDamaged(
                f"{self._path} has the format {header.format!r}, but this version reads {FORMAT!r}",
                hint="import it with the version of Perdure that wrote it, or a later one",
            )
        if not 0 < len(header.agent) <= NAME_CHARACTERS_MAX or not is_storable_name(header.agent):
            raise ExportDamaged(f"{self._path}: the name of its agent is not valid")
        self._has_key = header.private_key

    def _end(self, end: ExportEnd) -> None:
        if self._has_key != self._key_seen:
            raise ExportDamaged(f"{self._path}: its first line is wrong about whether it holds the private key")
        self._must_be_digest(end.sha256)
        if self._expected and self._expected != end.sha256:
            raise ExportDamaged(f"{self._path} was replaced by another file while it was imported")

    def _must_be_digest(self, digest: bytes) -> None:
        if self._running.digest() != digest:
            raise ExportDamaged(f"{self._path} has been changed: its contents do not match its last line")


def header_of(path: str | os.PathLike[str]) -> ExportHeader:
    """Return the header of a file, unverified."""
    with closing(lines_of(path)) as lines:
        line = next(lines, None)
    if not isinstance(line, ExportHeader):
        raise ExportDamaged(f"{path} is empty")
    return line
