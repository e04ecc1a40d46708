"""Recreates the views from the journal, to compare them or to replace them.

The same `project` and SQL maintain the views, so a difference means that somebody changed a view by hand, or that the
projection has a bug.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.errors import JournalDamaged, StoreBusy, StoreUnavailable
from perdure.journal.project import VIEWS, project_anew, project_kept
from perdure.journal.stream_reader import PAGE_ENTRIES, ChainWalk, compaction_in, pages, sound_events
from perdure.platform.failpoints import Site
from perdure.records import JournalEntry
from perdure.store.base import Rows, Script, Statement, Store, UnitOfWork
from perdure.store.rows import first_number, upto


class ViewQuery(msgspec.Struct, frozen=True):
    """How a view is read: its columns in the order of its query, the key first."""

    query: str
    columns: tuple[str, ...]
    key: int
    clear: str


_RUN_COLUMNS = (
    "stream agent id status input_digest parent started_at changed_at resumes outcome error forked_from forked_at"
)
_AGENT_STATE_COLUMNS = "owner namespace key value version revision at expires created lasts"
_HISTORY_COLUMNS = "owner namespace key revision version stream seq at"
_CHECKPOINT_COLUMNS = "owner name version stream seq at dropped"
_SAVINGS_COLUMNS = "stream model provider day steps took_us"
_COUNTS = tuple("calls unpriced input_tokens output_tokens cached_input_tokens cache_write_tokens cost".split())
_EVENT_COLUMNS = "owner stream seq place run kind at"
_WORKFLOW_STEP_COLUMNS = "owner name version step revision status standing at"
_TASK_COLUMNS = (
    "owner run stream task queue priority key state ready_at attempts failed_seq requeued_seq input digest parent at"
)
_THREAD_CHECKPOINT_COLUMNS = "owner thread ns id generation parent run stream seq at dropped"
_GENERATION_COLUMNS = "owner thread generation deleted_generation deleted_up_to"
_WRITE_COLUMNS = "owner thread ns id stream seq generation"
_MEMORY_COLUMNS = (
    "owner id stream seq kind about person source writer run step tags trust importance valid_from valid_to recorded "
    "expires thread place sketch text meta ended replaced times"
)
_MEMORY_RELATION_COLUMNS = "owner id what other stream seq at valid source trust"
TABLES = {
    "agents": ViewQuery("all_agents", ("name", "stream", "public_key", "at", "gone"), 1, "clear_agents"),
    "runs": ViewQuery("all_runs", tuple(_RUN_COLUMNS.split()), 1, "clear_runs"),
    "run_state": ViewQuery(
        "all_run_state", ("owner", "namespace", "key", "value", "version", "at"), 3, "clear_run_state"
    ),
    "questions": ViewQuery(
        "all_questions", ("stream", "seq", "about", "kind", "text", "at", "open"), 2, "clear_questions"
    ),
    "answers": ViewQuery("all_answers", ("stream", "about", "verdict", "value", "by", "at"), 2, "clear_answers"),
    "state_namespaces": ViewQuery(
        "all_state_namespaces", ("owner", "namespace", "revision"), 2, "clear_state_namespaces"
    ),
    "state_horizons": ViewQuery(
        "all_state_horizons", ("owner", "namespace", "revision", "at"), 2, "clear_state_horizons"
    ),
    "agent_state": ViewQuery("all_agent_state", tuple(_AGENT_STATE_COLUMNS.split()), 3, "clear_agent_state"),
    "state_history": ViewQuery("all_state_history", tuple(_HISTORY_COLUMNS.split()), 4, "clear_state_history"),
    "checkpoints": ViewQuery("all_checkpoints", tuple(_CHECKPOINT_COLUMNS.split()), 3, "clear_checkpoints"),
    "artifacts": ViewQuery("all_artifacts", tuple(_CHECKPOINT_COLUMNS.split()), 3, "clear_artifacts"),
    "usage": ViewQuery("all_usage", ("stream", "step", "model", "provider", "day", *_COUNTS), 5, "clear_usage"),
    "savings": ViewQuery("all_savings", tuple(_SAVINGS_COLUMNS.split()) + _COUNTS, 4, "clear_savings"),
    "events": ViewQuery("all_events", tuple(_EVENT_COLUMNS.split()), 4, "clear_events"),
    "workflows": ViewQuery(
        "all_workflows", tuple("owner name version revision steps at".split()), 3, "clear_workflows"
    ),
    "workflow_steps": ViewQuery("all_workflow_steps", tuple(_WORKFLOW_STEP_COLUMNS.split()), 4, "clear_workflow_steps"),
    "signals": ViewQuery("all_signals", ("owner", "run", "name", "number", "value", "by", "at"), 4, "clear_signals"),
    "orders": ViewQuery("all_orders", ("stream", "number", "fence", "what", "reason", "by", "at"), 2, "clear_orders"),
    "tasks": ViewQuery("all_tasks", tuple(_TASK_COLUMNS.split()), 2, "clear_tasks"),
    "task_waits": ViewQuery("all_task_waits", ("what", "stream"), 2, "clear_task_waits"),
    "thread_generations": ViewQuery(
        "all_thread_generations", tuple(_GENERATION_COLUMNS.split()), 2, "clear_thread_generations"
    ),
    "thread_checkpoints": ViewQuery(
        "all_thread_checkpoints", tuple(_THREAD_CHECKPOINT_COLUMNS.split()), 4, "clear_thread_checkpoints"
    ),
    "thread_writes": ViewQuery("all_thread_writes", tuple(_WRITE_COLUMNS.split()), 6, "clear_thread_writes"),
    "memories": ViewQuery("all_memories", tuple(_MEMORY_COLUMNS.split()), 2, "clear_memories"),
    "memory_relations": ViewQuery(
        "all_memory_relations", tuple(_MEMORY_RELATION_COLUMNS.split()), 6, "clear_memory_relations"
    ),
}
assert tuple(TABLES) == VIEWS


_TRIES = 5


class ViewDifference(msgspec.Struct, frozen=True):
    """A row of a view that differs from the journal."""

    view: str
    key: tuple[Any, ...]
    what: str
    """`missing` from the view, `extra` in it, or `differs`."""
    columns: tuple[str, ...] = ()
    expected: tuple[Any, ...] = ()
    found: tuple[Any, ...] = ()


def check(store: Store) -> list[ViewDifference]:
    """Project the whole journal into an empty store in memory, and compare every row of every view."""
    # Views and heads are read in one snapshot. The journal up to those heads changes only by a compaction: then retry.
    for _ in range(_TRIES):
        views, heads = store.submit(_ViewSnapshot())
        fresh = _project_all(store, heads)
        if fresh is not None:
            break
    else:
        raise StoreBusy("the journal is being compacted, again and again", hint="try again when `perdure gc` has ended")
    try:
        return [
            difference
            for name, view in TABLES.items()
            for difference in _compare(name, view, fresh.read(view.query), views[name])
        ]
    finally:
        fresh.close()


def rebuild(store: Store) -> int:
    """Recreate all views in one transaction; return the number of entries projected.

    Raises JournalDamaged, and changes nothing, if the journal does not verify.
    """
    return store.submit(_RebuildViews(store.identity))


def refresh(store: Store) -> None:
    """Recreate the views if a migration has added one that old entries belong to.

    On a server, a role without the privileges leaves that to another one.
    """
    if store.stale:
        with suppress(*(() if store.one_host else (StoreUnavailable,))):
            store.submit(_RebuildViews(store.identity, stale_only=True))
            store.stale = False


class _ViewSnapshot(UnitOfWork[tuple[dict[str, Rows], dict[int, int]]]):
    """Reads all views and the length of each stream in one snapshot."""

    site = Site.REBUILD
    snapshot = long = True

    def script(self) -> Script[tuple[dict[str, Rows], dict[int, int]]]:
        rows = yield [Statement(view.query) for view in TABLES.values()]
        [streams] = yield [Statement("all_streams")]
        numbers = [number for number, *_ in streams]
        ends = yield [Statement("head_of", (number,)) for number in numbers]
        heads = {number: first_number(end) for number, end in zip(numbers, ends, strict=True)}
        return dict(zip(TABLES, rows, strict=True)), heads


def _project_all(store: Store, heads: dict[int, int]) -> Store | None:
    """Project all entries up to `heads` into a new store; None if a stream was compacted meanwhile."""
    from perdure.store.sqlite.store import SqliteStore

    fresh = SqliteStore(":memory:", clock=store.clock)
    for stream, last in heads.items():
        if not _project_stream(store, fresh, stream, last):
            fresh.close()
            return None
    return fresh


def _project_stream(store: Store, fresh: Store, stream: int, last: int) -> bool:
    before = store.read("last_compaction", (stream,))
    along = ChainWalk(store.identity, stream, compaction_in(before))
    if first_number(before) > last:
        return False
    try:
        for page in pages(store, stream):
            rows = list(upto(page, last))
            fresh.submit(_ApplyDifferences(_project_entries(along, sound_events(stream, rows, along))))
            if len(rows) < len(page):
                break
    except JournalDamaged:
        if store.read("last_compaction", (stream,)) == before:
            raise
    return store.read("last_compaction", (stream,)) == before


def _project_entries(along: ChainWalk, events: Sequence[JournalEntry]) -> list[Statement]:
    upto = along.compaction.upto if along.compaction is not None else 0
    return [
        change
        for event in events
        for change in (project_kept if event.seq <= upto else project_anew)(
            along.stream, event.seq, event.at, event.record
        )
    ]


class _ApplyDifferences(UnitOfWork[None]):
    site = Site.REBUILD

    def __init__(self, changes: Sequence[Statement]) -> None:
        self._changes = changes

    def script(self) -> Script[None]:
        yield self._changes


class _RebuildViews(UnitOfWork[int]):
    """Recreates all views. Idempotent. It counts as an erasure: old rows may have contained erased text."""

    site = Site.REBUILD
    erases = long = True

    def __init__(self, store: str, *, stale_only: bool = False) -> None:
        self._store = store
        self._stale_only = stale_only

    def script(self) -> Script[int]:
        yield [Statement("lock_journal")]
        [stale] = yield [Statement("get_meta", ("stale",))]
        if self._stale_only and not stale:
            return 0  # another process was quicker
        yield [*(Statement(view.clear) for view in TABLES.values())]
        yield [Statement("note_lost_snapshots"), Statement("clear_replay_snapshots")]
        [streams] = yield [Statement("all_streams")]
        entries = 0
        for stream, *_ in streams:
            entries += yield from self._stream(stream)
        yield [Statement("renumber_events"), Statement("drop_meta", ("stale",))]
        return entries

    def _stream(self, stream: int) -> Script[int]:
        [found] = yield [Statement("last_compaction", (stream,))]
        along = ChainWalk(self._store, stream, compaction_in(found))
        entries = 0
        while True:
            [page] = yield [Statement("journal_page", (stream, along.seq + 1, PAGE_ENTRIES))]
            if not page:
                return entries
            entries += len(page)
            yield _project_entries(along, sound_events(stream, page, along))


def _compare(name: str, view: ViewQuery, expected: Rows, found: Rows) -> Iterator[ViewDifference]:
    wanted = {row[: view.key]: row for row in expected}
    there = {row[: view.key]: row for row in found}
    for key, row in wanted.items():
        if key not in there:
            yield ViewDifference(name, key, "missing", expected=row)
        elif there[key] != row:
            pairs = zip(view.columns, row, there[key], strict=True)
            columns, ours, theirs = zip(*[pair for pair in pairs if pair[1] != pair[2]], strict=True)
            yield ViewDifference(name, key, "differs", columns, ours, theirs)
    for key, row in there.items():
        if key not in wanted:
            yield ViewDifference(name, key, "extra", found=row)
