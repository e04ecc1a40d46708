"""Whether an agent file has every large value that its entries refer to, and no other.

Values of checkpoints, artifacts and threads that were dropped do not come along. Everything else does, and comes right
before the first entry that needs it: an import that found out later would leave an agent behind that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import objects
from .. import records as r
from ..store.notes import Notes
from ..trees import TREE
from ..trees.nodes import Link, Piece, Ref, read_node
from .lines import Object
from .translating import object_key

_DROPPABLE = (r.CheckpointMade, r.ArtifactSaved, r.ThreadPut, r.ThreadWrote)
_Version = tuple[str | int, ...]


class References:
    """Takes objects and entries in their order, and remembers what is missing."""

    def __init__(self) -> None:
        self._there = Notes()
        self._fresh: set[bytes] = set()
        """Objects that nothing refers to yet."""
        self._needing: set[_Version] = set()
        """Versions of something that objects came along for."""
        self._missing: set[_Version] = set()
        """Versions of something that do not have all of their values."""
        self._dropped: set[_Version] = set()
        self._lives: dict[_Version, int] = {}
        """Of threads and their points that were dropped: what was put before this life is gone."""

    def close(self) -> None:
        """Remove what was noted meanwhile."""
        self._there.close()

    def put(self, line: Object) -> bool:
        """One object more; returns whether it is new, and all that it refers to is there."""
        key = object_key(line.id, line.node)
        if self._there.get(key) is not None:
            return False
        whole = not line.node or self._has_all(read_node(objects.restored(line.size, line.data)), None)
        self._there.put(key, b"")
        self._fresh.add(key)
        return whole

    def take(self, record: r.Record) -> bool:
        """One entry more; returns whether what it refers to is there or may be dropped, and there is nothing else."""
        return self._take(record, None) and not self._fresh

    def is_whole(self) -> bool:
        """At the end: whether what was dropped is missing, and nothing else."""
        missed = all(self._is_dropped(version) for version in self._missing)
        return missed and not self._fresh and not any(self._is_dropped(version) for version in self._needing)

    def _take(self, record: Any, within: _Version | None) -> bool:
        self._drop(record)
        version = _version(record) if isinstance(record, _DROPPABLE) else within
        for part in _parts(record):
            if isinstance(part, bytes):
                if self._has(part, version):
                    continue
                if version is None:
                    return False
                self._missing.add(version)
            elif not self._take(part, version):
                return False
        return True

    def _has(self, packed: bytes, version: _Version | None) -> bool:
        if packed[:1] == TREE:
            return self._has_all(read_node(packed[1:]), version)
        identity = objects.reference(packed)
        return not identity or self._is_there(object_key(identity, False), version)

    def _has_all(self, pieces: list[Piece], version: _Version | None) -> bool:
        links = [body for _, body in pieces if isinstance(body, Link)]
        found = [self._is_there(object_key(link.identity, link.kind != Ref.LEAF), version) for link in links]
        return all(found)

    def _is_there(self, key: bytes, version: _Version | None) -> bool:
        if key in self._fresh:
            self._fresh.discard(key)
            if version is not None:
                self._needing.add(version)
            return True
        return self._there.get(key) is not None

    def _drop(self, record: Any) -> None:
        if isinstance(record, r.CheckpointDropped):
            self._dropped.add(("CheckpointMade", record.name, record.version))
        elif isinstance(record, r.ArtifactDropped):
            self._dropped.add(("ArtifactSaved", record.name, record.version))
        elif isinstance(record, r.ThreadDropped):
            for point in record.points or ((),):
                place = (record.thread, *point)
                self._lives[place] = max(record.life, self._lives.get(place, 0))

    def _is_dropped(self, version: _Version) -> bool:
        kind, name, *rest = version
        if kind != "thread":
            return version in self._dropped
        ns, which, life = rest
        gone = max(self._lives.get((name,), 0), self._lives.get((name, ns, which), 0))
        return isinstance(life, int) and life < gone


def _parts(record: Any) -> Iterator[Any]:
    """The packed values in a record, and the records in it."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in objects.PACKED_FIELDS and isinstance(value, bytes):
            if value:
                yield value
        elif isinstance(value, r.Record):
            yield value
        elif isinstance(value, tuple):
            yield from (part for part in value if isinstance(part, r.Record))


def _version(record: Any) -> _Version:
    if isinstance(record, r.ThreadPut | r.ThreadWrote):
        return ("thread", record.thread, record.ns, record.id, record.life)
    return (type(record).__name__, record.name, record.version)
