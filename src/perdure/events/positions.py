"""Where an event is in the order of an agent's events."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from ..store.base import Store

_TOKEN = re.compile(r"([0-9a-f]{12})-([0-9a-f]{8})-([0-9a-f]{8})-([0-9a-f]{6})")


class Position(NamedTuple):
    """A place in the order. The entry of the journal is part of it: it is found again when they are numbered anew."""

    arrival: int
    stream: int
    seq: int
    place: int

    @property
    def token(self) -> str:
        """As users have it: a text that sorts like the position."""
        return f"{self.arrival:012x}-{self.stream:08x}-{self.seq:08x}-{self.place:06x}"

    @property
    def before(self) -> Position:
        """What is just before it, whether an event is there or not."""
        return self._replace(place=self.place - 1)


BEGINNING = Position(-1, 0, 0, 0)
END = Position(1 << 62, 0, 0, 0)


def read_token(token: str) -> Position:
    """A position that a user has kept; an empty one is before the first event."""
    if not token:
        return BEGINNING
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise ValueError(f"{token!r} is no position of an event: take the .position of one, or a datetime")
    return Position(*(int(part, 16) for part in found.groups()))


def placed(store: Store, owner: int, position: Position) -> Position:
    """Where the event of a position is now: a rebuilt store has numbered its arrivals anew."""
    if position == BEGINNING or store.read("has_happening", (owner, *position)):
        return position
    _, stream, seq, place = position
    for _, _, at, *_ in store.read("event_at", (stream, seq)):
        for (arrival,) in store.read("find_happening", (owner, at, stream, seq, place)):
            return position._replace(arrival=arrival)
    return position  # its event has been taken away: its place in the order has not


def at_time(store: Store, owner: int, when: datetime, *, after: bool = False) -> Position:
    """Just before the first event of a time, or after its last; times have milliseconds."""
    rows = store.read("happening_from", (owner, milliseconds_of(when) + after))
    return Position(*rows[0]).before if rows else END


def milliseconds_of(when: datetime) -> int:
    """A time as stores have it. The first and the last local times may be none of UTC: then a day does not matter."""
    try:
        return int(when.timestamp() * 1000)
    except (OverflowError, ValueError):
        return int(when.replace(tzinfo=UTC).timestamp() * 1000)


def settled_end(store: Store) -> Position:
    """Before this nothing can appear any more, whatever is being committed elsewhere just now."""
    [(arrival,)] = store.read("settled_arrivals")
    return Position(arrival, 0, 0, -1)
