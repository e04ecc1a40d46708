"""Checkpoint versions saved and dropped, decided inside the commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from perdure import records
from perdure.errors import StoreBusy
from perdure.journal.retention_rules import SPACE, RetentionRule, keep_of, policies_in
from perdure.journal.trees import TreeMemo
from perdure.store.base import Rows, Script, Statement, Store
from perdure.store.rows import first_number
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
    drops: tuple[int, ...] = ()
    keep: RetentionRule | None = None
    """Retention of this name; None means the agent's rules."""

    @property
    def place(self) -> tuple[int, str]:
        return (self.owner, self.name)


MEMO_BYTES_MAX = 4 * 1024 * 1024
MEMOS_MAX = 4


class WrittenCheckpoint(msgspec.Struct, frozen=True):
    """The last checkpoint of a name that this process saved: the next one reuses its objects."""

    version: int
    ids: frozenset[bytes]
    memo: TreeMemo | None = None
    """For a list: the tree to compare with the next version, usually a longer list."""


NEVER = WrittenCheckpoint(0, frozenset())


class CheckpointCache:
    """The last checkpoints of one agent that this process saved."""

    def __init__(self) -> None:
        self._last: dict[str, WrittenCheckpoint] = {}
        self._lists: list[str] = []
        """Names with a memo, newest last; limited, because a memo takes twice the memory of its value."""

    def known(self, name: str) -> WrittenCheckpoint:
        """The last version that this process saved, or NEVER."""
        return self._last.get(name) or NEVER

    def remember(self, name: str, version: int, written: WrittenCheckpoint) -> None:
        """Record `written` as the last version of the name."""
        memo = written.memo
        kept = memo if memo is not None and memo.keys and memo.size <= MEMO_BYTES_MAX else None
        self._last[name] = WrittenCheckpoint(version, written.ids, kept)
        others = [item for item in self._lists if item != name]
        self._lists = [*others, name] if kept is not None else others
        if len(self._lists) > MEMOS_MAX:
            oldest = self._lists.pop(0)
            if oldest in self._last:
                self._last[oldest] = msgspec.structs.replace(self._last[oldest], memo=None)

    def forget(self, name: str) -> None:
        """Drop a name whose last version may be deleted."""
        self._last.pop(name, None)


class BaseVersionGone(StoreBusy):
    """The version whose objects were reused has been deleted: write them again."""


def decided_marks(
    marks: Sequence[SaveCheckpoint], store: Store
) -> Script[tuple[list[records.AgentChange], list[Statement]]]:
    """Number the versions under the locks of their names; return the changes and the objects they need."""
    now = store.clock.wall_ms()
    places = sorted({mark.place for mark in marks})
    # Deletions take the same lock, so the base version stays until this commit.
    rows = yield [
        *(Statement("lock_namespace", (owner, f"checkpoint {name}")) for owner, name in places),
        *(Statement("checkpoint_base", (*mark.place, mark.relies_on, SPACE, now)) for mark in marks),
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
    landed += yield from _outnumbered(marks, rules, last)
    return landed, made


def _outnumbered(
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
        for version in unpinned(place, rows)
        if (place, version) not in dropped
    ]


def unpinned(place: tuple[int, str], rows: Rows) -> Iterator[int]:
    """Yield the versions without a label, which would pin them, from rows of version, entry kind and entry body."""
    for version, kind, body in rows:
        if body is not None and not any(_labels(records.decode(kind, body), (*place, version))):
            yield version


def _labels(record: records.Record, which: tuple[int, str, int]) -> Iterable[str]:
    landed: Sequence[records.AgentChange] = getattr(record, "landed", ())
    for entry in landed:
        if isinstance(entry, records.CheckpointMade) and (entry.owner, entry.name, entry.version) == which:
            yield from entry.labels
