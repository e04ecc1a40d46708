"""Memories that a rule has let go: lines of archives beside the store, which a filter means as well as what is kept.

A line does not say whose it is, and agents share a folder: the journal does, where it says what was let go.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .. import archive
from .. import records as r
from ..files import written_aside
from ..journal.walk import all_streams, pages
from .found import Query
from .traces import SUFFIX, Trace

if TYPE_CHECKING:
    from ..engine import Engine


class Line(msgspec.Struct, frozen=True):
    """What is asked of a memory in an archive."""

    id: str
    text: str
    about: str = ""
    user: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()


class Archived(msgspec.Struct, frozen=True):
    """A memory in an archive, and in which."""

    path: str
    line: Line

    @property
    def trace(self) -> Trace:
        return Trace("archive", self.path)


def archived(engine: Engine, query: Query | None) -> list[Archived]:
    """Those of an agent that a filter means; of none, when there is no filter."""
    if query is None:
        return []
    found = [it for it in _all(archive.folder_of(engine.store)) if _is_meant(query, it.line)]
    own, _ = let_go(engine) if found else (frozenset(), frozenset())
    return [it for it in found if it.line.id in own]


def traces_of(found: Sequence[Archived]) -> list[Trace]:
    """Each archive once."""
    return list(dict.fromkeys(it.trace for it in found))


def strike(found: Sequence[Archived]) -> list[Trace]:
    """Take some out; returns what was changed."""
    ids, traces = {it.line.id for it in found}, traces_of(found)
    for trace in traces:
        without(trace.what, lambda line: is_one_of(line, ids))
    return traces


def without(path: str, is_going: Callable[[bytes], bool]) -> bool:
    """Write an archive anew without some lines; without any, it goes. Says whether there were any such lines."""
    lines = lines_of(path)
    kept = [line for line in lines if not is_going(line)]
    if not kept:
        Path(path).unlink(missing_ok=True)
    elif len(kept) < len(lines):
        with written_aside(path) as file:
            file.writelines(kept)
    return len(kept) < len(lines)


def _all(folder: str) -> Iterator[Archived]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for path in (os.path.join(folder, name) for name in names if name.endswith(SUFFIX)):
        for data in lines_of(path):
            if (line := _read(data)) is not None:
                yield Archived(path, line)


def lines_of(path: str) -> list[bytes]:
    """None of one that somebody else has emptied at this moment."""
    try:
        return Path(path).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []


def _read(data: bytes) -> Line | None:
    """A line that is damaged is nobody's: `perdure archive verify` tells of it."""
    try:
        return msgspec.json.decode(data, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_one_of(data: bytes, ids: Collection[str]) -> bool:
    """Whether a line is that of one of some memories."""
    line = _read(data)
    return line is not None and line.id in ids


def _is_meant(query: Query, line: Line) -> bool:
    names = ((query.about, line.about), (query.user, line.user), (query.source, line.source))
    return all(wanted in ("", had) for wanted, had in names) and set(query.tags) <= set(line.tags)


def let_go(engine: Engine) -> tuple[frozenset[str], frozenset[str]]:
    """All that the agent has ever let go or forgotten, and that others have, by id. What says so is never folded."""
    own, others = set[str](), set[str]()
    for stream, kind, *_ in all_streams(engine.store):
        for page in pages(engine.store, stream) if kind == "process" else ():
            for _, what, _, body, *_ in page:
                record = r.decode(what, body) if what == r.Kind.MEMORY_FORGOTTEN and body is not None else None
                if isinstance(record, r.MemoryForgotten):
                    (own if record.owner == engine.stream else others).update(record.ids)
    return frozenset(own), frozenset(others)
