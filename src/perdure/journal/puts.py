"""Artifacts that are wanted or not wanted any more, decided inside the commit; and how their bytes get there before.

An artifact may be too large for one commit. Its chunks are committed in batches, each under the number of its upload:
while that is there, a collector leaves them alone. It stays while the process lives that holds it, and for a time after
the last batch. The commit of the version ends it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .. import objects, records
from ..clock import Clock
from ..errors import StoreBusy
from ..failpoints import Site
from ..leases import Tenancy
from ..store.base import Last, Script, Statement, Store, Unit


class Put(msgspec.Struct, frozen=True):
    """A version of an artifact to be kept, or versions of one to be dropped."""

    owner: int
    name: str
    packed: bytes = b""
    size: int = 0
    digest: bytes = b""
    """Of no bytes too: without one nothing is kept."""
    kind: str = ""
    labels: tuple[str, ...] = ()
    note: str = ""
    objects: Sequence[Statement] = ()
    """What it needs, of a small one."""
    upload: int = 0
    """Where that waits, of a large one."""
    drops: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[int, str]:
        return (self.owner, self.name)

    def saved(self, version: int) -> records.ArtifactSaved:
        """What it has become."""
        about = (self.packed, self.size, self.digest, self.kind, self.labels, self.note)
        return records.ArtifactSaved(self.owner, self.name, version, *about)


class UploadLost(StoreBusy):
    """Nobody went on with the upload for so long that what it had written was collected; nothing was kept."""

    hint = "save it again"


def decided_puts(puts: Sequence[Put], _: Store) -> Script[tuple[list[records.Landing], list[Statement]]]:
    """What they come to, numbered under the locks of their names; and what must be written with it."""
    places = sorted({put.place for put in puts})
    uploads = [put.upload for put in puts if put.upload]
    rows = yield [
        *(Statement("lock_space", (owner, f"artifact {name}")) for owner, name in places),
        *(Statement("last_artifact", place) for place in places),
        *(Statement("lock_upload", (upload,)) for upload in uploads),
    ]
    if not all(rows[2 * len(places) :]):
        raise UploadLost
    last = {place: found[0][0] if found else 0 for place, found in zip(places, rows[len(places) :], strict=False)}
    landed: list[records.Landing] = []
    made: list[Statement] = []
    for put in puts:
        landed += [records.ArtifactDropped(*put.place, version) for version in put.drops]
        if put.digest:
            last[put.place] += 1
            landed.append(put.saved(last[put.place]))
            made += put.objects
    for upload in uploads:
        made += (Statement("drop_pending", (upload,)), Statement("drop_upload", (upload,)))
    return landed, made


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """An object of an upload."""

    identity: bytes
    content: bytes
    stored: bytes = b""
    """Compressed, unless it seems to be in the store."""
    size: int = -1
    """The size of the content, when only `stored` is at hand."""

    @property
    def statement(self) -> Statement:
        """Writes it."""
        size = self.size if self.size >= 0 else len(self.content)
        return Statement("put_object", (self.identity, size, self.stored or objects.compress(self.content)))


class Upload(Unit[int]):
    """A batch of chunks; those that are there are not written again. Returns how many were."""

    site = Site.UPLOAD

    def __init__(self, tenancy: Tenancy, clock: Clock, number: int, chunks: Sequence[Chunk], *, first: bool) -> None:
        self._tenancy = tenancy
        self._clock = clock
        self._number = number
        self._chunks = chunks
        self._first = first

    def script(self) -> Script[int]:
        number, ids = self._number, b"".join(chunk.identity for chunk in self._chunks)
        there, *_, held = yield [
            Statement("lock_upload", (number,)),
            self._tenancy.presence(self._clock.boot_ms()),
            Statement("keep_upload", (number, self._clock.wall_ms(), self._tenancy.holder)),
            Statement("add_pending", (number, ids)),
            Statement("hold_objects", (ids,)),
        ]
        if not there and not self._first:
            raise UploadLost
        known = {identity for (identity,) in held}
        missing = [chunk.statement for chunk in self._chunks if chunk.identity not in known]
        yield Last(missing)
        return len(missing)
