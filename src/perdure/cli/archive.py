"""`perdure archive show` and `verify`: the archive files of `perdure gc`."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import click
import msgspec

from perdure import records as r
from perdure.cli.output import CommandOutput, clean, format_count, format_time
from perdure.cli.store_option import add_common_options, open_existing_store
from perdure.cli.timeline import describe
from perdure.errors import ArchiveDamaged, PerdureError, ValueProblem
from perdure.journal import archive as archives
from perdure.journal import objects
from perdure.journal.stream_reader import compaction_in, iterate_streams
from perdure.journal.trees.tolerant_read import Unreadable
from perdure.memory.erasure.find import SUFFIX
from perdure.platform.bounded_lines import ExpansionGauge, open_regular_file, split_lines
from perdure.store.base import Store
from perdure.values import codec
from perdure.values.codec.decoder import decode_as_dicts

ENTRIES = ".jsonl.zst"
"""The suffix of entry archives."""


@click.group()
def archive() -> None:
    """Show or verify the archives that `gc` has written.

    Archives hold compacted entries or expired memories. An archive is a file of JSON lines; entries are compressed with
    zstd. Give its path, or only its name if it is in the archive folder next to the store.
    """


@archive.command()
@click.argument("file", metavar="ARCHIVE")
@add_common_options
def show(file: str, url: str | None, as_json: bool) -> int:
    """Show the entries or memories of an archive."""
    out, path = CommandOutput(as_json), _path(file, url)
    if os.path.isdir(path):
        there = ", ".join(os.path.basename(one) for one in _archives_in(path)[:3])
        raise click.UsageError(clean(f"{path} is a folder; name one of its archives: {there}"))
    if path.endswith(SUFFIX):
        return _show_memories(out, path)
    header, events, found = _read_archive(path)
    words = describe(events, _ArchiveValues(found).unpack)
    told = list(zip(events, words, strict=True))
    if as_json:
        listed = [
            {"seq": event.seq, "at": format_time(event.at), "kind": event.kind, "text": text} for event, text in told
        ]
        out.json({"archive": path, "name": header.name, "first": header.first, "upto": header.upto, "entries": listed})
        return 0
    out.line(clean(f"{header.kind} {header.name}, entries {header.first} to {header.upto}"))
    out.table(("ENTRY", "AT", "WHAT"), [(str(event.seq), format_time(event.at), text) for event, text in told])
    if header.previous:
        out.line(clean(f"entries before {header.first} are in {header.previous}"))
    return 0


def _show_memories(out: CommandOutput, path: str) -> int:
    found = _memories_in(path)
    if out.as_json:
        out.json({"archive": path, "memories": found})
        return 0
    rows = [tuple(clean(str(item.get(name) or "")) for name in ("id", "kind", "about", "text")) for item in found]
    out.table(("MEMORY", "KIND", "ABOUT", "TEXT"), rows)
    return 0


def _memories_in(path: str) -> list[dict[str, Any]]:
    try:
        with open_regular_file(path, ArchiveDamaged) as (file, size):
            lines = split_lines(file.read, size, ExpansionGauge(), lambda text: ArchiveDamaged(f"{path}: {text}"))
            return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveDamaged(f"{path} cannot be read: {error}") from error


class _ArchiveVerdict(msgspec.Struct, frozen=True):
    """The result for one file."""

    archive: str
    ok: bool
    text: str


@archive.command()
@click.argument("files", metavar="ARCHIVE...", nargs=-1, required=True)
@add_common_options
def verify(files: tuple[str, ...], url: str | None, as_json: bool) -> int:
    """Verify archives, or all archives of a folder: every entry, the hash chain and the digest of the file.

    An archive of memories is only checked to be readable, because forgotten memories are removed from it later. If the
    store is available, archives are compared with its records. Exit code 1 if an archive is damaged.
    """
    out = CommandOutput(as_json)
    results = [_check_archive(file, url) for given in files for file in _archive_files(given, url)]
    sound = all(result.ok for result in results)
    if as_json:
        out.json({"ok": sound, "archives": [msgspec.structs.asdict(result) for result in results]})
    else:
        for verdict in results:
            out.line(
                clean(
                    f"{verdict.archive}: {verdict.text}"
                    if verdict.ok
                    else f"{verdict.archive}: damaged: {verdict.text}"
                )
            )
    return 0 if sound else 1


def _archive_files(file: str, url: str | None) -> list[str]:
    """Return one archive, or all archives of a folder."""
    path = _path(file, url)
    return _archives_in(path) if os.path.isdir(path) else [path]


def _archives_in(folder: str) -> list[str]:
    found = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith((ENTRIES, SUFFIX))]
    if not found:
        raise click.UsageError(clean(f"there is no archive in the folder {folder}"))
    return found


def _check_archive(file: str, url: str | None) -> _ArchiveVerdict:
    path = _path(file, url)
    try:
        if path.endswith(SUFFIX):
            return _ArchiveVerdict(path, True, f"ok; {format_count(len(_memories_in(path)), 'memory', 'memories')}")
        found = archives.check(path)
        said = _compare_with_store(found, url)
    except ArchiveDamaged as error:
        return _ArchiveVerdict(path, False, error.message)
    counts = (
        format_count(found.entries, "entry", "entries"),
        format_count(found.objects, "object"),
        format_count(found.seals, "seal"),
    )
    return _ArchiveVerdict(path, True, f"ok; {', '.join(counts)}{said}")


def _compare_with_store(found: archives.ArchiveContents, url: str | None) -> str:
    """Compare an archive with the store. Returns nothing if the store is missing or was compacted further since."""
    try:
        with open_existing_store(url) as store:
            if store.identity != found.header.store:
                return _compare_imported(store, found)
            return _compare_stream(store, found)
    except ArchiveDamaged:
        raise
    except PerdureError:
        return ""  # an archive can be verified without its store


def _compare_imported(store: Store, found: archives.ArchiveContents) -> str:
    """Compare an archive that was imported with its agent: its stream has another number in this store."""
    name = archives.name_at(store.identity, found.header.store, archives.name_of(found.header))
    for stream, *_ in iterate_streams(store):
        compaction = compaction_in(store.read("last_compaction", (stream,)))
        if compaction is not None and compaction.archive == name:
            if (compaction.head.hex(), compaction.digest) != (found.header.head, found.digest):
                raise ArchiveDamaged("the store records a different archive for these entries")
            return "; it came from another store, and matches this one"
    return "; it belongs to another store"


def _compare_stream(store: Store, found: archives.ArchiveContents) -> str:
    compaction = compaction_in(store.read("last_compaction", (found.header.stream,)))
    if compaction is None or compaction.upto < found.header.upto:
        return "; the store still has these entries"
    if compaction.upto == found.header.upto and (compaction.head.hex(), compaction.digest) != (
        found.header.head,
        found.digest,
    ):
        raise ArchiveDamaged("the store records a different archive for these entries")
    return "; it matches the store" if compaction.upto == found.header.upto else ""


def _path(file: str, url: str | None) -> str:
    if os.path.exists(file) or os.sep in file:
        return file
    with suppress(PerdureError), open_existing_store(url) as store:
        beside = os.path.join(archives.folder_of(store), file)
        if os.path.exists(beside):
            return beside
    return file


def _read_archive(
    path: str,
) -> tuple[archives.ArchiveHeader, list[r.JournalEntry], dict[bytes, archives.ArchiveObject]]:
    header: archives.ArchiveHeader | None = None
    events: list[r.JournalEntry] = []
    found: dict[bytes, archives.ArchiveObject] = {}
    for line in archives.lines_of(path):
        if isinstance(line, archives.ArchiveHeader):
            header = line
        elif isinstance(line, archives.ArchiveEntry) and line.body is not None:
            events.append(r.JournalEntry(line.seq, line.at, r.decode(line.kind, line.body)))
        elif isinstance(line, archives.ArchiveObject):
            found[_identity(path, line)] = line
    if header is None:
        raise ArchiveDamaged(f"{path} is not an archive")
    return header, events, found


def _identity(path: str, line: archives.ArchiveObject) -> bytes:
    try:
        return bytes.fromhex(line.id)
    except ValueError as error:
        raise ArchiveDamaged(f"{path}: {line.id!r} is not an object id") from error


class _ArchiveValues:
    """Decodes the values of an archive; a value that cannot be decoded shows the reason."""

    def __init__(self, found: dict[bytes, archives.ArchiveObject]) -> None:
        self._found = found

    def unpack(self, packed: bytes) -> Any:
        try:
            identity = objects.reference(packed)
            if identity and identity not in self._found:
                return Unreadable("<a large value that is not in the archive>")
            line = self._found.get(identity)
            with decode_as_dicts():
                return codec.decode(objects.decompress_object(line.size, line.data) if line is not None else packed[1:])
        except ValueProblem as error:
            return Unreadable(f"<{error.message}>")
