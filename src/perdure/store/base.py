"""What a store is to the layers above: it commits units of work and answers named queries.

A unit of work is a script: a generator that yields lists of statements and gets their rows. It holds protocol,
never I/O, so SQLite, PostgreSQL and a simulator drive the same one.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from .. import interrupts
from ..clock import Clock
from ..errors import (
    PerdureError,
    StoreBusy,
    StoreClosed,
    StoreFenced,
    StoreForked,
    StoreRolledBack,
    StoreUnavailable,
    WriteInsideUpdate,
)
from ..failpoints import Moment, Site, reach

if TYPE_CHECKING:
    import asyncio

    from .sqlite_mark import LostEntries

T = TypeVar("T")
_UNKEPT = re.compile("[\0\ud800-\udfff]")
Row = tuple[Any, ...]
Rows = list[Row]


LOST = "lost "
"""How the keys of facts about the store begin that name a run which has lost entries; the rest is `agent/id`."""


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A named statement with its arguments. With `must`, not changing or answering one row raises that error."""

    name: str
    args: tuple[Any, ...] = ()
    must: type[PerdureError] | None = None


class Floats(bytes):
    """Numbers of four bytes each: a file keeps them as they are, a server as an array that it can reckon with."""

    __slots__ = ()

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers."""
        return struct.unpack(f"<{len(self) // 4}f", self)


def holds(text: str) -> bool:
    """Whether every store can keep a text in a column: PostgreSQL has no NUL, UTF-8 no half of a surrogate pair.

    It is asked of names; values are stored as bytes, and hold anything.
    """
    return _UNKEPT.search(text) is None


class _Deciding(threading.local):
    now = False


_DECIDING = _Deciding()


def decide(make: Callable[[Any], Any], value: Any) -> Any:
    """Call a function of the user inside a commit. It may read; a write would wait for this very commit, for ever."""
    _DECIDING.now = True
    try:
        return make(value)
    finally:
        _DECIDING.now = False


def must_not_decide() -> None:
    """Asked before a write, also before one that only joins the body around it."""
    if _DECIDING.now:
        raise WriteInsideUpdate


class Proof(msgspec.Struct, frozen=True, gc=False):
    """How to tell later whether a commit has landed: this query gives exactly these rows."""

    query: Statement
    rows: Rows


class Last(list[Statement]):
    """The last batch of a script, which does nothing but bookkeeping after it: the commit may travel with it.

    A commit whose answer was lost is submitted again. With a `proof` it is looked up before and after that, so
    that it lands once; without one, doing it twice must be the same as doing it once.
    """

    __slots__ = ("proof",)

    def __init__(self, statements: Iterable[Statement], proof: Proof | None = None) -> None:
        super().__init__(statements)
        self.proof = proof


class Overtaken(StoreBusy):
    """Somebody else was quicker; the script is run again, and sees what they did."""


class RowRefused(StoreUnavailable):
    """The database refused a row: it is there already, or it has a value that a column cannot hold."""


Script = Generator[Sequence[Statement], list[Rows], T]


class Unit(Generic[T]):
    """One commit: what it does inside the transaction, and what it learns afterwards."""

    site: Site
    lane: int = 0
    """Units of one lane are committed one after the other: a stream, whose entries build on each other."""
    snapshot: bool = False
    """Whether all of its queries must see the store as of one moment."""
    long: bool = False
    """Whether it may take longer than a transaction usually does."""

    erases: bool = False
    """Whether what it takes away must not be found in the file either."""

    seconds: float | None = None
    """After how long it gives up when the store is away, if that is sooner than usual."""

    def script(self) -> Script[T]:
        """Runs inside the transaction; raising undoes this unit and leaves its neighbours alone."""
        raise NotImplementedError

    def joined(self, others: Sequence[Unit[Any]]) -> Unit[list[Any]] | None:
        """One unit that does the work of this one and of others of its lane, in order, if that can be one commit."""
        return None

    def settle(self, committed: bool) -> None:
        """Called when a transaction with it has ended, before the caller goes on or it is tried again."""


class Store(ABC):
    """A place where everything lives. One per process and file or database."""

    url: str
    clock: Clock
    secret: bytes
    """Keys the ids of objects."""
    identity: str
    """Names the store in seals, so that a seal of one store proves nothing about another."""
    fenced: StoreFenced | None = None
    """Why this process may not write any more."""
    rolled_back: StoreRolledBack | None = None
    """What the store has lost of what was acknowledged: it can be read, and not written to."""
    doubts: Mapping[str, bytes] = MappingProxyType({})
    """Runs that have lost entries, by `agent/id`, with what is known of them: effects in these may have happened."""
    stale: bool = False
    """Whether the views have to be made anew: a migration has added one that old entries belong to."""
    guard: Callable[[], None] | None = None
    """Called before every commit, which it may refuse: for who only looks at what a program would do."""
    read_only: str = ""
    """Why nothing can be written, in words; empty where everything can."""
    one_host: bool = True
    """Whether all processes that use it are on one machine, so that another boot of it is a past one."""

    def __init__(self) -> None:
        self._closed = self._forked = False
        _OPEN.add(self)

    def submit(self, unit: Unit[T]) -> T:
        """Commit from a plain thread. When it returns, the unit is durable."""
        self._must_be_usable()
        if self.guard is not None:
            self.guard()
        reach(unit.site, Moment.BEFORE)
        held = interrupts.hold()
        try:
            result = self._submit(unit)
            reach(unit.site, Moment.AFTER)
        finally:
            if held:
                interrupts.let_go()
        return result

    async def submit_async(self, unit: Unit[T]) -> T:
        """Commit from an event loop, which goes on meanwhile. A cancelled caller still waits for the commit."""
        self._must_be_usable()
        if self.guard is not None:
            self.guard()
        reach(unit.site, Moment.BEFORE)
        result = await self._submit_async(unit)
        reach(unit.site, Moment.AFTER)
        return result

    @abstractmethod
    def _submit(self, unit: Unit[T]) -> T:
        """Commit in this thread."""

    @abstractmethod
    async def _submit_async(self, unit: Unit[T]) -> T:
        """Commit beside this event loop."""

    @abstractmethod
    def read(self, name: str, args: tuple[Any, ...] = ()) -> Rows:
        """Run a named query outside of any transaction of ours, seeing everything committed so far."""

    def read_all(self, queries: Sequence[Statement]) -> list[Rows]:
        """Several queries that do not need each other's answers: one message, where there is a way to go."""
        return [self.read(query.name, query.args) for query in queries]

    def scan(self, name: str, args: tuple[Any, ...], consume: Callable[[Iterable[Row]], T]) -> T:
        """The same for many rows, which pass one by one and are not kept."""
        return consume(self.read(name, args))

    def keep_warm(self) -> None:
        """From now on the same places are read again and again, all over the store: more of it may stay in memory."""
        self._must_be_open()

    def watch(self, stream: int) -> Callable[[], bool]:
        """Something to ask often: may a stream have got an answer since it was last asked? At first it may."""
        return lambda: True

    @abstractmethod
    def backup(self, path: str, progress: Callable[[int, int], None] | None = None) -> int:
        """Copy the store into a file, as of one moment and while it is in use; returns the bytes written.

        A file that is there is replaced.

        `progress` is told now and then how much is done, and of how much.
        """

    def owing(self, token: str) -> Sequence[Statement]:
        """What a commit that erases writes along: that somebody has to `scrub`, if who has made it does not live to."""
        return ()

    def scrub(self, texts: Sequence[bytes] = (), token: str = "") -> str:
        """See to it that what was erased is not left over in files. Returns what could not be done, and what to do.

        `token` is what the commit was `owing` by. What others have left behind is done along with it. A server keeps
        what was removed until it is vacuumed, which it does by itself.
        """
        return "the server keeps what was removed until its next VACUUM, which it does by itself"

    def make_good(self) -> None:
        """Do what somebody has left behind who had to `scrub`, unless others keep us from it."""
        self._must_be_open()

    def shrink(self, *, whole: bool = False) -> str:
        """Give empty space back to the file system, if that is quick; with `whole` also if others wait for long.

        Returns why some of it was not given back. A server sees to that by itself.
        """
        return ""

    def at_rest(self, seconds: float) -> AbstractContextManager[None]:
        """Meanwhile this process keeps nobody from writing: for who stops it. A server ends what has stopped."""
        return nullcontext()

    def adoption(self) -> Sequence[Statement]:
        """What a commit writes to go on without what was lost."""
        return ()

    def losses(self) -> Sequence[LostEntries]:
        """Entries that were acknowledged and are gone, as far as the store can know. A server cannot."""
        return ()

    @abstractmethod
    def close(self) -> None:
        """Give everything back. Calling it twice is fine."""

    def _must_be_open(self) -> None:
        if self._closed:
            raise StoreClosed
        if self._forked:
            raise StoreForked

    def _must_be_usable(self) -> None:
        if self._closed or self._forked:
            self._must_be_open()
        must_not_decide()
        if self.fenced is not None:
            raise StoreFenced(self.fenced.message, hint=self.fenced.hint)
        if self.rolled_back is not None:
            raise StoreRolledBack(self.rolled_back.message)

    def _abandon(self) -> None:
        """In a forked child: what is open is the parent's."""
        self._forked = True


_OPEN: weakref.WeakSet[Store] = weakref.WeakSet()


def open_stores() -> list[Store]:
    """Those of this process."""
    return [store for store in list(_OPEN) if not store._closed]


def _after_fork_in_child() -> None:
    for store in list(_OPEN):
        if not store._closed:  # nothing of a closed one is left, and its descriptors may be somebody else's by now
            store._abandon()
    _OPEN.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


async def to_its_end(future: asyncio.Future[T], on_cancel: Callable[[], object] = lambda: None) -> T:
    """Wait for a commit, whatever happens to the caller meanwhile; it hears that it was cancelled afterwards."""
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
    """Perform a script that only reads, outside of any transaction."""
    try:
        asked = next(script)
        while True:
            asked = script.send([store.read(query.name, query.args) for query in asked])
    except StopIteration as done:
        result: T = done.value
        return result
