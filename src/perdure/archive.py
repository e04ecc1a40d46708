"""Archives: what was in a stream before it was folded, in a file of its own that proves itself.

A file is JSON, one object per line, compressed with zstd (`zstd -dc FILE | jq`). The first line says which entries of
which stream it has, and the links before the first and of the last one. Then come the entries with their links, the
large values that they refer to, the signed heads, and a last line with the SHA-256 of all lines before it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec

from . import trees
from .bounded import Count, EntryNumber, Gauge, lines_in, opened, padding
from .errors import ArchiveDamaged
from .failpoints import Moment, Site, reach
from .files import make_folder, written_aside
from .journal import chain
from .journal.walk import pages
from .keys import signed_by
from .objects import packed_in
from .records import Kind, decode
from .store import file_of, is_embedded
from .store.base import Store

FORMAT = "perdure archive 1"


class Header(msgspec.Struct, frozen=True, tag_field="line", tag="archive", forbid_unknown_fields=True):
    """What is in the file. Links are hexadecimal."""

    format: str
    store: str
    stream: Count
    kind: str
    name: str
    first: EntryNumber
    upto: EntryNumber
    before: str
    """The link that the first entry is chained to."""
    head: str
    """The link of the last one."""
    previous: str = ""
    """The file that has the entries before, as it is called beside the store that this one is of."""


class Entry(msgspec.Struct, frozen=True, tag_field="line", tag="entry", forbid_unknown_fields=True):
    """One entry. Its body is base64; of an erased one only the digest is left."""

    seq: EntryNumber
    kind: Count
    at: Count
    body: bytes | None
    chain: str
    digest: bytes | None = None


class Object(msgspec.Struct, frozen=True, tag_field="line", tag="object", forbid_unknown_fields=True):
    """A large value as the store has it."""

    id: str
    size: Count
    data: bytes


class Seal(msgspec.Struct, frozen=True, tag_field="line", tag="seal", forbid_unknown_fields=True):
    """A signed head."""

    seq: EntryNumber
    chain: str
    streams: Count
    public_key: bytes
    signature: bytes


class End(msgspec.Struct, frozen=True, tag_field="line", tag="end", forbid_unknown_fields=True):
    """The last line."""

    entries: Count
    objects: Count
    sha256: str


Line = Header | Entry | Object | Seal | End
_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


class _EveryCheckpoint:
    """Of a checkpoint only the entry is archived: the value is in the store, or was deleted on purpose."""

    def __contains__(self, which: object) -> bool:
        return True


def folder_of(store: Store) -> str:
    """Where the archives of a store are: beside its file; for one on a server in the home folder."""
    path = file_of(store.url)
    if path is not None:
        return path + ".archive"
    home = os.path.join(os.path.expanduser("~"), ".perdure", "archive")
    return os.path.join(home, store.identity if not is_embedded(store.url) else "memory")


_NAME = re.compile(r"(?:([0-9a-f]{32})-)?([0-9]{8,20}-[0-9]{10,20}-[0-9]{10,20}\.jsonl\.zst)")
"""What archives are called: the store, if it is another one, then the stream and the first and the last entry."""


def name_of(header: Header) -> str:
    """What an archive is called beside the store that it is of."""
    return f"{header.stream:08}-{header.first:010}-{header.upto:010}.jsonl.zst"


def name_at(store: str, of: str, name: str) -> str:
    """What an archive is called beside a store, that is called `name` beside the store `of`; empty if nothing is.

    Numbers of streams belong to a store: what has come from another one has the identity of that before it. An empty
    `store` is none of them.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return ""
    whose = found[1] or of
    return found[2] if whose == store else f"{whose}-{found[2]}"


_STAYS = frozenset({Kind.MEMORY_KEPT, Kind.MEMORY_SEEN})
"""Entries that are not folded: the archive only has their digests, so that what is forgotten is nowhere else."""


# -- writing ----------------------------------------------------------------------------------------------------------


def write(store: Store, folder: str, header: Header) -> tuple[str, bytes]:
    """Write the entries that a header speaks of; returns the file and the digest of its contents, both durable.

    Done again, it makes the same file again.
    """
    import zstandard

    make_folder(os.path.abspath(folder))
    path = os.path.join(os.path.abspath(folder), name_of(header))
    reach(Site.ARCHIVE, Moment.BEFORE)
    with written_aside(path) as file:
        reach(Site.ARCHIVE, Moment.BEGUN)
        with zstandard.ZstdCompressor(level=9).stream_writer(file, closefd=False) as out:
            digest, needed = _write_lines(out, store, header)
        file.writelines(padding(file.tell(), needed))
        reach(Site.ARCHIVE, Moment.WRITTEN)
    reach(Site.ARCHIVE, Moment.AFTER)
    return path, digest


def _write_lines(out: Any, store: Store, header: Header) -> tuple[bytes, int]:
    """Returns the digest of the lines, and how large the file must be for its reader."""
    entries, identities, running, gauge = 0, dict[bytes, None](), sha256(), Gauge()

    def put(line: Line) -> None:
        data = _ENCODER.encode(line) + b"\n"
        running.update(data)
        out.write(data)
        gauge.whole(len(data))
        gauge.value(line.size if isinstance(line, Object) else 0)

    put(header)
    for entry in _entries(store, header):
        put(entry)
        entries += 1
        if entry.body is not None:
            for packed in packed_in(decode(entry.kind, entry.body), _EveryCheckpoint()):
                identities.update(dict.fromkeys(trees.references(store, packed)))
    for identity in identities:
        [(size, data)] = store.read("get_object", (identity,))
        put(Object(identity.hex(), size, data))
    for _, seq, link, streams, public_key, signature in store.read("seals_of", (header.stream,)):
        if header.first <= seq <= header.upto:
            put(Seal(seq, link.hex(), streams, public_key, signature))
    digest = running.digest()
    put(End(entries, len(identities), digest.hex()))
    return digest, gauge.needed


def _entries(store: Store, header: Header) -> Iterator[Entry]:
    for page in pages(store, header.stream, header.first):
        for seq, kind, at, body, link, digest in page:
            if seq > header.upto:
                return
            if kind in _STAYS and body is not None:
                yield Entry(seq, kind, at, None, link.hex(), chain.body_digest(body))
            else:
                yield Entry(seq, kind, at, body, link.hex(), digest)


# -- reading ----------------------------------------------------------------------------------------------------------


class Contents(msgspec.Struct, frozen=True):
    """What is in an archive that was read to its end, and is whole."""

    header: Header
    entries: int
    objects: int
    seals: int
    digest: bytes


def lines_of(path: str | os.PathLike[str]) -> Iterator[Line]:
    """The lines of an archive, one after the other, compared with the digest in the last one."""
    with opened(path, ArchiveDamaged) as (file, size):
        yield from lines_in_file(file, size, path)


def lines_in_file(file: Any, size: int, path: str | os.PathLike[str]) -> Iterator[Line]:
    """The lines of an archive of `size` bytes, which is read from `file` and called `path`."""
    import zstandard

    running, ended, gauge = sha256(), False, Gauge()
    try:
        for raw in lines_in(file, size, gauge, lambda text: ArchiveDamaged(f"{path}: {text}")):
            if ended:
                raise ArchiveDamaged(f"{path} goes on after its last line")
            line = _DECODER.decode(raw)
            if isinstance(line, Object):
                gauge.value(line.size)
            if isinstance(line, End):
                ended = True
                if running.hexdigest() != line.sha256:
                    raise ArchiveDamaged(f"{path} has been changed: its contents do not fit its last line")
            running.update(raw)
            yield line
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveDamaged(f"{path} cannot be read: {error}") from error
    if not ended:
        raise ArchiveDamaged(f"{path} has no last line: it is cut off, or is no archive")


def check(path: str | os.PathLike[str]) -> Contents:
    """Read an archive to its end: its digest, its chain, and that nothing is missing in between."""
    return check_lines(lines_of(path), path)


def check_lines(lines: Iterable[Line], path: str | os.PathLike[str]) -> Contents:
    """Check the lines of the archive that is called `path`."""
    header: Header | None = None
    seq = entries = objects = seals = 0
    link = b""
    digest = ""
    links: dict[int, str] = {}
    for line in lines:
        if isinstance(line, Header):
            if header is not None:
                raise ArchiveDamaged(f"{path} has two first lines")
            header, seq, link = line, line.first - 1, _bytes(line.before)
        elif header is None or header.format != FORMAT:
            raise ArchiveDamaged(f"{path} is not in the format that this version knows, {FORMAT!r}")
        elif isinstance(line, Entry):
            link = _follow(path, header, line, seq, link)
            seq, entries = line.seq, entries + 1
            links[seq] = line.chain
        elif isinstance(line, Object):
            objects += 1
        elif isinstance(line, Seal):
            seals += 1
            if links.get(line.seq) != line.chain or not _signed(header, line):
                raise ArchiveDamaged(f"{path}: another head was signed at entry {line.seq}")
        else:
            digest = line.sha256
    if header is None or seq != header.upto or link.hex() != header.head:
        raise ArchiveDamaged(f"{path} does not have all entries that it speaks of")
    return Contents(header, entries, objects, seals, _bytes(digest))


def _follow(path: Any, header: Header, entry: Entry, before: int, link: bytes) -> bytes:
    covered = chain.body_digest(entry.body) if entry.body is not None else entry.digest or b""
    made = chain.link(link, header.stream, entry.seq, entry.kind, entry.at, covered)
    if entry.seq != before + 1 or made.hex() != entry.chain:
        raise ArchiveDamaged(f"{path}: entry {entry.seq} does not fit the chain")
    return made


def _signed(header: Header, seal: Seal) -> bool:
    message = chain.seal_message(header.store, header.stream, seal.seq, _bytes(seal.chain), seal.streams)
    return signed_by(seal.public_key, message, seal.signature)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""  # fits nothing
