"""Walking along a stream: page by page in little memory, comparing every entry with the chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import JournalDamaged, StoreTooNew, StoreUnavailable
from ..records import Event, Folded, decode, remains
from ..store.base import Row, Rows, Store
from . import chain
from .append import first_of_fork
from .findings import What

PAGE_ENTRIES = 200
PAGE_STREAMS = 1000
CANDIDATES_MAX = 8
"""Links that are tried after bad entries: enough to get in step again after two that were swapped."""


def all_streams(store: Store) -> Iterator[tuple[Any, ...]]:
    """Every stream as (id, kind, name, at), in order."""
    after = 0
    while page := store.read("streams_page", (after, PAGE_STREAMS)):
        must_ascend(page, after)
        yield from page
        after = page[-1][0]


def pages(store: Store, stream: int, first: int = 0) -> Iterator[Rows]:
    """The rows of a stream, from number 0: the first entry is 1, so that one at 0 is found too."""
    while page := store.read("events_page", (stream, first, PAGE_ENTRIES)):
        must_ascend(page, first - 1)
        yield page
        first = page[-1][0] + 1


def must_ascend(page: Rows, after: Any) -> None:
    """A damaged tree may give its rows in any order, and then asking for the next page would never end."""
    for identity, *_ in page:
        if type(identity) is not type(after) or identity <= after:
            raise StoreUnavailable("the rows of a table are out of order", hint="restore the store from a backup")
        after = identity


class Chain:
    """Follows the chain of one stream, and goes on after an entry that does not fit, to find the others.

    Of a stream that was folded, the entries that were kept are compared with their marks, and the others with the chain
    that goes on behind them.
    """

    def __init__(self, store: str, stream: int, folded: Folded | None = None, cut: int = 0) -> None:
        self.stream = stream
        self._cut = cut
        """Of a fork, as a view has it: where to go on when the first entry cannot tell."""
        self.seq = 0
        """The last entry seen."""
        self.links: tuple[bytes, ...] = (chain.genesis(store, stream),)
        """What the next entry may be chained to: one link, unless the last entry was a bad one."""
        self.folded = folded
        self._kept = chain.marks_in(folded.kept) if folded is not None else {}
        self._inside = folded is not None
        """Whether we are among what was folded."""

    def follow(self, row: tuple[Any, ...]) -> Iterator[tuple[What, int, str]]:
        """Take one row; yields what is wrong with it: (what, number of the entry, in words)."""
        seq, kind, at, body, stored, digest = row
        if seq == 0:
            yield What.ADDED, 0, "an entry stands before the first one"
            return
        if self._inside and self.folded is not None:
            if seq <= self.folded.upto:
                yield from self._follow_kept(row)
                return
            yield from self._pass(self.folded)
        if not self.seq:
            self.seq = seq - 1 if _begins_fork(row) else self._cut
        if seq != self.seq + 1:
            yield What.REMOVED, self.seq + 1, f"missing: {_range(self.seq + 1, seq - 1)}"
        gap, self.seq = seq != self.seq + 1, seq
        if not _well_typed(row):
            self.links += (stored,) if isinstance(stored, bytes) else ()
            yield What.EDITED, seq, "a column holds a value that was never written there"
            return
        if body is not None and digest is not None:
            yield What.EDITED, seq, "it has the digest of an erased body beside a body"
        covered = chain.body_digest(body) if body is not None else digest
        after = {chain.link(link, self.stream, seq, kind, at, covered) for link in self.links}
        if gap or stored in after:
            # After a gap nobody knows the link before: what follows is compared from here on.
            self.links = (stored,)
            return
        # Either its content or its link is another: the next entry fits to one of the two.
        self.links = (stored, self.links[0], *after)[:CANDIDATES_MAX]
        yield What.EDITED, seq, "it does not fit the chain"

    def _follow_kept(self, row: tuple[Any, ...]) -> Iterator[tuple[What, int, str]]:
        seq, kind, at, body, stored, digest = row
        self.seq = seq
        wanted = self._kept.pop(seq, None)
        if wanted is None:
            yield What.ADDED, seq, "it was folded, and stands here again"
            return
        if not _well_typed(row):
            yield What.EDITED, seq, "a column holds a value that was never written there"
            return
        self.links = (stored,)
        if body is not None and digest is not None:
            yield What.EDITED, seq, "it has the digest of an erased body beside a body"
        covered = chain.body_digest(body) if body is not None else digest
        if chain.mark(self.stream, seq, kind, at, covered, stored) != wanted:
            yield What.EDITED, seq, "it is another than when the entries around it were folded"

    def _pass(self, folded: Folded) -> Iterator[tuple[What, int, str]]:
        """The last of what was folded is behind us."""
        for seq in self._kept:
            yield What.REMOVED, seq, "it was kept when the entries around it were folded, and is missing"
        self._inside, self.seq, self.links = False, folded.upto, (folded.head,)


def folded_in(rows: Sequence[Row]) -> Folded | None:
    """What was folded, from the rows of `last_folded`; nothing, if that entry cannot be read: it is found as damage."""
    if not rows or type(rows[0][3]) is not bytes:
        return None
    try:
        record = decode(rows[0][1], rows[0][3])
    except JournalDamaged:
        return None
    return record if isinstance(record, Folded) else None


def _well_typed(row: tuple[Any, ...]) -> bool:
    """SQLite keeps what it finds in a damaged file, whatever the type of the column is."""
    _, kind, at, body, stored, digest = row
    numbers = type(kind) is int and type(at) is int and kind >= 0 and at >= 0
    blobs = type(stored) is bytes and all(type(it) is bytes for it in (body, digest) if it is not None)
    return numbers and blobs and (body is not None or digest is not None)


def _begins_fork(row: tuple[Any, ...]) -> bool:
    """Whether a stream may begin with this row, although entries come before it: they are in another stream."""
    seq, kind, _, body, *_ = row
    try:
        return bool(seq == first_of_fork(kind, body if type(body) is bytes else None))
    except (JournalDamaged, StoreTooNew):
        return False


def _range(first: int, last: int) -> str:
    return f"entry {first}" if first == last else f"entries {first} to {last}"


def sound_events(stream: int, rows: Rows, along: Chain) -> list[Event]:
    """The events of one page, for who must not work with a damaged journal. Of erased ones, what remains."""
    events = []
    for row in rows:
        for what, seq, text in along.follow(row):
            raise JournalDamaged(f"stream {stream}, entry {seq} ({what}): {text}")
        seq, kind, at, body, _, _ = row
        record = decode(kind, body) if body is not None else remains(kind)
        if record is not None:
            events.append(Event(seq, at, record))
    return events
