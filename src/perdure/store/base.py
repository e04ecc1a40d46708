"""The interface of a store: it commits units of work and answers named queries.

A unit of work is a script: a generator that yields lists of statements and receives their rows. It does no I/O, so
SQLite, PostgreSQL and a simulator drive the same one.
"""

from __future__ import annotations

import re
import struct
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from threading import get_ident
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from perdure.errors import (
    PerdureError,
    StoreBusy,
    StoreClosed,
    StoreFenced,
    StoreForked,
    StoreRolledBack,
    StoreUnavailable,
    WriteInsideUpdate,
)
from perdure.platform import failpoints, interrupts
from perdure.platform.failpoints import CommitMoment, Site, reach
from perdure.values.clock import Clock
from perdure.values.locks import call_after_fork

if TYPE_CHECKING:
    import asyncio

    from perdure.records.stores import LostEntries

T = TypeVar("T")
_UNKEPT = re.compile("[\0\ud800-\udfff]")
Row = tuple[Any, ...]
Rows = list[Row]


LOST = "lost "
"""The prefix of meta keys for runs that have lost entries; `agent/id` follows."""


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A named statement with its arguments. With `must`, that error is raised unless it affects exactly one row."""

    name: str
    args: tuple[Any, ...] = ()
    must: type[PerdureError] | None = None


class Floats(bytes):
    """32-bit floats: SQLite stores the bytes, PostgreSQL an array that it can compute with."""

    __slots__ = ()

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers."""
        return struct.unpack(f"<{len(self) // 4}f", self)


def is_storable_name(text: str) -> bool:
    """Whether every store accepts a name: PostgreSQL refuses NUL, UTF-8 lone surrogates.

    Values are stored as bytes and may have both.
    """
    return _UNKEPT.search(text) is None


_deciding: set[int] = set()
"""Threads inside `decide`; nearly always empty, which takes less than asking for something thread-local."""


def decide(make: Callable[[Any], Any], value: Any) -> Any:
    """Call a user's function inside a commit. It may read; a write would deadlock with this commit."""
    me = get_ident()
    _deciding.add(me)
    try:
        return make(value)
    finally:
        _deciding.discard(me)


def check_not_deciding() -> None:
    """Raise WriteInsideUpdate inside `decide`. Called before every write, buffered ones too."""
    if _deciding and get_ident() in _deciding:
        raise WriteInsideUpdate


class CommitProof(msgspec.Struct, frozen=True, gc=False):
    """Proves that a commit has landed: the query returns exactly these rows.

    Made for every commit and nearly never used, so it is only the place and the link of the last entry.
    """

    stream: int
    seq: int
    link: bytes

    @property
    def query(self) -> Statement:
        """Reads the link of the entry."""
        return Statement("chain_at", (self.stream, self.seq))

    @property
    def rows(self) -> Rows:
        """The result of the query if the commit has landed."""
        return [(self.link,)]


class FinalBatch(list[Statement]):
    """The last batch of a script, sent together with the commit; only bookkeeping follows.

    A commit whose answer was lost is submitted again. With a `proof` it is looked up before and after, so that it lands
    once; without one, the unit must be idempotent.
    """

    proof: CommitProof | None = None


class Overtaken(StoreBusy):
    """Another process was faster; the script runs again and sees its changes."""


class RowRefused(StoreUnavailable):
    """The database refused a row: it exists, or a column cannot hold a value."""


Script = Generator[Sequence[Statement], list[Rows], T]


class UnitOfWork(Generic[T]):
    """One commit: its work inside the transaction, and its bookkeeping afterwards."""

    site: Site
    lane: int = 0
    """Units of one lane, usually a stream, are committed one after the other."""
    snapshot: bool = False
    """Whether all its queries must read the same snapshot."""
    long: bool = False
    """Whether it may exceed the usual transaction timeout."""
    erases: bool = False
    """Whether deleted data must be overwritten in the file."""
    seconds: float | None = None
    """A shorter limit than usual for waiting on an unavailable store."""

    @property
    def shareable(self) -> bool:
        """Whether it may be one statement that a server runs for units of many lanes at once."""
        return False

    def script(self) -> Script[T]:
        """Run inside the transaction; raising rolls back this unit and not the others of the batch."""
        raise NotImplementedError

    def join(self, others: Sequence[UnitOfWork[Any]]) -> UnitOfWork[list[Any]] | None:
        """Return one unit for this one and others of its lane, in order, if they can be one commit."""
        return None

    def settle(self, committed: bool) -> None:
        """Called when a transaction with this unit has ended, before it returns or is retried."""


class Store(ABC):
    """A database with everything of some agents. One instance per process and database."""

    url: str
    clock: Clock
    secret: bytes
    """Made with the store; it never leaves the process that has the database open."""
    identity: str
    """Names the store in seals, so that a seal is valid for one store only."""
    fenced: StoreFenced | None = None
    """Why this process may no longer write."""
    rolled_back: StoreRolledBack | None = None
    """Which acknowledged entries the store has lost: it can be read, not written."""
    doubts: Mapping[str, bytes] = MappingProxyType({})
    """Runs that have lost entries, by `agent/id`, with details. Their lost effects may have happened."""
    stale: bool = False
    """Whether the views must be rebuilt because a migration has added one."""
    guard: Callable[[], None] | None = None
    """Called before every commit, which it may refuse; used for dry runs."""
    read_only: str = ""
    """Why the store is read-only; empty if it is writable."""
    _content_key: bytes | None = None
    one_host: bool = True
    """Whether all processes that use it are on this machine, so that another boot id is a past one."""
    commits: int = 0
    """Units of work that this process has committed. Several may share one transaction and its fsync."""

    def __init__(self) -> None:
        self._closed = self._forked = False
        _OPEN.add(self)

    @property
    def content_key(self) -> bytes:
        """The key of the hashes that stand for content, such as object ids. Clients of a server receive it."""
        if self._content_key is None:
            self._content_key = blake2b(key=self.secret[:64], person=b"perdure content", digest_size=32).digest()
        return self._content_key

    def submit(self, unit: UnitOfWork[T]) -> T:
        """Commit from a thread. When this returns, the unit is durable."""
        if self._closed or self._forked or _deciding or self.fenced is not None or self.rolled_back is not None:
            self._check_usable()
        if self.guard is not None:
            self.guard()
        if failpoints.hook is not None:
            reach(unit.site, CommitMoment.BEFORE)
        held = interrupts.hold()
        try:
            result = self._submit(unit)
            self.commits += 1
            if failpoints.hook is not None:
                reach(unit.site, CommitMoment.AFTER)
        finally:
            if held:
                interrupts.release()
        return result

    async def submit_async(self, unit: UnitOfWork[T]) -> T:
        """Commit from an event loop without blocking it. A cancelled caller still waits for the commit."""
        self._check_usable()
        if self.guard is not None:
            self.guard()
        if failpoints.hook is not None:
            reach(unit.site, CommitMoment.BEFORE)
        result = await self._submit_async(unit)
        self.commits += 1
        if failpoints.hook is not None:
            reach(unit.site, CommitMoment.AFTER)
        return result

    @abstractmethod
    def _submit(self, unit: UnitOfWork[T]) -> T:
        """Commit in this thread."""

    @abstractmethod
    async def _submit_async(self, unit: UnitOfWork[T]) -> T:
        """Commit without blocking this event loop."""

    @abstractmethod
    def read(self, name: str, args: tuple[Any, ...] = ()) -> Rows:
        """Run a named query outside any transaction; it sees everything committed so far."""

    def read_all(self, queries: Sequence[Statement]) -> list[Rows]:
        """Run queries on one snapshot, so that no row is seen twice or missed; on a server in one round trip."""
        return [self.read(query.name, query.args) for query in queries]

    def scan(self, name: str, args: tuple[Any, ...], consume: Callable[[Iterable[Row]], T]) -> T:
        """Run a named query and pass its rows to `consume` one by one, without keeping them all in memory."""
        return consume(self.read(name, args))

    def keep_warm(self) -> None:
        """Allow a larger cache: from now on reads are repeated all over the store."""
        self._check_open()

    def watch(self, stream: int) -> Callable[[], bool]:
        """Return a cheap check for polling: may the stream have received an answer since the last call?"""
        return lambda: True

    @abstractmethod
    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """Copy a snapshot of the store into a file while it is in use; return the bytes written.

        An existing file is replaced. `progress` is called now and then with the amount done and the total.
        """

    def scrub_note(self, token: str) -> Sequence[Statement]:
        """Statements for a commit that erases: a note to `scrub`, in case this process dies before it does."""
        return ()

    def scrub(self, texts: Sequence[bytes] = (), token: str = "") -> str:
        """Remove erased data from the files. Returns what could not be done, and what to do.

        `token` is that of `scrub_note`. Scrubs that other processes left behind are done too. A server removes deleted
        rows with its own VACUUM.
        """
        return "the server frees removed rows at its next automatic VACUUM"

    def finish_scrub(self) -> None:
        """Do the scrubs that dead processes left behind, unless other processes prevent it."""
        self._check_open()

    def shrink(self, *, whole: bool = False) -> str:
        """Return free space to the file system if that is quick; with `whole`, even if writers wait for long.

        Returns why some space was not freed. A server does this by itself.
        """
        return ""

    def quiesce(self, seconds: float) -> AbstractContextManager[None]:
        """Hold no write lock meanwhile, so that the process can be stopped. A server ends stopped sessions itself."""
        return nullcontext()

    def adoption(self) -> Sequence[Statement]:
        """Statements for the commit that accepts the loss of entries."""
        return ()

    def losses(self) -> Sequence[LostEntries]:
        """Acknowledged entries that are missing, as far as the store can know. A server cannot."""
        return ()

    @abstractmethod
    def close(self) -> None:
        """Close the store. Idempotent."""

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed
        if self._forked:
            raise StoreForked

    def _check_usable(self) -> None:
        if self._closed or self._forked:
            self._check_open()
        if _deciding:
            check_not_deciding()
        if self.fenced is not None:
            raise StoreFenced(self.fenced.message, hint=self.fenced.hint)
        if self.rolled_back is not None:
            raise StoreRolledBack(self.rolled_back.message)

    def _abandon(self) -> None:
        """Called in a forked child: connections and locks belong to the parent."""
        self._forked = True


_OPEN: weakref.WeakSet[Store] = weakref.WeakSet()


def list_open_stores() -> list[Store]:
    """The open stores of this process."""
    return [store for store in list(_OPEN) if not store._closed]


def _after_fork_in_child() -> None:
    for store in list(_OPEN):
        if not store._closed:  # the descriptors of a closed store may be in use elsewhere by now
            store._abandon()
    _OPEN.clear()
    _deciding.intersection_update((get_ident(),))  # a new thread may get the number of one that is gone


call_after_fork(_after_fork_in_child)


async def wait_shielded(future: asyncio.Future[T], on_cancel: Callable[[], object] = lambda: None) -> T:
    """Wait for a commit even if the caller is cancelled; raise CancelledError afterwards."""
    import asyncio

    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        raise cancelled
    return future.result()


def read_through(store: Store, script: Script[T]) -> T:
    """Run a script that only reads, outside any transaction."""
    try:
        asked = next(script)
        while True:
            asked = script.send([store.read(query.name, query.args) for query in asked])
    except StopIteration as done:
        result: T = done.value
        return result
