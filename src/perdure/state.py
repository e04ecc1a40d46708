"""`agent.state`: namespaced keys with versions and history, always live.

Written inside a step, an effect or an item, a change lands with it, once; in the open it is durable when the call
returns. Protocols without I/O, as in `run/`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from . import objects
from . import records as r
from .clock import moment
from .durations import Duration, seconds_of
from .errors import Abandoned
from .failpoints import Site
from .journal.append import Head, Signer
from .journal.documents import Document
from .journal.landing import Ask, Land, Place, Unchanged, Visit, Wanted, landed_at
from .limits import SWEEP_KEYS_MAX, SWEEP_WRITES
from .run.awaitables import plain
from .run.open_stream import in_the_open
from .run.requests import Protocol, Read
from .run.scope import Buffer, current, waiting
from .run.writes import named
from .store.base import Rows, must_not_decide

if TYPE_CHECKING:
    from .engine import Engine

_EVER = (1 << 62) - 1


class StateVersion(msgspec.Struct, frozen=True):
    """One value that a key has had."""

    version: int
    revision: int
    """Of the namespace, for `at`."""
    value: Any
    at: datetime
    deleted: bool = False


# -- asking -----------------------------------------------------------------------------------------------------------


def place(engine: Engine, space: str, key: str) -> Place:
    """Where a key lives; makes the agent known, if it is not."""
    engine.ensure_agent()
    return (engine.stream, named(space, "a namespace"), named(key, "a key"))


def ask_set(
    engine: Engine,
    at: Place,
    value: Any,
    ttl: Duration | None,
    if_version: int | None,
    *,
    lasts: int = 0,
    documents: Sequence[Document] | None = None,
) -> Ask:
    """Set a key; one that `lasts` is gone so many milliseconds after somebody has last read it."""
    packed, made = objects.pack(engine.store, value, Ask(at).path)
    expires = engine.store.clock.wall_ms() + lasts if lasts else _expiry(engine, ttl)
    return Ask(at, packed, made, expires=expires, if_version=if_version, lasts=lasts, documents=documents)


def ask_update(engine: Engine, at: Place, make: Callable[[Any], Any], ttl: Duration | None) -> Ask:
    """Set a key to what a function makes of it; without a `ttl` it lives as long as it would have lived."""
    called = engine.store.clock.wall_ms()
    return Ask(
        at, make=lambda value: plain(make(value), make), expires=_expiry(engine, ttl), keeps=ttl is None, called=called
    )


def adding(by: float, ns: str, key: str) -> Callable[[Any], Any]:
    """What `incr` does."""

    def add(value: Any) -> Any:
        try:
            return (0 if value is None else value) + by
        except TypeError:
            has = type(value).__name__
            raise TypeError(
                f"incr adds to a number: {key!r} of {ns!r} is a {has}, and {by!r} was to be added"
            ) from None

    return add


def _expiry(engine: Engine, ttl: Duration | None) -> int:
    return 0 if ttl is None else engine.store.clock.wall_ms() + int(seconds_of(ttl, "ttl") * 1000)


# -- writing ----------------------------------------------------------------------------------------------------------


def change(engine: Engine, asks: Sequence[Ask], unchanged: Sequence[Unchanged] = ()) -> Protocol[list[r.StateChange]]:
    """Make changes, all or none: now, or with the step, effect or item around the caller; then none is returned yet."""
    buffer = waiting_room(engine)
    if buffer is not None:
        buffer.asks += [*unchanged, *asks]
        return []
    return (yield from commit(engine, asks, unchanged))


def commit(engine: Engine, asks: Sequence[Ask], unchanged: Sequence[Unchanged] = ()) -> Protocol[list[r.StateChange]]:
    """Make changes in the open, if some namespaces are still as they were."""
    mine = {ask.place for ask in asks}
    swept = [ask for ask in (yield from _overdue(engine)) if ask.place not in mine]
    landed = yield from land(engine, Site.STATE, [*unchanged, *asks, *swept])
    return [it for it in landed if isinstance(it, r.StateChange) and (it.owner, it.space, it.key) in mine]


def _overdue(engine: Engine) -> Protocol[list[Ask]]:
    """Now and then, keys whose time has run out, to be removed with what is written anyway: no commit of their own."""
    engine.unswept += 1
    if engine.unswept < SWEEP_WRITES:
        return []
    engine.unswept = 0
    found: list[Ask] = yield Read(overdue, (engine, SWEEP_KEYS_MAX))
    return found


def overdue(engine: Engine, count: int) -> list[Ask]:
    """What would remove keys whose time has run out, unless somebody sets them again meanwhile."""
    rows = engine.store.read("expired_entries", (engine.stream, engine.store.clock.wall_ms(), count))
    return [Ask((engine.stream, space, key), sweeps=True) for space, key in rows]


def land(engine: Engine, site: Site, asks: Sequence[Wanted]) -> Protocol[tuple[r.Landing, ...]]:
    """Write to the agent in the open, in the stream of this process."""

    def make(head: Head, signer: Signer | None) -> Land:
        return Land(site, head, [r.Landed(())], engine.store, asks, signer=signer)

    return (yield from in_the_open(engine, make)).landed


def write(engine: Engine, site: Site, asks: Sequence[Wanted]) -> Protocol[Sequence[r.Landing]]:
    """Write to the agent: now, or with the step, effect or item around the caller; then nothing is returned yet."""
    room = waiting_room(engine)
    if room is None:
        return (yield from land(engine, site, asks))
    room.asks += asks
    return ()


def waiting_room(engine: Engine) -> Buffer | None:
    """Where writes wait for the end of the body or item around the caller, if they can land with it."""
    must_not_decide()
    frame = current()
    if frame is None or frame.run.store is not engine.store:
        return None
    if not frame.alive:
        raise Abandoned
    if frame.buffer is not None and frame.run.engine.name != engine.name and engine.is_known():
        frame.buffer.asks.append(Visit(engine.stream))
    return frame.buffer


def write_one(engine: Engine, ask: Ask) -> Protocol[Seen]:
    """One change, and the key after it; inside a body, what it will be, going by what is there now."""
    if waiting_room(engine) is not None:
        yield from change(engine, [ask])
        return (yield from peek(engine, ask.place))
    landed = yield from change(engine, [ask])
    if not landed:
        return NOTHING
    version, packed = landed[0].version, landed[0].value
    value = (yield Read(objects.unpack, (engine.store, packed))) if ask.make is not None else None
    return Seen(bool(packed), version, value)


def delete(engine: Engine, at: Place, if_version: int | None) -> Protocol[bool]:
    """Remove a key; whether it was there."""
    ask = Ask(at, if_version=if_version)
    if waiting_room(engine) is None:
        return bool((yield from change(engine, [ask])))
    before = yield from peek(engine, at)
    yield from change(engine, [ask])
    return before.there


# -- reading ----------------------------------------------------------------------------------------------------------


class Seen(msgspec.Struct, frozen=True):
    """A key as somebody sees it."""

    there: bool = False
    version: int = 0
    value: Any = None
    counted: int = 0
    """How many versions it has had, whether it is there or not."""
    expires: int = 0

    def still(self, now: int) -> Seen:
        """The same, unless its time has run out."""
        return Seen(counted=self.counted) if 0 < self.expires <= now else self


NOTHING = Seen()


def peek(engine: Engine, at: Place) -> Protocol[Seen]:
    """A key as the caller sees it: the latest durable value, and over it what waits around the caller."""
    seen: Seen = yield Read(look, (engine, at, _waiting(engine, at)))
    return seen


def _live(engine: Engine, space: str, key: str) -> Protocol[Seen]:
    """The same for an agent that may not be known yet, in one reading: `get` is what programs do most."""
    names = named(space, "a namespace"), named(key, "a key")
    seen: Seen = yield Read(_look_live, (engine, names, waiting(engine.store)))
    return seen


def _look_live(engine: Engine, names: tuple[str, str], wanted: Sequence[Wanted]) -> Seen:
    if not engine.is_known():
        return NOTHING
    at = (engine.stream, *names)
    return within(engine, _stored(engine, at), _changes_of(wanted, at)) if wanted else _stored(engine, at)


def look(engine: Engine, at: Place, asks: Sequence[Ask]) -> Seen:
    """A key with what some asks would make of it."""
    return within(engine, _stored(engine, at), asks)


def _stored(engine: Engine, at: Place) -> Seen:
    store = engine.store
    rows = store.read("get_value", at)
    if not rows:
        return NOTHING
    value, version, expires = rows[0]
    if not value or (expires and expires <= store.clock.wall_ms()):
        return Seen(counted=version)
    return Seen(True, version, objects.unpack(store, value), version, expires)


def within(engine: Engine, seen: Seen, asks: Sequence[Ask]) -> Seen:
    """The same for a key that has been read already. Values are copies, as they will be when they are stored."""
    now = engine.store.clock.wall_ms()
    seen = seen.still(now)
    for ask in asks:
        packed, made, seen = ask.packed, ask.objects, seen.still(ask.called)
        if ask.make is not None:
            packed, made = objects.pack(engine.store, ask.make(seen.value), ask.path)
        if not packed:
            seen = Seen(counted=seen.counted)
        else:
            # However many changes land together, they are one version.
            # A revert brings values back that are stored; all others are not yet.
            value = objects.opened(packed, made) if made else objects.unpack(engine.store, packed)
            expires = seen.expires if ask.keeps else ask.expires
            seen = Seen(True, seen.counted + 1, value, seen.counted, expires)
    return seen.still(now)


def _waiting(engine: Engine, at: Place) -> list[Ask]:
    """The changes of a key that wait around the caller, outermost first."""
    return _changes_of(waiting(engine.store), at)


def _changes_of(wanted: Sequence[Wanted], at: Place) -> list[Ask]:
    return [ask for ask in changes_in(wanted) if ask.place == at]


def changes_in(wanted: Sequence[Wanted]) -> Iterator[Ask]:
    """The changes of keys among what is to be written."""
    return (ask for ask in wanted if isinstance(ask, Ask) and ask.writes and not ask.touches)


def get(engine: Engine, space: str, key: str, default: Any) -> Protocol[Any]:
    """The value of a key."""
    seen = yield from _live(engine, space, key)
    return seen.value if seen.there else default


def version(engine: Engine, space: str, key: str) -> Protocol[int]:
    """The version of a key; 0 when it is not there."""
    return (yield from _live(engine, space, key)).version


def items(
    engine: Engine, space: str, after: str | None, limit: int | None, own: Sequence[Ask] = ()
) -> Protocol[list[tuple[str, Any]]]:
    """All keys of a namespace with their values, in the order of the keys; or so many of them after a key.

    With what waits around the caller to change them, and then what he will have done himself.
    """
    named(space, "a namespace")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= sys.maxsize):
        raise ValueError(f"limit={limit!r}: how many keys at most, from 1 to sys.maxsize; None is all of them")
    if not (yield Read(engine.is_known)):
        return []
    first = None if after is None else named(after, "a key")
    wanted = changes_in([*waiting(engine.store), *own])
    asks = [ask for ask in wanted if ask.place[:2] == (engine.stream, space)]
    found: list[tuple[str, Any]] = yield Read(_items, (engine, space, asks, first, limit))
    return found


def _items(
    engine: Engine, space: str, asks: Sequence[Ask], after: str | None, limit: int | None
) -> list[tuple[str, Any]]:
    places = [place for place in dict.fromkeys(ask.place for ask in asks) if after is None or place[2] > after]
    # What waits may remove as many keys as it has.
    count = min(_EVER, limit or _EVER) + len(places)
    rows = _page(engine, space, after, count)
    found = {key: objects.unpack(engine.store, value) for key, value, *_ in rows}
    last = rows[-1][0] if len(rows) == count else None
    for place in places:
        seen = look(engine, place, [ask for ask in asks if ask.place == place])
        found.pop(place[2], None)
        if seen.there and (last is None or place[2] <= last):
            found[place[2]] = seen.value
    return sorted(found.items(), key=lambda pair: pair[0])[:limit]


def _page(engine: Engine, space: str, after: str | None, count: int) -> Rows:
    beyond = int(after is not None)
    where = (engine.stream, space, engine.store.clock.wall_ms())
    return engine.store.read("entries_page", (*where, after or "", beyond, count))


def latest(engine: Engine, at: Place) -> StateVersion:
    """A key as it is stored, deleted or not; one whose time has run out is as good as deleted since then."""
    rows = engine.store.read("get_entry", at)
    if not rows:
        return StateVersion(0, 0, None, moment(0), True)
    value, version, revision, when, expires, *_ = rows[0]
    if value and 0 < expires <= engine.store.clock.wall_ms():
        value, when = b"", expires
    found = objects.unpack(engine.store, value) if value else None
    return StateVersion(version, revision, found, moment(when), not value)


def is_news(found: StateVersion, seen: StateVersion) -> bool:
    """Whether a key is another one than somebody has last seen."""
    if seen.deleted and found.deleted and found.version == seen.version + 1:
        return False  # what had run out was swept away: where nothing was, nothing can be deleted
    return (found.version, found.deleted) != (seen.version, seen.deleted)


def revision(engine: Engine, space: str) -> int:
    """How often a namespace has changed."""
    rows = engine.store.read("get_space", (engine.stream, named(space, "a namespace"))) if engine.is_known() else []
    return int(rows[0][0]) if rows else 0


def as_it_is(engine: Engine, space: str) -> Unchanged:
    """What refuses a change that relies on all of a namespace, when that has changed meanwhile."""
    engine.ensure_agent()
    return Unchanged((engine.stream, named(space, "a namespace")), revision(engine, space))


# -- the past ---------------------------------------------------------------------------------------------------------


def history(engine: Engine, space: str, key: str) -> list[StateVersion]:
    """Every value that a key has had, oldest first."""
    if not engine.is_known():
        return []
    reader, found = Past(engine), dict[int, StateVersion]()
    rows = engine.store.read("history_of", (engine.stream, named(space, "a namespace"), named(key, "a key")))
    for revision, version, stream, seq, at in rows:
        if version not in found:  # what was only kept longer is the same version
            change = reader.value(stream, seq, (engine.stream, space, key), revision)
            found[version] = reader.version(version, revision, change.since or at, change)
    return list(found.values())


class Past:
    """Reads old values out of the journal, each entry once."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store
        self._entries: dict[tuple[int, int], dict[tuple[Place, int], r.StateChange]] = {}

    def value(self, stream: int, seq: int, at: Place, revision: int) -> r.StateChange:
        """A change of the state."""
        entry = self._entries.get((stream, seq))
        if entry is None:
            changes = landed_at(self._store, stream, seq, r.StateChange)
            entry = {((it.owner, it.space, it.key), it.revision): it for it in changes}
            self._entries[stream, seq] = entry
        return entry[at, revision]

    def version(self, version: int, revision: int, at: int, it: r.StateChange) -> StateVersion:
        """As people see it."""
        value = objects.unpack(self._store, it.value) if it.value else None
        return StateVersion(version, revision, value, moment(at), not it.value)
