"""The archives of an agent go along: files beside the store, of entries that were folded and memories that were let go.

They are taken as they are, byte for byte, because they prove themselves; beside another store they are called by the
store that they are of. What is not there, or not the agent's alone, stays behind and is told.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

import msgspec

from .. import archive
from .. import records as r
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


def must_be_sound(path: str, expected: Mapping[str, bytes]) -> None:
    """Look at every archive in a file; `expected` has the digests that the journal in it speaks of."""
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        for line, aside in _unpacked(path, folder):
            _examine(path, line, aside, expected)


def expected_in(stream: Stream, store: str) -> dict[str, bytes]:
    """The digest of the newest archive of a stream, by what it is called in the file."""
    folded = _folded(stream)
    name = archive.name_at("", store, folded.archive) if folded is not None else ""
    return {name: folded.digest} if folded is not None and name else {}


def put_beside(store: Store, path: str) -> tuple[str, ...]:
    """Bring the archives of a file to where those of a store are; returns what has to be said about them."""
    folder, notes = archive.folder_of(store), []
    make_folder(folder)
    for line, aside in _unpacked(path, folder):
        _examine(path, line, aside, {})
        notes.append(_placed(store, folder, line.name, aside))
    return tuple(note for note in notes if note)


def _unpacked(path: str, folder: str) -> Iterator[tuple[Archive, str]]:
    """The archives in a file, one after the other, each under a name that nobody asks for."""
    with closing(lines_of(path)) as lines:
        for line in lines:
            if isinstance(line, Part):
                raise ExportDamaged(f"{path}: a part of an archive is of none")
            if isinstance(line, Archive):
                aside = aside_of(os.path.join(folder, _sound_name(path, line.name)))
                try:
                    _fill(path, line, lines, aside)
                    yield line, aside
                finally:
                    with suppress(FileNotFoundError):  # it has got its place
                        os.unlink(aside)


def _sound_name(path: str, name: str) -> str:
    """The name of a file, and nothing that leads elsewhere."""
    if _OF_MEMORIES.fullmatch(name) or archive.name_at("", "", name) == name:
        return name
    raise ExportDamaged(f"{path}: no archive is called {name!r}")


def _fill(path: str, line: Archive, lines: Iterator[Line], aside: str) -> None:
    left = line.size
    with os.fdopen(os.open(aside, _NEW, PRIVATE), "wb") as out:
        while left > 0:
            part = next(lines, None)
            if not isinstance(part, Part) or not 0 < len(part.data) <= left:
                raise ExportDamaged(f"{path}: archive {line.name} is not all there")
            out.write(part.data)
            left -= len(part.data)


def _examine(path: str, line: Archive, aside: str, expected: Mapping[str, bytes]) -> None:
    try:
        if line.name.endswith(SUFFIX):
            _memories_in(aside)
            return
        found = archive.check(aside)
    except (ArchiveDamaged, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ExportDamaged(f"{path}: archive {line.name} is damaged: {error}") from error
    called = archive.name_at("", found.header.store, archive.name_of(found.header))
    if called != line.name or expected.get(line.name, found.digest) != found.digest:
        raise ExportDamaged(f"{path}: archive {line.name} is another one than the journal speaks of")


def _memories_in(path: str) -> dict[str, bytes]:
    """The lines of an archive of memories, by the ids of these."""
    with open(path, "rb") as file:
        return {msgspec.json.decode(line, type=_Id).id: line for line in file}


class _Id(msgspec.Struct, frozen=True):
    id: str


def _placed(store: Store, folder: str, known: str, aside: str) -> str:
    """Give an archive its place; one that is there is not lost. Returns what has to be said."""
    name = known if known.endswith(SUFFIX) else archive.name_at(store.identity, "", known)
    path = os.path.join(folder, name)
    if not os.path.lexists(path):
        put_in_place(aside, path, new=True)
    elif name.endswith(SUFFIX):
        # What only one of the two has was forgotten where the other comes from.
        ours, theirs = _memories_in(path), _memories_in(aside)
        if ours != theirs:
            replace_file(path, b"".join(line for which, line in ours.items() if which in theirs))
    elif (digest := _digest_of(path)) != _digest_of(aside):
        if digest:
            return f"archive {name} was there already, and is another one: it was left alone"
        put_in_place(aside, path)
    return ""


def _digest_of(path: str) -> bytes:
    """Of what is in an archive; nothing, if it is damaged."""
    try:
        return archive.check(path).digest
    except (OSError, ArchiveDamaged):
        return b""
