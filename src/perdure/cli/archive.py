"""`perdure archive show` and `verify`: entries that `gc` has folded, in files of their own."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import click
import msgspec

from .. import archive as archives
from .. import codec, objects
from .. import records as r
from ..bounded import Gauge, opened, split
from ..errors import ArchiveDamaged, PerdureError, ValueProblem
from ..journal.walk import all_streams, folded_in
from ..memory.traces import SUFFIX
from ..store.base import Store
from ..trees.tolerant import Unreadable
from .output import Output, clean, counted, when
from .stores import common, existing_store
from .timeline import in_words

ENTRIES = ".jsonl.zst"
"""How the names of archives of entries end."""


@click.group()
def archive() -> None:
    """Show or verify entries that `gc` has folded.

    And memories that it has let go. An archive is a file of JSON lines; one of entries is compressed with zstd. It is
    named by its path, or by its name alone when it is in the folder beside the store.
    """


@archive.command()
@click.argument("file", metavar="ARCHIVE")
@common
def show(file: str, url: str | None, as_json: bool) -> int:
    """Show the entries of an archive, as `perdure show` shows those of a run; or the memories that are in it."""
    out, path = Output(as_json), _path(file, url)
    if os.path.isdir(path):
        there = ", ".join(os.path.basename(one) for one in _archives_in(path)[:3])
        raise click.UsageError(clean(f"{path} is a folder; name one of its archives: {there}"))
    if path.endswith(SUFFIX):
        return _show_memories(out, path)
    header, events, found = _read(path)
    words = in_words(events, _Values(found).unpack)
    told = list(zip(events, words, strict=True))
    if as_json:
        listed = [
            {"seq": it.seq, "at": when(it.at), "kind": type(it.record).__name__, "text": text} for it, text in told
        ]
        out.json({"archive": path, "name": header.name, "first": header.first, "upto": header.upto, "entries": listed})
        return 0
    out.line(clean(f"{header.kind} {header.name}, entries {header.first} to {header.upto}"))
    out.table(("ENTRY", "AT", "WHAT"), [(str(it.seq), when(it.at), text) for it, text in told])
    if header.previous:
        out.line(clean(f"entries before {header.first} are in {header.previous}"))
    return 0


def _show_memories(out: Output, path: str) -> int:
    found = _memories_in(path)
    if out.as_json:
        out.json({"archive": path, "memories": found})
        return 0
    rows = [tuple(clean(str(it.get(name) or "")) for name in ("id", "kind", "about", "text")) for it in found]
    out.table(("MEMORY", "KIND", "ABOUT", "TEXT"), rows)
    return 0


def _memories_in(path: str) -> list[dict[str, Any]]:
    try:
        with opened(path, ArchiveDamaged) as (file, size):
            lines = split(file.read, size, Gauge(), lambda text: ArchiveDamaged(f"{path}: {text}"))
            return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveDamaged(f"{path} cannot be read: {error}") from error


class _Verdict(msgspec.Struct, frozen=True):
    """What came out about one file."""

    archive: str
    ok: bool
    text: str


@archive.command()
@click.argument("files", metavar="ARCHIVE...", nargs=-1, required=True)
@common
def verify(files: tuple[str, ...], url: str | None, as_json: bool) -> int:
    """Look whether archives are as they were written: every entry, the chain, the digest of the whole.

    Of a folder, all that are in it.

    Of memories only that they can be read: what was forgotten since has been taken out of them. When the store is at
    hand, archives are compared with what it says about them. Exit code 1 when one is damaged.
    """
    out = Output(as_json)
    results = [_checked(file, url) for given in files for file in _meant(given, url)]
    sound = all(it.ok for it in results)
    if as_json:
        out.json({"ok": sound, "archives": [msgspec.structs.asdict(it) for it in results]})
    else:
        for it in results:
            out.line(clean(f"{it.archive}: {it.text}" if it.ok else f"{it.archive}: damaged: {it.text}"))
    return 0 if sound else 1


def _meant(file: str, url: str | None) -> list[str]:
    """An archive, or those in a folder."""
    path = _path(file, url)
    return _archives_in(path) if os.path.isdir(path) else [path]


def _archives_in(folder: str) -> list[str]:
    found = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith((ENTRIES, SUFFIX))]
    if not found:
        raise click.UsageError(clean(f"there is no archive in the folder {folder}"))
    return found


def _checked(file: str, url: str | None) -> _Verdict:
    path = _path(file, url)
    try:
        if path.endswith(SUFFIX):
            return _Verdict(path, True, f"ok; {counted(len(_memories_in(path)), 'memory', 'memories')}")
        found = archives.check(path)
        said = _compared(found, url)
    except ArchiveDamaged as error:
        return _Verdict(path, False, error.message)
    counts = (
        counted(found.entries, "entry", "entries"),
        counted(found.objects, "object"),
        counted(found.seals, "seal"),
    )
    return _Verdict(path, True, f"ok; {', '.join(counts)}{said}")


def _compared(found: archives.Contents, url: str | None) -> str:
    """What the store says about an archive; nothing, when it is not at hand or has been folded further since."""
    try:
        with existing_store(url) as store:
            if store.identity != found.header.store:
                return _said_after_a_move(store, found)
            return _said_by(store, found)
    except ArchiveDamaged:
        raise
    except PerdureError:
        return ""  # an archive is verified without its store as well


def _said_after_a_move(store: Store, found: archives.Contents) -> str:
    """Of an archive that has come along with an agent: its stream has another number here, and speaks of it."""
    name = archives.name_at(store.identity, found.header.store, archives.name_of(found.header))
    for stream, *_ in all_streams(store):
        folded = folded_in(store.read("last_folded", (stream,)))
        if folded is not None and folded.archive == name:
            if (folded.head.hex(), folded.digest) != (found.header.head, found.digest):
                raise ArchiveDamaged("the store speaks of another archive of these entries")
            return "; it came from another store, and this one says the same"
    return "; it is of another store"


def _said_by(store: Store, found: archives.Contents) -> str:
    folded = folded_in(store.read("last_folded", (found.header.stream,)))
    if folded is None or folded.upto < found.header.upto:
        return "; the store has these entries itself"
    if folded.upto == found.header.upto and (folded.head.hex(), folded.digest) != (found.header.head, found.digest):
        raise ArchiveDamaged("the store speaks of another archive of these entries")
    return "; the store says the same" if folded.upto == found.header.upto else ""


def _path(file: str, url: str | None) -> str:
    if os.path.exists(file) or os.sep in file:
        return file
    with suppress(PerdureError), existing_store(url) as store:
        beside = os.path.join(archives.folder_of(store), file)
        if os.path.exists(beside):
            return beside
    return file


def _read(path: str) -> tuple[archives.Header, list[r.Event], dict[bytes, archives.Object]]:
    header: archives.Header | None = None
    events: list[r.Event] = []
    found: dict[bytes, archives.Object] = {}
    for line in archives.lines_of(path):
        if isinstance(line, archives.Header):
            header = line
        elif isinstance(line, archives.Entry) and line.body is not None:
            events.append(r.Event(line.seq, line.at, r.decode(line.kind, line.body)))
        elif isinstance(line, archives.Object):
            found[_identity(path, line)] = line
    if header is None:
        raise ArchiveDamaged(f"{path} is no archive")
    return header, events, found


def _identity(path: str, line: archives.Object) -> bytes:
    try:
        return bytes.fromhex(line.id)
    except ValueError as error:
        raise ArchiveDamaged(f"{path}: no object is called {line.id!r}") from error


class _Values:
    """Decodes values out of an archive, and says of the others why not."""

    def __init__(self, found: dict[bytes, archives.Object]) -> None:
        self._found = found

    def unpack(self, packed: bytes) -> Any:
        try:
            identity = objects.reference(packed)
            if not identity:
                return codec.decode(packed[1:])
            if identity not in self._found:
                return Unreadable("<a large value that is not in the archive>")
            line = self._found[identity]
            return codec.decode(objects.restored(line.size, line.data))
        except ValueProblem as error:
            return Unreadable(f"<{error.message}>")
