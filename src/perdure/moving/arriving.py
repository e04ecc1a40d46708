"""`perdure import`: an agent out of a file, into a store.

Large values come first, in batches under the number of an upload, which nobody sees. Then all entries in one
transaction, with the views that follow from them: killed anywhere, there is no agent, and the next try begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import archive, keys, objects
from .. import records as r
from ..collect import collect
from ..errors import AgentExists, ExportDamaged, LeaseLost
from ..failpoints import Site
from ..journal import chain
from ..journal.append import Append, Head
from ..journal.documents import Document, documents_of
from ..journal.fold import fold, fold_kept
from ..journal.puts import Chunk, Upload, UploadLost
from ..journal.walk import folded_in
from ..limits import MEMORY_BYTES_MAX, UPLOAD_BATCH_BYTES
from ..memory.facts import sketch_of
from ..memory.pieces import PUT_WORDS
from ..process import COPIED, MOVED, Holder, at_home
from ..store.base import Floats, Script, Statement, Store, Unit
from ..store.notes import Notes
from .checking import Checked, Progress
from .leaving import refuse_twin
from .lines import Beside, Entry, Found, Indexed, Line, Object, Stream, Used, Vector, lines_of
from .translating import Translator, object_key

if TYPE_CHECKING:
    from ..engine import Engine

_DROPS = (
    "drop_document_words_of",
    "drop_documents_of",
    "drop_piece_words_of",
    "drop_piece_vectors_of",
    "drop_pieces_of",
    "drop_uses_of",
)
"""What clears the indexes of an agent that comes back and brings its own."""

_BATCH = 200


class Brought:
    """The large values of a file, in the store: under which ids, and for whom they wait."""

    def __init__(self, engine: Engine, file: Checked) -> None:
        self._engine = engine
        self._file = file
        self._notes = Notes()
        self._translator = Translator({}, self.there, ("", ""))
        self._batch: dict[bytes, Chunk] = {}
        self._batched = 0
        self.upload = 0

    def close(self) -> None:
        """What was noted meanwhile is not needed any more."""
        self._notes.close()

    def there(self, identity: bytes, node: bool) -> bytes:
        """The id of an object in this store. One that did not come along is of a version that was dropped.

        It gets an id that no object has: a file must not refer to what others have in this store.
        """
        return self._notes.get(object_key(identity, node)) or bytes(objects.ID_BYTES)

    def all(self, progress: Progress) -> None:
        """Bring them."""
        done, total = 0, self._file.end.objects
        for line in lines_of(self._file.path, self._file.end.sha256):
            if isinstance(line, Object):
                self._take(line)
                done += 1
                if self._batched >= UPLOAD_BATCH_BYTES:
                    self._flush()
                    progress(done, total)
        if self._batch:
            self._flush()

    def remove(self) -> None:
        """Remove them again: nothing was imported that refers to them."""
        if self.upload:
            self._engine.store.submit(_Withdraw(self.upload))
            collect(self._engine.store)

    def _take(self, line: Object) -> None:
        chunk = self._translated(line) if line.node else self._as_stored(line)
        self._notes.put(object_key(line.id, line.node), chunk.identity)
        if chunk.identity not in self._batch:
            self._batch[chunk.identity] = chunk
            self._batched += len(chunk.stored) + objects.ID_BYTES

    def _translated(self, line: Object) -> Chunk:
        content = self._translator.node(objects.restored(line.size, line.data))
        return Chunk(objects.identify(self._engine.store, content), content, objects.compress(content))

    def _as_stored(self, line: Object) -> Chunk:
        """A value, which is only read to make its id: it may be large, and stays compressed as it is."""
        running = objects.hasher(self._engine.store)
        for piece in objects.pieces(line.size, line.data):
            running.update(piece)
        return Chunk(running.digest(), b"", line.data, line.size)

    def _flush(self) -> None:
        engine, first = self._engine, not self.upload
        if first:
            self.upload = int.from_bytes(engine.store.clock.salt()[:8], "big") >> 1 or 1
        chunks = list(self._batch.values())
        engine.store.submit(Upload(engine.tenancy, engine.store.clock, self.upload, chunks, first=first))
        self._batch, self._batched = {}, 0


class _Withdraw(Unit[None]):
    """An upload that nothing will refer to."""

    site = Site.UPLOAD

    def __init__(self, upload: int) -> None:
        self._upload = upload

    def script(self) -> Script[None]:
        yield [Statement("drop_pending", (self._upload,)), Statement("drop_upload", (self._upload,))]


class There(msgspec.Struct, frozen=True):
    """A stream of an agent that comes back: what it had when it left is there."""

    number: int
    end: int
    link: bytes
    told: frozenset[bytes] = frozenset()
    """Of the agent's own stream: its entries, by their salts. The ones that are new come behind them."""


class Arrive(Unit[None]):
    """All entries of the file, translated and chained anew, in one transaction; of one that comes back, new ones."""

    site = Site.ARRIVE
    erases = long = True

    def __init__(
        self,
        engine: Engine,
        file: Checked,
        brought: Brought,
        signer: keys.SigningKey | None,
        progress: Progress,
        there: Mapping[int, There],
    ) -> None:
        self._engine = engine
        self._file = file
        self._there = there
        """Of one that comes back: by the numbers that its streams have in the file."""
        self._brought = brought
        self._signer = signer
        self._progress = progress
        self.token = ""
        """Of one that comes back, and has forgotten something: by which it is known that files have to be scrubbed."""
        self._public_key = file.header.public_key if file.header.move or signer is None else signer.public_key

    def script(self) -> Script[None]:
        name, file = self._engine.name, self._file
        wanted = [Statement("lock_streams"), Statement("get_agent", (name,)), Statement("all_agents")]
        [_, there, agents] = yield wanted
        if there and not self._there:
            raise AgentExists(f"the store has an agent {name!r} already; nothing was imported")
        if file.header.move:
            refuse_twin(name, file.header.public_key, agents)
        if self._brought.upload:
            [held] = yield [Statement("lock_upload", (self._brought.upload,))]
            if not held:
                raise UploadLost
        streams = yield from self._add_streams()
        arriving = _Arriving(self._engine.store, self._translator(streams), streams, self._signer, self._created)
        arriving.there, arriving.origin = self._there, file.header.store
        entries = 0
        for batch in _batches(lines_of(file.path, file.end.sha256)):
            for line in batch:
                yield from arriving.take(line)
            if made := arriving.taken():
                yield made
            entries += sum(isinstance(line, Entry) for line in batch)
            self._progress(min(entries, file.end.entries), file.end.entries)
        yield [*arriving.sealed(), Statement("number_happenings_of", (arriving.owner,)), *self._uploaded()]
        if arriving.erased:
            store = self._engine.store
            self.token = store.clock.salt().hex()
            yield [Statement("put_meta", ("stale", b"\x01")), *store.owing(self.token)]
        yield from self._say(arriving)

    def _add_streams(self) -> Script[dict[int, int]]:
        """Their numbers here, by those that they had; a stream of nobody's has none."""
        old, new = self._file.agent, self._engine.name
        found: dict[int, int] = {}
        for line in lines_of(self._file.path, self._file.end.sha256):
            if isinstance(line, Stream):
                if line.number in self._there:
                    found[line.number] = yield from self._go_on_with(line)
                    continue
                name = new + line.name[len(old) :]
                [[(number,)]] = yield [Statement("add_stream", (line.kind, name, line.at))]
                found[line.number] = int(number)
                yield [Statement("restore_lease", (number, line.fence, line.ordered))]
        return found

    def _go_on_with(self, line: Stream) -> Script[int]:
        """A stream that is there; nobody has written to it since."""
        there = self._there[line.number]
        [ends] = yield [Statement("head_of", (there.number,))]
        if ends != [(there.end, there.link)] and ends:
            raise AgentExists(f"agent {self._engine.name!r} has changed meanwhile; nothing was imported")
        yield [Statement("set_lease", (there.number, line.fence, line.ordered))]
        if line.kind == "agent":
            yield [Statement(name, (there.number,)) for name in _DROPS]
        return there.number

    def _translator(self, streams: dict[int, int]) -> Translator:
        known = {old: new for old, new in streams.items() if old}
        return Translator(known, self._brought.there, (self._file.agent, self._engine.name), self._elsewhere)

    def _elsewhere(self, holder: Holder) -> Holder:
        """A process that cannot be looked at by who goes on here, and may be at work for who was copied."""
        mark = MOVED if self._file.header.move and not holder.boot.startswith(COPIED) else COPIED
        return msgspec.structs.replace(holder, boot=mark + at_home(holder.boot))

    def _created(self, record: r.AgentCreated) -> r.AgentCreated:
        return r.AgentCreated(self._engine.name, self._public_key)

    def _uploaded(self) -> Iterator[Statement]:
        if self._brought.upload:
            yield Statement("drop_pending", (self._brought.upload,))
            yield Statement("drop_upload", (self._brought.upload,))

    def _say(self, arriving: _Arriving) -> Script[None]:
        """Where it comes from, in its own stream."""
        header, end = self._file.header, self._file.end
        how = "moved" if header.move else "copied"
        about = (header.agent, header.public_key, header.store, end.contents, end.sha256, end.signature)
        head, clock = arriving.own_head, self._engine.store.clock
        seal = self._file.seal if not end.signature else None
        arrived = r.AgentArrived(how, *about, clock.salt(), seal)
        yield from Append(self.site, head, [arrived], clock, signer=self._signer, seal=True).script()


class _Arriving:
    """Goes along the lines of a file, and makes statements of them."""

    def __init__(
        self,
        store: Store,
        translator: Translator,
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
        self._stream: Stream | None = None
        self._folded: r.Folded | None = None
        self._number = self._seq = 0
        self._link = b""
        self._kept: list[bytes] = []
        self._skipped = 0
        """Entries of this stream that are there already; of the agent's own stream those with these salts."""
        self._told: frozenset[bytes] = frozenset()
        self.there: Mapping[int, There] = {}
        self.origin = ""
        """The store that the file is of."""
        self.erased = False
        """Whether something that is there was erased."""
        self.owner = 0
        self.own_head = Head(store.identity, 0, 0)

    def taken(self) -> list[Statement]:
        """What has come together."""
        statements, self._statements = self._statements, []
        return statements

    def take(self, line: Line) -> Script[None]:
        """One line more."""
        if isinstance(line, Stream):
            self._statements += self.sealed()
            self._begin(line)
        elif isinstance(line, Entry):
            yield from self._entry(line)
        elif isinstance(line, Found):
            place = (self.owner, line.kind, line.space, line.key)
            text = line.text.decode("utf-8", "surrogatepass")
            one = Document(line.part, text, line.embedder, line.vector, line.words)
            self._statements += documents_of(place, line.version, [one])
        elif isinstance(line, Indexed):
            self._statements += [Statement("put_piece", (self.owner, *msgspec.structs.astuple(line))), PUT_WORDS]
        elif isinstance(line, Used):
            self._statements.append(Statement("use_memory", (self.owner, *msgspec.structs.astuple(line))))
        elif isinstance(line, Vector):
            made = (self.owner, line.memory, line.part, line.embedder, Floats(line.vector))
            self._statements.append(Statement("put_piece_vector", made))

    def _begin(self, stream: Stream) -> None:
        self._stream, self._number = stream, self._streams[stream.number]
        there = self.there.get(stream.number)
        self._seq = self._skipped = there.end if there is not None else 0
        self._told = there.told if there is not None else frozenset()
        self._link = (there.link if there is not None else b"") or chain.genesis(self._store.identity, self._number)
        self._folded = folded_in([(0, r.Kind.FOLDED, 0, stream.folded)]) if stream.folded is not None else None
        self._kept = []
        if stream.kind == "agent":
            self.owner = self._number

    def _entry(self, entry: Entry) -> Script[None]:
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
            self._statements += fold(self._number, entry.seq, entry.at, left) if left is not None else ()
            return
        record, body = self._translator.body(entry.kind, entry.body)
        changed = yield from self._placed(record, entry.body == self._stream.folded)
        if changed is not record:
            record, body = changed, body[: r.SALT_BYTES] + msgspec.msgpack.encode(changed)
        self._append(entry, body, chain.body_digest(body))
        kept = self._folded is not None and entry.seq <= self._folded.upto
        self._statements += (fold_kept if kept else fold)(self._number, entry.seq, entry.at, record)

    def _erase(self, seq: int) -> Script[None]:
        """What was erased while it was away is erased here too."""
        [rows] = yield [Statement("event_at", (self._number, seq))]
        for _, _, _, body, _, _ in rows:
            if body is not None:
                self._statements.append(Statement("erase_event", (self._number, seq, chain.body_digest(body))))
                self.erased = True

    def _placed(self, record: r.Record, tells: bool) -> Script[r.Record]:
        """What names a link, or a key, has those of this store."""
        if isinstance(record, r.AgentCreated):
            created: r.Record = self._created(record)
            return created
        if isinstance(record, r.Forked):
            if made := self.taken():
                yield made
            [links] = yield [Statement("chain_at", (record.origin, record.cut))]
            if not links or not record.origin:
                raise ExportDamaged(f"run {record.run!r} goes on from an entry that is not in the file")
            return msgspec.structs.replace(record, head=links[0][0])
        if isinstance(record, r.MemoryKept):
            # By which another one that says the same is known: it is keyed with the secret of a store.
            text = yield from self._text_of(record)
            return msgspec.structs.replace(record, sketch=sketch_of(self._store.secret, text))
        if isinstance(record, r.Folded):
            kept = b"".join(self._kept) if tells else record.kept
            name = archive.name_at(self._store.identity, self.origin, record.archive) or record.archive
            return msgspec.structs.replace(record, kept=kept, archive=name)
        if isinstance(record, r.TaskParked):
            return (yield from self._parked(record))
        return record

    def _text_of(self, record: r.MemoryKept) -> Script[str]:
        identity = objects.reference(record.value)
        [rows] = (yield [Statement("get_object", (identity,))]) if identity else [[]]
        if rows and rows[0][0] > MEMORY_BYTES_MAX:
            raise ExportDamaged(f"memory {record.id!r} is longer than any that Perdure keeps")
        text = yield from objects.unpack_within(self._store, record.value)
        if not isinstance(text, str):
            raise ExportDamaged(f"memory {record.id!r} has no text")
        return text

    def _parked(self, record: r.TaskParked) -> Script[r.Record]:
        """Of a run that waits for another agent's: it may be here too, under the name that the run calls it by."""
        wants = []
        for want in record.wants:
            if want.kind == "run" and not want.stream:
                [rows] = yield [Statement("get_agent", (want.agent,))]
                want = msgspec.structs.replace(want, stream=rows[0][0] if rows else 0)
            wants.append(want)
        return msgspec.structs.replace(record, wants=tuple(wants))

    def _append(self, entry: Entry, body: bytes | None, digest: bytes) -> None:
        assert self._stream is not None
        place = (self._number, entry.seq, entry.kind, entry.at)
        if self._folded is not None and entry.seq <= self._folded.upto:
            link = entry.chain  # of one that was kept, which nothing is chained to any more
            self._kept.append(entry.seq.to_bytes(4, "big") + chain.mark(*place, digest, link))
        else:
            if self._folded is not None and self._seq <= self._folded.upto:
                self._link = self._folded.head
            link = self._link = chain.link(self._link, *place, digest)
        self._seq = entry.seq
        if body is None:
            self._statements.append(Statement("append_erased", (*place, link, digest)))
        else:
            self._statements.append(Statement("append_event", (*place, body, link, self._stream.fence), LeaseLost))
        if self._number == self.owner:
            self.own_head = Head(self._store.identity, self.owner, self._stream.fence, self._seq, self._link)

    def sealed(self) -> Sequence[Statement]:
        """The stream that was told last has ended."""
        if self._signer is None or not self._seq or self._number == self.owner:
            return []
        message = chain.seal_message(self._store.identity, self._number, self._seq, self._link, self._number)
        signature = self._signer.sign(message)
        seal = (self._number, self._seq, self._link, self._number, self._signer.public_key, signature)
        return [Statement("add_seal", seal)]


def _batches(lines: Iterator[Line]) -> Iterator[list[Line]]:
    batch: list[Line] = []
    for line in lines:
        if not isinstance(line, Object | Beside):
            batch.append(line)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
