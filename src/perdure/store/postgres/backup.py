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
from perdure.platform.files import put_in_place
from perdure.store.base import Rows, Script, Statement, UnitOfWork
from perdure.store.sqlite.file import connect, create_or_migrate, prepare_file, translate
from perdure.store.sqlite.fork_safety import disconnect, inside
from perdure.store.sqlite.mark import remove_mark
from perdure.values.clock import Clock
from perdure.values.words import spaced

CopyProgress = Callable[[int, int], None]

PAGE_ROWS = 1000
PAGE_DOCUMENTS = 200
PAGE_OBJECTS = 16
"""Few, because each may be large."""

_FACT = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_LOCATION = "INSERT INTO store_locations (host, file, at) VALUES (?, ?, ?)"
_STREAM = "INSERT INTO streams (id, kind, name, at) VALUES (?, ?, ?, ?)"
_ENTRY = "INSERT INTO journal (id, kind, at, body, chain, digest) VALUES (?, ?, ?, ?, ?, ?)"
_DOCUMENT = (
    "INSERT INTO documents (id, owner, kind, space, key, part, version, text, embedder, vector) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_WORDS = "INSERT INTO document_words (rowid, words) VALUES (?, ?)"
_CHUNK = (
    "INSERT INTO chunks (id, owner, memory, part, thread, place, length, asks, day, told, terms) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_VECTOR = "INSERT INTO chunk_vectors (number, chunk, owner, embedder, vector) VALUES (?, ?, ?, ?, ?)"
_OBJECT = "INSERT INTO objects (id, size, data) VALUES (?, ?, ?)"


_VIEWS = {
    "all_agents": "INSERT INTO agents (name, stream, public_key, at, gone) VALUES (?, ?, ?, ?, ?)",
    "all_runs": "INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, "
    "outcome, error, forked_from, forked_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_run_state": "INSERT INTO run_state (owner, namespace, key, value, version, at) VALUES (?, ?, ?, ?, ?, ?)",
    "all_questions": "INSERT INTO questions (stream, seq, about, kind, text, at, open) VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_answers": "INSERT INTO answers (stream, about, verdict, value, by, at) VALUES (?, ?, ?, ?, ?, ?)",
    "all_state_namespaces": "INSERT INTO state_namespaces (owner, namespace, revision) VALUES (?, ?, ?)",
    "all_state_horizons": "INSERT INTO state_horizons (owner, namespace, revision, at) VALUES (?, ?, ?, ?)",
    "all_agent_state": "INSERT INTO agent_state (owner, namespace, key, value, version, revision, at, expires, "
    "created, lasts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_state_history": "INSERT INTO state_history (owner, namespace, key, revision, version, stream, seq, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "all_checkpoints": "INSERT INTO checkpoints (owner, name, version, stream, seq, at, dropped) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_artifacts": "INSERT INTO artifacts (owner, name, version, stream, seq, at, dropped) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_usage": "INSERT INTO usage (stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, "
    "cached_input_tokens, cache_write_tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_savings": "INSERT INTO savings (stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, "
    "output_tokens, cached_input_tokens, cache_write_tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "copy_events": "INSERT INTO events (owner, arrival, stream, seq, place, run, kind, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "all_workflows": "INSERT INTO workflows (owner, name, version, revision, steps, at) VALUES (?, ?, ?, ?, ?, ?)",
    "all_workflow_steps": "INSERT INTO workflow_steps (owner, name, version, step, revision, status, standing, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "all_signals": "INSERT INTO signals (owner, run, name, number, value, by, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_orders": "INSERT INTO orders (stream, number, fence, what, reason, by, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_leases": "INSERT INTO leases (stream, fence, holder, ordered) VALUES (?, ?, NULL, ?)",
    "all_tasks": "INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, "
    "failed_seq, requeued_seq, input, digest, parent, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_task_waits": "INSERT INTO task_waits (what, stream) VALUES (?, ?)",
    "all_thread_generations": "INSERT INTO thread_generations (owner, thread, generation, deleted_generation, "
    "deleted_up_to) VALUES (?, ?, ?, ?, ?)",
    "all_thread_checkpoints": "INSERT INTO thread_checkpoints (owner, thread, ns, id, generation, parent, run, stream, "
    "seq, at, dropped) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_thread_writes": "INSERT INTO thread_writes (owner, thread, ns, id, stream, seq, generation) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
    "all_memories": "INSERT INTO memories (owner, id, stream, seq, kind, about, person, source, writer, run, step, "
    "tags, trust, importance, valid_from, valid_to, recorded, expires, thread, place, sketch, text, meta, ended, "
    "replaced, times) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_memory_relations": "INSERT INTO memory_relations (owner, id, what, other, stream, seq, at, valid, source, "
    "trust) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "all_memory_uses": "INSERT INTO memory_uses (owner, id, uses, last) VALUES (?, ?, ?, ?)",
    "all_seals": "INSERT INTO seals (stream, seq, chain, streams, public_key, signature) VALUES (?, ?, ?, ?, ?, ?)",
}
"""Inserts into the copy, by the query that reads the rows."""


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
        # Record the original's location: opening the copy warns that the original may be in use.
        target.execute(_LOCATION, ("", self._shown, self._clock.wall_ms()))
        facts = yield [Statement("get_meta", (key,)) for key in ("secret", "identity")]
        for key, rows in zip(("secret", "identity"), facts, strict=True):
            target.execute(_FACT, (key, rows[0][0]))
        for query, insert in _VIEWS.items():
            target.executemany(insert, (yield from _rows(query, ())))
        yield from self._streams(target)
        yield from self._objects(target)
        yield from self._documents(target)
        yield from self._numbered(target, "chunks_page", _CHUNK)
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
        while page := (yield from _rows("journal_page", (stream, first, PAGE_ROWS))):
            target.executemany(_ENTRY, (((stream << 32) | seq, *rest) for seq, *rest in page))
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
            # Split the words again: a server stores them in its own form.
            texts = [
                (number, spaced(text.decode("utf-8", "surrogatepass")))
                for number, *_, text, _, _, found in page
                if found
            ]
            target.executemany(_WORDS, texts)
            after = page[-1][0]

    def _numbered(self, target: apsw.Connection, query: str, insert: str) -> Script[None]:
        """Copy numbered rows page by page."""
        after = 0
        while page := (yield from _rows(query, (after, PAGE_DOCUMENTS))):
            target.executemany(insert, page)
            after = page[-1][0]


def _rows(name: str, args: tuple[Any, ...]) -> Generator[Sequence[Statement], list[Rows], Rows]:
    [rows] = yield [Statement(name, args)]
    return rows
