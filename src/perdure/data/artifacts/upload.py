"""Streams an artifact into the store: blocks come in, batches of chunks go out, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from perdure import records as r
from perdure.data.artifacts.sources import BLOCK_BYTES, ArtifactSource, own, parts_of
from perdure.errors import NotStorable, ValueTooLarge, WrongType
from perdure.journal import objects
from perdure.journal.artifact_writes import SaveArtifact, Upload, UploadChunk
from perdure.journal.trees.streams import ChunkCutter, StreamBuilder
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read, Submit, Together, read_protocol
from perdure.kernel.write_routing import enclosing_buffer, write
from perdure.platform.failpoints import Site
from perdure.store.base import FinalBatch, Script, Statement, UnitOfWork, is_storable_name
from perdure.values.limits import ARTIFACT_BYTES_MAX, ARTIFACT_NOTE_CHARACTERS_MAX, UPLOAD_BATCH_BYTES

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

SaveProgress = Callable[[int, int], None]
"""Called with the bytes done and the total; 0 if the total is unknown."""

ChunkBatch = dict[bytes, bytes | memoryview]
"""The contents of chunks by id."""

_SMALL_BYTES = 1024 * 1024
"""Up to this size, the chunks are part of the commit of the version."""

_COMPARED_AT_ONCE = 32
"""How many stored chunks are compared at a time, to limit memory."""


class _RepairChunks(UnitOfWork[None]):
    """Replaces damaged chunks in the store. Idempotent."""

    site = Site.UPLOAD

    def __init__(self, chunks: Sequence[UploadChunk]) -> None:
        self._chunks = chunks

    def script(self) -> Script[None]:
        yield FinalBatch([chunk.statement for chunk in self._chunks])


class ArtifactDetails:
    """The checked name, labels and note of a version."""

    def __init__(self, name: str, labels: Iterable[str], note: str) -> None:
        check_storable_name(name, "the name of an artifact", empty=False)
        if isinstance(labels, str):
            raise WrongType(f"pass a list of labels: labels=[{labels!r}]")
        if not isinstance(note, str):
            raise WrongType(f"a note must be a str, not {note!r}")
        if len(note) > ARTIFACT_NOTE_CHARACTERS_MAX or not is_storable_name(note):
            raise NotStorable(
                f"a note may have {ARTIFACT_NOTE_CHARACTERS_MAX} characters, without NUL and lone surrogates"
            )
        self.name = name
        self.labels = tuple(check_storable_name(label, "a label") for label in labels)
        self.note = note


class ArtifactWrite:
    """A version that is being written. It exists once `finish` has committed it."""

    def __init__(self, engine: Engine, about: ArtifactDetails, kind: str) -> None:
        enclosing_buffer(engine)  # raises before the work if this caller may no longer write
        self._engine = engine
        self._about = about
        self._kind = kind
        self._cutter = ChunkCutter()
        self._digest = sha256()
        self._tree: StreamBuilder | None = None
        self._blocks: list[bytes] = []
        self._blocked = 0
        self._batch: ChunkBatch = {}
        self._batched = 0
        self._upload = 0
        self.size = 0
        self.written = 0
        """The number of chunks that were new."""

    # -- bytes in -----------------------------------------------------------------------------------------------------

    def write_all(self, source: ArtifactSource, progress: SaveProgress | None = None) -> Protocol[int]:
        """Write everything from a source, then commit. Returns the version."""
        parts = (part for block in source.blocks() for part in parts_of(block))
        full = yield Read(self._fill, (parts,))
        while full:
            if progress is not None:
                progress(self.size, source.size)
            full = yield from self._flush_and_fill(parts, overlap=source.again)
        return (yield from self.finish())

    def _flush_and_fill(self, parts: Iterator[memoryview], *, overlap: bool) -> Protocol[bool]:
        """Commit a batch and fill the next one. Returns whether that is full.

        Cutting and hashing overlap with the commit, unless the user's own code yields the parts: that stays in its
        thread.
        """
        batch = self._take_pending()
        if not overlap:
            yield from self._flush(batch)
            full: bool = yield Read(self._fill, (parts,))
            return full
        jobs = (partial(self._flush, batch), partial(read_protocol, self._fill, parts))
        _, full = [outcome.get() for outcome in (yield Together(jobs, len(jobs), stops=True))]
        return full

    def _fill(self, parts: Iterator[memoryview]) -> bool:
        """Take parts until a batch is full. Returns whether it is."""
        return any(self._take(part) for part in parts)

    def feed(self, block: object) -> Protocol[None]:
        """Write a block."""
        for part in parts_of(block):
            if self._blocked + len(part) < BLOCK_BYTES:
                self._take(part)
            elif (yield Read(self._take, (part,))):
                yield from self._flush(self._take_pending())

    def _take(self, part: memoryview) -> bool:
        """Add a part and return whether the batch is full."""
        self.size += len(part)
        if self.size > ARTIFACT_BYTES_MAX:
            raise ValueTooLarge(f"an artifact may have at most {ARTIFACT_BYTES_MAX} bytes")
        self._blocks.append(own(part))
        self._blocked += len(part)
        if self._blocked >= BLOCK_BYTES:
            self._cut_chunks()
        return self._batched >= UPLOAD_BATCH_BYTES

    def _cut_chunks(self) -> None:
        data = b"".join(self._blocks)
        self._blocks, self._blocked = [], 0
        self._digest.update(data)
        for chunk in self._cutter.feed(data):
            self._growing.add(chunk)

    @property
    def _growing(self) -> StreamBuilder:
        if self._tree is None:
            self._engine.ensure_agent()
            self._tree = StreamBuilder(self._engine.store, self._put)
        return self._tree

    def _put(self, identity: bytes, content: bytes | memoryview) -> None:
        if identity not in self._batch:
            self._batch[identity] = content
            self._batched += len(content)

    # -- commits out --------------------------------------------------------------------------------------------------

    def _flush(self, batch: ChunkBatch) -> Protocol[None]:
        """Commit the chunks of a batch."""
        first = not self._upload
        if first:
            self._upload = int.from_bytes(self._engine.store.clock.salt()[:8], "big") >> 1 or 1
        chunks, damaged = yield Read(self._chunks, (batch,))
        if damaged:
            yield Submit(_RepairChunks(damaged))
        # Registering as a holder shows that this process is alive: a body may run for days after an upload.
        engine = self._engine
        self.written += yield Submit(Upload(engine.lease_keeper, engine.store.clock, self._upload, chunks, first=first))

    def _chunks(self, batch: ChunkBatch) -> tuple[list[UploadChunk], list[UploadChunk]]:
        """Return the batch, compressed where new, and the chunks whose stored form is damaged."""
        sound, damaged = self._find_stored(batch)
        chunks = [
            UploadChunk(identity, content, b"" if identity in sound else objects.compress(content))
            for identity, content in batch.items()
        ]
        return chunks, [chunk for chunk in chunks if chunk.identity in damaged]

    def _find_stored(self, batch: ChunkBatch) -> tuple[set[bytes], set[bytes]]:
        """Return which chunks are stored intact, and which are stored damaged.

        Stored chunks are read and compared: a version that shares a damaged chunk would be unreadable. Saving it again
        repairs the chunk. Comparing is cheaper than compressing a new version.
        """
        ids, sound, damaged = list(batch), set[bytes](), set[bytes]()
        for start in range(0, len(ids), _COMPARED_AT_ONCE):
            rows = objects.rows_of(self._engine.store, ids[start : start + _COMPARED_AT_ONCE])
            for identity, row in rows.items():
                (sound if objects.is_sound(row, batch[identity]) else damaged).add(identity)
        return sound, damaged

    def _take_pending(self) -> ChunkBatch:
        batch, self._batch, self._batched = self._batch, {}, 0
        return batch

    def _statements(self) -> list[Statement]:
        """Return the statements that write the batch with the version. They skip chunks that are stored intact."""
        return [UploadChunk(identity, content).statement for identity, content in self._take_pending().items()]

    def finish(self) -> Protocol[int]:
        """Commit the version, now or with the enclosing step. Returns its number, or 0 while it is buffered."""
        packed, owner = yield Read(self._end)
        if self._batch and (self._upload or self._batched > _SMALL_BYTES):
            yield from self._flush(self._take_pending())
        made = () if self._upload else (yield Read(self._statements))
        about = self._about
        put = SaveArtifact(
            owner, about.name, packed, self.size, self._digest.digest(), self._kind,
            about.labels, about.note, objects=made, upload=self._upload,
        )  # fmt: skip
        landed = yield from write(self._engine, Site.ARTIFACT, [put])
        return next((landing.version for landing in landed if isinstance(landing, r.ArtifactSaved)), 0)

    def _end(self) -> tuple[bytes, int]:
        self._cut_chunks()
        for chunk in self._cutter.finish():
            self._growing.add(chunk)
        return self._growing.finish(), self._engine.stream
