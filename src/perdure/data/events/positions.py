"""Positions in the order of an agent's events."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from perdure.errors import WrongValue
from perdure.store.base import Store

_TOKEN = re.compile(r"([0-9a-f]{12})-([0-9a-f]{8})-([0-9a-f]{8})-([0-9a-f]{6})")


class EventPosition(NamedTuple):
    """A position in the event order. It includes the journal entry, so it survives a renumbering by a rebuild."""

    arrival: int
    stream: int
    seq: int
    place: int

    @property
    def token(self) -> str:
        """The position as text for users. Tokens sort in the same order as positions."""
        return f"{self.arrival:012x}-{self.stream:08x}-{self.seq:08x}-{self.place:06x}"

    @property
    def before(self) -> EventPosition:
        """The position just before this one, whether it has an event or not."""
        return self._replace(place=self.place - 1)


BEGINNING = EventPosition(-1, 0, 0, 0)
END = EventPosition(1 << 62, 0, 0, 0)


def parse_token(token: str) -> EventPosition:
    """Parse a position token. An empty token stands for the position before the first event."""
    if not token:
        return BEGINNING
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise WrongValue(f"{token!r} is not an event position: pass event.position or a datetime")
    return EventPosition(*(int(part, 16) for part in found.groups()))


def resolve_position(store: Store, owner: int, position: EventPosition) -> EventPosition:
    """Return the current position of an event. A rebuild renumbers the arrivals."""
    if position == BEGINNING or store.read("has_event", (owner, *position)):
        return position
    _, stream, seq, place = position
    for _, _, at, *_ in store.read("journal_entry", (stream, seq)):
        for (arrival,) in store.read("find_event", (owner, at, stream, seq, place)):
            return position._replace(arrival=arrival)
    return position  # the event was removed, but its place in the order is still valid


def find_position_at(store: Store, owner: int, when: datetime, *, after: bool = False) -> EventPosition:
    """Return the position before the first event at a time, or after the last one. Resolution: milliseconds."""
    rows = store.read("first_event_since", (owner, milliseconds_of(when) + after))
    return EventPosition(*rows[0]).before if rows else END


def milliseconds_of(when: datetime) -> int:
    """Return a datetime in milliseconds. Local times that UTC cannot represent may be off by a day."""
    try:
        return int(when.timestamp() * 1000)
    except (OverflowError, ValueError):
        return int(when.replace(tzinfo=UTC).timestamp() * 1000)


def read_settled_end(store: Store) -> EventPosition:
    """Return the position before which no concurrent commit can add an event any more."""
    [(arrival,)] = store.read("settled_arrivals")
    return EventPosition(arrival, 0, 0, -1)
