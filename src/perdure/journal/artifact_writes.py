"""Artifact versions saved and dropped inside the commit, and the uploads that bring their bytes before.

An artifact may be too large for one commit. Its chunks are committed in batches under the number of an upload, which
protects them from garbage collection. An upload lives as long as its process, and for a time after its last batch. The
commit of the version ends it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure import records
from perdure.errors import StoreBusy
from perdure.journal import objects
from perdure.journal.leases import LeaseKeeper
from perdure.platform.failpoints import Site
from perdure.store.base import FinalBatch, Script, Statement, Store, UnitOfWork
from perdure.store.rows import first_number
from perdure.values.clock import Clock


class SaveArtifact(msgspec.Struct, frozen=True):
    """A version of an artifact to save, or versions to drop."""

    owner: int
    name: str
    packed: bytes = b""
    size: int = 0
    digest: bytes = b""
    """Set for empty contents too; without a digest nothing is saved."""
    kind: str = ""
    labels: tuple[str, ...] = ()
    note: str = ""
    objects: Sequence[Statement] = ()
    """The objects of a small artifact."""
    upload: int = 0
    """The upload that has the objects of a large artifact."""
    drops: tuple[int, ...] = ()

    @property
    def place(self) -> tuple[int, str]:
        return (self.owner, self.name)

    def make_record(self, version: int) -> records.ArtifactSaved:
        """The journal record of this artifact under the given version."""
        about = (self.packed, self.size, self.digest, self.kind, self.labels, self.note)
        return records.ArtifactSaved(self.owner, self.name, version, *about)


class UploadLost(StoreBusy):
    """The upload was idle for so long that its chunks were garbage-collected; nothing was saved."""

    hint = "save the artifact again"


def decide_puts(puts: Sequence[SaveArtifact], _: Store) -> Script[tuple[list[records.AgentChange], list[Statement]]]:
    """Number the versions under the locks of their names; return the changes and the statements they need."""
    places = sorted({put.place for put in puts})
    uploads = [put.upload for put in puts if put.upload]
    rows = yield [
        *(Statement("lock_namespace", (owner, f"artifact {name}")) for owner, name in places),
        *(Statement("last_artifact", place) for place in places),
        *(Statement("lock_upload", (upload,)) for upload in uploads),
    ]
    if not all(rows[2 * len(places) :]):
        raise UploadLost
    last = {place: first_number(found) for place, found in zip(places, rows[len(places) :], strict=False)}
    landed: list[records.AgentChange] = []
    made: list[Statement] = []
    for put in puts:
        landed += [records.ArtifactDropped(*put.place, version) for version in put.drops]
        if put.digest:
            last[put.place] += 1
            landed.append(put.make_record(last[put.place]))
            made += put.objects
    for upload in uploads:
        made += (Statement("drop_upload_objects", (upload,)), Statement("drop_upload", (upload,)))
    return landed, made


class UploadChunk(msgspec.Struct, frozen=True, gc=False):
    """An object of an upload."""

    identity: bytes
    content: bytes | memoryview
    stored: bytes = b""
    """Compressed, unless it seems to be in the store."""
    size: int = -1
    """The size of the content, when only `stored` is at hand."""

    @property
    def statement(self) -> Statement:
        """The statement that writes this object."""
        size = self.size if self.size >= 0 else len(self.content)
        return Statement("put_object", (self.identity, size, self.stored or objects.compress(self.content)))


class Upload(UnitOfWork[int]):
    """Write a batch of chunks, without those that the store has. Returns how many were written."""

    site = Site.UPLOAD

    def __init__(
        self, lease_keeper: LeaseKeeper, clock: Clock, number: int, chunks: Sequence[UploadChunk], *, first: bool
    ) -> None:
        self._lease_keeper = lease_keeper
        self._clock = clock
        self._number = number
        self._chunks = chunks
        self._first = first

    def script(self) -> Script[int]:
        number, ids = self._number, b"".join(chunk.identity for chunk in self._chunks)
        there, *_, held = yield [
            Statement("lock_upload", (number,)),
            self._lease_keeper.holder_statement(self._clock.boot_ms()),
            Statement("renew_upload", (number, self._clock.wall_ms(), self._lease_keeper.holder_id)),
            Statement("add_upload_objects", (number, ids)),
            Statement("hold_objects", (ids,)),
        ]
        if not there and not self._first:
            raise UploadLost
        known = {identity for (identity,) in held}
        missing = [chunk.statement for chunk in self._chunks if chunk.identity not in known]
        yield FinalBatch(missing)
        return len(missing)
