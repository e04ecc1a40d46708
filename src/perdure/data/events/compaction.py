"""Compaction of events: where an agent's events begin afterwards, and the replay results from before.

The newest event of each kind always stays. So if the event at a position exists and none follows, the reader has missed
nothing. If the event is gone, the reader was away for longer than events are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from perdure.data.events.positions import BEGINNING, END, EventPosition
from perdure.errors import EventsCompacted
from perdure.journal.agent_writes import SetKey
from perdure.journal.needed_entries import floor_of
from perdure.journal.objects import pack, reference
from perdure.journal.retention_rules import REPLAYS
from perdure.journal.stream_reader import compaction_in
from perdure.store.base import Row, Statement, Store
from perdure.store.rows import first_number
from perdure.values import codec
from perdure.values.clock import moment_text

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_PLACE = "/place"
"""Suffix of the key that stores the position of a replay."""


class EventCutoff(NamedTuple):
    """A position in time order, which a rebuild does not change."""

    at: int
    stream: int
    seq: int
    place: int


NOTHING = EventCutoff(0, 0, 0, 0)


# -- for readers ------------------------------------------------------------------------------------------------------


def floor(store: Store, owner: int, kinds: Sequence[str]) -> int:
    """Return the time of the last compacted event of the given kinds, or of all kinds; 0 if there is none."""
    found = (row for kind in kinds or ("",) for row in store.read("state_horizon_of", (owner, floor_of(kind))))
    return max((int(at) for _, at in found), default=0)


def compacted_error(agent: str, floor: int, what: str, archive: str = "") -> EventsCompacted:
    """Return the error for events that were compacted."""
    where = f", in {archive} and the archives that it names" if archive else ""
    return EventsCompacted(f"events of agent {agent!r} up to {moment_text(floor)} were compacted{where}: {what}")


def archive_of(store: Store, stream: int) -> str:
    """Return the archive with the most recently compacted entries of a stream."""
    compaction = compaction_in(store.read("last_compaction", (stream,)))
    return compaction.archive if compaction is not None else ""


# -- for replays ------------------------------------------------------------------------------------------------------


def read_carried(store: Store, owner: int, key: bytes) -> tuple[EventPosition, bytes] | None:
    """Return the carried result of a replay whose events were compacted: its current position and its value."""
    places = store.read("get_agent_state", (owner, REPLAYS, key.hex() + _PLACE))
    values = store.read("get_agent_state", (owner, REPLAYS, key.hex()))
    for (place, *_), (value, *_) in zip(places, values, strict=False):
        if place:
            rows = store.read("next_event_after", (owner, *_decode_cutoff(place)))
            return next((EventPosition(*position).before for *position, _ in rows), END), value
    return None


def _decode_cutoff(packed: bytes) -> EventCutoff:
    return EventCutoff(*codec.decode(packed[1:]))


# -- for compaction ---------------------------------------------------------------------------------------------------


class EventCompactionLimit(msgspec.Struct, frozen=True):
    """How far the events of an agent may be compacted without changing the results of its replays."""

    before: tuple[int, int, int]
    arrived: int | None
    """Events that arrived later stay, whatever their time. None if there are no replays."""
    carries: tuple[SetKey, ...]
    """Replay results that must be written before the events are removed."""
    note: str = ""


def find_compaction_limit(engine: Engine, horizon: int) -> EventCompactionLimit:
    """Return how far compaction may go: up to the horizon, but not past the last snapshot of a replay."""
    store, owner = engine.store, engine.stream
    newest = store.read("last_event_before", (owner, END.arrival))
    places = {
        key.removesuffix(_PLACE): _decode_cutoff(value)
        for key, value, *_ in _read_all_carried(engine)
        if key.endswith(_PLACE)
    }
    kept: dict[str, list[Row]] = {}
    for key, *row in store.read("replay_snapshots_of", (owner,)):
        kept.setdefault(key.hex(), []).append(tuple(row))
    carries: list[SetKey] = []
    for key, rows in kept.items():
        found, packed = _find_newest(store, owner, rows)
        if found > places.get(key, NOTHING):
            carries += _carry_result(store, owner, key, found, packed)
        places[key] = max(found, places.get(key, NOTHING))
    end = (horizon, 0, 0)
    last = min(places.values(), default=EventCutoff(*end, 0))
    behind = store.read("next_event_after", (owner, *last))
    arrived = min([arrival for arrival, *_ in (*newest, *behind)], default=0)
    waits = any(at < horizon for *_, at in behind)
    note = _note(engine.name, last.at) if waits else ""
    return EventCompactionLimit(min(last[:3], end), arrived if places else None, tuple(carries), note)


def _read_all_carried(engine: Engine) -> Sequence[Row]:
    return engine.store.read("agent_state_of", (engine.stream, REPLAYS, engine.store.clock.wall_ms()))


def delete_carried(engine: Engine, prefix: str) -> list[SetKey]:
    """Return the deletions of carried results whose keys have a prefix."""
    return [SetKey((engine.stream, REPLAYS, key)) for key, *_ in _read_all_carried(engine) if key.startswith(prefix)]


def _find_newest(store: Store, owner: int, rows: Sequence[Row]) -> tuple[EventCutoff, bytes]:
    """Return the newest saved result whose position is the same by time and by arrival."""
    for *place, packed in rows:
        position = EventPosition(*place)
        found = store.read("has_event", (owner, *position)) if position > BEGINNING else []
        at = first_number(found)
        if found and not store.read("events_out_of_order", (owner, *position, at)):
            return EventCutoff(at, *position[1:]), packed
    return NOTHING, b""


def _carry_result(store: Store, owner: int, key: str, cut: EventCutoff, packed: bytes) -> list[SetKey]:
    # Write the object even though it exists: garbage collection may remove it before this commit refers to it.
    identity = reference(packed)
    made = [Statement("put_object", (identity, *row)) for row in store.read("get_object", (identity,))]
    place, _ = pack(store, list(cut), "the place of a replay")
    return [SetKey((owner, REPLAYS, key), packed, made), SetKey((owner, REPLAYS, key + _PLACE), place)]


def _note(agent: str, at: int) -> str:
    since = f"since {moment_text(at)} " if at else ""
    return (
        f"events of agent {agent!r} {since}stay: a replay has no snapshot past them. "
        "Run the replay again with a smaller every=, or call agent.events.forget(name)"
    )
