"""The archives of an agent go along: files beside the store, of entries that were folded and memories that were let go.

They are taken as they are, byte for byte, because they prove themselves; beside another store they are called by the
store that they are of. What is not there, or not the agent's alone, stays behind and is told.
"""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from functools import partial

import msgspec

from .. import archive
from .. import records as r
from ..bounded import Gauge, split
from ..errors import ArchiveDamaged, ExportDamaged
from ..files import PRIVATE, aside_of, make_folder, put_in_place, replace_file
from ..journal.walk import folded_in
from ..memory.retaining import LET_GO
from ..memory.traces import SUFFIX
from ..store.base import Store
from .gathering import Belongings
from .lines import Absent, Archive, Entry, Line, Part, Stream, lines_of

PART_BYTES = 1 << 18
_NAMED_MAX = 3
_OF_MEMORIES = re.compile(r"[A-Za-z0-9_-]{1,100}" + re.escape(SUFFIX))
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


# -- out of a folder --------------------------------------------------------------------------------------------------


class Shelf:
    """The archives of an agent, in the folder in which they should be."""

    def __init__(self, store: Store, folder: str, its: Belongings, is_own: Callable[[r.Record], bool]) -> None:
        self._store = store
        self._folder = os.path.abspath(folder)
        self._its = its
        self._is_own = is_own
        there = os.listdir(self._folder) if os.path.isdir(self._folder) else []
        self._there = {name.removesuffix(SUFFIX) for name in there if name.endswith(SUFFIX)}
        self._let_go: dict[str, None] = {}
        self.absent: list[Absent] = []
        self.count = 0

    def see(self, line: Entry) -> None:
        """An entry of the agent: it may say that memories were let go, which is all that is known of their archive."""
        record = r.decode(line.kind, line.body) if line.kind == r.Kind.MEMORY_FORGOTTEN and line.body else None
        if isinstance(record, r.MemoryForgotten) and record.reason == LET_GO and record.ids:
            found = [which for which in record.ids if which in self._there]
            self._let_go.update(dict.fromkeys(found))
            if not found:
                why = "it is not there, or all of it was forgotten since"
                self.absent.append(Absent(min(record.ids) + SUFFIX, self._folder, why))

    def lines(self) -> Iterator[Archive | Part]:
        """All that are there; `absent` has the others then."""
        for stream in self._its.streams:
            if (folded := _folded(stream)) is not None:
                yield from self._of(folded)
        for which in sorted(self._let_go):
            yield from self._sent(which + SUFFIX, os.path.join(self._folder, which + SUFFIX))

    def _of(self, folded: r.Folded) -> Iterator[Archive | Part]:
        """Of one stream: the newest file, which says what the one before is called."""
        name, wanted = folded.archive, folded.digest.hex()
        while name:
            path = os.path.join(self._folder, name)
            known = archive.name_at("", self._store.identity, name) or name
            try:
                found = archive.check(path)
            except (OSError, ArchiveDamaged) as error:
                why = error.message if isinstance(error, ArchiveDamaged) else str(error.strerror)
                self.absent.append(Absent(known, self._folder, why))
                return  # and nobody knows what those before it are called
            if wanted not in (found.digest.hex(), found.header.head):
                self.absent.append(Absent(known, self._folder, "it is another one than the journal speaks of"))
                return
            if self._is_private(path, found.header):
                yield from self._sent(known, path)
            else:
                self.absent.append(Absent(known, self._folder, "other agents have something in it"))
            name = archive.name_at(self._store.identity, found.header.store, found.header.previous)
            wanted = found.header.before

    def _is_private(self, path: str, header: archive.Header) -> bool:
        """Whether all in it is the agent's. One that has come from another store was asked when it left that."""
        if header.store != self._store.identity:
            return True
        entries = (line for line in archive.lines_of(path) if isinstance(line, archive.Entry))
        return all(self._is_own(r.decode(it.kind, it.body)) for it in entries if it.body is not None)

    def _sent(self, name: str, path: str) -> Iterator[Archive | Part]:
        with open(path, "rb") as file:
            left = os.fstat(file.fileno()).st_size
            yield Archive(name, left)
            while left and (data := file.read(min(left, PART_BYTES))):
                left -= len(data)
                yield Part(data)
        self.count += 1


def _folded(stream: Stream) -> r.Folded | None:
    return folded_in([(0, r.Kind.FOLDED, 0, stream.folded)]) if stream.folded is not None else None


def told(absent: Sequence[Absent]) -> list[str]:
    """What has to be said about archives that stay behind."""
    sorts: dict[tuple[str, str], list[str]] = {}
    for it in absent:
        sorts.setdefault((it.where, it.why), []).append(it.name)
    return [
        f"{_several(names)} of {where} {'stays' if len(names) == 1 else 'stay'} behind: {why}"
        for (where, why), names in sorts.items()
    ]


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"archive{'s' if len(names) > 1 else ''} {', '.join(names[:_NAMED_MAX])}{more}"


# -- into a folder ----------------------------------------------------------------------------------------------------


def must_be_sound(path: str, digest: bytes, expected: Mapping[str, bytes], let_go: Set[str]) -> None:
    """Look at every archive in a file with this digest, without unpacking any.

    `expected` has the digests that the journal in the file speaks of, `let_go` the memories whose archives it names.
    """
    wanted = {name: found.hex() for name, found in expected.items()}
    for line, parts in _archives_in(path, digest):
        if line.name.endswith(SUFFIX):
            if line.name.removesuffix(SUFFIX) not in let_go:
                raise ExportDamaged(f"{path}: no memory was let go into archive {line.name}")
            _examine_memories(path, line, parts)
        else:
            _examine(path, line, parts, wanted)


def expected_in(stream: Stream, store: str) -> dict[str, bytes]:
    """The digest of the newest archive of a stream, by what it is called in the file."""
    folded = _folded(stream)
    name = archive.name_at("", store, folded.archive) if folded is not None else ""
    return {name: folded.digest} if folded is not None and name else {}


class Beside:
    """The archives of a file, on their way to where those of a store are. If the import fails, they are removed."""

    def __init__(self, store: Store, path: str, digest: bytes, *, is_back: bool) -> None:
        self._store = store
        self._path = path
        self._digest = digest
        self._is_back = is_back
        """Whether the agent comes back, so that archives that are here may be its own."""
        self._folder = archive.folder_of(store)
        self._placed: list[str] = []
        self._made_folder = False

    def put(self) -> tuple[str, ...]:
        """Bring them; returns what has to be said about them."""
        self._made_folder = not os.path.isdir(self._folder)
        make_folder(self._folder)
        notes = []
        for line, parts in _archives_in(self._path, self._digest):
            aside = aside_of(os.path.join(self._folder, line.name))
            try:
                with os.fdopen(os.open(aside, _NEW, PRIVATE), "wb") as out:
                    out.writelines(iter(partial(parts.read, PART_BYTES), b""))
                notes.append(self._place(line.name, aside))
            finally:
                with suppress(FileNotFoundError):  # it has got its place
                    os.unlink(aside)
        return tuple(note for note in notes if note)

    def remove(self) -> None:
        """Nothing was imported: remove what was brought."""
        for path in self._placed:
            with suppress(FileNotFoundError):
                os.unlink(path)
        if self._made_folder:
            with suppress(OSError):  # somebody else has something in it by now
                os.rmdir(self._folder)

    def _place(self, known: str, aside: str) -> str:
        """Give an archive its place; one that is there is not lost. Returns what has to be said."""
        name = known if known.endswith(SUFFIX) else archive.name_at(self._store.identity, "", known)
        path = os.path.join(self._folder, name)
        if not os.path.lexists(path):
            if not self._is_back and archive.name_at("", "", name) == name == known.partition("-")[2]:
                return f"archive {name} is of this store, which has none of that name: it was left out"
            put_in_place(aside, path, new=True)
            self._placed.append(path)
        elif name.endswith(SUFFIX):
            return self._merge(name, path, aside)
        elif (digest := _digest_of(path)) != _digest_of(aside):
            if digest or not self._is_back:
                return f"archive {name} was there already, and is another one: it was left alone"
            put_in_place(aside, path)
        return ""

    def _merge(self, name: str, path: str, aside: str) -> str:
        if filecmp.cmp(path, aside, shallow=False):
            return ""
        if not self._is_back:
            return f"archive {name} was there already, and is another one: it was left alone"
        try:
            ours, theirs = _memories_in(path), _memories_in(aside)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return f"archive {name} was there already, and is damaged: it was left alone"
        # What only one of the two has was forgotten where the other comes from.
        replace_file(path, b"".join(line for which, line in ours.items() if which in theirs))
        return ""


def _archives_in(path: str, digest: bytes) -> Iterator[tuple[Archive, _Parts]]:
    """The archives in a file with this digest, one after the other, each as a file that is read once."""
    with closing(lines_of(path, digest)) as lines:
        for line in lines:
            if isinstance(line, Part):
                raise ExportDamaged(f"{path}: a part of an archive is of none")
            if isinstance(line, Archive):
                _must_be_named(path, line.name)
                parts = _Parts(path, line, lines)
                yield line, parts
                parts.finish()


class _Parts:
    """The bytes of an archive within a file, as far as it has said that there are any."""

    def __init__(self, path: str, line: Archive, lines: Iterator[Line]) -> None:
        self._path = path
        self._line = line
        self._lines = lines
        self._left = line.size
        self._rest = b""

    def read(self, size: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        if not self._rest and self._left:
            part = next(self._lines, None)
            if not isinstance(part, Part) or not 0 < len(part.data) <= self._left:
                raise ExportDamaged(f"{self._path}: archive {self._line.name} is not all there")
            self._rest = part.data
            self._left -= len(part.data)
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def finish(self) -> None:
        """Pass what was not read."""
        while self.read(PART_BYTES):
            pass


def _must_be_named(path: str, name: str) -> None:
    """The name of a file, and nothing that leads elsewhere."""
    if not _OF_MEMORIES.fullmatch(name) and archive.name_at("", "", name) != name:
        raise ExportDamaged(f"{path}: no archive is called {name!r}")


def _examine(path: str, line: Archive, parts: _Parts, wanted: dict[str, str]) -> None:
    """An archive is the one that the journal speaks of, or that the archive after it continues."""
    try:
        found = archive.check_lines(archive.lines_in_file(parts, line.size, line.name), line.name)
    except ArchiveDamaged as error:
        raise ExportDamaged(f"{path}: archive {line.name} is damaged: {error}") from error
    header = found.header
    called = archive.name_at("", header.store, archive.name_of(header))
    if called != line.name or wanted.get(called) not in (found.digest.hex(), header.head):
        raise ExportDamaged(f"{path}: archive {line.name} is another one than the journal speaks of")
    del wanted[called]
    if header.previous:
        wanted[archive.name_at("", header.store, header.previous)] = header.before


def _examine_memories(path: str, line: Archive, parts: _Parts) -> None:
    def damaged(text: object) -> ExportDamaged:
        return ExportDamaged(f"{path}: archive {line.name} is damaged: {text}")

    try:
        for one in split(parts.read, line.size, Gauge(), damaged):
            _MEMORY.decode(one)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(error) from error


def _memories_in(path: str) -> dict[str, bytes]:
    """The lines of an archive of memories, by the ids of these."""
    with open(path, "rb") as file:
        return {_MEMORY.decode(line).id: line for line in file}


class _Id(msgspec.Struct, frozen=True):
    id: str


_MEMORY = msgspec.json.Decoder(_Id)


def _digest_of(path: str) -> bytes:
    """Of what is in an archive; nothing, if it is damaged."""
    try:
        return archive.check(path).digest
    except (OSError, ArchiveDamaged):
        return b""
