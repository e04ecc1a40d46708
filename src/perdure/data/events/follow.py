"""Follows events as any process appends them."""

from __future__ import annotations

from collections.abc import Callable

from perdure.data.events.positions import BEGINNING, END, EventPosition, read_settled_end, resolve_position
from perdure.data.events.read import Event, EventQuery, EventReader
from perdure.kernel.awaitables import require_plain
from perdure.kernel.protocol import Pause, Protocol, Read
from perdure.store.base import Store
from perdure.store.rows import read_run
from perdure.values.limits import EVENTS_OF_PAGE_MAX, WAIT_POLL_SECONDS, WAIT_POLL_SECONDS_MAX


class Follower:
    """Delivers new events, each once and in commit order."""

    def __init__(
        self,
        store: Store,
        open_book: Callable[[], EventReader | None],
        wanted: EventQuery,
        seconds: float | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self._store = store
        self._open_book = open_book
        self._wanted = wanted
        self._seconds = seconds
        self._stop = stop or (lambda: False)
        self._changed = store.watch(0) if store.one_host else lambda: True
        self._after: EventPosition | None = None
        self._maybe = False
        """After a full page there may be another one, even if nothing has changed since."""

    def begin(self) -> EventPosition:
        """Fix the starting position to now, unless `since` is given. Returns the position."""
        book = self._open_book()
        self._after = BEGINNING
        if book is None:
            return BEGINNING  # the agent has no events yet
        since = book.position(self._wanted.since)
        if since is None or since == END:
            settled = read_settled_end(self._store)
            rows = self._store.read("last_event_before", (book.owner, settled.arrival))
            since = EventPosition(*rows[0]) if rows else BEGINNING
        book.refuse_compacted(self._wanted, since)
        self._after = since
        return since

    def fetch_more(self) -> Protocol[list[Event]]:
        """Return the next events as soon as there are any; an empty list at the end."""
        waited, pause = 0.0, WAIT_POLL_SECONDS
        # Polling a file is nearly free; a server is polled less and less often.
        most = WAIT_POLL_SECONDS if self._store.one_host else WAIT_POLL_SECONDS_MAX / 5
        while not require_plain(self._stop(), self._stop):
            found: list[Event] = yield Read(self.poll)
            if found:
                return found
            if self._seconds is not None and waited >= self._seconds:
                break
            yield Pause(pause)
            waited += pause
            pause = min(pause * 1.5, most)
        return []

    def poll(self) -> list[Event]:
        """Return the events that have arrived since the last call."""
        if self._after is None:
            self.begin()
        assert self._after is not None
        if not self._changed() and not self._maybe:
            return []
        book = self._open_book()
        run = self._find_stream(book) if book is not None else None
        if book is None or run is None:
            return []
        self._after = resolve_position(self._store, book.owner, self._after)  # a rebuild may have renumbered positions
        rows = book.rows(self._wanted.kinds, run, self._after, read_settled_end(self._store), EVENTS_OF_PAGE_MAX)
        self._maybe = bool(rows)
        if rows:
            self._after = EventPosition(*rows[-1].position)
        return book.events(rows, typed=self._wanted.typed)

    def _find_stream(self, book: EventReader) -> int | None:
        """Return the stream of the followed run, or None if it has not started yet."""
        if self._wanted.run is None:
            return 0
        run = read_run(self._store, book.agent, self._wanted.run)
        return run.stream if run is not None else None
