"""A store on a server as a SQLite file: of one moment, with the same identity, journal, seals and objects.

Leases are copied without their holders, who work on the original.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw

from ..clock import Clock
from ..failpoints import Site
from ..files import put_in_place
from ..words import spaced
from .base import Rows, Script, Statement, Unit
from .forking import disconnect, inside
from .sqlite_file import connect, create_or_migrate, prepare_file, translate
from .sqlite_mark import remove_mark

Progress = Callable[[int, int], None]

PAGE_ROWS = 1000
PAGE_DOCUMENTS = 200
PAGE_OBJECTS = 16
"""Each may be large."""

_FACT = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_HOME = "INSERT INTO homes (host, file, at) VALUES (?, ?, ?)"
_STREAM = "INSERT INTO streams (id, kind, name, at) VALUES (?, ?, ?, ?)"
_EVENT = "INSERT INTO events (id, kind, at, body, chain, digest) VALUES (?, ?, ?, ?, ?, ?)"
_DOCUMENT = (
    "INSERT INTO documents (id, owner, kind, space, key, part, version, text, embedder, vector) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_WORDS = "INSERT INTO document_words (rowid, words) VALUES (?, ?)"
_PIECE = (
    "INSERT INTO pieces (id, owner, memory, part, thread, place, length, asks, day, told, terms) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_VECTOR = "INSERT INTO piece_vectors (number, piece, owner, embedder, vector) VALUES (?, ?, ?, ?, ?)"
_OBJECT = "INSERT INTO objects (id, size, data) VALUES (?, ?, ?)"


_VIEWS = {
    "all_agents": "INSERT INTO agents (name, stream, public_key, at, gone) VALUES (?, ?, ?, ?, ?)",
    "all_runs": "INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, "
    "outcome, error, origin, cut) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_state": "INSERT INTO state (owner, namespace, key, value, version, at) VALUES (?, ?, ?, ?, ?, ?)",
    "all_questions": "INSERT INTO questions (stream, seq, about, kind, text, at, open) VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_answers": "INSERT INTO answers (stream, about, verdict, value, by, at) VALUES (?, ?, ?, ?, ?, ?)",
    "all_spaces": "INSERT INTO spaces (owner, namespace, revision) VALUES (?, ?, ?)",
    "all_floors": "INSERT INTO floors (owner, namespace, revision, at) VALUES (?, ?, ?, ?)",
    "all_entries": "INSERT INTO entries (owner, namespace, key, value, version, revision, at, expires, created, lasts) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_history": "INSERT INTO history (owner, namespace, key, revision, version, stream, seq, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "all_checkpoints": "INSERT INTO checkpoints (owner, name, version, stream, seq, at, dropped) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_artifacts": "INSERT INTO artifacts (owner, name, version, stream, seq, at, dropped) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_usage": "INSERT INTO usage (stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, "
    "cached_input_tokens, cache_write_tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_savings": "INSERT INTO savings (stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, "
    "output_tokens, cached_input_tokens, cache_write_tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "copy_happenings": "INSERT INTO happenings (owner, arrival, stream, seq, place, run, kind, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "all_workflows": "INSERT INTO workflows (owner, name, version, revision, steps, at) VALUES (?, ?, ?, ?, ?, ?)",
    "all_workflow_steps": "INSERT INTO workflow_steps (owner, name, version, step, revision, status, standing, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "all_signals": "INSERT INTO signals (owner, run, name, number, value, by, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_orders": "INSERT INTO orders (stream, number, fence, what, reason, by, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_leases": "INSERT INTO leases (stream, fence, holder, ordered) VALUES (?, ?, NULL, ?)",
    "all_tasks": "INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, died, "
    "again, input, digest, parent, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_task_waits": "INSERT INTO task_waits (what, stream) VALUES (?, ?)",
    "all_thread_lives": "INSERT INTO thread_lives (owner, thread, life, whole, floor) VALUES (?, ?, ?, ?, ?)",
    "all_thread_points": "INSERT INTO thread_points (owner, thread, ns, id, life, parent, run, stream, seq, at, "
    "dropped) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_thread_writes": "INSERT INTO thread_writes (owner, thread, ns, id, stream, seq, life) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_memories": "INSERT INTO memories (owner, id, stream, seq, kind, about, person, source, writer, run, step, "
    "tags, trust, importance, valid_from, valid_to, recorded, expires, thread, place, sketch, text, meta, ended, "
    "replaced, times) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_memory_marks": "INSERT INTO memory_marks (owner, id, what, other, stream, seq, at, valid, source, trust) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_memory_uses": "INSERT INTO memory_uses (owner, id, uses, last) VALUES (?, ?, ?, ?)",
    "all_seals": "INSERT INTO seals (stream, seq, chain, streams, public_key, signature) VALUES (?, ?, ?, ?, ?, ?)",
}
"""By the query that reads them."""


class Copy(Unit[None]):
    """Reads everything in one transaction, and writes it into a file; one that is there is replaced."""

    site = Site.BACKUP
    snapshot = long = True

    def __init__(self, path: str, shown: str, clock: Clock, progress: Progress | None) -> None:
        self._path = path
        self._part = path + ".part"
        """Named otherwise until it is whole, so that nobody takes half of it for a backup."""
        self._shown = shown
        self._clock = clock
        self._progress = progress or (lambda done, total: None)

    def script(self) -> Script[None]:
        # One that is there was given up, by us as the server was lost, or by a process that was killed.
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(self._part + suffix).unlink(missing_ok=True)
        prepare_file(os.path.abspath(self._part))
        with translate(self._path), inside():
            target = connect(self._part, "full", None)
            try:
                create_or_migrate(target, self._clock)
                target.execute("BEGIN IMMEDIATE")
                yield from self._fill(target)
                target.execute("COMMIT")
                target.execute("PRAGMA journal_mode = DELETE").fetchall()
            finally:
                disconnect(target)  # without the COMMIT nothing is in it
        put_in_place(self._part, self._path)
        remove_mark(self._path)

    def _fill(self, target: apsw.Connection) -> Script[None]:
        # The file is a copy from its first moment on: whoever opens it is told that the original may be at work.
        target.execute(_HOME, ("", self._shown, self._clock.wall_ms()))
        facts = yield [Statement("get_meta", (key,)) for key in ("secret", "identity")]
        for key, rows in zip(("secret", "identity"), facts, strict=True):
            target.execute(_FACT, (key, rows[0][0]))
        for query, insert in _VIEWS.items():
            target.executemany(insert, (yield from _rows(query, ())))
        yield from self._streams(target)
        yield from self._objects(target)
        yield from self._documents(target)
        yield from self._numbered(target, "pieces_page", _PIECE)
        yield from self._numbered(target, "vectors_page", _VECTOR)

    def _streams(self, target: apsw.Connection) -> Script[None]:
        [[(total,)]] = yield [Statement("count_streams")]
        after = 0
        while page := (yield from _rows("streams_page", (after, PAGE_ROWS))):
            target.executemany(_STREAM, page)
            for stream, *_ in page:
                yield from self._events(target, stream)
                self._progress(stream, total)
            after = page[-1][0]

    def _events(self, target: apsw.Connection, stream: int) -> Script[None]:
        first = 0
        while page := (yield from _rows("events_page", (stream, first, PAGE_ROWS))):
            target.executemany(_EVENT, (((stream << 32) | seq, *rest) for seq, *rest in page))
            first = page[-1][0] + 1

    def _objects(self, target: apsw.Connection) -> Script[None]:
        after = b""
        while page := (yield from _rows("object_ids", (after, PAGE_OBJECTS))):
            found = yield [Statement("get_object", (identity,)) for (identity,) in page]
            rows: Iterable[Sequence[Any]] = [
                (identity, *content[0]) for (identity,), content in zip(page, found, strict=True)
            ]
            target.executemany(_OBJECT, rows)
            after = page[-1][0]

    def _documents(self, target: apsw.Connection) -> Script[None]:
        after = 0
        while page := (yield from _rows("documents_page", (after, PAGE_DOCUMENTS))):
            target.executemany(_DOCUMENT, [row[:-1] for row in page])
            # The words are cut anew: a server keeps them in a form of its own.
            texts = [
                (number, spaced(text.decode("utf-8", "surrogatepass")))
                for number, *_, text, _, _, found in page
                if found
            ]
            target.executemany(_WORDS, texts)
            after = page[-1][0]

    def _numbered(self, target: apsw.Connection, query: str, insert: str) -> Script[None]:
        """What is numbered, page by page."""
        after = 0
        while page := (yield from _rows(query, (after, PAGE_DOCUMENTS))):
            target.executemany(insert, page)
            after = page[-1][0]


def _rows(name: str, args: tuple[Any, ...]) -> Generator[Sequence[Statement], list[Rows], Rows]:
    [rows] = yield [Statement(name, args)]
    return rows
