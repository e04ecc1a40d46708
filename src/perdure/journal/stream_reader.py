"""Reads a stream page by page and checks every entry against the chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.errors import JournalDamaged, StoreTooNew, StoreUnavailable
from perdure.journal import chain
from perdure.journal.append import find_fork_start
from perdure.journal.verify_report import FindingKind
from perdure.records import EntryKind, JournalEntry, StreamCompacted, decode, remains
from perdure.store.base import Row, Rows, Store
from perdure.store.rows import entry_in

PAGE_ENTRIES = 200
PAGE_STREAMS = 1000
CANDIDATES_MAX = 8
"""Links that are tried after bad entries: enough to resynchronize after two swapped ones."""


def iterate_streams(store: Store) -> Iterator[tuple[Any, ...]]:
    """Yield every stream as (id, kind, name, at), in order."""
    after = 0
    while page := store.read("streams_page", (after, PAGE_STREAMS)):
        check_ascending(page, after)
        yield from page
        after = page[-1][0]


def pages(store: Store, stream: int, first: int = 0) -> Iterator[Rows]:
    """Yield the rows of a stream by page. Starts at 0, although entries start at 1, to find a forged entry 0."""
    while page := store.read("journal_page", (stream, first, PAGE_ENTRIES)):
        check_ascending(page, first - 1)
        yield page
        first = page[-1][0] + 1


def check_ascending(page: Rows, after: Any) -> None:
    """Refuse rows out of order: paging through a damaged B-tree might never end."""
    for identity, *_ in page:
        if type(identity) is not type(after) or identity <= after:
            raise StoreUnavailable("the rows of a table are out of order", hint="restore the store from a backup")
        after = identity


class ChainWalk:
    """Follows the chain of one stream, and continues after a bad entry to find the others.

    In a compacted stream, kept entries are compared with their marks, and later ones with the chain.
    """

    def __init__(self, store: str, stream: int, compaction: StreamCompacted | None = None, cut: int = 0) -> None:
        self.stream = stream
        self._cut = cut
        """The fork's cut according to the view, for a fork whose first entry cannot be read."""
        self.seq = 0
        """The last entry seen."""
        self.links: tuple[bytes, ...] = (chain.genesis(store, stream),)
        """Candidates for the previous link: one, unless the last entry was bad."""
        self.compaction = compaction
        self._kept = chain.marks_in(compaction.kept) if compaction is not None else {}
        self._inside = compaction is not None
        """Whether the walk is still in the compacted part."""

    def follow(self, row: tuple[Any, ...]) -> Iterator[tuple[FindingKind, int, str]]:
        """Check the next row; yield its findings as (kind, number of the entry, text)."""
        seq, kind, at, body, stored, digest = row
        if seq == 0:
            yield FindingKind.ADDED, 0, "an entry stands before the first one"
            return
        if self._inside and self.compaction is not None:
            if seq <= self.compaction.upto:
                yield from self._follow_kept(row)
                return
            yield from self._pass(self.compaction)
        if not self.seq:
            self.seq = seq - 1 if _is_fork_start(row) else self._cut
        if seq != self.seq + 1:
            yield FindingKind.REMOVED, self.seq + 1, f"missing: {_range(self.seq + 1, seq - 1)}"
        gap, self.seq = seq != self.seq + 1, seq
        if not _well_typed(row):
            self.links += (stored,) if isinstance(stored, bytes) else ()
            yield FindingKind.EDITED, seq, "a column holds a value that was never written there"
            return
        if body is not None and digest is not None:
            yield FindingKind.EDITED, seq, "it has the digest of an erased body beside a body"
        covered = chain.body_digest(body) if body is not None else digest
        after = {chain.link(link, self.stream, seq, kind, at, covered) for link in self.links}
        if gap or stored in after:
            # After a gap the previous link is unknown: continue from this entry's link.
            self.links = (stored,)
            return
        # Either the content or the link was changed: the next entry fits one of the two.
        self.links = (stored, self.links[0], *after)[:CANDIDATES_MAX]
        yield FindingKind.EDITED, seq, "it does not fit the chain"

    def _follow_kept(self, row: tuple[Any, ...]) -> Iterator[tuple[FindingKind, int, str]]:
        seq, kind, at, body, stored, digest = row
        self.seq = seq
        wanted = self._kept.pop(seq, None)
        if wanted is None:
            yield FindingKind.ADDED, seq, "it was compacted, and stands here again"
            return
        if not _well_typed(row):
            yield FindingKind.EDITED, seq, "a column holds a value that was never written there"
            return
        self.links = (stored,)
        if body is not None and digest is not None:
            yield FindingKind.EDITED, seq, "it has the digest of an erased body beside a body"
        covered = chain.body_digest(body) if body is not None else digest
        if chain.mark(self.stream, seq, kind, at, covered, stored) != wanted:
            yield FindingKind.EDITED, seq, "it has changed since the entries around it were compacted"

    def _pass(self, compaction: StreamCompacted) -> Iterator[tuple[FindingKind, int, str]]:
        """Leave the compacted part; report kept entries that are missing."""
        for seq in self._kept:
            yield FindingKind.REMOVED, seq, "it was kept when the entries around it were compacted, and is missing"
        self._inside, self.seq, self.links = False, compaction.upto, (compaction.head,)


def compaction_in(rows: Sequence[Row]) -> StreamCompacted | None:
    """Return the compaction in an answer of `last_compaction`; None if there is none."""
    entry = entry_in(rows)
    return decoded_compaction(entry.body) if entry is not None else None


def decoded_compaction(body: bytes | None) -> StreamCompacted | None:
    """Decode the body of a compaction entry; None if there is none or it is unreadable, which `verify` reports."""
    if type(body) is not bytes:
        return None
    try:
        record = decode(EntryKind.STREAM_COMPACTED, body)
    except JournalDamaged:
        return None
    return record if isinstance(record, StreamCompacted) else None


def _well_typed(row: tuple[Any, ...]) -> bool:
    """Whether all columns have the right type; a damaged SQLite file may hold any."""
    _, kind, at, body, stored, digest = row
    numbers = type(kind) is int and type(at) is int and kind >= 0 and at >= 0
    blobs = type(stored) is bytes and all(type(item) is bytes for item in (body, digest) if item is not None)
    return numbers and blobs and (body is not None or digest is not None)


def _is_fork_start(row: tuple[Any, ...]) -> bool:
    """Whether this row is the first entry of a fork, whose earlier entries are in another stream."""
    seq, kind, _, body, *_ = row
    try:
        return bool(seq == find_fork_start(kind, body if type(body) is bytes else None))
    except (JournalDamaged, StoreTooNew):
        return False


def _range(first: int, last: int) -> str:
    return f"entry {first}" if first == last else f"entries {first} to {last}"


def sound_events(stream: int, rows: Rows, along: ChainWalk) -> list[JournalEntry]:
    """Decode the entries of one page; raise JournalDamaged on any finding. Erased entries give their remains."""
    events = []
    for row in rows:
        for what, seq, text in along.follow(row):
            raise JournalDamaged(f"stream {stream}, entry {seq} ({what}): {text}")
        seq, kind, at, body, _, _ = row
        record = decode(kind, body) if body is not None else remains(kind)
        if record is not None:
            events.append(JournalEntry(seq, at, record))
    return events
