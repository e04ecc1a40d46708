"""Archives: self-verifying files with the entries that compaction removes from a stream.

A file is JSON lines, compressed with zstd (`zstd -dc FILE | jq`). The first line names the stream, the range of
entries, and the links before the first and of the last one. Then come the entries with their links, the large values
that they refer to, the signed heads, and a last line with the SHA-256 of all lines before it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec

from perdure.errors import ArchiveDamaged
from perdure.journal import chain, trees
from perdure.journal.keys import is_signed_by
from perdure.journal.objects import iterate_packed
from perdure.journal.stream_reader import pages
from perdure.platform.bounded_lines import (
    BoundedCount,
    EntryNumber,
    ExpansionGauge,
    lines_in,
    make_padding,
    open_regular_file,
)
from perdure.platform.failpoints import CommitMoment, Site, reach
from perdure.platform.files import atomic_write, make_folder
from perdure.records import EntryKind, decode
from perdure.store import file_of, is_embedded
from perdure.store.base import Store

FORMAT = "perdure archive 1"


class ArchiveHeader(msgspec.Struct, frozen=True, tag_field="line", tag="archive", forbid_unknown_fields=True):
    """The first line: the contents of the file. Links are hexadecimal."""

    format: str
    store: str
    stream: BoundedCount
    kind: str
    name: str
    first: EntryNumber
    upto: EntryNumber
    before: str
    """The link that the first entry is chained to."""
    head: str
    """The link of the last entry."""
    previous: str = ""
    """The archive with the preceding entries, by its name in the archive folder of the original store."""


class ArchiveEntry(msgspec.Struct, frozen=True, tag_field="line", tag="entry", forbid_unknown_fields=True):
    """One entry. The body is base64; an erased entry has only the digest."""

    seq: EntryNumber
    kind: BoundedCount
    at: BoundedCount
    body: bytes | None
    chain: str
    digest: bytes | None = None


class ArchiveObject(msgspec.Struct, frozen=True, tag_field="line", tag="object", forbid_unknown_fields=True):
    """A large value in its stored form."""

    id: str
    size: BoundedCount
    data: bytes


class ArchiveSeal(msgspec.Struct, frozen=True, tag_field="line", tag="seal", forbid_unknown_fields=True):
    """A signed head."""

    seq: EntryNumber
    chain: str
    streams: BoundedCount
    public_key: bytes
    signature: bytes


class ArchiveEnd(msgspec.Struct, frozen=True, tag_field="line", tag="end", forbid_unknown_fields=True):
    """The last line."""

    entries: BoundedCount
    objects: BoundedCount
    sha256: str


ArchiveLine = ArchiveHeader | ArchiveEntry | ArchiveObject | ArchiveSeal | ArchiveEnd
_DECODER: msgspec.json.Decoder[ArchiveLine] = msgspec.json.Decoder(ArchiveLine)
_ENCODER = msgspec.json.Encoder()


class _EveryCheckpoint:
    """Excludes checkpoint values from archives: they are in the store, or were deleted on purpose."""

    def __contains__(self, which: object) -> bool:
        return True


def folder_of(store: Store) -> str:
    """Return the archive folder of a store: next to its file, or in the home folder for a server."""
    path = file_of(store.url)
    if path is not None:
        return path + ".archive"
    home = os.path.join(os.path.expanduser("~"), ".perdure", "archive")
    return os.path.join(home, store.identity if not is_embedded(store.url) else "memory")


_NAME = re.compile(r"(?:([0-9a-f]{32})-)?([0-9]{8,20}-[0-9]{10,20}-[0-9]{10,20}\.jsonl\.zst)")
"""Archive names: the store's identity if it is another store, the stream, the first and the last entry."""


def name_of(header: ArchiveHeader) -> str:
    """Return the name of an archive in the folder of its own store."""
    return f"{header.stream:08}-{header.first:010}-{header.upto:010}.jsonl.zst"


def name_at(store: str, of: str, name: str) -> str:
    """Translate an archive's name in the folder of store `of` to its name in the folder of `store`.

    Stream numbers are unique within a store only, so archives from another store are prefixed with its identity. With
    an empty `store` the result always has the prefix. An invalid name gives an empty result.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return ""
    whose = found[1] or of
    return found[2] if whose == store else f"{whose}-{found[2]}"


_STAYS = frozenset({EntryKind.MEMORY_KEPT, EntryKind.MEMORY_SEEN})
"""Entries that compaction keeps. Archives have only their digests, so that forgetting leaves no copy."""


# -- writing ----------------------------------------------------------------------------------------------------------


def write(store: Store, folder: str, header: ArchiveHeader) -> tuple[str, bytes]:
    """Write the entries that the header names; return the path of the durable file and the digest of its contents.

    A second call writes the same file.
    """
    import zstandard

    make_folder(os.path.abspath(folder))
    path = os.path.join(os.path.abspath(folder), name_of(header))
    reach(Site.ARCHIVE, CommitMoment.BEFORE)
    with atomic_write(path) as file:
        reach(Site.ARCHIVE, CommitMoment.BEGUN)
        with zstandard.ZstdCompressor(level=9).stream_writer(file, closefd=False) as out:
            digest, needed = _write_lines(out, store, header)
        file.writelines(make_padding(file.tell(), needed))
        reach(Site.ARCHIVE, CommitMoment.WRITTEN)
    reach(Site.ARCHIVE, CommitMoment.AFTER)
    return path, digest


def _write_lines(out: Any, store: Store, header: ArchiveHeader) -> tuple[bytes, int]:
    """Return the digest of the lines, and the smallest file size that the reader's expansion limit accepts."""
    entries, identities, running, gauge = 0, dict[bytes, None](), sha256(), ExpansionGauge()

    def put(line: ArchiveLine) -> None:
        data = _ENCODER.encode(line) + b"\n"
        running.update(data)
        out.write(data)
        gauge.count_line(len(data))
        gauge.value(line.size if isinstance(line, ArchiveObject) else 0)

    put(header)
    for entry in _entries(store, header):
        put(entry)
        entries += 1
        if entry.body is not None:
            for packed in iterate_packed(decode(entry.kind, entry.body), _EveryCheckpoint()):
                identities.update(dict.fromkeys(trees.references(store, packed)))
    for identity in identities:
        [(size, data)] = store.read("get_object", (identity,))
        put(ArchiveObject(identity.hex(), size, data))
    for _, seq, link, streams, public_key, signature in store.read("seals_of", (header.stream,)):
        if header.first <= seq <= header.upto:
            put(ArchiveSeal(seq, link.hex(), streams, public_key, signature))
    digest = running.digest()
    put(ArchiveEnd(entries, len(identities), digest.hex()))
    return digest, gauge.needed


def _entries(store: Store, header: ArchiveHeader) -> Iterator[ArchiveEntry]:
    for page in pages(store, header.stream, header.first):
        for seq, kind, at, body, link, digest in page:
            if seq > header.upto:
                return
            if kind in _STAYS and body is not None:
                yield ArchiveEntry(seq, kind, at, None, link.hex(), chain.body_digest(body))
            else:
                yield ArchiveEntry(seq, kind, at, body, link.hex(), digest)


# -- reading ----------------------------------------------------------------------------------------------------------


class ArchiveContents(msgspec.Struct, frozen=True):
    """The contents of an archive that was read to its end and verified."""

    header: ArchiveHeader
    entries: int
    objects: int
    seals: int
    digest: bytes


def lines_of(path: str | os.PathLike[str]) -> Iterator[ArchiveLine]:
    """Yield the lines of an archive and check them against the digest in the last one."""
    with open_regular_file(path, ArchiveDamaged) as (file, size):
        yield from lines_in_file(file, size, path)


def lines_in_file(file: Any, size: int, path: str | os.PathLike[str]) -> Iterator[ArchiveLine]:
    """Yield and check the lines of an archive of `size` bytes from `file`; errors name it `path`."""
    import zstandard

    running, ended, gauge = sha256(), False, ExpansionGauge()
    try:
        for raw in lines_in(file, size, gauge, lambda text: ArchiveDamaged(f"{path}: {text}")):
            if ended:
                raise ArchiveDamaged(f"{path} goes on after its last line")
            line = _DECODER.decode(raw)
            if isinstance(line, ArchiveObject):
                gauge.value(line.size)
            if isinstance(line, ArchiveEnd):
                ended = True
                if running.hexdigest() != line.sha256:
                    raise ArchiveDamaged(f"{path} has been changed: its contents do not fit its last line")
            running.update(raw)
            yield line
    except (zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveDamaged(f"{path} cannot be read: {error}") from error
    if not ended:
        raise ArchiveDamaged(f"{path} has no last line: it is cut off, or is no archive")


def check(path: str | os.PathLike[str]) -> ArchiveContents:
    """Verify the digest, the chain and the completeness of an archive."""
    return check_lines(lines_of(path), path)


def check_lines(lines: Iterable[ArchiveLine], path: str | os.PathLike[str]) -> ArchiveContents:
    """Verify the lines of an archive; errors name it `path`."""
    header: ArchiveHeader | None = None
    seq = entries = objects = seals = 0
    link = b""
    digest = ""
    links: dict[int, str] = {}
    for line in lines:
        if isinstance(line, ArchiveHeader):
            if header is not None:
                raise ArchiveDamaged(f"{path} has two first lines")
            header, seq, link = line, line.first - 1, _bytes(line.before)
        elif header is None or header.format != FORMAT:
            raise ArchiveDamaged(f"{path} is not in the format that this version knows, {FORMAT!r}")
        elif isinstance(line, ArchiveEntry):
            link = _follow(path, header, line, seq, link)
            seq, entries = line.seq, entries + 1
            links[seq] = line.chain
        elif isinstance(line, ArchiveObject):
            objects += 1
        elif isinstance(line, ArchiveSeal):
            seals += 1
            if links.get(line.seq) != line.chain or not _is_signed(header, line):
                raise ArchiveDamaged(f"{path}: another head was signed at entry {line.seq}")
        else:
            digest = line.sha256
    if header is None or seq != header.upto or link.hex() != header.head:
        raise ArchiveDamaged(f"{path} does not have all entries that its first line names")
    return ArchiveContents(header, entries, objects, seals, _bytes(digest))


def _follow(path: Any, header: ArchiveHeader, entry: ArchiveEntry, before: int, link: bytes) -> bytes:
    covered = chain.body_digest(entry.body) if entry.body is not None else entry.digest or b""
    made = chain.link(link, header.stream, entry.seq, entry.kind, entry.at, covered)
    if entry.seq != before + 1 or made.hex() != entry.chain:
        raise ArchiveDamaged(f"{path}: entry {entry.seq} does not fit the chain")
    return made


def _is_signed(header: ArchiveHeader, seal: ArchiveSeal) -> bool:
    message = chain.seal_message(header.store, header.stream, seal.seq, _bytes(seal.chain), seal.streams)
    return is_signed_by(seal.public_key, message, seal.signature)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""  # equals no digest
