"""Records of things with named versions: checkpoints and artifacts."""

from __future__ import annotations

from perdure.records.base import Record


class CheckpointMade(Record, frozen=True, tag=2):
    """A named snapshot. `value` is a packed tree. Versions are counted per name."""

    owner: int
    name: str
    version: int
    value: bytes
    labels: tuple[str, ...] = ()
    meta: bytes = b""


class CheckpointDropped(Record, frozen=True, tag=3):
    """A deleted checkpoint version. Objects that only it refers to may be collected."""

    owner: int
    name: str
    version: int


class ArtifactSaved(Record, frozen=True, tag=4):
    """A version of an artifact. `value` is the packed tree of its bytes. Versions are counted per name."""

    owner: int
    name: str
    version: int
    value: bytes
    size: int
    digest: bytes
    """SHA-256 of all bytes."""
    kind: str
    """What `load` returns: `bytes`, `file`, `array` or `arrays`."""
    labels: tuple[str, ...] = ()
    note: str = ""


class ArtifactDropped(Record, frozen=True, tag=5):
    """A deleted artifact version. Objects that only it refers to may be collected."""

    owner: int
    name: str
    version: int
