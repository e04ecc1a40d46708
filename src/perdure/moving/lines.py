"""The file that an agent moves in: JSON, one object per line, compressed with zstd (`zstd -dc FILE | jq`).

The first line says whose it is. Then come the agent's streams, one after the other: each with its entries, as the store
has them, with their links; large values before the entry that refers to them, and their parts before them; the signed
heads. Then what its values are found by; the archives that lie beside the store, byte for byte; and what has stayed
behind. The last line has the SHA-256 of all lines before it, the hash of the contents (`contents.py`), and the
signature of both. If the private key goes along, it is the line before that, and is encrypted for this file alone.

A file is not trusted: lines come in a fixed order, numbers have bounds, and nothing expands beyond what `bounded.py`
allows for the size of the file.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from hashlib import sha256
from typing import Any

import msgspec

from ..bounded import Count, EntryNumber, Gauge, lines_in, opened
from ..errors import ExportDamaged
from ..limits import NAME_CHARACTERS_MAX
from ..store.base import holds

FORMAT = "perdure agent 2"


class Header(msgspec.Struct, frozen=True, tag_field="line", tag="agent", forbid_unknown_fields=True):
    """Who is in the file, and where it comes from."""

    format: str
    agent: str
    public_key: bytes
    store: str
    at: Count
    move: bool
    streams: Count
    entries: Count
    """About how many there will be: for who shows how far it is."""
    private_key: bool = False
    """Whether the private key is in the file."""


class Stream(msgspec.Struct, frozen=True, tag_field="line", tag="stream", forbid_unknown_fields=True):
    """A stream; its entries follow. Number 0 has what was written for the agent in streams of others."""

    number: Count
    kind: str
    name: str
    at: Count
    fence: Count = 1
    ordered: Count = 0
    folded: bytes | None = None
    """The body of the entry that tells what was folded of it."""


class Entry(msgspec.Struct, frozen=True, tag_field="line", tag="entry", forbid_unknown_fields=True):
    """One entry. With a digest, the body is not all of what was written, or nothing: the rest is erased, or others'."""

    seq: EntryNumber
    kind: Count
    at: Count
    body: bytes | None
    chain: bytes
    digest: bytes | None = None


class Object(msgspec.Struct, frozen=True, tag_field="line", tag="object", forbid_unknown_fields=True):
    """A large value, or a part of one, as the store has it. A node has references to others in it."""

    id: bytes
    node: bool
    size: Count
    data: bytes


class Seal(msgspec.Struct, frozen=True, tag_field="line", tag="seal", forbid_unknown_fields=True):
    """A signed head of the stream that is told just now."""

    seq: EntryNumber
    chain: bytes
    streams: Count
    public_key: bytes
    signature: bytes


class Found(msgspec.Struct, frozen=True, tag_field="line", tag="document", forbid_unknown_fields=True):
    """What a value is found by: its vector can only be made again by its model."""

    kind: str
    space: str
    key: str
    part: str
    version: Count
    text: bytes
    embedder: str
    vector: bytes
    words: bool


class Indexed(msgspec.Struct, frozen=True, tag_field="line", tag="piece", forbid_unknown_fields=True):
    """What a memory is found by."""

    memory: str
    part: Count
    thread: str
    place: Count
    length: Count
    asks: Count
    day: Count
    told: bytes
    terms: str


class Vector(msgspec.Struct, frozen=True, tag_field="line", tag="vector", forbid_unknown_fields=True):
    """What a model has made of it."""

    memory: str
    part: Count
    embedder: str
    vector: bytes


class Used(msgspec.Struct, frozen=True, tag_field="line", tag="use", forbid_unknown_fields=True):
    """How often a memory was of use, and when last."""

    memory: str
    uses: Count
    last: Count


class Archive(msgspec.Struct, frozen=True, tag_field="line", tag="archive", forbid_unknown_fields=True):
    """A file from beside the store, of entries that were folded or of memories that were let go; its parts follow."""

    name: str
    """With the identity of the store that it is of, if it has the name of a stream."""
    size: Count


class Part(msgspec.Struct, frozen=True, tag_field="line", tag="part", forbid_unknown_fields=True):
    """The next bytes of it."""

    data: bytes


class Absent(msgspec.Struct, frozen=True, tag_field="line", tag="absent", forbid_unknown_fields=True):
    """An archive that is not in the file."""

    name: str
    where: str
    """The folder in which it was looked for."""
    why: str


class Awaited(msgspec.Struct, frozen=True, tag_field="line", tag="awaited", forbid_unknown_fields=True):
    """A run in the file that waits for the end of a run of another agent, which is not in it."""

    run: str
    agent: str
    of: str
    """The id of the other agent's run."""


class LockedKey(msgspec.Struct, frozen=True, tag_field="line", tag="key", forbid_unknown_fields=True):
    """The private key, for who knows the passphrase: scrypt, then AES-GCM. It opens in this file only."""

    salt: bytes
    cost: Count
    nonce: bytes
    sealed: bytes
    digest: bytes
    """The SHA-256 of all lines before this one: the encryption covers it."""


class End(msgspec.Struct, frozen=True, tag_field="line", tag="end", forbid_unknown_fields=True):
    """The last line."""

    streams: Count
    entries: Count
    objects: Count
    sha256: bytes
    contents: bytes
    index: bytes
    """The hash of what things are found by."""
    signature: bytes = b""


Beside = Archive | Part | Absent | Awaited
"""What is no part of the agent's contents."""
Line = Header | Stream | Entry | Object | Seal | Found | Indexed | Vector | Used | Beside | LockedKey | End
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()

_ORDER: dict[type, int] = {
    **dict.fromkeys((Stream, Entry, Object, Seal), 1),
    **{kind: place for place, kind in enumerate((Found, Indexed, Vector, Used), start=2)},
    **dict.fromkeys((Archive, Part), 6),
    Absent: 7,
    Awaited: 8,
    LockedKey: 9,
    End: 10,
}
"""Which lines come after which. The header comes first."""


class Writer:
    """Writes lines, and counts them."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._running = sha256()
        self._gauge = Gauge()
        self.streams = self.entries = self.objects = 0

    def put(self, line: Line) -> None:
        """One line more."""
        data = _ENCODER.encode(line) + b"\n"
        self._running.update(data)
        self._out.write(data)
        self._gauge.whole(len(data))
        self._gauge.value(expands_to(line))
        self.streams += isinstance(line, Stream)
        self.entries += isinstance(line, Entry)
        self.objects += isinstance(line, Object)

    @property
    def digest(self) -> bytes:
        """Of all lines so far."""
        return self._running.digest()

    @property
    def needed(self) -> int:
        """How large the file must be, so that its reader accepts what it expands to."""
        return self._gauge.needed


def expands_to(line: Line) -> int:
    """How much a reader unpacks or copies because of a line, apart from the line itself."""
    return line.size if isinstance(line, Object | Archive) else 0


def lines_of(path: str | os.PathLike[str], expected: bytes = b"") -> Generator[Line]:
    """The lines of a file, one after the other, compared with the digest in the last one, and with the expected one."""
    import zstandard

    gauge, reading = Gauge(), _Reading(path, expected)
    try:
        with opened(path, ExportDamaged) as (file, size):
            for raw in lines_in(file, size, gauge, reading.problem):
                line = _DECODER.decode(raw)
                gauge.value(expands_to(line))
                reading.take(raw, line)
                yield line
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ExportDamaged(f"{path} holds no agent, or is damaged: {error}") from error
    reading.close()


class _Reading:
    """Compares lines with the order that they must have, and with the digests among them."""

    def __init__(self, path: str | os.PathLike[str], expected: bytes) -> None:
        self._path = path
        self._expected = expected
        self._running = sha256()
        self._place = -1
        self._has_key = self._key_seen = False

    def problem(self, text: str) -> ExportDamaged:
        """Says which file it is."""
        return ExportDamaged(f"{self._path}: {text}")

    def take(self, raw: bytes, line: Line) -> None:
        """One line more."""
        place = _ORDER.get(type(line), 0)
        if self._place == _ORDER[End]:
            raise ExportDamaged(f"{self._path} goes on after its last line")
        if (self._place < 0) != isinstance(line, Header):
            raise ExportDamaged(f"{self._path} does not begin with whose it is")
        if place < self._place or (isinstance(line, LockedKey) and self._key_seen):
            raise ExportDamaged(f"{self._path}: its lines are out of order")
        self._place = place
        if isinstance(line, Header):
            self._begin(line)
        elif isinstance(line, LockedKey):
            self._key_seen = True
            self._must_be_digest(line.digest)
        elif isinstance(line, End):
            self._end(line)
        self._running.update(raw)

    def close(self) -> None:
        """The file has ended."""
        if self._place != _ORDER[End]:
            raise ExportDamaged(f"{self._path} has no last line: it is cut off")

    def _begin(self, header: Header) -> None:
        if header.format != FORMAT:
            raise ExportDamaged(
                f"{self._path} is in the format {header.format!r}, and this version knows {FORMAT!r}",
                hint="import it with the version of Perdure that wrote it, or a later one",
            )
        if not 0 < len(header.agent) <= NAME_CHARACTERS_MAX or not holds(header.agent):
            raise ExportDamaged(f"{self._path} is of an agent with a name that none has")
        self._has_key = header.private_key

    def _end(self, end: End) -> None:
        if self._has_key != self._key_seen:
            raise ExportDamaged(f"{self._path}: its first line says otherwise whether the private key is in it")
        self._must_be_digest(end.sha256)
        if self._expected and self._expected != end.sha256:
            raise ExportDamaged(f"{self._path} was replaced by another file while it was imported")

    def _must_be_digest(self, digest: bytes) -> None:
        if self._running.digest() != digest:
            raise ExportDamaged(f"{self._path} has been changed: its contents do not fit its last line")


def header_of(path: str | os.PathLike[str]) -> Header:
    """Whose file it is, before anything of it is believed."""
    with closing(lines_of(path)) as lines:
        line = next(lines, None)
    if not isinstance(line, Header):
        raise ExportDamaged(f"{path} is empty")
    return line
