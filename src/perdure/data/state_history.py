"""Earlier states of an agent: read with `at`, restored with `revert`.

Expiry still applies: a key that has expired is not restored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence, Set
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.data.state import HistoryReader, changes_in, commit, revision
from perdure.errors import HistoryCompacted, VersionConflict, WrongType, WrongValue
from perdure.journal import objects
from perdure.journal.agent_writes import RequireRevision, SetKey, StateKey
from perdure.journal.retention_rules import OURS
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import list_buffered_writes
from perdure.kernel.write_routing import enclosing_buffer
from perdure.values.clock import moment_text

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

StateTime = int | datetime
_EVER = (1 << 62) - 1
_TRIES = 20
"""How often a revert starts again because the namespace has changed in the meantime."""
_ASKED_MAX = 200


class _ReadBounds(msgspec.Struct, frozen=True):
    """Limits of a read: the last revision and millisecond, and the time at which a value must be unexpired."""

    revision: int
    at: int
    seen: int


def check_state_time(when: StateTime, call: str) -> StateTime:
    """Refuse what is neither a time nor a number of changes, naming the public call."""
    if isinstance(when, int | datetime):
        return when
    raise WrongType(
        f"agent.state.{call}({when!r}): must be a datetime or a number of changes, not {type(when).__name__}",
        hint="a time: datetime.now(UTC); a number: agent.state.revision(namespace)",
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def items_at(engine: Engine, space: str, when: StateTime) -> dict[str, Any]:
    """Return a namespace as it was at a time, or after a number of changes."""
    check_storable_name(space, "a namespace")
    found = _changes_at(engine, space, when, "at").items()
    return {key: objects.unpack(engine.store, change.value) for key, change in found}


def value_at(engine: Engine, space: str, key: str, when: StateTime, default: Any) -> Any:
    """Return one key as it was, without reading the others."""
    names = check_storable_name(space, "a namespace"), check_storable_name(key, "a key")
    bounds = _bounds(engine, space, when, "at")
    if not engine.is_known():
        return default
    at = (engine.stream, *names)
    for number, stream, seq in engine.store.read("state_key_at", (*at, bounds.revision, bounds.at)):
        change = HistoryReader(engine).value(stream, seq, at, number)
        if _is_visible(engine, change, bounds.seen):
            return objects.unpack(engine.store, change.value)
    return default


def _changes_at(engine: Engine, space: str, when: StateTime, call: str) -> dict[str, r.StateChange]:
    """Return, for each key that existed, the change that set its value."""
    bounds, reader = _bounds(engine, space, when, call), HistoryReader(engine)
    if not engine.is_known():
        return {}
    rows = engine.store.read("agent_state_at", (engine.stream, space, bounds.revision, bounds.at))
    found = {key: reader.value(stream, seq, (engine.stream, space, key), number) for key, number, stream, seq in rows}
    return {key: change for key, change in found.items() if _is_visible(engine, change, bounds.seen)}


def _bounds(engine: Engine, space: str, when: StateTime, call: str) -> _ReadBounds:
    """Return the limits of a read. Rejects an impossible time or number, naming the public call."""
    now = engine.store.clock.wall_ms()
    if isinstance(when, datetime):
        at = _milliseconds(when, call)
        bounds = _ReadBounds(_EVER, at, min(at, now))
    else:
        # A revision has no time: expiry is judged by now, as in `get`.
        bounds = _ReadBounds(_check_reached(engine, space, when, call), _EVER, now)
    if engine.is_known():
        _refuse_compacted(engine, space, bounds)
    return bounds


def _is_visible(engine: Engine, change: r.StateChange, at: int) -> bool:
    return bool(change.value) and (_is_valid_at(change, at) or _is_extended(engine, change))


def _is_valid_at(change: r.StateChange, at: int) -> bool:
    return not change.expires or change.expires > at


def _is_extended(engine: Engine, change: r.StateChange) -> bool:
    """Return whether this version still exists because reads have extended its expiry."""
    if not change.lasts:
        return False
    rows = engine.store.read("get_state_value", (change.owner, change.space, change.key))
    now = engine.store.clock.wall_ms()
    return any(version == change.version and value and expires > now for value, version, expires in rows)


def _refuse_compacted(engine: Engine, space: str, bounds: _ReadBounds) -> None:
    """Refuse to read before the compaction floor of a namespace: a partial answer would be wrong."""
    for floor, floor_at in engine.store.read("state_horizon_of", (engine.stream, space)):
        if bounds.revision < floor or bounds.at < floor_at:
            since = f"version {floor} of {moment_text(floor_at)}"
            raise HistoryCompacted(f"namespace {space!r} has history only from {since} on")


def _check_reached(engine: Engine, space: str, when: object, call: str) -> int:
    """Check that a namespace has reached a revision, and return it."""
    if type(when) is not int or when < 0:
        raise WrongType(f"{call}({when!r}): give a revision (an int from 0) or a datetime")
    latest = revision(engine, space)
    if when > latest:
        raise WrongValue(f"{call}({when}): namespace {space!r} is at revision {latest}")
    return when


def _milliseconds(when: datetime, call: str) -> int:
    try:
        return int(when.timestamp() * 1000)
    except (OverflowError, OSError, ValueError):
        # A naive datetime is in local time, and the platform's calendar may end before Python's.
        raise WrongValue(f"{call}({when!r}): out of range on this host; add a timezone or use another year") from None


# -- going back -------------------------------------------------------------------------------------------------------


def revert(engine: Engine, to: StateTime, space: str | None) -> Protocol[int]:
    """Restore a namespace, or all of them, as a new change. Returns how many keys changed."""
    check_state_time(to, "revert")
    for _ in range(_TRIES):
        own = {ask.place for ask in changes_in(list_buffered_writes(engine.store))}
        asks, unchanged = yield Read(_plan_revert, (engine, to, space, own))
        buffer = enclosing_buffer(engine)
        if buffer is not None:
            # The changes were computed from the current state. `unchanged` refuses them if the namespace changes before
            # they land.
            buffer.asks += [*unchanged, *asks]
            return len(asks)
        if not asks:
            return 0
        try:
            return len((yield from commit(engine, asks, unchanged)))
        except VersionConflict:
            continue  # somebody changed the namespace between the read and the commit: read again
    raise VersionConflict("the namespace changed during every attempt to revert it; nothing was written")


def _plan_revert(
    engine: Engine, to: StateTime, space: str | None, own: Set[StateKey]
) -> tuple[list[SetKey], list[RequireRevision]]:
    """Return the changes that restore the state, and guards that the namespaces are unchanged."""
    engine.ensure_agent()
    owner = engine.stream
    # Internal namespaces, such as retention rules, are not part of what the agent knew.
    found: dict[str, int] = dict(engine.store.read("namespaces_of", (owner,)))
    revisions = {name: number for name, number in found.items() if not name.startswith(OURS)}
    if space is None and not isinstance(to, datetime) and len(revisions) > 1:
        names = ", ".join(map(repr, revisions))
        raise WrongValue(f"each namespace counts its own versions: pass ns= with one of {names}")
    wanted = [space] if space is not None else list(revisions)
    asks = [
        ask
        for name in wanted
        for ask in _plan_namespace_revert(engine, name, to, {key for _, its, key in own if its == name})
    ]
    return asks, [RequireRevision((owner, name), revisions.get(name, 0)) for name in wanted]


def _plan_namespace_revert(engine: Engine, space: str, to: StateTime, waits: Set[str]) -> Iterator[SetKey]:
    """Return the changes that restore one namespace. They overwrite the buffered changes of the keys in `waits`."""
    clock, owner = engine.store.clock.wall_ms(), engine.stream
    now = {
        key: (value, version) for key, value, version, _ in engine.store.read("agent_state_of", (owner, space, clock))
    }
    # A value that existed then but has expired since is not restored.
    then = {
        key: change
        for key, change in _changes_at(engine, space, to, "revert").items()
        if _is_valid_at(change, clock) or now.get(key, (b"", 0))[1] == change.version
    }
    same = _find_unchanged(engine, now, then) - waits
    for key in sorted((then.keys() | now.keys() | waits) - same):
        at, was = (owner, space, key), then.get(key)
        yield SetKey(at) if was is None else SetKey(at, was.value, expires=was.expires, lasts=was.lasts)


def _find_unchanged(engine: Engine, now: dict[str, tuple[bytes, int]], then: dict[str, r.StateChange]) -> Set[str]:
    """Return the keys that need no change: same version, or same value and expiry."""
    same = {key for key, change in then.items() if key in now and now[key][1] == change.version}
    alike = [change for key, change in then.items() if key not in same and now.get(key, (b"", 0))[0] == change.value]
    for start in range(0, len(alike), _ASKED_MAX):
        same |= _find_same_expiry(engine, alike[start : start + _ASKED_MAX])
    return same


def _find_same_expiry(engine: Engine, changes: Sequence[r.StateChange]) -> Set[str]:
    """Return the keys whose expiry now equals their expiry then."""
    store, which = engine.store, json.dumps([(change.space, change.key) for change in changes])
    rows = store.read("agent_state_among", (engine.stream, which, store.clock.wall_ms()))
    timed = {key: (lasts, 0 if lasts else expires) for _, key, _, _, _, expires, _, lasts in rows}
    return {
        change.key
        for change in changes
        if timed.get(change.key) == (change.lasts, 0 if change.lasts else change.expires)
    }
