"""Archived memories: JSON lines in files next to the store, written when a retention rule drops a memory.

Filters cover them too. Agents share a folder and a line names no agent, so ownership is read from the journal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.journal import archive
from perdure.journal.stream_reader import iterate_streams, pages
from perdure.memory.erasure.find import SUFFIX, TextOccurrence
from perdure.memory.results import MemoryQuery
from perdure.platform.files import atomic_write

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class ArchivedMemory(msgspec.Struct, frozen=True):
    """The fields of an archived memory that filters need."""

    id: str
    text: str
    about: str = ""
    user: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()


class LocatedMemory(msgspec.Struct, frozen=True):
    """An archived memory and the path of its archive."""

    path: str
    line: ArchivedMemory

    @property
    def trace(self) -> TextOccurrence:
        return TextOccurrence("archive", self.path)


def find_archived(engine: Engine, query: MemoryQuery | None) -> list[LocatedMemory]:
    """Return the agent's archived memories that pass a filter; none without a filter."""
    if query is None:
        return []
    found = [memory for memory in _iterate_archived(archive.folder_of(engine.store)) if _is_meant(query, memory.line)]
    own, _ = find_dropped_ids(engine) if found else (frozenset(), frozenset())
    return [memory for memory in found if memory.line.id in own]


def traces_of(found: Sequence[LocatedMemory]) -> list[TextOccurrence]:
    """Return one occurrence for each archive."""
    return list(dict.fromkeys(memory.trace for memory in found))


def strike(found: Sequence[LocatedMemory]) -> list[TextOccurrence]:
    """Remove memories from their archives. Returns the changed archives."""
    ids, traces = {memory.line.id for memory in found}, traces_of(found)
    for trace in traces:
        rewrite_without(trace.what, lambda line: is_one_of(line, ids))
    return traces


def rewrite_without(path: str, is_going: Callable[[bytes], bool]) -> bool:
    """Rewrite an archive without some lines, or delete it if none remain. Returns whether a line was removed."""
    lines = lines_of(path)
    kept = [line for line in lines if not is_going(line)]
    if not kept:
        Path(path).unlink(missing_ok=True)
    elif len(kept) < len(lines):
        with atomic_write(path) as file:
            file.writelines(kept)
    return len(kept) < len(lines)


def _iterate_archived(folder: str) -> Iterator[LocatedMemory]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for path in (os.path.join(folder, name) for name in names if name.endswith(SUFFIX)):
        for data in lines_of(path):
            if (line := _parse_line(data)) is not None:
                yield LocatedMemory(path, line)


def lines_of(path: str) -> list[bytes]:
    """Return the lines of an archive; none if another process has just deleted it."""
    try:
        return Path(path).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _parse_line(data: bytes) -> ArchivedMemory | None:
    """Parse a line. A damaged line belongs to nobody: `perdure archive verify` reports it."""
    try:
        return msgspec.json.decode(data, type=ArchivedMemory)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_one_of(data: bytes, ids: Collection[str]) -> bool:
    """Return whether a line holds one of some memories."""
    line = _parse_line(data)
    return line is not None and line.id in ids


def _is_meant(query: MemoryQuery, line: ArchivedMemory) -> bool:
    names = ((query.about, line.about), (query.user, line.user), (query.source, line.source))
    return all(wanted in ("", had) for wanted, had in names) and set(query.tags) <= set(line.tags)


def find_dropped_ids(engine: Engine) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ids of all memories that this agent has dropped or forgotten, and those of other agents.

    The entries that record this are never compacted.
    """
    own, others = set[str](), set[str]()
    for stream, kind, *_ in iterate_streams(engine.store):
        for page in pages(engine.store, stream) if kind == "process" else ():
            for _, what, _, body, *_ in page:
                record = r.decode(what, body) if what == r.EntryKind.MEMORY_FORGOTTEN and body is not None else None
                if isinstance(record, r.MemoryForgotten):
                    (own if record.owner == engine.stream else others).update(record.ids)
    return frozenset(own), frozenset(others)
