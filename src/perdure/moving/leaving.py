"""`agent.export` and `agent.retire`: an agent into a file, and away from its store."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from .. import archive as archiving
from .. import records as r
from ..answers import whoever
from ..bounded import padding
from ..errors import AgentExists, AgentNotFound
from ..failpoints import Moment, Site, reach
from ..files import written_aside
from ..folding import writer_of
from ..journal.append import Append, Head
from ..journal.departures import departure, refuse_departed
from ..keys import file_message
from ..process import host_name
from ..store.base import Rows, Script, Statement, Unit
from . import archives, waits
from .archives import Shelf
from .contents import Contents, Digests
from .gathering import Belongings, Gathering, Ownership, belongings
from .lines import FORMAT, End, Entry, Header, Line, Object, Writer
from .locked_key import lock

if TYPE_CHECKING:
    from ..engine import Engine

Progress = Callable[[int, int], None]
"""Told how many entries are done, and of how many."""

_TOLD_EVERY = 100


class Exported(msgspec.Struct, frozen=True):
    """A file with an agent in it."""

    path: str
    agent: str
    moved: bool
    streams: int
    entries: int
    objects: int
    bytes: int
    contents: str
    """The hash of what is in it: the same for the agent that it was made of, and the one that is made of it."""
    signed: bool
    private_key: bool
    archives: int = 0
    """Files with folded entries, and with memories that were let go, which are in it too."""
    notes: tuple[str, ...] = ()
    """What stays behind, and who will miss it."""
    dry_run: bool = False

    def __str__(self) -> str:
        how = "moved" if self.moved else "copied"
        would = "would be " if self.dry_run else ""
        return f"agent {self.agent!r} {would}{how} to {self.path}: {self.entries} entries, {self.objects} objects"


class Wish(msgspec.Struct, frozen=True):
    """How an agent is to leave."""

    move: bool = False
    private_key: bool = False
    passphrase: str | None = None
    archive: str | None = None
    """The folder with the archives, if `gc` was told another one than that beside the store."""
    dry_run: bool = False
    """Only say what would go, and what would stay."""


def export(engine: Engine, path: str, wish: Wish, progress: Progress | None = None) -> Exported:
    """Write an agent into a file; with `move`, nothing is written for it here any more."""
    _must_make_sense(engine, wish)
    path, told = os.path.abspath(path), progress or (lambda done, total: None)
    _refuse_to_overwrite(path)
    if wish.dry_run:
        return _written(engine, path, _Nowhere(), wish, told)
    left = r.AgentLeft("moved", f"{host_name()}:{path}", whoever())
    was_here = wish.move and engine.store.submit(Leave(engine, left))
    try:
        with _new_file(path) as file:
            return _written(engine, path, file, wish, told)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path  # which of the two is full
        if was_here and not os.path.lexists(path):
            come_back(engine)  # there is no file in which it could be anywhere else
        raise


def come_back(engine: Engine) -> None:
    """It has not gone after all."""
    engine.store.submit(Leave(engine, None))


def retire(engine: Engine, reason: str = "") -> None:
    """Nothing is written for the agent any more."""
    if not engine.is_known():
        raise AgentNotFound(f"the store has no agent {engine.name!r}")
    engine.store.submit(Leave(engine, r.AgentLeft("retired", "", whoever(), reason)))


def _must_make_sense(engine: Engine, wish: Wish) -> None:
    if wish.private_key and not wish.passphrase:
        raise ValueError("the private key goes along only with passphrase=, which it is locked by")
    if wish.passphrase is not None and not wish.private_key:
        raise ValueError("passphrase= locks the private key: say private_key=True, or leave it out")
    if not engine.is_known():
        raise AgentNotFound(f"the store has no agent {engine.name!r}: there is nothing to export")
    if wish.private_key and engine.signer is None:
        raise ValueError(f"the private key of agent {engine.name!r} is not here")
    if wish.archive is not None and not os.path.isdir(wish.archive):
        raise NotADirectoryError(errno.ENOTDIR, "it is no folder with archives", wish.archive)


def _refuse_to_overwrite(path: str) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "it exists, and an export never overwrites", path)
    if not os.path.isdir(os.path.dirname(path)):
        raise FileNotFoundError(errno.ENOENT, "it is no folder", os.path.dirname(path))


@contextmanager
def _new_file(path: str) -> Iterator[Any]:
    """Beside its place until it is whole and durable; a file that is there is left alone."""
    with written_aside(path, new=True) as file:
        yield file
        reach(Site.LEAVE, Moment.WRITTEN)


def _written(engine: Engine, path: str, file: Any, wish: Wish, progress: Progress) -> Exported:
    import zstandard

    store, its = engine.store, belongings(engine.store, engine.name)
    shelf = Shelf(store, wish.archive or archiving.folder_of(store), its, Ownership.of(its).is_whole)
    with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as out:
        writer = Writer(out)
        writer.put(_header(engine, its, wish))
        found = _tell(engine, its, writer, progress, shelf)
        notes = _beside(engine, writer, shelf, wish.move)
        if wish.passphrase is not None and engine.signer is not None:
            writer.put(lock(engine.signer, wish.passphrase, writer.digest))
        message = file_message(writer.digest, found.contents)
        signature = engine.signer.sign(message) if engine.signer is not None else b""
        counts = (writer.streams, writer.entries, writer.objects)
        end = End(*counts, writer.digest, found.contents, found.index, signature)
        writer.put(end)
    for piece in padding(file.tell(), writer.needed):
        file.write(piece)
    told = (engine.name, wish.move, *counts, file.tell(), found.contents.hex())
    return Exported(path, *told, bool(signature), wish.private_key, shelf.count, notes, wish.dry_run)


def _beside(engine: Engine, writer: Writer, shelf: Shelf, move: bool) -> tuple[str, ...]:
    """The lines that are not of the agent itself: archives, and what it will miss. Returns that in words."""
    for part in shelf.lines():
        writer.put(part)
    awaited = waits.waits_of(engine.store, engine.name)
    stays: tuple[Line, ...] = (*shelf.absent, *awaited)
    for line in stays:
        writer.put(line)
    left_alone = waits.told_of_others(engine.name, waits.waits_for(engine.store, engine.name)) if move else []
    return (*archives.told(shelf.absent), *waits.told(awaited), *left_alone)


def _header(engine: Engine, its: Belongings, wish: Wish) -> Header:
    store = engine.store
    about = (store.identity, store.clock.wall_ms(), wish.move, len(its.streams), its.entries, wish.private_key)
    return Header(FORMAT, its.name, its.public_key, *about)


def _tell(engine: Engine, its: Belongings, writer: Writer, progress: Progress, shelf: Shelf | None = None) -> Digests:
    """All lines that are the agent; returns the hashes of the contents."""
    gathering, contents = Gathering(engine.store, its), Contents(its.name, counted(its))
    try:
        for line in gathering.all():
            writer.put(line)
            contents.take(line)
            if isinstance(line, Entry) and shelf is not None:
                shelf.see(line)
            if isinstance(line, Entry | Object) and (writer.entries + writer.objects) % _TOLD_EVERY == 0:
                progress(min(writer.entries, its.entries), its.entries)
        progress(its.entries, its.entries)
        return contents.digests()
    finally:
        gathering.close()
        contents.close()


def counted(its: Belongings) -> dict[int, int]:
    """The streams of an agent, in their order."""
    return {stream.number: place for place, stream in enumerate(its.streams, start=1)}


def contents_of(engine: Engine, progress: Progress | None = None) -> Digests:
    """The hashes of what an agent has in its store now."""
    its = belongings(engine.store, engine.name)
    return _tell(engine, its, Writer(_Nowhere()), progress or (lambda done, total: None))


class _Nowhere:
    """A file that nobody keeps."""

    def __init__(self) -> None:
        self._size = 0

    def write(self, data: Any) -> int:
        """Lets it go."""
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """How much it was."""
        return self._size


def refuse_twin(name: str, public_key: bytes, agents: Rows) -> None:
    """Nobody arrives, or comes back, where the same agent is at home under another name."""
    for other, _, key, _, gone in agents:
        if key == public_key and other != name and not gone:
            raise AgentExists(
                f"the agent of this key is at home here already, as {other!r}; nothing was imported",
                hint="a file of a move is imported once; for another agent export a copy, without move=True",
            )


class Leave(Unit[bool]):
    """Take the fence of every stream of an agent, and say so in its own; or say that it is at home again.

    Returns whether it was at home. Done twice, it says so twice.
    """

    site = Site.LEAVE
    long = True

    def __init__(self, engine: Engine, left: r.AgentLeft | None) -> None:
        self._engine = engine
        self._signer = engine.signer
        self._left = left

    def script(self) -> Script[bool]:
        engine, store = self._engine, self._engine.store
        # New streams, and what others write for it, come before this or see it; so do takeovers, by the leases.
        [_, _, [(stream, public_key)], left, agents] = yield [
            Statement("lock_streams"),
            Statement("lock_agent", (engine.name,)),
            Statement("get_agent", (engine.name,)),
            departure(engine.name),
            Statement("all_agents"),
        ]
        self._refuse_retired(left)
        if self._left is None:
            refuse_twin(engine.name, public_key, agents)
        own = yield from self._processes()
        fences = [Statement("fence_off", (number,)) for number in (stream, *own)]
        yield [Statement("fence_off_runs", (engine.name,)), *fences]
        [[(seq, link)], [(fence, _)]] = yield [Statement("head_of", (stream,)), Statement("lease_at", (stream,))]
        back = r.AgentArrived("returned", engine.name, public_key, store.identity, b"", b"")
        head = Head(store.identity, stream, fence, seq, link)
        entry = self._left or back
        yield from Append(self.site, head, [entry], store.clock, signer=self._signer, seal=True).script()
        return not left

    def _refuse_retired(self, rows: Rows) -> None:
        """One that has moved may go into another file, if the first was lost; not if it is known to have arrived."""
        for row in rows:
            left = r.decode(row[0], row[2])
            assert isinstance(left, r.AgentLeft), "what a departure refers to"
            again = self._left is not None and (left.how, self._left.how) == ("moved", "moved") and not left.store
            if self._left is not None and not again:
                refuse_departed(self._engine.name, [row])

    def _processes(self) -> Script[list[int]]:
        [streams] = yield [Statement("all_streams")]
        return [
            number for number, kind, name, _ in streams if kind == "process" and writer_of(name) == self._engine.name
        ]
