"""Reads the entries of a run across forks: a fork begins in the stream of its origin, which may be a fork itself.

Nothing is copied. A fork records the number and the link of the last shared entry, so every read detects a change of
the shared part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from perdure.errors import JournalDamaged
from perdure.journal.append import StreamHead, walk_events
from perdure.journal.stream_reader import compaction_in
from perdure.records import Forked, JournalEntry, decode
from perdure.store.base import Row, Store
from perdure.store.rows import entry_in, upto
from perdure.values.limits import FORK_DEPTH_MAX

EntryConsumer = Callable[[Iterator[JournalEntry]], None]


def lineage(store: Store, stream: int) -> list[Forked]:
    """Return the chain of forks that leads to a run, oldest first; empty for a run that is no fork."""
    found: list[Forked] = []
    while True:
        first = entry_in(store.read("journal_page", (stream, 0, 1)))
        record = decode(first.kind, first.body) if first is not None and first.body is not None else None
        if not isinstance(record, Forked):
            return found[::-1]
        if len(found) == FORK_DEPTH_MAX or record.origin >= stream:  # an origin is older than its forks
            raise JournalDamaged(f"stream {stream} is a fork of no run that can be followed to its beginning")
        found.append(record)
        stream = record.origin


def walk_run(
    store: Store, head: StreamHead, consume: EntryConsumer, *, fork: bool, compaction: Sequence[Row] = ()
) -> None:
    """Pass all entries of a run to `consume`, in order, and move `head` to the end of its own stream.

    For a compacted run, `compaction` has the rows of `last_compaction`, and only the remaining entries are passed.
    """
    for part in lineage(store, head.stream) if fork else ():
        _walk_shared(store, part, consume)
    store.scan("journal_of", (head.stream, 0), lambda rows: consume(walk_events(head, rows, compaction_in(compaction))))


def events_of(store: Store, stream: int, *, fork: bool, compaction: Sequence[Row] = ()) -> list[JournalEntry]:
    """Return all entries of a run; for a run that was or is being compacted, the remaining ones."""
    events: list[JournalEntry] = []
    try:
        walk_run(store, StreamHead(store.identity, stream, 0), events.extend, fork=fork, compaction=compaction)
    except JournalDamaged:
        # Most runs are not compacted, so look for a compaction only if entries seem to be missing.
        known = store.read("last_compaction", (stream,))
        if known == list(compaction):
            raise
        return events_of(store, stream, fork=fork, compaction=known)
    return events


def _walk_shared(store: Store, part: Forked, consume: EntryConsumer) -> None:
    """Pass the entries that a fork shares with its origin."""
    head = StreamHead(store.identity, part.origin, 0)

    def take(rows: Iterable[Row]) -> None:
        consume(walk_events(head, upto(rows, part.cut)))

    store.scan("journal_of", (part.origin, 0), take)
    if (head.seq, head.chain) != (part.cut, part.head):
        raise JournalDamaged(f"entry {part.cut} of stream {part.origin} is another than run {part.run!r} was forked at")
