"""Rows of the named queries as records: the one place outside SQL that knows the order of columns.

`RunRow(*row)` decodes a row. Every query that returns such rows selects the columns in the order of the fields; a test
compares both dialects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.store.base import Row, Store


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A run: `get_run`, `find_runs`, `children_of`, `runs_in_status`, `all_runs`."""

    stream: int
    agent: str
    id: str
    status: str
    input_digest: bytes
    parent: int
    started_at: int
    changed_at: int
    resumes: int
    outcome: int
    """The entry that ended or stopped the run; 0 while there is none."""
    error: str
    forked_from: int
    forked_at: int

    @property
    def is_fork(self) -> bool:
        return self.forked_from > 0


class TaskRow(msgspec.Struct, frozen=True, gc=False):
    """A queued run that has not finished: `get_task`."""

    stream: int
    task: str
    queue: str
    priority: int
    key: str
    state: str
    ready_at: int
    attempts: int
    failed_seq: int
    requeued_seq: int
    input: bytes
    digest: bytes
    parent: int
    at: int


class ReadyTaskRow(msgspec.Struct, frozen=True, gc=False):
    """A queued run that a worker may take: `next_tasks`, `lock_held_task`."""

    run: str
    stream: int
    task: str
    attempts: int
    input: bytes
    digest: bytes
    parent: int
    priority: int
    at: int


class EntryRow(msgspec.Struct, frozen=True, gc=False):
    """An entry of the journal: `journal_entry`, `journal_of`, `journal_page`, `last_compaction`."""

    seq: int
    kind: int
    at: int
    body: bytes | None
    """None if it was erased."""
    chain: bytes
    digest: bytes | None
    """That of an erased body."""


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """An event of an agent: `agent_events`, `agent_events_of_kind`, `run_events`.

    Newest first: `agent_events_newest_first`, `agent_events_of_kind_newest_first`, `run_events_newest_first`.
    """

    arrival: int
    stream: int
    seq: int
    place: int
    run: str
    kind: str
    at: int

    @property
    def position(self) -> tuple[int, int, int, int]:
        """Where the event stands in the order of its agent's events."""
        return self.arrival, self.stream, self.seq, self.place


class RelationRow(msgspec.Struct, frozen=True, gc=False):
    """A relation of a memory: `memory_relations_of`, `memory_relations_but_repeats`, `memories_repeated_by`."""

    id: str
    what: str
    other: str
    at: int
    valid: int
    source: str
    trust: float
    stream: int
    seq: int


def first_number(rows: Sequence[Row]) -> int:
    """Return the first column of the first row; 0 if there is none."""
    return int(rows[0][0]) if rows else 0


def upto(rows: Iterable[Row], last: int) -> Iterator[Row]:
    """Yield the entries of a stream up to the number `last`."""
    for row in rows:
        seq, *_ = row
        if seq > last:
            return
        yield row


def run_in(rows: Sequence[Row]) -> RunRow | None:
    """Decode the answer of `get_run`."""
    return RunRow(*rows[0]) if rows else None


def task_in(rows: Sequence[Row]) -> TaskRow | None:
    """Decode the answer of `get_task`."""
    return TaskRow(*rows[0]) if rows else None


def entry_in(rows: Sequence[Row]) -> EntryRow | None:
    """Decode the first entry of an answer."""
    return EntryRow(*rows[0]) if rows else None


def read_run(store: Store, agent: str, run_id: str) -> RunRow | None:
    """Return the row of a run, or None if the agent has no such run."""
    return run_in(store.read("get_run", (agent, run_id)))


def require_run_row(store: Store, agent: str, run_id: str) -> RunRow:
    """Return the row of a run that is known to exist."""
    [row] = store.read("get_run", (agent, run_id))
    return RunRow(*row)


def read_runs(store: Store) -> list[RunRow]:
    """Return the rows of all runs, the most recently changed first."""
    return [RunRow(*row) for row in store.read("all_runs")]


def read_entry(store: Store, stream: int, seq: int) -> EntryRow | None:
    """Return an entry of a stream, or None if it is not there."""
    return entry_in(store.read("journal_entry", (stream, seq)))
