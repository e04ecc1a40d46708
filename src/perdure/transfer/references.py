"""Checks that an agent file has every large value that its entries refer to, and no other.

Only values of dropped checkpoints, artifacts and threads are missing. Every other value must precede the first entry
that needs it; otherwise the import would create an agent that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure import records as r
from perdure.journal import objects
from perdure.journal.trees import TREE
from perdure.journal.trees.nodes import PieceKind, PieceLink, TreePiece, parse_node
from perdure.store.spill import ScratchTable
from perdure.transfer.file_format import ExportObject
from perdure.transfer.translate import object_key

_DROPPABLE = (r.CheckpointMade, r.ArtifactSaved, r.ThreadPut, r.ThreadWrote)
_VersionKey = tuple[str | int, ...]


class ReferenceCheck:
    """Checks objects and entries in order, and collects what is missing."""

    def __init__(self) -> None:
        self._there = ScratchTable()
        self._fresh: set[bytes] = set()
        """Objects that nothing refers to yet."""
        self._needing: set[_VersionKey] = set()
        """Versions that objects were included for."""
        self._missing: set[_VersionKey] = set()
        """Versions that lack some of their values."""
        self._dropped: set[_VersionKey] = set()
        self._lives: dict[_VersionKey, int] = {}
        """For dropped threads and their checkpoints: earlier lives than this are gone."""

    def close(self) -> None:
        """Delete the temporary table."""
        self._there.close()

    def put(self, line: ExportObject) -> bool:
        """Add an object. Returns whether it is new and everything that it refers to is present."""
        key = object_key(line.id, line.node)
        if self._there.get(key) is not None:
            return False
        whole = not line.node or self._has_all(parse_node(objects.decompress_object(line.size, line.data)), None)
        self._there.put(key, b"")
        self._fresh.add(key)
        return whole

    def take(self, record: r.Record) -> bool:
        """Add an entry. Returns whether its values are present or may be dropped, and no others are."""
        return self._take(record, None) and not self._fresh

    def is_whole(self) -> bool:
        """Return at the end whether exactly the dropped values are missing."""
        missed = all(self._is_dropped(version) for version in self._missing)
        return missed and not self._fresh and not any(self._is_dropped(version) for version in self._needing)

    def _take(self, record: Any, within: _VersionKey | None) -> bool:
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

    def _has(self, packed: bytes, version: _VersionKey | None) -> bool:
        if packed[:1] == TREE:
            return self._has_all(parse_node(packed[1:]), version)
        identity = objects.reference(packed)
        return not identity or self._is_there(object_key(identity, False), version)

    def _has_all(self, pieces: list[TreePiece], version: _VersionKey | None) -> bool:
        links = [body for _, body in pieces if isinstance(body, PieceLink)]
        found = [self._is_there(object_key(link.identity, link.kind != PieceKind.LEAF), version) for link in links]
        return all(found)

    def _is_there(self, key: bytes, version: _VersionKey | None) -> bool:
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

    def _is_dropped(self, version: _VersionKey) -> bool:
        kind, name, *rest = version
        if kind != "thread":
            return version in self._dropped
        ns, which, life = rest
        gone = max(self._lives.get((name,), 0), self._lives.get((name, ns, which), 0))
        return isinstance(life, int) and life < gone


def _parts(record: Any) -> Iterator[Any]:
    """Yield the packed values and nested records of a record."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in objects.PACKED_FIELDS and isinstance(value, bytes):
            if value:
                yield value
        elif isinstance(value, r.Record):
            yield value
        elif isinstance(value, tuple):
            yield from (part for part in value if isinstance(part, r.Record))


def _version(record: Any) -> _VersionKey:
    if isinstance(record, r.ThreadPut | r.ThreadWrote):
        return ("thread", record.thread, record.ns, record.id, record.life)
    return (type(record).__name__, record.name, record.version)
