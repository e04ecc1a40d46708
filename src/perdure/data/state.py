"""`agent.state`: namespaced keys with versions and history.

A change made inside a step, an effect or an item lands with it, exactly once. Outside of them it is durable when the
call returns. The functions are protocols without I/O, as in `run/`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import WrongType, WrongValue
from perdure.journal import objects
from perdure.journal.agent_writes import AgentWrite, RequireRevision, SetKey, StateKey, read_changes_at
from perdure.journal.documents import IndexedDocument
from perdure.kernel.awaitables import require_plain
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import list_buffered_writes
from perdure.kernel.write_routing import enclosing_buffer, land
from perdure.platform.failpoints import Site
from perdure.store.base import Rows
from perdure.store.rows import first_number
from perdure.values.clock import moment
from perdure.values.durations import Duration, seconds_of
from perdure.values.limits import SWEEP_KEYS_MAX, SWEEP_WRITES
from perdure.values.numbers import require_whole_number

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_EVER = (1 << 62) - 1


class StateVersion(msgspec.Struct, frozen=True):
    """One value that a key has had."""

    version: int
    revision: int
    """Revision of the namespace, for `at`."""
    value: Any
    at: datetime
    deleted: bool = False


# -- asking -----------------------------------------------------------------------------------------------------------


def needs_namespace(key: object) -> WrongType:
    """Return the error for `agent.state[key]`, which `run.state` has and `agent.state` has not."""
    return WrongType(
        f"agent.state[{key!r}]: agent.state keeps keys in namespaces",
        hint="agent.state.get(namespace, key, default) and agent.state.set(namespace, key, value)",
    )


def key_name(key: object) -> str:
    """Validate a key. `agent.state.get("page", 0)` has a default in its place."""
    if not isinstance(key, str):
        raise WrongType(
            f"a key must be a str, not {key!r}", hint="the namespace comes first: agent.state.get('crawl', 'page', 0)"
        )
    return check_storable_name(key, "a key")


def place(engine: Engine, space: str, key: str) -> StateKey:
    """Return where a key lives, and register the agent if the store does not know it yet."""
    engine.ensure_agent()
    return (engine.stream, check_storable_name(space, "a namespace"), key_name(key))


def ask_set(
    engine: Engine,
    at: StateKey,
    value: Any,
    ttl: Duration | None,
    if_version: int | None,
    *,
    lasts: int = 0,
    documents: Sequence[IndexedDocument] | None = None,
) -> SetKey:
    """Set a key. With `lasts`, it expires that many milliseconds after it was last read."""
    _check_version(if_version)
    packed, made = objects.pack(engine.store, value, SetKey(at).path)
    expires = engine.store.clock.wall_ms() + lasts if lasts else _expiry(engine, ttl)
    return SetKey(at, packed, made, expires=expires, if_version=if_version, lasts=lasts, documents=documents)


def ask_update(engine: Engine, at: StateKey, make: Callable[[Any], Any], ttl: Duration | None) -> SetKey:
    """Set a key to the result of a function. Without `ttl` the key keeps its expiry."""
    if not callable(make):
        raise WrongType(f"fn={make!r} must be a function of the old value", hint="agent.state.set sets a value")
    called = engine.store.clock.wall_ms()
    return SetKey(
        at,
        make=lambda value: require_plain(make(value), make),
        expires=_expiry(engine, ttl),
        keeps=ttl is None,
        called=called,
    )


def make_adder(by: float, ns: str, key: str) -> Callable[[Any], Any]:
    """Return the function that `incr` applies."""

    def add(value: Any) -> Any:
        try:
            return (0 if value is None else value) + by
        except TypeError:
            has = type(value).__name__
            raise WrongType(f"incr adds to a number: {key!r} of {ns!r} is a {has}, so {by!r} cannot be added") from None

    return add


def _expiry(engine: Engine, ttl: Duration | None) -> int:
    return 0 if ttl is None else engine.store.clock.wall_ms() + int(seconds_of(ttl, "ttl") * 1000)


# -- writing ----------------------------------------------------------------------------------------------------------


def change(
    engine: Engine, asks: Sequence[SetKey], unchanged: Sequence[RequireRevision] = ()
) -> Protocol[list[r.StateChange]]:
    """Apply changes, all or none: now, or with the enclosing body, in which case the result is still empty."""
    buffer = enclosing_buffer(engine)
    if buffer is not None:
        buffer.asks += [*unchanged, *asks]
        return []
    return (yield from commit(engine, asks, unchanged))


def commit(
    engine: Engine, asks: Sequence[SetKey], unchanged: Sequence[RequireRevision] = ()
) -> Protocol[list[r.StateChange]]:
    """Commit changes at once, provided that the `unchanged` namespaces still have the expected revision."""
    mine = {ask.place for ask in asks}
    swept = [ask for ask in (yield from _overdue(engine)) if ask.place not in mine]
    landed = yield from land(engine, Site.STATE, [*unchanged, *asks, *swept])
    return [
        state_change
        for state_change in landed
        if isinstance(state_change, r.StateChange)
        and (state_change.owner, state_change.space, state_change.key) in mine
    ]


class _Sweep:
    """Counts commits of state since expired keys were last removed."""

    writes = 0


def _overdue(engine: Engine) -> Protocol[list[SetKey]]:
    """Every now and then, return expired keys: they are removed with a write that happens anyway."""
    sweep = engine.parts.get(_Sweep)
    sweep.writes += 1
    if sweep.writes < SWEEP_WRITES:
        return []
    sweep.writes = 0
    found: list[SetKey] = yield Read(overdue, (engine, SWEEP_KEYS_MAX))
    return found


def overdue(engine: Engine, count: int) -> list[SetKey]:
    """Return deletions of expired keys. A key that somebody sets again in the meantime is kept."""
    rows = engine.store.read("expired_state", (engine.stream, engine.store.clock.wall_ms(), count))
    return [SetKey((engine.stream, space, key), sweeps=True) for space, key in rows]


def write_one(engine: Engine, ask: SetKey) -> Protocol[VisibleKey]:
    """Apply one change and return the key after it. Inside a body this is a prediction from the current value."""
    if enclosing_buffer(engine) is not None:
        yield from change(engine, [ask])
        return (yield from read_current(engine, ask.place))
    landed = yield from change(engine, [ask])
    if not landed:
        return NOTHING
    version, packed = landed[0].version, landed[0].value
    value = (yield Read(objects.unpack, (engine.store, packed))) if ask.make is not None else None
    return VisibleKey(bool(packed), version, value)


def ask_delete(at: StateKey, if_version: int | None) -> SetKey:
    """Delete a key."""
    _check_version(if_version)
    return SetKey(at, if_version=if_version)


def _check_version(if_version: object) -> None:
    if if_version is not None:
        require_whole_number("if_version", if_version, 0)


def delete(engine: Engine, at: StateKey, if_version: int | None) -> Protocol[bool]:
    """Delete a key. Returns whether it existed."""
    ask = ask_delete(at, if_version)
    if enclosing_buffer(engine) is None:
        return bool((yield from change(engine, [ask])))
    before = yield from read_current(engine, at)
    yield from change(engine, [ask])
    return before.there


# -- reading ----------------------------------------------------------------------------------------------------------


class VisibleKey(msgspec.Struct, frozen=True):
    """A key as one caller sees it, including the writes that are still buffered."""

    there: bool = False
    version: int = 0
    value: Any = None
    counted: int = 0
    """How many versions the key has had, whether it exists or not."""
    expires: int = 0

    def expire_at(self, now: int) -> VisibleKey:
        """Return this key, or a missing one if it has expired."""
        return VisibleKey(counted=self.counted) if 0 < self.expires <= now else self


NOTHING = VisibleKey()


def read_current(engine: Engine, at: StateKey) -> Protocol[VisibleKey]:
    """Return a key as the caller sees it: the latest durable value, then the buffered changes."""
    seen: VisibleKey = yield Read(preview_after, (engine, at, _list_buffered(engine, at)))
    return seen


def _read_live(engine: Engine, space: str, key: str) -> Protocol[VisibleKey]:
    """Read a key in one query, even if the agent is not registered yet. `get` is the most frequent call."""
    names = check_storable_name(space, "a namespace"), key_name(key)
    seen: VisibleKey = yield Read(_look_live, (engine, names, list_buffered_writes(engine.store)))
    return seen


def _look_live(engine: Engine, names: tuple[str, str], wanted: Sequence[AgentWrite]) -> VisibleKey:
    if not engine.is_known():
        return NOTHING
    at = (engine.stream, *names)
    return (
        apply_changes(engine, _read_stored(engine, at), _changes_of(wanted, at)) if wanted else _read_stored(engine, at)
    )


def preview_after(engine: Engine, at: StateKey, asks: Sequence[SetKey]) -> VisibleKey:
    """Return a key as it would be after some changes."""
    return apply_changes(engine, _read_stored(engine, at), asks)


def _read_stored(engine: Engine, at: StateKey) -> VisibleKey:
    store = engine.store
    rows = store.read("get_state_value", at)
    if not rows:
        return NOTHING
    value, version, expires = rows[0]
    if not value or (expires and expires <= store.clock.wall_ms()):
        return VisibleKey(counted=version)
    return VisibleKey(True, version, objects.unpack(store, value), version, expires)


def apply_changes(engine: Engine, seen: VisibleKey, asks: Sequence[SetKey]) -> VisibleKey:
    """Apply changes to a key that was already read. Values are copies, as they will be once stored."""
    now = engine.store.clock.wall_ms()
    seen = seen.expire_at(now)
    for ask in asks:
        packed, made, seen = ask.packed, ask.objects, seen.expire_at(ask.called)
        if ask.make is not None:
            packed, made = objects.pack(engine.store, ask.make(seen.value), ask.path)
        if not packed:
            seen = VisibleKey(counted=seen.counted)
        else:
            # All changes that land together count as one version. Only a revert refers to values that are already
            # stored.
            value = objects.decode_packed(packed, made) if made else objects.unpack(engine.store, packed)
            expires = seen.expires if ask.keeps else ask.expires
            seen = VisibleKey(True, seen.counted + 1, value, seen.counted, expires)
    return seen.expire_at(now)


def _list_buffered(engine: Engine, at: StateKey) -> list[SetKey]:
    """Return the buffered changes of a key, outermost first."""
    return _changes_of(list_buffered_writes(engine.store), at)


def _changes_of(wanted: Sequence[AgentWrite], at: StateKey) -> list[SetKey]:
    return [ask for ask in changes_in(wanted) if ask.place == at]


def changes_in(wanted: Sequence[AgentWrite]) -> Iterator[SetKey]:
    """Return the changes of keys among buffered writes."""
    return (ask for ask in wanted if isinstance(ask, SetKey) and ask.writes and not ask.touches)


def get(engine: Engine, space: str, key: str, default: Any) -> Protocol[Any]:
    """Return the value of a key."""
    seen = yield from _read_live(engine, space, key)
    return seen.value if seen.there else default


def version(engine: Engine, space: str, key: str) -> Protocol[int]:
    """Return the version of a key; 0 if it does not exist."""
    return (yield from _read_live(engine, space, key)).version


def items(
    engine: Engine, space: str, after: str | None, limit: int | None, own: Sequence[SetKey] = ()
) -> Protocol[list[tuple[str, Any]]]:
    """Return the keys of a namespace with their values, sorted by key; or a page of `limit` keys after a key.

    Buffered changes around the caller apply first, then the caller's `own` ones.
    """
    check_storable_name(space, "a namespace")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= sys.maxsize):
        raise WrongValue(f"limit={limit!r}: must be an int from 1 to sys.maxsize, or None for all keys")
    if not (yield Read(engine.is_known)):
        return []
    first = None if after is None else check_storable_name(after, "a key")
    wanted = changes_in([*list_buffered_writes(engine.store), *own])
    asks = [ask for ask in wanted if ask.place[:2] == (engine.stream, space)]
    found: list[tuple[str, Any]] = yield Read(_items, (engine, space, asks, first, limit))
    return found


def _items(
    engine: Engine, space: str, asks: Sequence[SetKey], after: str | None, limit: int | None
) -> list[tuple[str, Any]]:
    places = [place for place in dict.fromkeys(ask.place for ask in asks) if after is None or place[2] > after]
    # Buffered changes may delete this many of the rows that are read.
    count = min(_EVER, limit or _EVER) + len(places)
    rows = _page(engine, space, after, count)
    found = {key: objects.unpack(engine.store, value) for key, value, *_ in rows}
    last = rows[-1][0] if len(rows) == count else None
    for place in places:
        seen = preview_after(engine, place, [ask for ask in asks if ask.place == place])
        found.pop(place[2], None)
        if seen.there and (last is None or place[2] <= last):
            found[place[2]] = seen.value
    return sorted(found.items(), key=lambda pair: pair[0])[:limit]


def _page(engine: Engine, space: str, after: str | None, count: int) -> Rows:
    beyond = int(after is not None)
    where = (engine.stream, space, engine.store.clock.wall_ms())
    return engine.store.read("agent_state_page", (*where, after or "", beyond, count))


def read_latest(engine: Engine, at: StateKey) -> StateVersion:
    """Return a key as stored, deleted or not. An expired key counts as deleted at its expiry."""
    rows = engine.store.read("get_agent_state", at)
    if not rows:
        return StateVersion(0, 0, None, moment(0), True)
    value, version, revision, when, expires, *_ = rows[0]
    if value and 0 < expires <= engine.store.clock.wall_ms():
        value, when = b"", expires
    found = objects.unpack(engine.store, value) if value else None
    return StateVersion(version, revision, found, moment(when), not value)


def has_changed(found: StateVersion, seen: StateVersion) -> bool:
    """Return whether a key differs from the version that the caller saw last."""
    if seen.deleted and found.deleted and found.version == seen.version + 1:
        return False  # the sweep removed an expired key: the caller has already seen that as a deletion
    return (found.version, found.deleted) != (seen.version, seen.deleted)


def revision(engine: Engine, space: str) -> int:
    """Return how often a namespace has changed."""
    rows = (
        engine.store.read("get_namespace_revision", (engine.stream, check_storable_name(space, "a namespace")))
        if engine.is_known()
        else []
    )
    return first_number(rows)


def make_unchanged_guard(engine: Engine, space: str) -> RequireRevision:
    """Return a guard that refuses a commit if the namespace has changed in the meantime."""
    engine.ensure_agent()
    return RequireRevision((engine.stream, check_storable_name(space, "a namespace")), revision(engine, space))


# -- the past ---------------------------------------------------------------------------------------------------------


def history(engine: Engine, space: str, key: str) -> list[StateVersion]:
    """Return every value that a key has had, oldest first."""
    if not engine.is_known():
        return []
    reader, found = HistoryReader(engine), dict[int, StateVersion]()
    rows = engine.store.read(
        "state_history_of", (engine.stream, check_storable_name(space, "a namespace"), key_name(key))
    )
    for revision, version, stream, seq, at in rows:
        if version not in found:  # extending the expiry does not make a new version
            change = reader.value(stream, seq, (engine.stream, space, key), revision)
            found[version] = reader.version(version, revision, change.since or at, change)
    return list(found.values())


class HistoryReader:
    """Reads old values from the journal; each journal entry is read once."""

    def __init__(self, engine: Engine) -> None:
        self._store = engine.store
        self._entries: dict[tuple[int, int], dict[tuple[StateKey, int], r.StateChange]] = {}

    def value(self, stream: int, seq: int, at: StateKey, revision: int) -> r.StateChange:
        """Return one change of a key."""
        entry = self._entries.get((stream, seq))
        if entry is None:
            changes = read_changes_at(self._store, stream, seq, r.StateChange)
            entry = {
                ((state_change.owner, state_change.space, state_change.key), state_change.revision): state_change
                for state_change in changes
            }
            self._entries[stream, seq] = entry
        return entry[at, revision]

    def version(self, version: int, revision: int, at: int, state_change: r.StateChange) -> StateVersion:
        """Convert a change to the public `StateVersion`."""
        value = objects.unpack(self._store, state_change.value) if state_change.value else None
        return StateVersion(version, revision, value, moment(at), not state_change.value)
