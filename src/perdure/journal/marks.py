"""Checkpoints that are wanted or not wanted any more, decided inside the commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from .. import records
from ..errors import StoreBusy
from ..limits import KEEP_LAST_DROPS_MAX
from ..store.base import Rows, Script, Statement, Store
from ..trees import Memo
from .keeping import SPACE, Keep, keep_of, policies_in


class Mark(msgspec.Struct, frozen=True):
    """A checkpoint to be made, or versions of one to be dropped."""

    owner: int
    name: str
    packed: bytes = b""
    objects: Sequence[Statement] = ()
    labels: tuple[str, ...] = ()
    meta: bytes = b""
    relies_on: int = 0
    """A version whose objects were not written again: it must still be there."""
    drops: tuple[int, ...] = ()
    keep: Keep | None = None
    """How long versions of this name are kept; None is what the agent's rules say."""

    @property
    def place(self) -> tuple[int, str]:
        return (self.owner, self.name)


MEMO_BYTES_MAX = 4 * 1024 * 1024
MEMOS_MAX = 4


class Written(msgspec.Struct, frozen=True):
    """The last checkpoint of a name that this process has made: the next one need not write what it has."""

    version: int
    ids: frozenset[bytes]
    memo: Memo | None = None
    """Of a list: what is compared with the next one, which has most often grown."""


NEVER = Written(0, frozenset())


class Shelf:
    """What this process remembers of the checkpoints of one agent."""

    def __init__(self) -> None:
        self._last: dict[str, Written] = {}
        self._lists: list[str] = []
        """Names of which there is a memo, the newest last: it takes twice the memory of its value."""

    def known(self, name: str) -> Written:
        """The last version, if this process knows it."""
        return self._last.get(name) or NEVER

    def remember(self, name: str, version: int, written: Written) -> None:
        """This is the last one now."""
        memo = written.memo
        kept = memo if memo is not None and memo.keys and memo.size <= MEMO_BYTES_MAX else None
        self._last[name] = Written(version, written.ids, kept)
        others = [it for it in self._lists if it != name]
        self._lists = [*others, name] if kept is not None else others
        if len(self._lists) > MEMOS_MAX:
            oldest = self._lists.pop(0)
            if oldest in self._last:
                self._last[oldest] = msgspec.structs.replace(self._last[oldest], memo=None)

    def forget(self, name: str) -> None:
        """It is not there any more, or may not be."""
        self._last.pop(name, None)


class Gone(StoreBusy):
    """The version that was relied on has been deleted: what it had must be written again."""


def decided_marks(marks: Sequence[Mark], store: Store) -> Script[tuple[list[records.Landing], list[Statement]]]:
    """What they come to, numbered under the locks of their names; and the objects that go with it."""
    now = store.clock.wall_ms()
    places = sorted({mark.place for mark in marks})
    # Who deletes takes the same lock: what is relied on stays until we have committed.
    rows = yield [
        *(Statement("lock_space", (owner, f"checkpoint {name}")) for owner, name in places),
        *(Statement("checkpoint_before", (*mark.place, mark.relies_on, SPACE, now)) for mark in marks),
    ]
    before = list(zip(marks, rows[len(places) :], strict=True))
    last = {mark.place: found[0][0] for mark, found in before}
    rules = {mark.owner: policies_in([row[2:] for row in found if row[2] is not None]) for mark, found in before}
    landed: list[records.Landing] = []
    made: list[Statement] = []
    for mark, found in before:
        if mark.relies_on and not found[0][1]:
            raise Gone
        landed += [records.CheckpointDropped(*mark.place, version) for version in mark.drops]
        if mark.packed:
            last[mark.place] += 1
            landed.append(records.CheckpointMade(*mark.place, last[mark.place], mark.packed, mark.labels, mark.meta))
            made += mark.objects
    landed += yield from _outnumbered(marks, rules, last)
    return landed, made


def _outnumbered(
    marks: Sequence[Mark], rules: Mapping[int, Mapping[str, Keep]], last: Mapping[tuple[int, str], int]
) -> Script[list[records.Landing]]:
    """The versions that go because newer ones have come: `keep_last`, applied when one is made."""
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
    """The versions without a label, of rows of (version, kind and body of the entry): a label pins a checkpoint."""
    for version, kind, body in rows:
        if body is not None and not any(_labels(records.decode(kind, body), (*place, version))):
            yield version


def _labels(record: records.Record, which: tuple[int, str, int]) -> Iterable[str]:
    landed: Sequence[records.Landing] = getattr(record, "landed", ())
    for it in landed:
        if isinstance(it, records.CheckpointMade) and (it.owner, it.name, it.version) == which:
            yield from it.labels
