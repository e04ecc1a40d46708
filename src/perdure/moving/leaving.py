"""`agent.export` and `agent.retire`: an agent into a file, and away from its store."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from .. import records as r
from ..answers import whoever
from ..errors import AgentNotFound
from ..failpoints import Moment, Site, reach
from ..files import sync_folder
from ..folding import writer_of
from ..journal.append import Append, Head
from ..journal.departures import departure, refuse_departed
from ..keys import file_message
from ..process import host_name
from ..store.base import Rows, Script, Statement, Unit
from .contents import Contents, Digests
from .gathering import Belongings, Gathering, belongings
from .lines import FORMAT, End, Entry, Header, Writer
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

    def __str__(self) -> str:
        how = "moved" if self.moved else "copied"
        return f"agent {self.agent!r} {how} to {self.path}: {self.entries} entries, {self.objects} objects"


def export(
    engine: Engine,
    path: str,
    *,
    move: bool = False,
    private_key: bool = False,
    passphrase: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write an agent into a file; with `move`, nothing is written for it here any more."""
    _must_make_sense(engine, private_key, passphrase)
    path = os.path.abspath(path)
    _refuse_to_overwrite(path)
    left = r.AgentLeft("moved", f"{host_name()}:{path}", whoever())
    was_here = move and engine.store.submit(Leave(engine, left))
    try:
        with _new_file(path) as file:
            return _written(engine, path, file, move, passphrase, progress)
    except BaseException:
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


def _must_make_sense(engine: Engine, private_key: bool, passphrase: str | None) -> None:
    if private_key and not passphrase:
        raise ValueError("the private key goes along only with passphrase=, which it is locked by")
    if passphrase is not None and not private_key:
        raise ValueError("passphrase= locks the private key: say private_key=True, or leave it out")
    if not engine.is_known():
        raise AgentNotFound(f"the store has no agent {engine.name!r}: there is nothing to export")
    if private_key and engine.signer is None:
        raise ValueError(f"the private key of agent {engine.name!r} is not here")


def _refuse_to_overwrite(path: str) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "it exists, and an export never overwrites", path)
    if not os.path.isdir(os.path.dirname(path)):
        raise FileNotFoundError(errno.ENOENT, "it is no folder", os.path.dirname(path))


@contextmanager
def _new_file(path: str) -> Iterator[BinaryIO]:
    """Beside its place until it is whole and durable; a file that is there is left alone."""
    aside = f"{path}.{os.getpid()}.part"
    descriptor = os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        reach(Site.LEAVE, Moment.WRITTEN)
        os.link(aside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)
    sync_folder(os.path.dirname(path))


def _written(
    engine: Engine, path: str, file: BinaryIO, move: bool, passphrase: str | None, progress: Progress | None
) -> Exported:
    import zstandard

    its = belongings(engine.store, engine.name)
    with zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False) as out:
        writer = Writer(out)
        writer.put(_header(engine, its, move))
        if passphrase is not None and engine.signer is not None:
            writer.put(lock(engine.signer, passphrase))
        found = _tell(engine, its, writer, progress or (lambda done, total: None))
        message = file_message(writer.digest, found.contents)
        signature = engine.signer.sign(message) if engine.signer is not None else b""
        counts = (writer.streams, writer.entries, writer.objects)
        end = End(*counts, writer.digest, found.contents, found.index, signature)
        writer.put(end)
    told = (engine.name, move, end.streams, end.entries, end.objects, file.tell(), found.contents.hex())
    return Exported(path, *told, bool(signature), passphrase is not None)


def _header(engine: Engine, its: Belongings, move: bool) -> Header:
    store = engine.store
    about = (store.identity, store.clock.wall_ms(), move, len(its.streams), its.entries)
    return Header(FORMAT, its.name, its.public_key, *about)


def _tell(engine: Engine, its: Belongings, writer: Writer, progress: Progress) -> Digests:
    """All lines but the first and the last; returns the hashes of the contents."""
    gathering, contents = Gathering(engine.store, its), Contents(its.name, counted(its))
    try:
        for line in gathering.all():
            writer.put(line)
            contents.take(line)
            if isinstance(line, Entry) and writer.entries % _TOLD_EVERY == 0:
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
    def write(self, data: Any) -> None:
        """Lets it go."""


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
        [_, _, [(stream, public_key)], left] = yield [
            Statement("lock_streams"),
            Statement("lock_agent", (engine.name,)),
            Statement("get_agent", (engine.name,)),
            departure(engine.name),
        ]
        self._refuse_retired(left)
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
        """One that has moved may go into another file, if the first was lost; one that is retired stays."""
        for kind, at, body in rows:
            left = r.decode(kind, body)
            if self._left is not None and (left.how, self._left.how) != ("moved", "moved"):  # type: ignore[attr-defined]
                refuse_departed(self._engine.name, [(kind, at, body)])

    def _processes(self) -> Script[list[int]]:
        [streams] = yield [Statement("all_streams")]
        return [
            number for number, kind, name, _ in streams if kind == "process" and writer_of(name) == self._engine.name
        ]
