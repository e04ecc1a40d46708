"""Where the entries of a run are: those of a fork begin in the stream of its origin, which may be a fork itself.

Nothing is copied. A fork names the last entry that it shares and its link, so that a beginning that was changed
behind its back is noticed whenever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..errors import JournalDamaged
from ..limits import FORK_DEPTH_MAX
from ..records import Event, Forked, decode
from ..store.base import Row, Store
from .append import Head, walk_events
from .walk import folded_in

Consume = Callable[[Iterator[Event]], None]


def lineage(store: Store, stream: int) -> list[Forked]:
    """The forks that a run is the last of, the oldest first; empty for a run that began by itself."""
    found: list[Forked] = []
    while True:
        rows = store.read("events_page", (stream, 0, 1))
        record = decode(rows[0][1], rows[0][3]) if rows and rows[0][3] is not None else None
        if not isinstance(record, Forked):
            return found[::-1]
        if len(found) == FORK_DEPTH_MAX or record.origin >= stream:  # an origin is older than its forks
            raise JournalDamaged(f"stream {stream} is a fork of no run that can be followed to its beginning")
        found.append(record)
        stream = record.origin


def walk_run(store: Store, head: Head, consume: Consume, *, fork: bool, folded: Sequence[Row] = ()) -> None:
    """Let somebody have all entries of a run, in their order; then the head is where its own stream ends.

    `folded` is what is known of its folding: then those that are left.
    """
    for part in lineage(store, head.stream) if fork else ():
        _walk_shared(store, part, consume)
    store.scan("events_of", (head.stream, 0), lambda rows: consume(walk_events(head, rows, folded_in(folded))))


def events_of(store: Store, stream: int, *, fork: bool, folded: Sequence[Row] = ()) -> list[Event]:
    """The same, all at once; of one that was folded, or is just now, those that are left."""
    events: list[Event] = []
    try:
        walk_run(store, Head(store.identity, stream, 0), events.extend, fork=fork, folded=folded)
    except JournalDamaged:
        # Most runs are not folded: only one that does not seem to be whole is asked about.
        known = store.read("last_folded", (stream,))
        if known == list(folded):
            raise
        return events_of(store, stream, fork=fork, folded=known)
    return events


def _walk_shared(store: Store, part: Forked, consume: Consume) -> None:
    """The entries that a fork shares with its origin."""
    head = Head(store.identity, part.origin, 0)

    def take(rows: Iterable[Row]) -> None:
        consume(walk_events(head, _upto(rows, part.cut)))

    store.scan("events_of", (part.origin, 0), take)
    if (head.seq, head.chain) != (part.cut, part.head):
        raise JournalDamaged(f"entry {part.cut} of stream {part.origin} is another than run {part.run!r} was forked at")


def _upto(rows: Iterable[Row], cut: int) -> Iterator[Row]:
    for row in rows:
        if row[0] > cut:
            return
        yield row
