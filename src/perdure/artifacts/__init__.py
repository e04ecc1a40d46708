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

from .. import records as r
from .. import trees
from ..clock import moment
from ..errors import ArtifactNotFound
from ..failpoints import Site
from ..hints import meant
from ..journal.landing import landed_in
from ..journal.puts import Put, UploadLost
from ..limits import NUMBER_MAX
from ..run.requests import Protocol, Read
from ..run.writes import named
from ..state import write
from ..store.base import Row, Store
from .reader import ArtifactReader, export, value_of
from .saving import About, Progress, Saving
from .sources import source_of

if TYPE_CHECKING:
    import os

    from ..engine import Engine

__all__ = [
    "About", "ArtifactInfo", "ArtifactReader", "ArtifactUsage", "Owner", "Saving",
    "begun", "delete", "exported", "listed", "load", "missing", "opened", "save", "usage", "versions",
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


class Owner(typing.Protocol):
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
    engine: Engine, name: str, data: Any, labels: Iterable[str], note: str, progress: Progress | None = None
) -> Protocol[int]:
    """Save data under a name. Returns its version, or 0 while it is buffered by a step."""
    about, source = About(name, labels, note), source_of(data)
    for tries in range(_TRIES):
        try:
            return (yield from Saving(engine, about, source.kind).all_of(source, progress))
        except UploadLost:
            if not source.again or tries + 1 == _TRIES:
                raise
    raise AssertionError("the last attempt returns or raises")


def begun(engine: Engine, name: str, labels: Iterable[str], note: str) -> Saving:
    """Start a version that is written block by block."""
    return Saving(engine, About(name, labels, note), "bytes")


def delete(engine: Engine, name: str, version: int | None) -> Protocol[int]:
    """Delete one version, or all versions of a name; returns how many. Version numbers are never reused."""
    found: list[ArtifactInfo] = yield Read(versions, (engine, name))
    drops = tuple(it.version for it in found if version in (None, it.version))
    if not drops:
        return 0
    put = Put(engine.stream, name, drops=drops)
    yield from write(engine, Site.ARTIFACT, [put])
    return len(drops)


# -- reading ----------------------------------------------------------------------------------------------------------


def load(whose: Owner, name: str, version: int | None, to: str | os.PathLike[str] | None) -> Any:
    """Return what was saved, or write its bytes to a file and return the path."""
    saved = _found(whose, name, version)
    return value_of(whose.store, saved) if to is None else export(whose.store, saved, Path(to))


def opened(whose: Owner, name: str, version: int | None) -> ArtifactReader:
    """Open a version as a file."""
    return ArtifactReader(whose.store, _found(whose, name, version))


def exported(whose: Owner, name: str, version: int | None, path: Path, progress: Progress) -> r.ArtifactSaved:
    """Write a version to a path and report progress."""
    saved = _found(whose, name, version)
    export(whose.store, saved, path, progress)
    return saved


def versions(whose: Owner, name: str) -> list[ArtifactInfo]:
    """Return all versions of a name, oldest first."""
    named(name, "an artifact's name")
    rows = whose.store.read("versions_of_artifact", (whose.stream, name)) if whose.is_known() else []
    return [_info(whose, row) for row in rows]


def listed(whose: Owner, label: str | None) -> list[ArtifactInfo]:
    """Return the newest version of every name, or the newest with a label."""
    newest = {it.name: it for it in _all(whose) if label is None or label in it.labels}
    return list(newest.values())


def usage(whose: Owner) -> list[ArtifactUsage]:
    """Return every version with the storage that it adds."""
    if not whose.is_known():
        return []
    found, seen = list[ArtifactUsage](), set[bytes]()
    for row in whose.store.read("artifacts_of", (whose.stream,)):
        packed = _saved(whose, row).value
        ids = list(trees.references(whose.store, packed, seen)) if packed else []
        seen.update(ids)
        found.append(ArtifactUsage(_info(whose, row), _stored_bytes(whose, ids)))
    return found


def _stored_bytes(whose: Owner, ids: Sequence[bytes]) -> int:
    parts = [b"".join(ids[start : start + 512]) for start in range(0, len(ids), 512)]
    return sum(size for part in parts for _, size in whose.store.read("stored_sizes", (part,)))


def _all(whose: Owner) -> list[ArtifactInfo]:
    rows = whose.store.read("artifacts_of", (whose.stream,)) if whose.is_known() else []
    return [_info(whose, row) for row in rows]


def _found(whose: Owner, name: str, version: int | None) -> r.ArtifactSaved:
    named(name, "an artifact's name")
    if version is not None and type(version) is not int:
        raise TypeError(f"a version must be an int from 1, not {version!r}")
    rows: Sequence[Row] = []
    if whose.is_known() and version is None:
        rows = whose.store.read("newest_artifact", (whose.stream, name))
    elif whose.is_known() and version is not None and 0 < version <= NUMBER_MAX:
        rows = whose.store.read("get_artifact", (whose.stream, name, version))
    if not rows:
        raise missing(whose, name, version)
    return _saved(whose, rows[0])


def missing(whose: Owner, name: str, version: int | None) -> ArtifactNotFound:
    """Return the error for a missing artifact or version."""
    if there := [it.version for it in versions(whose, name)]:
        numbers = f"{there[0]} to {there[-1]}" if len(there) > 1 else f"{there[0]}"
        return ArtifactNotFound(f"artifact {name!r} has no version {version}", hint=f"existing versions: {numbers}")
    names = [str(one) for (one,) in whose.store.read("artifact_names", (whose.stream,))] if whose.is_known() else []
    hint = meant(name, names, "save one with agent.artifacts.save")
    return ArtifactNotFound(f"agent {whose.name!r} has no artifact {name!r}", hint=hint)


def _saved(whose: Owner, row: Row) -> r.ArtifactSaved:
    """Return the record of a row. Its journal entry may hold other records too."""
    name, version, _, kind, body = row
    saved = landed_in(kind, body, r.ArtifactSaved)
    return {(it.owner, it.name, it.version): it for it in saved}[whose.stream, name, version]


def _info(whose: Owner, row: Row) -> ArtifactInfo:
    it, at = _saved(whose, row), moment(row[2])
    return ArtifactInfo(it.name, it.version, it.kind, it.size, it.digest.hex(), at, it.labels, it.note)
