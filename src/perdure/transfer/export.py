"""`agent.export` and `agent.retire`: writes an agent into a file, and retires it from its store."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import AgentExists, AgentNotFound, ExportFolderNotFound, WrongValue
from perdure.journal import archive as archiving
from perdure.journal.append import Append, StreamHead
from perdure.journal.departures import departure, refuse_departed
from perdure.journal.keys import file_message
from perdure.kernel.names import check_storable_name
from perdure.maintenance.compaction import writer_of
from perdure.platform.bounded_lines import make_padding
from perdure.platform.failpoints import CommitMoment, Site, reach
from perdure.platform.files import atomic_write
from perdure.platform.process import host_name
from perdure.run.answers import find_current_user
from perdure.store.base import Rows, Script, Statement, UnitOfWork
from perdure.transfer import archives, waits
from perdure.transfer.archives import AgentArchives
from perdure.transfer.collect import AgentInventory, ExportReader, RecordOwnership, belongings
from perdure.transfer.content_hash import ContentDigests, ContentHasher
from perdure.transfer.file_format import (
    FORMAT,
    ExportEnd,
    ExportEntry,
    ExportHeader,
    ExportLine,
    ExportObject,
    ExportWriter,
)
from perdure.transfer.locked_key import lock

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

ExportProgress = Callable[[int, int], None]
"""Receives the number of entries done, and the total."""

_TOLD_EVERY = 100


class Exported(msgspec.Struct, frozen=True):
    """The result of an export."""

    path: str
    agent: str
    moved: bool
    streams: int
    entries: int
    objects: int
    bytes: int
    contents: str
    """The hash of the contents: equal for the origin, the file and the imported agent."""
    signed: bool
    private_key: bool
    archives: int = 0
    """Number of included archives of compacted entries and dropped memories."""
    notes: tuple[str, ...] = ()
    """What stays behind, and what that affects."""
    dry_run: bool = False

    def __str__(self) -> str:
        how = "moved" if self.moved else "copied"
        would = "would be " if self.dry_run else ""
        return f"agent {self.agent!r} {would}{how} to {self.path}: {self.entries} entries, {self.objects} objects"


class ExportOptions(msgspec.Struct, frozen=True):
    """How to export an agent."""

    move: bool = False
    private_key: bool = False
    passphrase: str | None = None
    archive: str | None = None
    """The folder with the archives, if `gc` used another one than the default."""
    dry_run: bool = False
    """Only report what would be exported and what would stay."""


def export(engine: Engine, path: str, wish: ExportOptions, progress: ExportProgress | None = None) -> Exported:
    """Write an agent into a file. With `move`, this store accepts no more writes for it."""
    _check_wish(engine, wish)
    path, told = os.path.abspath(path), progress or (lambda done, total: None)
    _refuse_to_overwrite(path)
    if wish.dry_run:
        return _write_export(engine, path, _NullFile(), wish, told)
    left = r.AgentLeft("moved", f"{host_name()}:{path}", find_current_user())
    was_here = wish.move and engine.store.submit(LeaveStore(engine, left))
    try:
        with _create_file(path) as file:
            return _write_export(engine, path, file, wish, told)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path  # names the file that could not be written
        if was_here and not os.path.lexists(path):
            cancel_departure(engine)  # without a file the agent cannot be anywhere else
        raise


def cancel_departure(engine: Engine) -> None:
    """Make the agent active here again."""
    engine.store.submit(LeaveStore(engine, None))


def retire(engine: Engine, reason: str = "") -> None:
    """Stop accepting writes for the agent."""
    check_storable_name(reason, "a reason")
    if not engine.is_known():
        raise AgentNotFound(f"the store has no agent {engine.name!r}")
    engine.store.submit(LeaveStore(engine, r.AgentLeft("retired", "", find_current_user(), reason)))


def _check_wish(engine: Engine, wish: ExportOptions) -> None:
    if wish.private_key and not wish.passphrase:
        raise WrongValue("private_key=True needs passphrase=, which encrypts the key")
    if wish.passphrase is not None and not wish.private_key:
        raise WrongValue("passphrase= encrypts the private key: add private_key=True, or leave it out")
    if not engine.is_known():
        raise AgentNotFound(f"the store has no agent {engine.name!r}: there is nothing to export")
    if wish.private_key and engine.signer is None:
        raise WrongValue(f"the private key of agent {engine.name!r} is not here")
    if wish.archive is not None and not os.path.isdir(wish.archive):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder with archives", wish.archive)


def _refuse_to_overwrite(path: str) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "the file exists, and an export never overwrites", path)
    if not os.path.isdir(os.path.dirname(path)):
        raise ExportFolderNotFound(f"there is no folder {os.path.dirname(path)}")


@contextmanager
def _create_file(path: str) -> Iterator[Any]:
    """Write to a temporary file, and move it into place once it is complete and durable. Never overwrites."""
    with atomic_write(path, new=True) as file:
        yield file
        reach(Site.LEAVE, CommitMoment.WRITTEN)


def _write_export(engine: Engine, path: str, file: Any, wish: ExportOptions, progress: ExportProgress) -> Exported:
    import zstandard

    store, its = engine.store, belongings(engine.store, engine.name)
    shelf = AgentArchives(
        store, wish.archive or archiving.folder_of(store), its, RecordOwnership.from_inventory(its).is_whole
    )
    with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as out:
        writer = ExportWriter(out)
        writer.put(_header(engine, its, wish))
        found = _write_agent(engine, its, writer, progress, shelf)
        notes = _write_companions(engine, writer, shelf, wish.move)
        if wish.passphrase is not None and engine.signer is not None:
            writer.put(lock(engine.signer, wish.passphrase, writer.digest))
        message = file_message(writer.digest, found.contents)
        signature = engine.signer.sign(message) if engine.signer is not None else b""
        counts = (writer.streams, writer.entries, writer.objects)
        end = ExportEnd(*counts, writer.digest, found.contents, found.index, signature)
        writer.put(end)
    for piece in make_padding(file.tell(), writer.needed):
        file.write(piece)
    told = (engine.name, wish.move, *counts, file.tell(), found.contents.hex())
    return Exported(path, *told, bool(signature), wish.private_key, shelf.count, notes, wish.dry_run)


def _write_companions(engine: Engine, writer: ExportWriter, shelf: AgentArchives, move: bool) -> tuple[str, ...]:
    """Write archives and missing dependencies, which are not part of the agent. Returns notes about them."""
    for part in shelf.lines():
        writer.put(part)
    awaited = waits.list_awaited_runs(engine.store, engine.name)
    stays: tuple[ExportLine, ...] = (*shelf.absent, *awaited)
    for line in stays:
        writer.put(line)
    left_alone = (
        waits.wait_notes_of_others(engine.name, waits.list_waiting_runs(engine.store, engine.name)) if move else []
    )
    return (*archives.note_missing_archives(shelf.absent), *waits.wait_notes(awaited), *left_alone)


def _header(engine: Engine, its: AgentInventory, wish: ExportOptions) -> ExportHeader:
    store = engine.store
    about = (store.identity, store.clock.wall_ms(), wish.move, len(its.streams), its.entries, wish.private_key)
    return ExportHeader(FORMAT, its.name, its.public_key, *about)


def _write_agent(
    engine: Engine,
    its: AgentInventory,
    writer: ExportWriter,
    progress: ExportProgress,
    shelf: AgentArchives | None = None,
) -> ContentDigests:
    """Write all lines of the agent. Returns the hashes of its contents."""
    gathering, contents = ExportReader(engine.store, its), ContentHasher(its.name, number_streams(its))
    try:
        for line in gathering.iterate_all():
            writer.put(line)
            contents.take(line)
            if isinstance(line, ExportEntry) and shelf is not None:
                shelf.see(line)
            if isinstance(line, ExportEntry | ExportObject) and (writer.entries + writer.objects) % _TOLD_EVERY == 0:
                progress(min(writer.entries, its.entries), its.entries)
        progress(its.entries, its.entries)
        return contents.digests()
    finally:
        gathering.close()
        contents.close()


def number_streams(its: AgentInventory) -> dict[int, int]:
    """Number the streams of an agent in order."""
    return {stream.number: place for place, stream in enumerate(its.streams, start=1)}


def contents_of(engine: Engine, progress: ExportProgress | None = None) -> ContentDigests:
    """Return the hashes of an agent's current contents."""
    its = belongings(engine.store, engine.name)
    return _write_agent(engine, its, ExportWriter(_NullFile()), progress or (lambda done, total: None))


class _NullFile:
    """A file object that discards what is written."""

    def __init__(self) -> None:
        self._size = 0

    def write(self, data: Any) -> int:
        """Discard data, and count it."""
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size


def refuse_duplicate(name: str, public_key: bytes, agents: Rows) -> None:
    """Raise if the same agent, by its key, is active here under another name."""
    for other, _, key, _, gone in agents:
        if key == public_key and other != name and not gone:
            raise AgentExists(
                f"the agent with this key is active here already, as {other!r}; nothing was imported",
                hint="the file of a move is imported once; for another agent export a copy, without move=True",
            )


class LeaveStore(UnitOfWork[bool]):
    """Fences every stream of an agent and records its departure or its return. Repeated, it records it again.

    Returns whether the agent was active here.
    """

    site = Site.LEAVE
    long = True

    def __init__(self, engine: Engine, left: r.AgentLeft | None) -> None:
        self._engine = engine
        self._signer = engine.signer
        self._left = left

    def script(self) -> Script[bool]:
        engine, store = self._engine, self._engine.store
        # New streams, writes by others and takeovers either precede this or see it.
        [_, _, [(stream, public_key)], left, agents] = yield [
            Statement("lock_streams"),
            Statement("lock_agent", (engine.name,)),
            Statement("get_agent", (engine.name,)),
            departure(engine.name),
            Statement("all_agents"),
        ]
        self._refuse_retired(left)
        if self._left is None:
            refuse_duplicate(engine.name, public_key, agents)
        own = yield from self._processes()
        fences = [Statement("revoke_lease", (number,)) for number in (stream, *own)]
        yield [Statement("revoke_run_leases", (engine.name,)), *fences]
        [[(seq, link)], [(fence, _)]] = yield [Statement("head_of", (stream,)), Statement("lease_at", (stream,))]
        back = r.AgentArrived("returned", engine.name, public_key, store.identity, b"", b"")
        head = StreamHead(store.identity, stream, fence, seq, link)
        entry = self._left or back
        yield from Append(self.site, head, [entry], store.clock, signer=self._signer, seal=True).script()
        return not left

    def _refuse_retired(self, rows: Rows) -> None:
        """Raise if a moved agent is known to have arrived. Until then it may be exported again if the file was lost."""
        for row in rows:
            kind, _, body = row
            left = r.decode(kind, body)
            assert isinstance(left, r.AgentLeft), "the row refers to a departure"
            again = self._left is not None and (left.how, self._left.how) == ("moved", "moved") and not left.store
            if self._left is not None and not again:
                refuse_departed(self._engine.name, [row])

    def _processes(self) -> Script[list[int]]:
        [streams] = yield [Statement("all_streams")]
        return [
            number for number, kind, name, _ in streams if kind == "process" and writer_of(name) == self._engine.name
        ]
