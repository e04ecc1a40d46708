"""`agent.artifacts`: files, bytes and arrays of any size, in versions that share common content.

A version written inside a step, an effect or an item lands with it. Outside of them it is durable when the call
returns. Its bytes may be stored earlier; they stay unreferenced until the version exists.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.data.artifacts.reader import ArtifactReader, export, value_of
from perdure.data.artifacts.sources import source_of
from perdure.data.artifacts.upload import ArtifactDetails, ArtifactWrite, SaveProgress
from perdure.errors import ArtifactNotFound, WrongType
from perdure.journal import trees
from perdure.journal.agent_writes import decode_changes
from perdure.journal.artifact_writes import SaveArtifact, UploadLost
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.write_routing import write
from perdure.platform.failpoints import Site
from perdure.store.base import Row, Store
from perdure.values.clock import moment
from perdure.values.hints import name_hint
from perdure.values.limits import NUMBER_MAX

if TYPE_CHECKING:
    import os

    from perdure.kernel.engine import Engine

__all__ = [
    "ArtifactDetails", "ArtifactInfo", "ArtifactReader", "ArtifactUsage", "ArtifactOwner", "ArtifactWrite",
    "begin_write", "delete", "export_artifact", "list_artifacts", "load", "not_found_error", "open_artifact",
    "save", "usage", "versions",
]  # fmt: skip

_TRIES = 3


class ArtifactInfo(msgspec.Struct, frozen=True):
    """One version of an artifact."""

    name: str
    version: int
    kind: str
    """What `load` returns: "bytes", "file", "array" or "arrays"."""
    size: int
    digest: str
    """SHA-256 of its bytes, as `sha256sum` prints it."""
    at: datetime
    labels: tuple[str, ...]
    note: str


class ArtifactUsage(msgspec.Struct, frozen=True):
    """The storage that one version needs."""

    info: ArtifactInfo
    added: int
    """Compressed bytes stored for it that no earlier version in the list needs."""


class ArtifactOwner(typing.Protocol):
    """The agent whose artifacts are read: one at work, or one that is inspected."""

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> Store: ...

    @property
    def stream(self) -> int: ...

    def is_known(self) -> bool:
        """Whether the store knows the agent."""


# -- writing ----------------------------------------------------------------------------------------------------------


def save(
    engine: Engine, name: str, data: Any, labels: Iterable[str], note: str, progress: SaveProgress | None = None
) -> Protocol[int]:
    """Save data under a name. Returns its version, or 0 while it is buffered by a step."""
    about, source = ArtifactDetails(name, labels, note), source_of(data)
    for tries in range(_TRIES):
        try:
            return (yield from ArtifactWrite(engine, about, source.kind).write_all(source, progress))
        except UploadLost:
            if not source.again or tries + 1 == _TRIES:
                raise
    raise AssertionError("the last attempt returns or raises")


def begin_write(engine: Engine, name: str, labels: Iterable[str], note: str) -> ArtifactWrite:
    """Start a version that is written block by block."""
    return ArtifactWrite(engine, ArtifactDetails(name, labels, note), "bytes")


def delete(engine: Engine, name: str, version: int | None) -> Protocol[int]:
    """Delete one version, or all versions of a name; returns how many. Version numbers are never reused."""
    found: list[ArtifactInfo] = yield Read(versions, (engine, name))
    drops = tuple(artifact.version for artifact in found if version in (None, artifact.version))
    if not drops:
        return 0
    put = SaveArtifact(engine.stream, name, drops=drops)
    yield from write(engine, Site.ARTIFACT, [put])
    return len(drops)


# -- reading ----------------------------------------------------------------------------------------------------------


def load(whose: ArtifactOwner, name: str, version: int | None, to: str | os.PathLike[str] | None) -> Any:
    """Return what was saved, or write its bytes to a file and return the path."""
    saved = _find_version(whose, name, version)
    return value_of(whose.store, saved) if to is None else export(whose.store, saved, Path(to))


def open_artifact(whose: ArtifactOwner, name: str, version: int | None) -> ArtifactReader:
    """Open a version as a file."""
    return ArtifactReader(whose.store, _find_version(whose, name, version))


def export_artifact(
    whose: ArtifactOwner, name: str, version: int | None, path: Path, progress: SaveProgress
) -> r.ArtifactSaved:
    """Write a version to a path and report progress."""
    saved = _find_version(whose, name, version)
    export(whose.store, saved, path, progress)
    return saved


def versions(whose: ArtifactOwner, name: str) -> list[ArtifactInfo]:
    """Return all versions of a name, oldest first."""
    check_storable_name(name, "an artifact's name")
    rows = whose.store.read("artifact_versions", (whose.stream, name)) if whose.is_known() else []
    return [_info(whose, row) for row in rows]


def list_artifacts(whose: ArtifactOwner, label: str | None) -> list[ArtifactInfo]:
    """Return the newest version of every name, or the newest with a label."""
    newest = {artifact.name: artifact for artifact in _list_all(whose) if label is None or label in artifact.labels}
    return list(newest.values())


def usage(whose: ArtifactOwner) -> list[ArtifactUsage]:
    """Return every version with the storage that it adds."""
    if not whose.is_known():
        return []
    found, seen = list[ArtifactUsage](), set[bytes]()
    for row in whose.store.read("artifacts_of", (whose.stream,)):
        packed = _read_saved(whose, row).value
        ids = list(trees.references(whose.store, packed, seen)) if packed else []
        seen.update(ids)
        found.append(ArtifactUsage(_info(whose, row), _count_stored_bytes(whose, ids)))
    return found


def _count_stored_bytes(whose: ArtifactOwner, ids: Sequence[bytes]) -> int:
    parts = [b"".join(ids[start : start + 512]) for start in range(0, len(ids), 512)]
    return sum(size for part in parts for _, size in whose.store.read("stored_sizes", (part,)))


def _list_all(whose: ArtifactOwner) -> list[ArtifactInfo]:
    rows = whose.store.read("artifacts_of", (whose.stream,)) if whose.is_known() else []
    return [_info(whose, row) for row in rows]


def _find_version(whose: ArtifactOwner, name: str, version: int | None) -> r.ArtifactSaved:
    check_storable_name(name, "an artifact's name")
    if version is not None and type(version) is not int:
        raise WrongType(f"a version must be an int from 1, not {version!r}")
    rows: Sequence[Row] = []
    if whose.is_known() and version is None:
        rows = whose.store.read("newest_artifact", (whose.stream, name))
    elif whose.is_known() and version is not None and 0 < version <= NUMBER_MAX:
        rows = whose.store.read("get_artifact", (whose.stream, name, version))
    if not rows:
        raise not_found_error(whose, name, version)
    return _read_saved(whose, rows[0])


def not_found_error(whose: ArtifactOwner, name: str, version: int | None) -> ArtifactNotFound:
    """Return the error for a missing artifact or version."""
    if there := [artifact.version for artifact in versions(whose, name)]:
        numbers = f"{there[0]} to {there[-1]}" if len(there) > 1 else f"{there[0]}"
        return ArtifactNotFound(f"artifact {name!r} has no version {version}", hint=f"existing versions: {numbers}")
    names = [str(one) for (one,) in whose.store.read("artifact_names", (whose.stream,))] if whose.is_known() else []
    hint = name_hint(name, names, "save one with agent.artifacts.save")
    return ArtifactNotFound(f"agent {whose.name!r} has no artifact {name!r}", hint=hint)


def _read_saved(whose: ArtifactOwner, row: Row) -> r.ArtifactSaved:
    """Return the record of a row. Its journal entry may hold other records too."""
    name, version, _, kind, body = row
    saved = decode_changes(kind, body, r.ArtifactSaved)
    return {(record.owner, record.name, record.version): record for record in saved}[whose.stream, name, version]


def _info(whose: ArtifactOwner, row: Row) -> ArtifactInfo:
    record, (_, _, at, *_) = _read_saved(whose, row), row
    saved = (record.kind, record.size, record.digest.hex(), moment(at))
    return ArtifactInfo(record.name, record.version, *saved, record.labels, record.note)
