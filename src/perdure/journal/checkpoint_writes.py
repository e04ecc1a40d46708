"""Checkpoint versions saved and dropped, decided inside the commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure import records
from perdure.errors import StoreBusy
from perdure.journal.retention_rules import SPACE, RetentionRule, keep_of, policies_in
from perdure.journal.trees import TreeMemo
from perdure.store.base import Rows, Script, Statement, Store
from perdure.store.rows import first_number
from perdure.values import locks
from perdure.values.codec import fingerprints
from perdure.values.limits import KEEP_LAST_DROPS_MAX


class SaveCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint to save, or versions to drop."""

    owner: int
    name: str
    packed: bytes = b""
    objects: Sequence[Statement] = ()
    labels: tuple[str, ...] = ()
    meta: bytes = b""
    relies_on: int = 0
    """The version whose objects are reused: it must still exist."""
    base: str = ""
    """The name of that version, which may be another."""
    drops: tuple[int, ...] = ()
    keep: RetentionRule | None = None
    """Retention of this name; None means the agent's rules."""

    @property
    def place(self) -> tuple[int, str]:
        return (self.owner, self.name)

    @property
    def base_place(self) -> tuple[int, str]:
        return (self.owner, self.base or self.name)


MEMO_BYTES_MAX = 4 * 1024 * 1024
MEMOS_MAX = 4
NAMES_MAX, IDS_MAX = 256, 1 << 18
"""How many names, and ids of objects in all, are remembered."""


class WrittenCheckpoint(msgspec.Struct, frozen=True):
    """The last checkpoint of a name that this process saved: the next one reuses its objects."""

    name: str
    version: int
    ids: frozenset[bytes]
    memo: TreeMemo | None = None
    """For a list: the tree to compare with the next version, usually a longer list."""


NEVER = WrittenCheckpoint("", 0, frozenset())


class CheckpointCache:
    """The last checkpoints of one agent that this process saved."""

    def __init__(self) -> None:
        self._last: dict[str, WrittenCheckpoint] = {}
        """By name, newest last."""
        self._ids = 0
        self._lists: list[str] = []
        """Names with a memo, newest last; limited, because a memo takes twice the memory of its value."""
        self._lock = locks.lock()

    def base_of(self, name: str, value: Any) -> WrittenCheckpoint:
        """Return the saved checkpoint that has most in common with a value, whatever its name, or NEVER.

        For a list, that is the longest one that it seems to continue. Otherwise the last version of the same name, or
        the newest checkpoint of all: it is only a guess that saves writes.
        """
        with self._lock:
            known = [self._last[other] for other in self._lists] if type(value) is list else []
            mine = self._last.get(name) or next(reversed(self._last.values()), NEVER)
        fitting = [written for written in known if _may_continue(value, written.memo)]
        return max(fitting, key=_length, default=mine)

    def remember(self, name: str, version: int, written: WrittenCheckpoint) -> None:
        """Record `written` as the last version of the name."""
        memo = written.memo
        kept = memo if memo is not None and memo.keys and memo.size <= MEMO_BYTES_MAX else None
        with self._lock:
            self._forget(name)
            self._last[name] = WrittenCheckpoint(name, version, written.ids, kept)
            self._ids += len(written.ids)
            if kept is not None:
                self._lists.append(name)
            if len(self._lists) > MEMOS_MAX:
                oldest = self._lists.pop(0)
                self._last[oldest] = msgspec.structs.replace(self._last[oldest], memo=None)
            while len(self._last) > 1 and (len(self._last) > NAMES_MAX or self._ids > IDS_MAX):
                self._forget(next(iter(self._last)))

    def forget(self, name: str) -> None:
        """Drop a name whose last version may be deleted."""
        with self._lock:
            self._forget(name)

    def _forget(self, name: str) -> None:
        written = self._last.pop(name, None)
        if written is not None:
            self._ids -= len(written.ids)
        if name in self._lists:
            self._lists.remove(name)


def _may_continue(value: list[Any], memo: TreeMemo | None) -> bool:
    return memo is not None and fingerprints.may_begin_with(value, memo.keys, memo.count)


def _length(written: WrittenCheckpoint) -> int:
    return written.memo.count if written.memo is not None else 0


class BaseVersionGone(StoreBusy):
    """The version whose objects were reused has been deleted: write them again."""


def decide_checkpoints(
    marks: Sequence[SaveCheckpoint], store: Store
) -> Script[tuple[list[records.AgentChange], list[Statement]]]:
    """Number the versions under the locks of their names; return the changes and the objects they need."""
    now = store.clock.wall_ms()
    places = sorted({place for mark in marks for place in (mark.place, mark.base_place)})
    # Deletions take the same lock, so the base version stays until this commit.
    rows = yield [
        *(Statement("lock_namespace", (owner, f"checkpoint {name}")) for owner, name in places),
        *(
            Statement("checkpoint_base", (*mark.place, mark.base_place[1], mark.relies_on, SPACE, now))
            for mark in marks
        ),
    ]
    before = list(zip(marks, rows[len(places) :], strict=True))
    last = {mark.place: first_number(found) for mark, found in before}
    rules = {
        mark.owner: policies_in([(name, packed) for _, _, name, packed in found if name is not None])
        for mark, found in before
    }
    landed: list[records.AgentChange] = []
    made: list[Statement] = []
    for mark, found in before:
        if mark.relies_on and not any(base for _, base, *_ in found[:1]):
            raise BaseVersionGone
        landed += [records.CheckpointDropped(*mark.place, version) for version in mark.drops]
        if mark.packed:
            last[mark.place] += 1
            landed.append(records.CheckpointMade(*mark.place, last[mark.place], mark.packed, mark.labels, mark.meta))
            made += mark.objects
    landed += yield from _apply_keep_last(marks, rules, last)
    return landed, made


def _apply_keep_last(
    marks: Sequence[SaveCheckpoint],
    rules: Mapping[int, Mapping[str, RetentionRule]],
    last: Mapping[tuple[int, str], int],
) -> Script[list[records.AgentChange]]:
    """Apply `keep_last` when a version is saved: return the versions to drop."""
    counts = {}
    for mark in marks:
        keep = mark.keep or keep_of(rules[mark.owner], mark.name)
        if mark.packed and keep.last:
            counts[mark.place] = keep.last
    made = {
        place: sum(bool(mark.packed) - len(mark.drops) for mark in marks if mark.place == place) for place in counts
    }
    asked = {
        place: Statement("older_checkpoints", (*place, max(0, count - made[place]), KEEP_LAST_DROPS_MAX))
        for place, count in counts.items()
        if last[place] > count
    }
    if not asked:
        return []
    found = yield list(asked.values())
    dropped = {(mark.place, version) for mark in marks for version in mark.drops}
    return [
        records.CheckpointDropped(*place, version)
        for place, rows in zip(asked, found, strict=True)
        for version in iterate_unpinned(place, rows)
        if (place, version) not in dropped
    ]


def iterate_unpinned(place: tuple[int, str], rows: Rows) -> Iterator[int]:
    """Yield the versions without a label, which would pin them, from rows of version, entry kind and entry body."""
    for version, kind, body in rows:
        if body is not None and not any(_labels(records.decode(kind, body), (*place, version))):
            yield version


def _labels(record: records.Record, which: tuple[int, str, int]) -> Iterable[str]:
    landed: Sequence[records.AgentChange] = getattr(record, "landed", ())
    for entry in landed:
        if isinstance(entry, records.CheckpointMade) and (entry.owner, entry.name, entry.version) == which:
            yield from entry.labels
