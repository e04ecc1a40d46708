"""Reads events page by page, with two queries per page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.data.events import compaction
from perdure.data.events.positions import (
    BEGINNING,
    END,
    EventPosition,
    find_position_at,
    milliseconds_of,
    parse_token,
    resolve_position,
)
from perdure.data.events.schemas import EventKinds, kinds_of
from perdure.errors import RunNotFound, WrongType, WrongValue
from perdure.journal import objects
from perdure.store.base import Store
from perdure.store.rows import EventRow, first_number, read_run, read_runs
from perdure.values import codec
from perdure.values.clock import moment
from perdure.values.hints import name_hint
from perdure.values.limits import EVENTS_OF_PAGE_MAX, NUMBER_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

FIRST_PAGE = 50
"""The first page is small, so that readers of a few events do not wait for many."""


class Event(msgspec.Struct, frozen=True):
    """An event that an agent has appended."""

    kind: str
    payload: Any
    """An instance of the class registered for the kind, else the value as given."""
    at: datetime
    run: str | None
    """The id of the run that appended it, if any."""
    position: str
    """The place in the order: text to store, compare, and pass to `since=` and `until=`."""
    extra: dict[str, Any] = {}
    """Stored fields that the registered class does not have, written by a newer program."""
    data: Any = None
    """The payload as stored: a dict of fields where `payload` is an object."""
    version: int = 0
    """The schema version it was written with; 0 for none."""

    def __repr__(self) -> str:
        more = "".join(f", {name}={value!r}" for name, value in (("run", self.run), ("extra", self.extra)) if value)
        return f"Event({self.kind!r}, {self.payload!r}, at={self.at.isoformat(timespec='milliseconds')}{more})"


EventTime = str | datetime | Event


class EventQuery(msgspec.Struct, frozen=True):
    """A query for events."""

    kinds: tuple[str, ...] = ()
    """Empty means all kinds."""
    run: str | None = None
    since: EventTime | None = None
    until: EventTime | None = None
    limit: int | None = None
    last: int | None = None
    typed: bool = True


def make_query(
    kinds: EventKinds,
    kind: Any = None,
    run: str | None = None,
    since: EventTime | None = None,
    until: EventTime | None = None,
    *,
    limit: int | None = None,
    last: int | None = None,
    typed: bool = True,
) -> EventQuery:
    """Check the arguments of a query at the call."""
    wanted = () if kind is None else [kind] if isinstance(kind, str | type) else kind
    if not isinstance(wanted, Iterable):
        raise WrongType(
            f"kind={kind!r}: must be the name of a kind, its class, or a list of these", hint='for example kind="SEEN"'
        )
    for name, count in (("limit", limit), ("last", last)):
        if count is not None and (type(count) is not int or not 0 <= count <= NUMBER_MAX):
            raise WrongValue(f"{name}={count!r}: must be an int from 0 to {NUMBER_MAX}")
    if limit is not None and last is not None:
        raise WrongValue("pass either limit= (the first events) or last= (the newest events)")
    for name, when in (("since", since), ("until", until)):
        if isinstance(when, str):
            parse_token(when)
        elif when is not None and not isinstance(when, datetime | Event):
            raise WrongType(f"{name}= is the position of an event, an event or a datetime, not {when!r}")
    names = tuple(dict.fromkeys(kinds.name_of(one) for one in wanted))
    return EventQuery(names, run, since, until, limit, last, typed)


class EventReader:
    """Reads the events of one agent."""

    def __init__(
        self, store: Store, owner: int, agent: str, kinds: EventKinds, unpack: Callable[[bytes], Any] | None = None
    ) -> None:
        self.store = store
        self.owner = owner
        self.agent = agent
        self._kinds = kinds
        self._unpack = unpack

    def position(self, when: EventTime | None, *, after: bool = False) -> EventPosition | None:
        """Resolve a position, an event or a datetime."""
        if when is None:
            return None
        if isinstance(when, datetime):
            return find_position_at(self.store, self.owner, when, after=after)
        return resolve_position(self.store, self.owner, parse_token(when if isinstance(when, str) else when.position))

    def refuse_compacted(self, wanted: EventQuery, since: EventPosition) -> None:
        """Raise if events after `since` were compacted: the reader would miss them."""
        last = compaction.floor(self.store, self.owner, wanted.kinds)
        if not last or wanted.since is None or since == BEGINNING or self._is_unfinished(wanted.run):
            return
        if isinstance(wanted.since, datetime):
            if milliseconds_of(wanted.since) <= last:
                raise compaction.compacted_error(self.agent, last, "read without since=, or from a later time")
            return
        found = self.store.read("has_event", (self.owner, *since))
        if not found or (first_number(found) <= last and self.rows(wanted.kinds, 0, since, END, 1)):
            archive = compaction.archive_of(self.store, since.stream)
            raise compaction.compacted_error(self.agent, last, 'start again with since="" or a later time', archive)

    def _is_unfinished(self, run: str | None) -> bool:
        """Return whether a run is unfinished, and so still has all its events."""
        found = read_run(self.store, self.agent, run) if run is not None else None
        return found is not None and found.status != r.RunStatus.FINISHED

    def floor(self, wanted: EventQuery) -> int:
        """Return the time of the last compacted event that matches a query."""
        return 0 if self._is_unfinished(wanted.run) else compaction.floor(self.store, self.owner, wanted.kinds)

    def find_run_stream(self, run: str) -> int:
        """Return the stream of a run. Raises `RunNotFound`."""
        found = read_run(self.store, self.agent, run)
        if found is None:
            known = [other.id for other in read_runs(self.store) if other.agent == self.agent]
            raise RunNotFound(f"agent {self.agent!r} has no run {run!r}", hint=name_hint(run, known))
        return found.stream

    def rows(
        self,
        kinds: Sequence[str],
        run: int,
        after: EventPosition,
        to: EventPosition,
        count: int,
        *,
        newest: bool = False,
    ) -> list[EventRow]:
        """Return the first, or the newest, rows of a range, in order."""
        found: list[EventRow] = []
        for kind in kinds or ("",):
            whose: tuple[Any, ...] = (self.owner, kind) if kind else (self.owner,)
            query = "agent_events_of_kind" if kind else "agent_events"
            if run:
                query, whose = "run_events", (self.owner, run, kind)
            rows = self.store.read(query + ("_newest_first" if newest else ""), (*whose, *after, *to, count))
            found += [EventRow(*row) for row in rows]
        found.sort(key=lambda row: row.position, reverse=newest)
        del found[count:]
        return found[::-1] if newest else found

    def events(self, rows: Sequence[EventRow], *, typed: bool) -> list[Event]:
        """Return the events of some rows. Events whose journal entry was erased are left out."""
        which = list(dict.fromkeys((row.stream, row.seq) for row in rows))
        bodies = self.store.read("journal_among", (msgspec.json.encode(which).decode(),)) if which else []
        entries = {(stream, seq): r.decode(kind, body) for stream, seq, kind, body in bodies if body is not None}
        there = [row for row in rows if (row.stream, row.seq) in entries]
        noted = [(row, _find_payload(entries[row.stream, row.seq], row.place)) for row in there]
        values = self._values([packed for _, (packed, _) in noted])
        return [
            self._event(row, value, version, typed) for (row, (_, version)), value in zip(noted, values, strict=True)
        ]

    def _values(self, packed: Sequence[bytes]) -> list[Any]:
        if self._unpack is not None:
            return [self._unpack(one) for one in packed]
        large = {identity for one in packed if (identity := objects.reference(one))}
        found = objects.fetch_many(self.store, large) if large else {}
        return [codec.decode(found[one[1:]] if objects.reference(one) else one[1:]) for one in packed]

    def _event(self, row: EventRow, value: Any, version: int, typed: bool) -> Event:
        payload, extra = self._kinds.payload(row.kind, version, value) if typed else (value, {})
        token = EventPosition(*row.position).token
        return Event(row.kind, payload, moment(row.at), row.run or None, token, extra, value, version)


def _find_payload(record: r.Record, place: int) -> tuple[bytes, int]:
    """Return the packed payload of an event in a journal entry, and its schema version."""
    if place >= r.LANDED_PLACE:
        happened = record.landed[place - r.LANDED_PLACE]  # type: ignore[attr-defined]
        return happened.value, happened.version
    write = record.write if isinstance(record, r.Wrote) else record.writes[place]  # type: ignore[attr-defined]
    return write.value, write.version


def book_of(engine: Engine) -> EventReader | None:
    """Return a reader of an agent's events, or None if the store does not know the agent yet."""
    return EventReader(engine.store, engine.stream, engine.name, kinds_of(engine)) if engine.is_known() else None


class EventPages:
    """Iterates over the result of a query page by page. It does blocking I/O."""

    def __init__(self, open_book: Callable[[], EventReader | None], wanted: EventQuery) -> None:
        self._open_book = open_book
        self._wanted = wanted
        self._book: EventReader | None = None
        self._run = 0
        self.to = END
        self._left = wanted.limit
        self._size = FIRST_PAGE
        self._ended = False
        self.after = BEGINNING
        """Position of the last event that was read."""

    def begin(self, after: EventPosition | None = None) -> EventReader | None:
        """Resolve the start and the end of the range. `after` overrides the start."""
        book = self._book = self._open_book()
        if book is not None:
            if self._wanted.run is not None:
                self._run = book.find_run_stream(self._wanted.run)
            self.after = after or book.position(self._wanted.since) or BEGINNING
            if after is None:
                book.refuse_compacted(self._wanted, self.after)
            self.to = book.position(self._wanted.until, after=True) or END
        return book

    def read_next_page(self) -> list[Event]:
        """Return the next page; empty at the end."""
        book = self._book or self.begin()
        if book is None or self._ended:
            return []
        rows = self._rows(book)
        while rows:
            self.after = EventPosition(*rows[-1].position)
            if found := book.events(rows, typed=self._wanted.typed):
                return found
            rows = self._rows(book)  # every event of the page was erased
        return []

    def _rows(self, book: EventReader) -> list[EventRow]:
        wanted, count = self._wanted, self._size
        if wanted.last is not None:
            self._ended = True
            return book.rows(wanted.kinds, self._run, self.after, self.to, wanted.last, newest=True)
        if self._left is not None:
            count = min(count, self._left)
        if not count or self._ended:
            return []
        rows = book.rows(wanted.kinds, self._run, self.after, self.to, count)
        self._left = None if self._left is None else self._left - len(rows)
        self._ended = len(rows) < count
        self._size = EVENTS_OF_PAGE_MAX
        return rows


def list_known_kinds(store: Store, owners: Iterable[int]) -> list[str]:
    """Return the kinds that exist, for error hints."""
    return sorted({kind for owner in owners for (kind,) in store.read("event_kinds", (owner,))})
