"""A cache of threads in this process, so that the next checkpoint encodes and stores only what is new.

It may be dropped at any time. Every commit checks that nothing of the thread was dropped since, so cached references
always point to existing entries.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.journal.trees import TREE, TreeMemo
from perdure.values.limits import THREAD_BYTES_REMEMBERED_MAX, THREAD_SECONDS_REMEMBERED, THREADS_REMEMBERED_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class ThreadLife(msgspec.Struct, frozen=True):
    """How often something of a thread was dropped, and the highest id that a full deletion covered."""

    number: int = 0
    floor: str = ""


class StoredChannel(msgspec.Struct, frozen=True):
    """A channel as it was stored."""

    version: Any
    packed: bytes
    form: str
    known: set[bytes]
    """Objects known to be in the store: referenced by this value or an earlier one of the same life."""
    memo: TreeMemo
    new: frozenset[bytes] = frozenset()
    """Objects that are in the store once this value is committed."""


class LastCheckpoint(msgspec.Struct, frozen=True):
    """The last checkpoint of a namespace that this process has stored."""

    id: str = ""
    life: int = 0
    channels: dict[str, StoredChannel] = {}

    @property
    def size(self) -> int:
        return sum(kept.memo.size for kept in self.channels.values())


_NOTHING = LastCheckpoint()


class ThreadCache:
    """The cache of one agent. Evicts the oldest entries first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lives: OrderedDict[str, ThreadLife] = OrderedDict()
        self._last: OrderedDict[tuple[str, str], LastCheckpoint] = OrderedDict()
        self._bytes = 0
        self._contents: OrderedDict[bytes, tuple[TreeMemo, int]] = OrderedDict()
        """Contents of trees by their reference, with the time they were stored or read."""
        self._held = 0

    def life(self, thread: str) -> ThreadLife:
        """Return the life of a thread as cached. Most threads are in their first life."""
        return self._lives.get(thread, ThreadLife())

    def read_life(self, engine: Engine, thread: str) -> ThreadLife:
        """Return the life of a thread as stored, and cache it."""
        rows = engine.store.read("thread_generation", (engine.stream, thread))
        life = ThreadLife(*rows[0]) if rows else ThreadLife()
        with self._lock:
            self._lives[thread] = life
            while len(self._lives) > 16 * THREADS_REMEMBERED_MAX:
                self._lives.popitem(last=False)
        return life

    def find_last(self, thread: str, ns: str, life: int) -> LastCheckpoint:
        """Return the checkpoint stored last, if it is from the same life."""
        found = self._last.get((thread, ns), _NOTHING)
        return found if found.life == life else _NOTHING

    def content(self, packed: bytes, now: int) -> bytes | None:
        """Return the bytes of a tree that was stored or read recently.

        Older ones are read again, so damage is noticed.
        """
        found = self._contents.get(packed)
        if found is None or now - found[1] > THREAD_SECONDS_REMEMBERED * 1000:
            return None
        memo, at = found
        data = memo.data
        if data is not memo.parts[0]:
            # Join the parts once, so that repeated reads do not concatenate a megabyte each time.
            self.hold(TreeMemo((data,), packed, len(data)), at)
        return data

    def hold(self, memo: TreeMemo, now: int, instead: bytes = b"") -> None:
        """Cache the bytes of a tree, perhaps replacing another one."""
        with self._lock:
            for old in (memo.packed, instead):
                if old in self._contents:
                    self._held -= self._contents.pop(old)[0].size
            self._contents[memo.packed] = memo, now
            self._held += memo.size
            while self._held > THREAD_BYTES_REMEMBERED_MAX and len(self._contents) > 1:
                self._held -= self._contents.popitem(last=False)[1][0].size

    def remember(self, thread: str, ns: str, put: LastCheckpoint, now: int) -> None:
        """Record the last stored checkpoint of a namespace."""
        before = self._last.get((thread, ns), _NOTHING).channels
        for name, kept in put.channels.items():
            kept.known.update(kept.new)
            if kept.packed[:1] == TREE:
                self.hold(kept.memo, now, before[name].packed if name in before else b"")
        with self._lock:
            self._bytes += put.size - self._last.pop((thread, ns), _NOTHING).size
            self._last[thread, ns] = put
            while len(self._last) > 1 and (
                len(self._last) > THREADS_REMEMBERED_MAX or self._bytes > THREAD_BYTES_REMEMBERED_MAX
            ):
                self._bytes -= self._last.popitem(last=False)[1].size


def cache_of(engine: Engine) -> ThreadCache:
    """Return the cache of an agent's threads, which lasts until the agent closes its store."""
    return engine.session.get(ThreadCache)
