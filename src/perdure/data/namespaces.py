"""Queries over a tree of namespaces in `agent.state`: `a` contains `a.b` and `a.b.c`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data import state
from perdure.journal import objects
from perdure.journal.agent_writes import SetKey, StateKey
from perdure.journal.retention_rules import OURS
from perdure.kernel.scope import list_buffered_writes
from perdure.store.base import Row
from perdure.values import codec
from perdure.values.limits import NAME_CHARACTERS_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_ASKED_MAX = 200
_OPENED_AT_ONCE = 64
_EVER = (1 << 62) - 1
_PROLONGED = 100
"""Reading extends an expiry only after 1% of its lifetime (at least a second), so reads rarely write."""


class NamespaceTree(msgspec.Struct, frozen=True):
    """A namespace and all namespaces below it. An empty name stands for all namespaces."""

    name: str = ""

    @property
    def bounds(self) -> tuple[str, str, str]:
        """Query bounds: the first name, one past the last, and the prefix of the namespaces below.

        Names are compared as plain text, so no character in them has a special meaning.
        """
        if not self.name:
            return "", chr(0x10FFFF) * (NAME_CHARACTERS_MAX + 1), ""
        return self.name, self.name + "/", self.name + "."  # "/" sorts right after "."

    def holds(self, space: str) -> bool:
        """Return whether a namespace belongs to the tree."""
        if space.startswith(OURS):
            return False
        return not self.name or space == self.name or space.startswith(self.name + ".")


class KeyValue(msgspec.Struct, frozen=True):
    """A key with its value and its times in milliseconds."""

    space: str
    key: str
    value: Any
    version: int
    at: int
    """When the current value was set."""
    created: int
    """When the key was first set without having been deleted since."""
    expires: int = 0
    lasts: int = 0

    def extend_expiry(self, owner: int, now: int) -> SetKey | None:
        """Return the write that extends the expiry after a read, if it is worth a write."""
        gained = now + self.lasts - self.expires
        if not self.lasts or gained < max(1000, self.lasts // _PROLONGED):
            return None
        return SetKey((owner, self.space, self.key), expires=now + self.lasts, touches=self.version)


KeyFilter = Callable[[KeyValue], bool]


def find_buffered_below(engine: Engine, tree: NamespaceTree) -> dict[StateKey, list[SetKey]]:
    """Return the buffered changes below a tree, by key."""
    found: dict[StateKey, list[SetKey]] = {}
    for ask in list_buffered_writes(engine.store):
        if isinstance(ask, SetKey) and ask.writes and not ask.touches:
            owner, space, _ = ask.place
            if owner == engine.stream and tree.holds(space):
                found.setdefault(ask.place, []).append(ask)
    return found


def names(engine: Engine) -> list[str]:
    """Return every namespace that is not empty, as the caller sees it."""
    if not engine.is_known():
        return []
    now = engine.store.clock.wall_ms()
    found = {name for (name,) in engine.store.read("nonempty_namespaces", (engine.stream, now))}
    changed = {space for _, space, _ in find_buffered_below(engine, NamespaceTree())}
    for space in changed:
        # A buffered change may add the first key of a namespace or delete its last one.
        found.discard(space)
        if any(item.space == space for item in keys_below(engine, NamespaceTree(space), None, 0, 1)):
            found.add(space)
    return sorted(name for name in found if not name.startswith(OURS))


def keys_below(engine: Engine, tree: NamespaceTree, wanted: KeyFilter | None, skip: int, count: int) -> list[KeyValue]:
    """Return the matching keys of a tree, most recently set first, after skipping some."""
    if not engine.is_known():
        return []
    skip, count = min(skip, _EVER), min(count, _EVER)  # stores reject larger numbers
    asks = find_buffered_below(engine, tree)
    fresh = [item for item in _preview_buffered(engine, asks) if wanted is None or wanted(item)]

    def consume(rows: Iterable[Row]) -> list[KeyValue]:
        stored = (item for item in _decode_rows(engine, rows) if (engine.stream, item.space, item.key) not in asks)
        chosen = (item for item in stored if wanted is None or wanted(item))
        return list(islice(chosen, max(0, skip - len(fresh)) + max(0, count - max(0, len(fresh) - skip))))

    narrow = wanted is None and not asks
    page = (count, skip) if narrow else (_EVER, 0)
    now = engine.store.clock.wall_ms()
    where = (engine.stream, *tree.bounds, now, *page)
    if narrow:
        return list(_decode_rows(engine, engine.store.read("agent_state_under", where)))
    return [*fresh, *engine.store.scan("agent_state_under", where, consume)][skip : skip + count]


def read_keys(engine: Engine, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], KeyValue]:
    """Return the given keys, by namespace and key. Missing keys are left out."""
    if not wanted or not engine.is_known():
        return {}
    asks = {place[1:]: its for place, its in find_buffered_below(engine, NamespaceTree()).items()}
    asked = [pair for pair in wanted if pair not in asks]
    found = {}
    for start in range(0, len(asked), _ASKED_MAX):
        which = json.dumps(asked[start : start + _ASKED_MAX])
        rows = engine.store.read("agent_state_among", (engine.stream, which, engine.store.clock.wall_ms()))
        found.update({(item.space, item.key): item for item in _decode_rows(engine, rows)})
    own = {(engine.stream, *pair): asks[pair] for pair in wanted if pair in asks}
    found.update({(item.space, item.key): item for item in _preview_buffered(engine, own)})
    return found


def _preview_buffered(engine: Engine, asks: dict[StateKey, list[SetKey]]) -> Iterator[KeyValue]:
    """Yield keys as the buffered changes will make them, most recently set first."""
    now = engine.store.clock.wall_ms()
    for place in reversed(list(asks)):
        seen = state.preview_after(engine, place, asks[place])
        if seen.there:
            yield KeyValue(*place[1:], seen.value, seen.version, now, now)


def _decode_rows(engine: Engine, rows: Iterable[Row]) -> Iterator[KeyValue]:
    """Yield rows with their values. Large values are fetched in batches."""
    pending = iter(rows)
    while chunk := list(islice(pending, _OPENED_AT_ONCE)):
        wanted = {identity for _, _, packed, *_ in chunk if (identity := objects.reference(packed))}
        large = objects.fetch_many(engine.store, wanted) if wanted else {}
        for space, key, packed, version, at, expires, created, lasts in chunk:
            identity = objects.reference(packed)
            value = codec.decode(large[identity] if identity else packed[1:])
            yield KeyValue(space, key, value, version, at, created or at, expires, lasts)


def extend_expiries(engine: Engine, read: Iterable[KeyValue]) -> list[SetKey]:
    """Return the writes that extend the expiry of keys that were read, where worth a write."""
    now = engine.store.clock.wall_ms()
    asks = (item.extend_expiry(engine.stream, now) for item in read)
    return [ask for ask in asks if ask is not None]
