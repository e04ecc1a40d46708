"""Moves an agent's archives with it: files of compacted entries and of dropped memories.

They are copied byte for byte, because they prove themselves; next to another store their names include the store of
origin. Archives that are missing or hold data of other agents stay behind and are reported.
"""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from functools import partial

import msgspec

from perdure import records as r
from perdure.errors import ArchiveDamaged, ExportDamaged
from perdure.journal import archive
from perdure.journal.stream_reader import decoded_compaction
from perdure.memory.erasure.find import SUFFIX
from perdure.memory.lifecycle.retention import LET_GO
from perdure.platform.bounded_lines import ExpansionGauge, split_lines
from perdure.platform.files import PRIVATE, make_folder, move_into_place, replace_file, temporary_name
from perdure.store.base import Store
from perdure.transfer.collect import AgentInventory
from perdure.transfer.file_format import (
    ExportAbsentArchive,
    ExportArchive,
    ExportArchivePart,
    ExportEntry,
    ExportLine,
    ExportStream,
    lines_of,
)

PART_BYTES = 1 << 18
_NAMED_MAX = 3
_OF_MEMORIES = re.compile(r"[A-Za-z0-9_-]{1,100}" + re.escape(SUFFIX))
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


# -- out of a folder --------------------------------------------------------------------------------------------------


class AgentArchives:
    """The archives of an agent in their folder."""

    def __init__(self, store: Store, folder: str, its: AgentInventory, is_own: Callable[[r.Record], bool]) -> None:
        self._store = store
        self._folder = os.path.abspath(folder)
        self._its = its
        self._is_own = is_own
        there = os.listdir(self._folder) if os.path.isdir(self._folder) else []
        self._there = {name.removesuffix(SUFFIX) for name in there if name.endswith(SUFFIX)}
        self._let_go: dict[str, None] = {}
        self.absent: list[ExportAbsentArchive] = []
        self.count = 0

    def see(self, line: ExportEntry) -> None:
        """Note the memories that an entry dropped: no other entry names their archive."""
        record = r.decode(line.kind, line.body) if line.kind == r.EntryKind.MEMORY_FORGOTTEN and line.body else None
        if isinstance(record, r.MemoryForgotten) and record.reason == LET_GO and record.ids:
            found = [which for which in record.ids if which in self._there]
            self._let_go.update(dict.fromkeys(found))
            if not found:
                why = "it is missing, or all of it was forgotten since"
                self.absent.append(ExportAbsentArchive(min(record.ids) + SUFFIX, self._folder, why))

    def lines(self) -> Iterator[ExportArchive | ExportArchivePart]:
        """Yield all existing archives. Afterwards `absent` has the others."""
        for stream in self._its.streams:
            if (compaction := _compaction(stream)) is not None:
                yield from self._iterate_stream_archives(compaction)
        for which in sorted(self._let_go):
            yield from self._send_archive(which + SUFFIX, os.path.join(self._folder, which + SUFFIX))

    def _iterate_stream_archives(self, compaction: r.StreamCompacted) -> Iterator[ExportArchive | ExportArchivePart]:
        """Yield the archives of one stream, newest first: each names the one before it."""
        name, wanted = compaction.archive, compaction.digest.hex()
        while name:
            path = os.path.join(self._folder, name)
            known = archive.name_at("", self._store.identity, name) or name
            try:
                found = archive.check(path)
            except (OSError, ArchiveDamaged) as error:
                why = error.message if isinstance(error, ArchiveDamaged) else str(error.strerror)
                self.absent.append(ExportAbsentArchive(known, self._folder, why))
                return  # the names of those before it are unknown
            if wanted not in (found.digest.hex(), found.header.head):
                self.absent.append(
                    ExportAbsentArchive(known, self._folder, "it differs from the one that the journal names")
                )
                return
            if self._is_private(path, found.header):
                yield from self._send_archive(known, path)
            else:
                self.absent.append(ExportAbsentArchive(known, self._folder, "it holds data of other agents"))
            name = archive.name_at(self._store.identity, found.header.store, found.header.previous)
            wanted = found.header.before

    def _is_private(self, path: str, header: archive.ArchiveHeader) -> bool:
        """Return whether an archive is the agent's alone. One from another store was checked when it left there."""
        if header.store != self._store.identity:
            return True
        entries = (line for line in archive.lines_of(path) if isinstance(line, archive.ArchiveEntry))
        return all(self._is_own(r.decode(entry.kind, entry.body)) for entry in entries if entry.body is not None)

    def _send_archive(self, name: str, path: str) -> Iterator[ExportArchive | ExportArchivePart]:
        with open(path, "rb") as file:
            left = os.fstat(file.fileno()).st_size
            yield ExportArchive(name, left)
            while left and (data := file.read(min(left, PART_BYTES))):
                left -= len(data)
                yield ExportArchivePart(data)
        self.count += 1


def _compaction(stream: ExportStream) -> r.StreamCompacted | None:
    return decoded_compaction(stream.compaction)


def note_missing_archives(absent: Sequence[ExportAbsentArchive]) -> list[str]:
    """Return notes about archives that stay behind."""
    sorts: dict[tuple[str, str], list[str]] = {}
    for missing_archive in absent:
        sorts.setdefault((missing_archive.where, missing_archive.why), []).append(missing_archive.name)
    return [
        f"{_join_names(names)} of {where} {'stays' if len(names) == 1 else 'stay'} behind: {why}"
        for (where, why), names in sorts.items()
    ]


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"archive{'s' if len(names) > 1 else ''} {', '.join(names[:_NAMED_MAX])}{more}"


# -- into a folder ----------------------------------------------------------------------------------------------------


def check_archives(path: str, digest: bytes, expected: Mapping[str, bytes], let_go: Set[str]) -> None:
    """Check every archive in a file with this digest, without unpacking any.

    `expected` has the digests that the journal names, `let_go` the ids that archives of memories are named by.
    """
    wanted = {name: found.hex() for name, found in expected.items()}
    for line, parts in _archives_in(path, digest):
        if line.name.endswith(SUFFIX):
            if line.name.removesuffix(SUFFIX) not in let_go:
                raise ExportDamaged(f"{path}: the journal names no memories for archive {line.name}")
            _examine_memories(path, line, parts)
        else:
            _examine(path, line, parts, wanted)


def find_expected(stream: ExportStream, store: str) -> dict[str, bytes]:
    """Return the digest of the newest archive of a stream, by its name in the file."""
    compaction = _compaction(stream)
    name = archive.name_at("", store, compaction.archive) if compaction is not None else ""
    return {name: compaction.digest} if compaction is not None and name else {}


class ArchiveImport:
    """Imports the archives of a file into the store's archive folder, and removes them if the import fails."""

    def __init__(self, store: Store, path: str, digest: bytes, *, is_back: bool) -> None:
        self._store = store
        self._path = path
        self._digest = digest
        self._is_back = is_back
        """Whether the agent comes back, so that existing archives may be its own."""
        self._folder = archive.folder_of(store)
        self._placed: list[str] = []
        self._made_folder = False

    def write_archives(self) -> tuple[str, ...]:
        """Write the archives. Returns notes about them."""
        self._made_folder = not os.path.isdir(self._folder)
        make_folder(self._folder)
        notes = []
        for line, parts in _archives_in(self._path, self._digest):
            aside = temporary_name(os.path.join(self._folder, line.name))
            try:
                with os.fdopen(os.open(aside, _NEW, PRIVATE), "wb") as out:
                    out.writelines(iter(partial(parts.read, PART_BYTES), b""))
                notes.append(self._place(line.name, aside))
            finally:
                with suppress(FileNotFoundError):  # it was moved into place
                    os.unlink(aside)
        return tuple(note for note in notes if note)

    def remove(self) -> None:
        """Remove what was written, after a failed import."""
        for path in self._placed:
            with suppress(FileNotFoundError):
                os.unlink(path)
        if self._made_folder:
            with suppress(OSError):  # not empty any more
                os.rmdir(self._folder)

    def _place(self, known: str, aside: str) -> str:
        """Move an archive into place. An existing one is never lost. Returns a note, or an empty text."""
        name = known if known.endswith(SUFFIX) else archive.name_at(self._store.identity, "", known)
        path = os.path.join(self._folder, name)
        if not os.path.lexists(path):
            if not self._is_back and archive.name_at("", "", name) == name == known.partition("-")[2]:
                return f"archive {name} belongs to this store, which has none of that name: it was left out"
            move_into_place(aside, path, new=True)
            self._placed.append(path)
        elif name.endswith(SUFFIX):
            return self._merge(name, path, aside)
        elif (digest := _digest_of(path)) != _digest_of(aside):
            if digest or not self._is_back:
                return f"a different archive {name} exists already: it was left alone"
            move_into_place(aside, path)
        return ""

    def _merge(self, name: str, path: str, aside: str) -> str:
        if filecmp.cmp(path, aside, shallow=False):
            return ""
        if not self._is_back:
            return f"a different archive {name} exists already: it was left alone"
        try:
            ours, theirs = _memories_in(path), _memories_in(aside)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return f"archive {name} exists already and is damaged: it was left alone"
        # A line that only one of them has was forgotten on the other side.
        replace_file(path, b"".join(line for which, line in ours.items() if which in theirs))
        return ""


def _archives_in(path: str, digest: bytes) -> Iterator[tuple[ExportArchive, _ArchiveBytes]]:
    """Yield the archives in a file with this digest, each as a stream of bytes that can be read once."""
    with closing(lines_of(path, digest)) as lines:
        for line in lines:
            if isinstance(line, ExportArchivePart):
                raise ExportDamaged(f"{path}: a part of an archive belongs to none")
            if isinstance(line, ExportArchive):
                _require_archive_name(path, line.name)
                parts = _ArchiveBytes(path, line, lines)
                yield line, parts
                parts.finish()


class _ArchiveBytes:
    """The bytes of an archive within a file, up to its stated size."""

    def __init__(self, path: str, line: ExportArchive, lines: Iterator[ExportLine]) -> None:
        self._path = path
        self._line = line
        self._lines = lines
        self._left = line.size
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""
        if not self._rest and self._left:
            part = next(self._lines, None)
            if not isinstance(part, ExportArchivePart) or not 0 < len(part.data) <= self._left:
                raise ExportDamaged(f"{self._path}: archive {self._line.name} is incomplete")
            self._rest = part.data
            self._left -= len(part.data)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def finish(self) -> None:
        """Skip what was not read."""
        while self.read(PART_BYTES):
            pass


def _require_archive_name(path: str, name: str) -> None:
    """Raise unless a name is a plain file name of an archive."""
    if not _OF_MEMORIES.fullmatch(name) and archive.name_at("", "", name) != name:
        raise ExportDamaged(f"{path}: {name!r} is not the name of an archive")


def _examine(path: str, line: ExportArchive, parts: _ArchiveBytes, wanted: dict[str, str]) -> None:
    """Check that an archive is the one that the journal names, or that a newer archive continues."""
    try:
        found = archive.check_lines(archive.lines_in_file(parts, line.size, line.name), line.name)
    except ArchiveDamaged as error:
        raise ExportDamaged(f"{path}: archive {line.name} is damaged: {error}") from error
    header = found.header
    called = archive.name_at("", header.store, archive.name_of(header))
    if called != line.name or wanted.get(called) not in (found.digest.hex(), header.head):
        raise ExportDamaged(f"{path}: archive {line.name} differs from the one that the journal names")
    del wanted[called]
    if header.previous:
        wanted[archive.name_at("", header.store, header.previous)] = header.before


def _examine_memories(path: str, line: ExportArchive, parts: _ArchiveBytes) -> None:
    def damage_error(text: object) -> ExportDamaged:
        return ExportDamaged(f"{path}: archive {line.name} is damaged: {text}")

    try:
        for one in split_lines(parts.read, line.size, ExpansionGauge(), damage_error):
            _MEMORY.decode(one)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise damage_error(error) from error


def _memories_in(path: str) -> dict[str, bytes]:
    """Return the lines of an archive of memories, by memory id."""
    with open(path, "rb") as file:
        return {_MEMORY.decode(line).id: line for line in file}


class _MemoryId(msgspec.Struct, frozen=True):
    id: str


_MEMORY = msgspec.json.Decoder(_MemoryId)


def _digest_of(path: str) -> bytes:
    """Return the digest of an archive's contents; empty if it is damaged."""
    try:
        return archive.check(path).digest
    except (OSError, ArchiveDamaged):
        return b""
