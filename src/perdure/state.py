"""`agent.state`: namespaced keys with versions and history, always live.

Written inside a step, an effect or an item, a change lands with it, once; in the open it is durable when the call
returns. Protocols without I/O, as in `run/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from . import objects
from . import records as r
from .clock import moment, moment_text
from .durations import Duration, seconds_of
from .errors import Abandoned, HistoryFolded, VersionConflict
from .failpoints import Site
from .journal.append import Head, Signer
from .journal.documents import Document
from .journal.keeping import OURS
from .journal.landing import Ask, Land, Place, Unchanged, Visit, Wanted, landed_at
from .limits import SWEEP_KEYS_MAX, SWEEP_WRITES
from .run.open_stream import in_the_open
from .run.requests import Protocol, Read
from .run.scope import Buffer, current, waiting
from .run.writes import named
from .store.base import Rows, must_not_decide

if TYPE_CHECKING:
    from .engine import Engine

When = int | datetime
_EVER = (1 << 62) - 1
_TRIES = 20
"""How often a revert begins anew because the namespace has changed meanwhile."""


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
    """Set a key to what a function makes of it."""
    return Ask(at, make=make, expires=_expiry(engine, ttl))


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


def change(engine: Engine, asks: Sequence[Ask]) -> Protocol[list[r.StateChange]]:
    """Make changes, all or none: now, or with the step, effect or item around the caller; then none is returned yet."""
    buffer = waiting_room(engine)
    if buffer is not None:
        buffer.asks += asks
        return []
    return (yield from _commit(engine, asks))


def _commit(engine: Engine, asks: Sequence[Ask], unchanged: Sequence[Unchanged] = ()) -> Protocol[list[r.StateChange]]:
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
    return Seen(True, version, objects.unpack(store, value), version)


def within(engine: Engine, seen: Seen, asks: Sequence[Ask]) -> Seen:
    """The same for a key that has been read already. Values are copies, as they will be when they are stored."""
    for ask in asks:
        packed, made = ask.packed, ask.objects
        if ask.make is not None:
            packed, made = objects.pack(engine.store, ask.make(seen.value), ask.path)
        if not packed:
            seen = Seen(counted=seen.counted)
        else:
            # However many changes land together, they are one version.
            # A revert brings values back that are stored; all others are not yet.
            value = objects.opened(packed, made) if made else objects.unpack(engine.store, packed)
            seen = Seen(True, seen.counted + 1, value, seen.counted)
    return seen


def _waiting(engine: Engine, at: Place) -> list[Ask]:
    """The changes of a key that wait around the caller, outermost first."""
    return _changes_of(waiting(engine.store), at)


def _changes_of(wanted: Sequence[Wanted], at: Place) -> list[Ask]:
    return [ask for ask in _changes(wanted) if ask.place == at]


def _changes(wanted: Sequence[Wanted]) -> Iterator[Ask]:
    return (ask for ask in wanted if isinstance(ask, Ask) and ask.writes and not ask.touches)


def get(engine: Engine, space: str, key: str, default: Any) -> Protocol[Any]:
    """The value of a key."""
    seen = yield from _live(engine, space, key)
    return seen.value if seen.there else default


def version(engine: Engine, space: str, key: str) -> Protocol[int]:
    """The version of a key; 0 when it is not there."""
    return (yield from _live(engine, space, key)).version


def items(engine: Engine, space: str, after: str | None, limit: int | None) -> Protocol[list[tuple[str, Any]]]:
    """All keys of a namespace with their values, in the order of the keys; or so many of them after a key."""
    named(space, "a namespace")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"limit={limit!r}: how many keys at most, from 1")
    if not (yield Read(engine.is_known)):
        return []
    first = None if after is None else named(after, "a key")
    asks = [ask for ask in _changes(waiting(engine.store)) if ask.place[:2] == (engine.stream, space)]
    found: list[tuple[str, Any]] = yield Read(_items, (engine, space, asks, first, limit))
    return found


def _items(
    engine: Engine, space: str, asks: Sequence[Ask], after: str | None, limit: int | None
) -> list[tuple[str, Any]]:
    places = [place for place in dict.fromkeys(ask.place for ask in asks) if after is None or place[2] > after]
    # What waits may remove as many keys as it has.
    count = _EVER if limit is None else limit + len(places)
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
    """A key as it is stored, deleted or not."""
    rows = engine.store.read("get_entry", at)
    if not rows:
        return StateVersion(0, 0, None, moment(0), True)
    value, version, revision, when, *_ = rows[0]
    found = objects.unpack(engine.store, value) if value else None
    return StateVersion(version, revision, found, moment(when), not value)


def revision(engine: Engine, space: str) -> int:
    """How often a namespace has changed."""
    rows = engine.store.read("get_space", (engine.stream, named(space, "a namespace"))) if engine.is_known() else []
    return int(rows[0][0]) if rows else 0


# -- the past ---------------------------------------------------------------------------------------------------------


def history(engine: Engine, space: str, key: str) -> list[StateVersion]:
    """Every value that a key has had, oldest first."""
    if not engine.is_known():
        return []
    reader, found = _Past(engine), dict[int, StateVersion]()
    rows = engine.store.read("history_of", (engine.stream, named(space, "a namespace"), named(key, "a key")))
    for revision, version, stream, seq, at in rows:
        if version not in found:  # what was only kept longer is the same version
            change = reader.value(stream, seq, (engine.stream, space, key), revision)
            found[version] = reader.version(version, revision, change.since or at, change)
    return list(found.values())


def items_at(engine: Engine, space: str, when: When) -> dict[str, Any]:
    """A namespace as it was: after so many changes, or at a time."""
    found = {key: packed for key, packed in _packed_at(engine, space, when) if packed}
    return {key: objects.unpack(engine.store, packed) for key, packed in found.items()}


def _packed_at(engine: Engine, space: str, when: When) -> Iterator[tuple[str, bytes]]:
    if not engine.is_known():
        return
    revision, at = _bounds(engine, space, when)
    reader = _Past(engine)
    for key, number, stream, seq in engine.store.read("entries_at", (engine.stream, space, revision, at)):
        change = reader.value(stream, seq, (engine.stream, space, key), number)
        yield key, change.value if _lasted(change, at) else b""


def value_at(engine: Engine, space: str, key: str, when: When, default: Any) -> Any:
    """One key as it was; the others are not read."""
    names = named(space, "a namespace"), named(key, "a key")
    if not engine.is_known():
        return default
    at, bounds = (engine.stream, *names), _bounds(engine, space, when)
    for number, stream, seq in engine.store.read("entry_at", (*at, *bounds)):
        change = _Past(engine).value(stream, seq, at, number)
        if change.value and _lasted(change, bounds[1]):
            return objects.unpack(engine.store, change.value)
    return default


def _bounds(engine: Engine, space: str, when: When) -> tuple[int, int]:
    """The last revision and the last millisecond that count."""
    revision, at = (_EVER, _milliseconds(when)) if isinstance(when, datetime) else (_revision(when), _EVER)
    _refuse_folded(engine, space, revision, at)
    return revision, at


def _lasted(change: r.StateChange, at: int) -> bool:
    return not change.expires or change.expires > (at if at != _EVER else 0)


def _refuse_folded(engine: Engine, space: str, revision: int, at: int) -> None:
    """What came before the floor of a namespace is not whole any more: half of an answer would be a wrong one."""
    for floor, floor_at in engine.store.read("floor_of", (engine.stream, space)):
        if revision < floor or at < floor_at:
            since = f"version {floor} of {moment_text(floor_at)}"
            raise HistoryFolded(f"namespace {space!r} is known from {since} on")


def _revision(when: object) -> int:
    if type(when) is not int or when < 0:
        raise TypeError(f"a version is a number from 0 and a time a datetime, not {when!r}")
    return when


def _milliseconds(when: datetime) -> int:
    return int(when.timestamp() * 1000)


class _Past:
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


def revert(engine: Engine, to: When, space: str | None) -> Protocol[int]:
    """Make a namespace, or all of them, what it was; history goes on. Returns how many keys were changed."""
    for _ in range(_TRIES):
        own = {ask.place for ask in _changes(waiting(engine.store))}
        asks, unchanged = yield Read(_reverting, (engine, to, space, own))
        buffer = waiting_room(engine)
        if buffer is not None:
            # Decided now, by what is there now: who changes the namespace before it lands makes it a VersionConflict.
            buffer.asks += [*unchanged, *asks]
            return len(asks)
        if not asks:
            return 0
        try:
            return len((yield from _commit(engine, asks, unchanged)))
        except VersionConflict:
            continue  # somebody has changed it between our look and the commit: look again
    raise VersionConflict("the namespace changes faster than it can be reverted")


def _reverting(engine: Engine, to: When, space: str | None, own: Set[Place]) -> tuple[list[Ask], list[Unchanged]]:
    """What makes the stored state, and what waits to change it, what it was."""
    engine.ensure_agent()
    asks, owner = list[Ask](), engine.stream
    # How long things are kept, and which calls were begun, is no part of what the agent knew then.
    found: dict[str, int] = dict(engine.store.read("spaces_of", (owner,)))
    revisions = {name: number for name, number in found.items() if not name.startswith(OURS)}
    if space is None and not isinstance(to, datetime) and len(revisions) > 1:
        names = ", ".join(map(repr, revisions))
        raise ValueError(f"versions are counted for each namespace: name one with ns=, of {names}")
    wanted = [space] if space is not None else list(revisions)
    for name in wanted:
        then = dict(_packed_at(engine, name, to))
        now = {row[0]: row[1] for row in engine.store.read("entries_of", (owner, name, engine.store.clock.wall_ms()))}
        waits = {key for _, its, key in own if its == name}
        for key in sorted(then.keys() | now.keys() | waits):
            if key in waits or then.get(key, b"") != now.get(key, b""):
                asks.append(Ask((owner, name, key), then.get(key, b"")))
    return asks, [Unchanged((owner, name), revisions.get(name, 0)) for name in wanted]
