"""`perdure import`: writes the agent of a file into a store.

Large values are uploaded first, in batches that are not visible. Then all entries and their views are written in one
transaction: if the process is killed, there is no agent, and the next attempt starts over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import AgentExists, ExportDamaged, LeaseLost
from perdure.journal import archive, chain, keys, objects
from perdure.journal.append import Append, StreamHead
from perdure.journal.artifact_writes import Upload, UploadChunk, UploadLost
from perdure.journal.documents import IndexedDocument, documents_of
from perdure.journal.object_gc import collect
from perdure.journal.project import project, project_anew, project_kept
from perdure.journal.stream_reader import decoded_compaction
from perdure.memory.facts import sketch_of
from perdure.memory.pieces import PUT_WORDS
from perdure.platform.failpoints import Site
from perdure.platform.process import COPIED, MOVED, Holder, strip_boot_prefix
from perdure.store.base import Floats, Script, Statement, Store, UnitOfWork
from perdure.store.rows import first_number
from perdure.store.spill import ScratchTable
from perdure.transfer.check import CheckProgress, VerifiedExport
from perdure.transfer.export import refuse_duplicate
from perdure.transfer.file_format import (
    ExportDocument,
    ExportEntry,
    ExportLine,
    ExportObject,
    ExportPiece,
    ExportSideLine,
    ExportStream,
    ExportUse,
    ExportVector,
    lines_of,
)
from perdure.transfer.translate import RecordTranslator, object_key
from perdure.values.limits import MEMORY_BYTES_MAX, UPLOAD_BATCH_BYTES

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_DROPS = (
    "drop_document_words_of",
    "drop_documents_of",
    "drop_chunk_words_of",
    "drop_chunk_vectors_of",
    "drop_chunks_of",
    "drop_uses_of",
)
"""Statements that clear the indexes of a returning agent, which brings its own."""

_BATCH = 200


class ImportedObjects:
    """Uploads the large values of a file, and maps their ids to those of this store."""

    def __init__(self, engine: Engine, file: VerifiedExport) -> None:
        self._engine = engine
        self._file = file
        self._notes = ScratchTable()
        self._translator = RecordTranslator({}, self.translate_identity, ("", ""))
        self._batch: dict[bytes, UploadChunk] = {}
        self._batched = 0
        self.upload = 0

    def close(self) -> None:
        """Delete the temporary table."""
        self._notes.close()

    def translate_identity(self, identity: bytes, node: bool) -> bytes:
        """Return the id of an object in this store. A missing object belongs to a dropped version.

        It gets an id that no object has: a file must not refer to objects of others in this store.
        """
        return self._notes.get(object_key(identity, node)) or bytes(objects.ID_BYTES)

    def upload_all(self, progress: CheckProgress) -> None:
        """Upload all large values."""
        done, total = 0, self._file.end.objects
        for line in lines_of(self._file.path, self._file.end.sha256):
            if isinstance(line, ExportObject):
                self._take(line)
                done += 1
                if self._batched >= UPLOAD_BATCH_BYTES:
                    self._flush()
                    progress(done, total)
        if self._batch:
            self._flush()

    def remove(self) -> None:
        """Delete them after a failed import."""
        if self.upload:
            self._engine.store.submit(_DropUpload(self.upload))
            collect(self._engine.store)

    def _take(self, line: ExportObject) -> None:
        chunk = self._translate_object(line) if line.node else self._keep_stored(line)
        self._notes.put(object_key(line.id, line.node), chunk.identity)
        if chunk.identity not in self._batch:
            self._batch[chunk.identity] = chunk
            self._batched += len(chunk.stored) + objects.ID_BYTES

    def _translate_object(self, line: ExportObject) -> UploadChunk:
        content = self._translator.node(objects.decompress_object(line.size, line.data))
        return UploadChunk(objects.identify(self._engine.store, content), content, objects.compress(content))

    def _keep_stored(self, line: ExportObject) -> UploadChunk:
        """Return a value as it is stored. It is only decompressed to compute its id, because it may be large."""
        running = objects.hasher(self._engine.store)
        for piece in objects.pieces(line.size, line.data):
            running.update(piece)
        return UploadChunk(running.digest(), b"", line.data, line.size)

    def _flush(self) -> None:
        engine, first = self._engine, not self.upload
        if first:
            self.upload = int.from_bytes(engine.store.clock.salt()[:8], "big") >> 1 or 1
        chunks = list(self._batch.values())
        engine.store.submit(Upload(engine.lease_keeper, engine.store.clock, self.upload, chunks, first=first))
        self._batch, self._batched = {}, 0


class _DropUpload(UnitOfWork[None]):
    """Drops an upload that nothing will refer to."""

    site = Site.UPLOAD

    def __init__(self, upload: int) -> None:
        self._upload = upload

    def script(self) -> Script[None]:
        yield [Statement("drop_upload_objects", (self._upload,)), Statement("drop_upload", (self._upload,))]


class ReturningStream(msgspec.Struct, frozen=True):
    """A stream of a returning agent, with the entries that it had when it left."""

    number: int
    end: int
    link: bytes
    told: frozenset[bytes] = frozenset()
    """For the agent's own stream: the salts of its entries. New entries are appended behind them."""


class ImportEntries(UnitOfWork[None]):
    """Imports the entries of a file, translated and chained anew, in one transaction; only new ones for a return."""

    site = Site.ARRIVE
    erases = long = True

    def __init__(
        self,
        engine: Engine,
        file: VerifiedExport,
        brought: ImportedObjects,
        signer: keys.SigningKey | None,
        progress: CheckProgress,
        there: Mapping[int, ReturningStream],
    ) -> None:
        self._engine = engine
        self._file = file
        self._there = there
        """For a returning agent: its streams by their numbers in the file."""
        self._brought = brought
        self._signer = signer
        self._progress = progress
        self.token = ""
        """For a returning agent that has forgotten something: identifies the scrub of files that is due."""
        self._public_key = file.header.public_key if file.header.move or signer is None else signer.public_key

    def script(self) -> Script[None]:
        name, file = self._engine.name, self._file
        wanted = [Statement("lock_streams"), Statement("get_agent", (name,)), Statement("all_agents")]
        [_, there, agents] = yield wanted
        if there and not self._there:
            raise AgentExists(f"the store has an agent {name!r} already; nothing was imported")
        if file.header.move:
            refuse_duplicate(name, file.header.public_key, agents)
        if self._brought.upload:
            [held] = yield [Statement("lock_upload", (self._brought.upload,))]
            if not held:
                raise UploadLost
        streams = yield from self._add_streams()
        arriving = _EntryImporter(
            self._engine.store, self._translator(streams), streams, self._signer, self._translate_creation
        )
        arriving.there, arriving.origin = self._there, file.header.store
        entries = 0
        for batch in _batches(lines_of(file.path, file.end.sha256)):
            for line in batch:
                yield from arriving.take(line)
            if made := arriving.take_statements():
                yield made
            entries += sum(isinstance(line, ExportEntry) for line in batch)
            self._progress(min(entries, file.end.entries), file.end.entries)
        yield [
            *arriving.finish_stream(),
            Statement("renumber_events_of", (arriving.owner,)),
            *self._make_upload_statements(),
        ]
        if arriving.erased:
            store = self._engine.store
            self.token = store.clock.salt().hex()
            yield [Statement("put_meta", ("stale", b"\x01")), *store.scrub_note(self.token)]
        yield from self._record_arrival(arriving)

    def _add_streams(self) -> Script[dict[int, int]]:
        """Add the streams. Returns their numbers here by those in the file."""
        old, new = self._file.agent, self._engine.name
        found: dict[int, int] = {}
        for line in lines_of(self._file.path, self._file.end.sha256):
            if isinstance(line, ExportStream):
                if line.number in self._there:
                    found[line.number] = yield from self._continue_stream(line)
                    continue
                name = new + line.name[len(old) :]
                [[(number,)]] = yield [Statement("add_stream", (line.kind, name, line.at))]
                found[line.number] = int(number)
                yield [Statement("restore_lease", (number, line.fence, line.ordered))]
        return found

    def _continue_stream(self, line: ExportStream) -> Script[int]:
        """Continue an existing stream that nobody has written to since."""
        there = self._there[line.number]
        [ends] = yield [Statement("head_of", (there.number,))]
        if ends != [(there.end, there.link)] and ends:
            raise AgentExists(f"agent {self._engine.name!r} has changed meanwhile; nothing was imported")
        yield [Statement("set_lease", (there.number, line.fence, line.ordered))]
        if line.kind == "agent":
            yield [Statement(name, (there.number,)) for name in _DROPS]
        return there.number

    def _translator(self, streams: dict[int, int]) -> RecordTranslator:
        known = {old: new for old, new in streams.items() if old}
        return RecordTranslator(
            known, self._brought.translate_identity, (self._file.agent, self._engine.name), self._mark_foreign_holder
        )

    def _mark_foreign_holder(self, holder: Holder) -> Holder:
        """Return a holder that cannot be checked from here, and may still be alive for the original of a copy."""
        mark = MOVED if self._file.header.move and not holder.boot.startswith(COPIED) else COPIED
        return msgspec.structs.replace(holder, boot=mark + strip_boot_prefix(holder.boot))

    def _translate_creation(self, record: r.AgentCreated) -> r.AgentCreated:
        return r.AgentCreated(self._engine.name, self._public_key)

    def _make_upload_statements(self) -> Iterator[Statement]:
        if self._brought.upload:
            yield Statement("drop_upload_objects", (self._brought.upload,))
            yield Statement("drop_upload", (self._brought.upload,))

    def _record_arrival(self, arriving: _EntryImporter) -> Script[None]:
        """Record the origin in the agent's own stream."""
        header, end = self._file.header, self._file.end
        how = "moved" if header.move else "copied"
        about = (header.agent, header.public_key, header.store, end.contents, end.sha256, end.signature)
        head, clock = arriving.own_head, self._engine.store.clock
        seal = self._file.seal if not end.signature else None
        arrived = r.AgentArrived(how, *about, clock.salt(), seal)
        yield from Append(self.site, head, [arrived], clock, signer=self._signer, seal=True).script()


class _EntryImporter:
    """Turns the lines of a file into statements."""

    def __init__(
        self,
        store: Store,
        translator: RecordTranslator,
        streams: dict[int, int],
        signer: keys.SigningKey | None,
        created: Any,
    ) -> None:
        self._store = store
        self._translator = translator
        self._streams = streams
        self._signer = signer
        self._created = created
        self._statements: list[Statement] = []
        self._stream: ExportStream | None = None
        self._compaction: r.StreamCompacted | None = None
        self._number = self._seq = 0
        self._link = b""
        self._kept: list[bytes] = []
        self._skipped = 0
        """Entries of this stream that exist already; in the agent's own stream, those with known salts."""
        self._told: frozenset[bytes] = frozenset()
        self.there: Mapping[int, ReturningStream] = {}
        self.origin = ""
        """The store that the file comes from."""
        self.erased = False
        """Whether an existing entry was erased."""
        self.owner = 0
        self.own_head = StreamHead(store.identity, 0, 0)

    def take_statements(self) -> list[Statement]:
        """Return the collected statements."""
        statements, self._statements = self._statements, []
        return statements

    def take(self, line: ExportLine) -> Script[None]:
        """Add one line."""
        if isinstance(line, ExportStream):
            self._statements += self.finish_stream()
            self._begin(line)
        elif isinstance(line, ExportEntry):
            yield from self._entry(line)
        elif isinstance(line, ExportDocument):
            place = (self.owner, line.kind, line.space, line.key)
            text = line.text.decode("utf-8", "surrogatepass")
            one = IndexedDocument(line.part, text, line.embedder, line.vector, line.words)
            self._statements += documents_of(place, line.version, [one])
        elif isinstance(line, ExportPiece):
            self._statements += [Statement("put_chunk", (self.owner, *msgspec.structs.astuple(line))), PUT_WORDS]
        elif isinstance(line, ExportUse):
            self._statements.append(Statement("count_memory_use", (self.owner, *msgspec.structs.astuple(line))))
        elif isinstance(line, ExportVector):
            made = (self.owner, line.memory, line.part, line.embedder, Floats(line.vector))
            self._statements.append(Statement("put_chunk_vector", made))

    def _begin(self, stream: ExportStream) -> None:
        self._stream, self._number = stream, self._streams[stream.number]
        there = self.there.get(stream.number)
        self._seq = self._skipped = there.end if there is not None else 0
        self._told = there.told if there is not None else frozenset()
        self._link = (there.link if there is not None else b"") or chain.genesis(self._store.identity, self._number)
        self._compaction = decoded_compaction(stream.compaction)
        self._kept = []
        if stream.kind == "agent":
            self.owner = self._number

    def _entry(self, entry: ExportEntry) -> Script[None]:
        assert self._stream is not None, "the file was checked"
        if self._told:
            if entry.body is None or entry.body[: r.SALT_BYTES] in self._told:
                return
            entry = msgspec.structs.replace(entry, seq=self._seq + 1)
        elif entry.seq <= self._skipped:
            if entry.body is None:
                yield from self._erase(entry.seq)
            return
        if entry.body is None:
            self._append(entry, None, entry.digest or b"")
            left = r.remains(entry.kind)
            self._statements += project(self._number, entry.seq, entry.at, left) if left is not None else ()
            return
        record, body = self._translator.body(entry.kind, entry.body)
        changed = yield from self._place_record(record, entry.body == self._stream.compaction)
        if changed is not record:
            record, body = changed, body[: r.SALT_BYTES] + msgspec.msgpack.encode(changed)
        self._append(entry, body, chain.body_digest(body))
        kept = self._compaction is not None and entry.seq <= self._compaction.upto
        self._statements += (project_kept if kept else project_anew)(self._number, entry.seq, entry.at, record)

    def _erase(self, seq: int) -> Script[None]:
        """Erase an entry here that was erased while the agent was away."""
        [rows] = yield [Statement("journal_entry", (self._number, seq))]
        for _, _, _, body, _, _ in rows:
            if body is not None:
                self._statements.append(Statement("erase_entry", (self._number, seq, chain.body_digest(body))))
                self.erased = True

    def _place_record(self, record: r.Record, tells: bool) -> Script[r.Record]:
        """Replace links and keys in a record by those of this store."""
        if isinstance(record, r.AgentCreated):
            created: r.Record = self._created(record)
            return created
        if isinstance(record, r.Forked):
            if made := self.take_statements():
                yield made
            [links] = yield [Statement("chain_at", (record.origin, record.cut))]
            if not links or not record.origin:
                raise ExportDamaged(f"run {record.run!r} continues from an entry that is not in the file")
            [(link,)] = links
            return msgspec.structs.replace(record, head=link)
        if isinstance(record, r.MemoryKept):
            # The sketch that identifies repetitions is keyed with the secret of the store.
            text = yield from self._text_of(record)
            return msgspec.structs.replace(record, sketch=sketch_of(self._store.content_key, text))
        if isinstance(record, r.StreamCompacted):
            kept = b"".join(self._kept) if tells else record.kept
            name = archive.name_at(self._store.identity, self.origin, record.archive) or record.archive
            return msgspec.structs.replace(record, kept=kept, archive=name)
        if isinstance(record, r.TaskParked):
            return (yield from self._translate_parked(record))
        return record

    def _text_of(self, record: r.MemoryKept) -> Script[str]:
        identity = objects.reference(record.value)
        [rows] = (yield [Statement("get_object", (identity,))]) if identity else [[]]
        if first_number(rows) > MEMORY_BYTES_MAX:
            raise ExportDamaged(f"memory {record.id!r} is longer than Perdure allows")
        text = yield from objects.unpack_within(self._store, record.value)
        if not isinstance(text, str):
            raise ExportDamaged(f"memory {record.id!r} has no text")
        return text

    def _translate_parked(self, record: r.TaskParked) -> Script[r.Record]:
        """Translate a parked task that waits for a run of another agent, which may be in this store too."""
        wants = []
        for want in record.wants:
            if want.kind == "run" and not want.stream:
                [rows] = yield [Statement("get_agent", (want.agent,))]
                want = msgspec.structs.replace(want, stream=first_number(rows))
            wants.append(want)
        return msgspec.structs.replace(record, wants=tuple(wants))

    def _append(self, entry: ExportEntry, body: bytes | None, digest: bytes) -> None:
        assert self._stream is not None
        place = (self._number, entry.seq, entry.kind, entry.at)
        if self._compaction is not None and entry.seq <= self._compaction.upto:
            link = entry.chain  # of a kept entry, which nothing is chained to any more
            self._kept.append(entry.seq.to_bytes(4, "big") + chain.mark(*place, digest, link))
        else:
            if self._compaction is not None and self._seq <= self._compaction.upto:
                self._link = self._compaction.head
            link = self._link = chain.link(self._link, *place, digest)
        self._seq = entry.seq
        if body is None:
            self._statements.append(Statement("append_erased", (*place, link, digest)))
        else:
            self._statements.append(Statement("append_entry", (*place, body, link, self._stream.fence), LeaseLost))
        if self._number == self.owner:
            self.own_head = StreamHead(self._store.identity, self.owner, self._stream.fence, self._seq, self._link)

    def finish_stream(self) -> Sequence[Statement]:
        """Finish the last stream."""
        if self._signer is None or not self._seq or self._number == self.owner:
            return []
        message = chain.seal_message(self._store.identity, self._number, self._seq, self._link, self._number)
        signature = self._signer.sign(message)
        seal = (self._number, self._seq, self._link, self._number, self._signer.public_key, signature)
        return [Statement("add_seal", seal)]


def _batches(lines: Iterator[ExportLine]) -> Iterator[list[ExportLine]]:
    batch: list[ExportLine] = []
    for line in lines:
        if not isinstance(line, ExportObject | ExportSideLine):
            batch.append(line)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
