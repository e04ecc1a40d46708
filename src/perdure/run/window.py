"""Reads a part of a run: what a screen shows. Its cost depends on the part, not on the length of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.journal.lineage import lineage
from perdure.run.conversation import Conversation
from perdure.run.data_view import RunDataView, view_of
from perdure.run.history import effective
from perdure.store.base import Store
from perdure.store.rows import EntryRow, RunRow, first_number

PAGE_ENTRIES = 1000
_WRITERS = frozenset(
    {
        r.EntryKind.STEP_DONE,
        r.EntryKind.EFFECT_INTENDED,
        r.EntryKind.EFFECT_DONE,
        r.EntryKind.ITEM_DONE,
        r.EntryKind.WROTE,
        r.EntryKind.UNDONE,
    }
)
"""Kinds of entries that change the state and the messages of a run, or say which of them apply."""


class RunWindow(msgspec.Struct, frozen=True):
    """Some consecutive entries of a run."""

    entries: list[r.JournalEntry]
    last: int
    """The number of the run's last entry."""


class RunMoment(msgspec.Struct, frozen=True):
    """The state and the messages of a run right after an entry. Values are packed."""

    at: int
    state: dict[str, bytes]
    before: dict[str, bytes]
    """The state before the last entry that changed it."""
    changed_by: int
    """That entry; 0 if nothing has changed the state."""
    messages: list[bytes]


def last_entry(store: Store, run: RunRow) -> int:
    """Return the number of the last entry of a run."""
    return first_number(store.read("head_of", (run.stream,))) or run.forked_at


def read_window(store: Store, run: RunRow, first: int, count: int) -> RunWindow:
    """Return `count` entries of a run from the number `first` on, with the beginnings of effects that end there."""
    entries = [entry for row in _rows(store, run, first, first + count - 1) if (entry := _decode(row)) is not None]
    here = {entry.seq for entry in entries}
    wanted = {intent for entry in entries if (intent := getattr(entry.record, "intent", 0)) and intent not in here}
    earlier = (_decode(row) for seq in sorted(wanted) for row in _rows(store, run, seq, seq))
    return RunWindow([*filter(None, earlier), *entries], last_entry(store, run))


def read_run_entry(store: Store, run: RunRow, seq: int) -> r.JournalEntry | None:
    """Return one entry of a run; None if there is none, or it was erased."""
    found = [_decode(row) for row in _rows(store, run, seq, seq)]
    return found[0] if found else None


def read_moment(store: Store, run: RunRow, at: int) -> RunMoment:
    """Return the data of a run as it was right after an entry."""
    holding = _read_holding(store, run, at)
    whole = view_of(holding)
    changed_by = next((entry.seq for entry in reversed(holding) if _changes_state(entry.record)), 0)
    before = view_of(entry for entry in holding if entry.seq < changed_by) if changed_by else RunDataView()
    return RunMoment(at, whole.state, before.state, changed_by, [value for _, value in whole.messages])


def read_conversation(store: Store, run: RunRow, at: int) -> Conversation:
    """Return the messages of a run as they were right after an entry."""
    return view_of(_read_holding(store, run, at)).conversation()


def find_entries(
    store: Store,
    run: RunRow,
    wanted: Callable[[r.Record], bool],
    *,
    most: int,
    kinds: frozenset[int] = frozenset(),
    first: int = 1,
) -> list[r.JournalEntry]:
    """Return `most` entries of a run that are wanted, from a number on. `kinds` spares decoding all others."""
    found: list[r.JournalEntry] = []
    for row in _rows(store, run, first, last_entry(store, run)):
        if kinds and row.kind not in kinds:
            continue
        entry = _decode(row)
        if entry is not None and wanted(entry.record):
            found.append(entry)
            if len(found) == most:
                break
    return found


def _read_holding(store: Store, run: RunRow, at: int) -> Sequence[r.JournalEntry]:
    """Return the entries up to a number that write something and still apply."""
    rows = (row for row in _rows(store, run, 1, at) if row.kind in _WRITERS)
    return effective([entry for row in rows if (entry := _decode(row)) is not None])


def _changes_state(record: Any) -> bool:
    writes = (record.write,) if isinstance(record, r.Wrote) else getattr(record, "writes", ())
    return any(write.op in (r.WriteOp.SET, r.WriteOp.DELETE) for write in writes)


def _rows(store: Store, run: RunRow, first: int, last: int) -> Iterator[EntryRow]:
    """Yield the entries of a run, page by page; those that a fork shares are in the streams of its origins."""
    parts = lineage(store, run.stream) if run.is_fork else []
    for stream, upto in [*((part.origin, part.cut) for part in parts), (run.stream, last)]:
        end = min(upto, last)
        while first <= end:
            page = store.read("journal_page", (stream, first, min(PAGE_ENTRIES, end - first + 1)))
            rows = [row for row in (EntryRow(*columns) for columns in page) if row.seq <= end]
            yield from rows
            if not rows:
                break
            first = rows[-1].seq + 1
        first = max(first, end + 1)


def _decode(row: EntryRow) -> r.JournalEntry | None:
    record = r.decode(row.kind, row.body) if row.body is not None else r.remains(row.kind)
    return None if record is None else r.JournalEntry(row.seq, row.at, record)
