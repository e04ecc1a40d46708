"""The views from the journal: to prove that they are equal, or to make them anew.

The same `fold` and the same SQL that keep the views make them here, so a difference means that somebody
changed a view by hand, or that the fold has a bug.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..errors import JournalDamaged, StoreBusy, StoreUnavailable
from ..failpoints import Site
from ..records import Event
from ..store.base import Rows, Script, Statement, Store, Unit
from .fold import VIEWS, fold, fold_kept
from .walk import PAGE_ENTRIES, Chain, folded_in, pages, sound_events


class View(msgspec.Struct, frozen=True):
    """How a view is read: its columns in the order of its query, the key first."""

    query: str
    columns: tuple[str, ...]
    key: int
    clear: str


_RUN_COLUMNS = "stream agent id status input_digest parent started_at changed_at resumes outcome error origin cut"
_ENTRY_COLUMNS = "owner namespace key value version revision at expires created lasts"
_HISTORY_COLUMNS = "owner namespace key revision version stream seq at"
_CHECKPOINT_COLUMNS = "owner name version stream seq at dropped"
_SAVINGS_COLUMNS = "stream model provider day steps took_us"
_COUNTS = tuple("calls unpriced input_tokens output_tokens cached_input_tokens cache_write_tokens cost".split())
_HAPPENING_COLUMNS = "owner stream seq place run kind at"
_WORKFLOW_STEP_COLUMNS = "owner name version step revision status standing at"
_TASK_COLUMNS = "owner run stream task queue priority key state ready_at attempts died again input digest parent at"
_POINT_COLUMNS = "owner thread ns id life parent run stream seq at dropped"
_WRITE_COLUMNS = "owner thread ns id stream seq life"
_MEMORY_COLUMNS = (
    "owner id stream seq kind about person source writer run step tags trust importance valid_from valid_to recorded "
    "expires thread place sketch text meta ended replaced times"
)
_MEMORY_MARK_COLUMNS = "owner id what other stream seq at valid source trust"
TABLES = {
    "agents": View("all_agents", ("name", "stream", "public_key", "at", "gone"), 1, "clear_agents"),
    "runs": View("all_runs", tuple(_RUN_COLUMNS.split()), 1, "clear_runs"),
    "state": View("all_state", ("owner", "namespace", "key", "value", "version", "at"), 3, "clear_state"),
    "questions": View("all_questions", ("stream", "seq", "about", "kind", "text", "at", "open"), 2, "clear_questions"),
    "answers": View("all_answers", ("stream", "about", "verdict", "value", "by", "at"), 2, "clear_answers"),
    "spaces": View("all_spaces", ("owner", "namespace", "revision"), 2, "clear_spaces"),
    "floors": View("all_floors", ("owner", "namespace", "revision", "at"), 2, "clear_floors"),
    "entries": View("all_entries", tuple(_ENTRY_COLUMNS.split()), 3, "clear_entries"),
    "history": View("all_history", tuple(_HISTORY_COLUMNS.split()), 4, "clear_history"),
    "checkpoints": View("all_checkpoints", tuple(_CHECKPOINT_COLUMNS.split()), 3, "clear_checkpoints"),
    "artifacts": View("all_artifacts", tuple(_CHECKPOINT_COLUMNS.split()), 3, "clear_artifacts"),
    "usage": View("all_usage", ("stream", "step", "model", "provider", "day", *_COUNTS), 5, "clear_usage"),
    "savings": View("all_savings", tuple(_SAVINGS_COLUMNS.split()) + _COUNTS, 4, "clear_savings"),
    "happenings": View("all_happenings", tuple(_HAPPENING_COLUMNS.split()), 4, "clear_happenings"),
    "workflows": View("all_workflows", tuple("owner name version revision steps at".split()), 3, "clear_workflows"),
    "workflow_steps": View("all_workflow_steps", tuple(_WORKFLOW_STEP_COLUMNS.split()), 4, "clear_workflow_steps"),
    "signals": View("all_signals", ("owner", "run", "name", "number", "value", "by", "at"), 4, "clear_signals"),
    "orders": View("all_orders", ("stream", "number", "fence", "what", "reason", "by", "at"), 2, "clear_orders"),
    "tasks": View("all_tasks", tuple(_TASK_COLUMNS.split()), 2, "clear_tasks"),
    "task_waits": View("all_task_waits", ("what", "stream"), 2, "clear_task_waits"),
    "thread_lives": View("all_thread_lives", ("owner", "thread", "life", "whole", "floor"), 2, "clear_thread_lives"),
    "thread_points": View("all_thread_points", tuple(_POINT_COLUMNS.split()), 4, "clear_thread_points"),
    "thread_writes": View("all_thread_writes", tuple(_WRITE_COLUMNS.split()), 6, "clear_thread_writes"),
    "memories": View("all_memories", tuple(_MEMORY_COLUMNS.split()), 2, "clear_memories"),
    "memory_marks": View("all_memory_marks", tuple(_MEMORY_MARK_COLUMNS.split()), 6, "clear_memory_marks"),
}
assert tuple(TABLES) == VIEWS


_TRIES = 5


class Difference(msgspec.Struct, frozen=True):
    """A row of a view that is not what the journal says."""

    view: str
    key: tuple[Any, ...]
    what: str
    """`missing` from the view, `extra` in it, or `differs`."""
    columns: tuple[str, ...] = ()
    expected: tuple[Any, ...] = ()
    found: tuple[Any, ...] = ()


def check(store: Store) -> list[Difference]:
    """Fold the whole journal into an empty store in memory, and compare every row of every view."""
    # The views and the heads are read at one moment; the journal up to those heads does not change any more, unless
    # somebody folds it just now: then we begin again.
    for _ in range(_TRIES):
        views, heads = store.submit(_Snapshot())
        fresh = _fold_all(store, heads)
        if fresh is not None:
            break
    else:
        raise StoreBusy("the journal is being folded, again and again", hint="try again when `perdure gc` has ended")
    try:
        return [
            difference
            for name, view in TABLES.items()
            for difference in _compare(name, view, fresh.read(view.query), views[name])
        ]
    finally:
        fresh.close()


def rebuild(store: Store) -> int:
    """Make all views anew, in one transaction; returns the number of entries folded.

    Raises JournalDamaged, and changes nothing, when the journal itself does not verify.
    """
    return store.submit(_Rebuild(store.identity))


def refresh(store: Store) -> None:
    """Make the views anew if a migration has added one that old entries belong to.

    On a server a role that may not do that leaves it to one that may.
    """
    if store.stale:
        with suppress(*(() if store.one_host else (StoreUnavailable,))):
            store.submit(_Rebuild(store.identity, stale_only=True))
            store.stale = False


class _Snapshot(Unit[tuple[dict[str, Rows], dict[int, int]]]):
    """All views, and how long each stream is, at one moment."""

    site = Site.REBUILD
    snapshot = long = True

    def script(self) -> Script[tuple[dict[str, Rows], dict[int, int]]]:
        rows = yield [Statement(view.query) for view in TABLES.values()]
        [streams] = yield [Statement("all_streams")]
        ends = yield [Statement("head_of", (stream[0],)) for stream in streams]
        heads = {stream[0]: end[0][0] if end else 0 for stream, end in zip(streams, ends, strict=True)}
        return dict(zip(TABLES, rows, strict=True)), heads


def _fold_all(store: Store, heads: dict[int, int]) -> Store | None:
    """All entries up to some heads in a new store; None when one of the streams was folded since then."""
    from ..store.sqlite import SqliteStore

    fresh = SqliteStore(":memory:", clock=store.clock)
    for stream, last in heads.items():
        if not _fold_stream(store, fresh, stream, last):
            fresh.close()
            return None
    return fresh


def _fold_stream(store: Store, fresh: Store, stream: int, last: int) -> bool:
    before = store.read("last_folded", (stream,))
    along = Chain(store.identity, stream, folded_in(before))
    if before and before[0][0] > last:
        return False
    try:
        for page in pages(store, stream):
            rows = [row for row in page if row[0] <= last]
            fresh.submit(_Apply(_folded(along, sound_events(stream, rows, along))))
            if len(rows) < len(page):
                break
    except JournalDamaged:
        if store.read("last_folded", (stream,)) == before:
            raise
    return store.read("last_folded", (stream,)) == before


def _folded(along: Chain, events: Sequence[Event]) -> list[Statement]:
    upto = along.folded.upto if along.folded is not None else 0
    return [
        change
        for event in events
        for change in (fold_kept if event.seq <= upto else fold)(along.stream, event.seq, event.at, event.record)
    ]


class _Apply(Unit[None]):
    site = Site.REBUILD

    def __init__(self, changes: Sequence[Statement]) -> None:
        self._changes = changes

    def script(self) -> Script[None]:
        yield self._changes


class _Rebuild(Unit[int]):
    """Done twice, it is the same as done once. What it makes anew may have lost something that was to be erased."""

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
        yield [Statement("mark_replays"), Statement("clear_replays")]
        [streams] = yield [Statement("all_streams")]
        entries = 0
        for stream, *_ in streams:
            entries += yield from self._stream(stream)
        yield [Statement("number_happenings"), Statement("drop_meta", ("stale",))]
        return entries

    def _stream(self, stream: int) -> Script[int]:
        [found] = yield [Statement("last_folded", (stream,))]
        along = Chain(self._store, stream, folded_in(found))
        entries = 0
        while True:
            [page] = yield [Statement("events_page", (stream, along.seq + 1, PAGE_ENTRIES))]
            if not page:
                return entries
            entries += len(page)
            yield _folded(along, sound_events(stream, page, along))


def _compare(name: str, view: View, expected: Rows, found: Rows) -> Iterator[Difference]:
    wanted = {row[: view.key]: row for row in expected}
    there = {row[: view.key]: row for row in found}
    for key, row in wanted.items():
        if key not in there:
            yield Difference(name, key, "missing", expected=row)
        elif there[key] != row:
            pairs = zip(view.columns, row, there[key], strict=True)
            columns, ours, theirs = zip(*[pair for pair in pairs if pair[1] != pair[2]], strict=True)
            yield Difference(name, key, "differs", columns, ours, theirs)
    for key, row in there.items():
        if key not in wanted:
            yield Difference(name, key, "extra", found=row)
