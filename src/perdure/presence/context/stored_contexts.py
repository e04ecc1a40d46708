"""The contexts that a stored run has recorded: what its model was shown."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure import records as r
from perdure.kernel.engine import Engine
from perdure.presence.context.context import Context
from perdure.presence.context.recorded import CONTEXT, rebuilt_in
from perdure.presence.context.thread_context import EarlierTurns, TurnThread
from perdure.run.branches.past import ValueUnpacker
from perdure.run.turn_start import SNAPSHOT
from perdure.run.window import find_entries, read_conversation, read_run_entry, read_window
from perdure.store.base import Store
from perdure.store.rows import RunRow

_BEGINNING = 8
"""What a turn begins with is among its first entries."""
_RECALLED = "recalled"
_WROTE = frozenset({r.EntryKind.WROTE})


class ContextLine(msgspec.Struct, frozen=True):
    """A recorded context in brief."""

    seq: int
    """The number of its entry."""
    at: int
    budget: int
    tokens: int
    shown: int
    """Messages in it."""
    dropped: int
    """How many things were shortened or left out."""
    recalled: str
    """The memories that it showed because they match; empty for none."""


def list_contexts(store: Store, run: RunRow, unpack: ValueUnpacker, *, first: int, most: int) -> list[ContextLine]:
    """Return the first recorded contexts of a run from an entry on. Contexts that were made inside steps have none."""
    found = find_entries(
        store, run, lambda record: _value_in(record, CONTEXT) != b"", most=most, kinds=_WROTE, first=first
    )
    read = ((entry, unpack(_value_in(entry.record, CONTEXT))) for entry in found)
    return [_summarise(entry, record) for entry, record in read if isinstance(record, dict)]


def read_context(engine: Engine, run: RunRow, seq: int, unpack: ValueUnpacker) -> Context | None:
    """Return the context that an entry has recorded; None if it has none, or a message in it was erased since."""
    entry = read_run_entry(engine.store, run, seq)
    packed = _value_in(entry.record, CONTEXT) if entry is not None else b""
    record = unpack(packed) if packed else None
    if not isinstance(record, dict):
        return None
    own = read_conversation(engine.store, run, seq)
    return rebuilt_in(_thread_of(engine, run), own, record, unpack)


def _value_in(record: r.Record, key: str) -> bytes:
    write = record.write if isinstance(record, r.Wrote) else None
    return write.value if write is not None and write.op == r.WriteOp.VALUE and write.key == key else b""


def _summarise(entry: r.JournalEntry, record: dict[str, Any]) -> ContextLine:
    recalled = next((section[-1] for section in record["sections"] if section[0] == _RECALLED), "")
    return ContextLine(
        entry.seq,
        entry.at,
        record["budget"],
        record["tokens"],
        len(record["said"]),
        len(record["dropped"]),
        recalled,
    )


def _thread_of(engine: Engine, run: RunRow) -> TurnThread | None:
    """Return the thread that a stored run is a turn of."""
    beginning = read_window(engine.store, run, 1, _BEGINNING).entries
    if not any(_value_in(entry.record, SNAPSHOT) for entry in beginning):
        return None
    thread, _, number = run.id.rpartition("#")
    return TurnThread(engine, thread, int(number), EarlierTurns()) if number.isdecimal() else None
