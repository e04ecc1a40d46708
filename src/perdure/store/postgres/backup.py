"""Backs up a store on a server as a SQLite file: a snapshot with the same identity, journal, seals and objects.

Leases are copied without their holders, which use the original.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw

from perdure.platform.failpoints import Site
from perdure.platform.files import move_into_place
from perdure.store import sql
from perdure.store.base import Rows, Script, Statement, UnitOfWork
from perdure.store.sqlite.file import connect, create_or_migrate, prepare_file, translate
from perdure.store.sqlite.fork_safety import disconnect, stay_inside
from perdure.store.sqlite.mark import remove_mark
from perdure.values.clock import Clock
from perdure.values.words import space_words

CopyProgress = Callable[[int, int], None]

PAGE_ROWS = 1000
PAGE_DOCUMENTS = 200
PAGE_OBJECTS = 16
"""Few, because each may be large."""

_INSERTS = {name: sql.number_parameters(query, "?") for name, query in sql.load("sqlite_copy").items()}
"""Inserts into the copy, by the query that reads the rows."""

_WHOLE = [name for name in _INSERTS if name.startswith(("all_", "copy_"))]
"""Views that are copied in one piece."""


class CopyStore(UnitOfWork[None]):
    """Reads everything in one transaction and writes it into a file, replacing an existing one."""

    site = Site.BACKUP
    snapshot = long = True

    def __init__(self, path: str, shown: str, clock: Clock, progress: CopyProgress | None) -> None:
        self._path = path
        self._part = path + ".part"
        """The temporary name, so that an unfinished file is not mistaken for a backup."""
        self._shown = shown
        self._clock = clock
        self._progress = progress or (lambda done, total: None)

    def script(self) -> Script[None]:
        # Left over by a lost connection or a killed process.
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(self._part + suffix).unlink(missing_ok=True)
        prepare_file(os.path.abspath(self._part))
        with translate(self._path), stay_inside():
            target = connect(self._part, "full", None)
            try:
                create_or_migrate(target, self._clock)
                target.execute("BEGIN IMMEDIATE")
                yield from self._fill(target)
                target.execute("COMMIT")
                target.execute("PRAGMA journal_mode = DELETE").fetchall()
            finally:
                disconnect(target)  # without the COMMIT nothing is in it
        move_into_place(self._part, self._path)
        remove_mark(self._path)

    def _fill(self, target: apsw.Connection) -> Script[None]:
        # Record the original's location: opening the copy warns that the original may be in use.
        target.execute(_INSERTS["add_location"], ("", self._shown, self._clock.wall_ms()))
        facts = yield [Statement("get_meta", (key,)) for key in ("secret", "identity")]
        for key, rows in zip(("secret", "identity"), facts, strict=True):
            target.execute(_INSERTS["set_meta"], (key, rows[0][0]))
        for query in _WHOLE:
            target.executemany(_INSERTS[query], (yield from _rows(query, ())))
        yield from self._streams(target)
        yield from self._objects(target)
        yield from self._documents(target)
        yield from self._copy_numbered(target, "chunks_page")
        yield from self._copy_numbered(target, "vectors_page")

    def _streams(self, target: apsw.Connection) -> Script[None]:
        [[(total,)]] = yield [Statement("count_streams")]
        after = 0
        while page := (yield from _rows("streams_page", (after, PAGE_ROWS))):
            target.executemany(_INSERTS["streams_page"], page)
            for stream, *_ in page:
                yield from self._events(target, stream)
                self._progress(stream, total)
            after = page[-1][0]

    def _events(self, target: apsw.Connection, stream: int) -> Script[None]:
        first = 0
        while page := (yield from _rows("journal_page", (stream, first, PAGE_ROWS))):
            target.executemany(_INSERTS["journal_page"], (((stream << 32) | seq, *rest) for seq, *rest in page))
            first = page[-1][0] + 1

    def _objects(self, target: apsw.Connection) -> Script[None]:
        after = b""
        while page := (yield from _rows("object_ids", (after, PAGE_OBJECTS))):
            found = yield [Statement("get_object", (identity,)) for (identity,) in page]
            rows: Iterable[Sequence[Any]] = [
                (identity, *content[0]) for (identity,), content in zip(page, found, strict=True)
            ]
            target.executemany(_INSERTS["get_object"], rows)
            after = page[-1][0]

    def _documents(self, target: apsw.Connection) -> Script[None]:
        after = 0
        while page := (yield from _rows("documents_page", (after, PAGE_DOCUMENTS))):
            target.executemany(_INSERTS["documents_page"], [row[:-1] for row in page])
            # Split the words again: a server stores them in its own form.
            texts = [
                (number, space_words(text.decode("utf-8", "surrogatepass")))
                for number, *_, text, _, _, found in page
                if found
            ]
            target.executemany(_INSERTS["document_words"], texts)
            after = page[-1][0]

    def _copy_numbered(self, target: apsw.Connection, query: str) -> Script[None]:
        """Copy numbered rows page by page."""
        after = 0
        while page := (yield from _rows(query, (after, PAGE_DOCUMENTS))):
            target.executemany(_INSERTS[query], page)
            after = page[-1][0]


def _rows(name: str, args: tuple[Any, ...]) -> Generator[Sequence[Statement], list[Rows], Rows]:
    [rows] = yield [Statement(name, args)]
    return rows
