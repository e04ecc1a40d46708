"""The file that an agent moves in: JSON, one object per line, compressed with zstd (`zstd -dc FILE | jq`).

The first line says whose it is. Then come the agent's streams, one after the other: each with its entries, as the store
has them, with their links; large values before the entry that refers to them, and their parts before them; the signed
heads. Then what its values are found by; the archives that lie beside the store, byte for byte; and what has stayed
behind. The last line has the SHA-256 of all lines before it, the hash of the contents (`contents.py`), and the
signature of both.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import closing
from hashlib import sha256
from typing import Any

import msgspec

from ..errors import ExportDamaged

FORMAT = "perdure agent 1"
LINE_BYTES_MAX = 1 << 30


class Header(msgspec.Struct, frozen=True, tag_field="line", tag="agent"):
    """Who is in the file, and where it comes from."""

    format: str
    agent: str
    public_key: bytes
    store: str
    at: int
    move: bool
    streams: int
    entries: int
    """About how many there will be: for who shows how far it is."""


class LockedKey(msgspec.Struct, frozen=True, tag_field="line", tag="key"):
    """The private key, for who knows the passphrase: scrypt, then AES-GCM."""

    salt: bytes
    cost: int
    nonce: bytes
    sealed: bytes


class Stream(msgspec.Struct, frozen=True, tag_field="line", tag="stream"):
    """A stream; its entries follow. Number 0 has what was written for the agent in streams of others."""

    number: int
    kind: str
    name: str
    at: int
    fence: int = 1
    ordered: int = 0
    folded: bytes | None = None
    """The body of the entry that tells what was folded of it."""


class Entry(msgspec.Struct, frozen=True, tag_field="line", tag="entry"):
    """One entry. With a digest, the body is not all of what was written, or nothing: the rest is erased, or others'."""

    seq: int
    kind: int
    at: int
    body: bytes | None
    chain: bytes
    digest: bytes | None = None


class Object(msgspec.Struct, frozen=True, tag_field="line", tag="object"):
    """A large value, or a part of one, as the store has it. A node has references to others in it."""

    id: bytes
    node: bool
    size: int
    data: bytes


class Seal(msgspec.Struct, frozen=True, tag_field="line", tag="seal"):
    """A signed head of the stream that is told just now."""

    seq: int
    chain: bytes
    streams: int
    public_key: bytes
    signature: bytes


class Found(msgspec.Struct, frozen=True, tag_field="line", tag="document"):
    """What a value is found by: its vector can only be made again by its model."""

    kind: str
    space: str
    key: str
    part: str
    version: int
    text: bytes
    embedder: str
    vector: bytes
    words: bool


class Indexed(msgspec.Struct, frozen=True, tag_field="line", tag="piece"):
    """What a memory is found by."""

    memory: str
    part: int
    thread: str
    place: int
    length: int
    asks: int
    day: int
    told: bytes
    terms: str


class Vector(msgspec.Struct, frozen=True, tag_field="line", tag="vector"):
    """What a model has made of it."""

    memory: str
    part: int
    embedder: str
    vector: bytes


class Used(msgspec.Struct, frozen=True, tag_field="line", tag="use"):
    """How often a memory was of use, and when last."""

    memory: str
    uses: int
    last: int


class Archive(msgspec.Struct, frozen=True, tag_field="line", tag="archive"):
    """A file from beside the store, of entries that were folded or of memories that were let go; its parts follow."""

    name: str
    """With the identity of the store that it is of, if it has the name of a stream."""
    size: int


class Part(msgspec.Struct, frozen=True, tag_field="line", tag="part"):
    """The next bytes of it."""

    data: bytes


class Absent(msgspec.Struct, frozen=True, tag_field="line", tag="absent"):
    """An archive that is not in the file."""

    name: str
    where: str
    """The folder in which it was looked for."""
    why: str


class Awaited(msgspec.Struct, frozen=True, tag_field="line", tag="awaited"):
    """A run in the file that waits for the end of a run of another agent, which is not in it."""

    run: str
    agent: str
    of: str
    """The id of the other agent's run."""


class End(msgspec.Struct, frozen=True, tag_field="line", tag="end"):
    """The last line."""

    streams: int
    entries: int
    objects: int
    sha256: bytes
    contents: bytes
    index: bytes
    """The hash of what things are found by."""
    signature: bytes = b""


Beside = Archive | Part | Absent | Awaited
"""What is no part of the agent's contents."""
Line = Header | LockedKey | Stream | Entry | Object | Seal | Found | Indexed | Vector | Used | Beside | End
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


class Writer:
    """Writes lines, and counts them."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._running = sha256()
        self.streams = self.entries = self.objects = 0

    def put(self, line: Line) -> None:
        """One line more."""
        data = _ENCODER.encode(line) + b"\n"
        self._running.update(data)
        self._out.write(data)
        self.streams += isinstance(line, Stream)
        self.entries += isinstance(line, Entry)
        self.objects += isinstance(line, Object)

    @property
    def digest(self) -> bytes:
        """Of all lines so far."""
        return self._running.digest()


def lines_of(path: str | os.PathLike[str]) -> Generator[Line]:
    """The lines of a file, one after the other, compared with the digest in the last one."""
    import zstandard

    running, ended = sha256(), False
    try:
        with open(path, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as plain:
            for number, raw in enumerate(_split(plain)):
                if ended:
                    raise ExportDamaged(f"{path} goes on after its last line")
                line = _DECODER.decode(raw)
                if (number == 0) != isinstance(line, Header):
                    raise ExportDamaged(f"{path} does not begin with whose it is")
                if isinstance(line, Header) and line.format != FORMAT:
                    raise ExportDamaged(
                        f"{path} is in the format {line.format!r}, and this version knows {FORMAT!r}",
                        hint="import it with the version of Perdure that wrote it, or a later one",
                    )
                if isinstance(line, End):
                    ended = True
                    if running.digest() != line.sha256:
                        raise ExportDamaged(f"{path} has been changed: its contents do not fit its last line")
                running.update(raw)
                yield line
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ExportDamaged(f"{path} holds no agent, or is damaged: {error}") from error
    if not ended:
        raise ExportDamaged(f"{path} has no last line: it is cut off")


def header_of(path: str | os.PathLike[str]) -> Header:
    """Whose file it is, before anything of it is believed."""
    with closing(lines_of(path)) as lines:
        line = next(lines)
    assert isinstance(line, Header), "`lines_of` sees to that"
    return line


def has_key(path: str | os.PathLike[str]) -> bool:
    """Whether the private key is in a file: it comes right behind the header."""
    with closing(lines_of(path)) as lines:
        next(lines)
        return isinstance(next(lines), LockedKey)


def _split(plain: Any) -> Iterable[bytes]:
    rest: list[bytes] = []
    waiting = 0
    while piece := plain.read(1 << 20):
        first, *more = piece.split(b"\n")
        rest.append(first)
        waiting += len(first)
        if waiting > LINE_BYTES_MAX:
            raise ExportDamaged("a line is longer than any that Perdure writes")
        for part in more:
            yield b"".join(rest) + b"\n"
            rest, waiting = [part], len(part)
    if waiting:
        yield b"".join(rest)
