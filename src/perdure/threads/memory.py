"""What a process remembers of threads, so that the next checkpoint stores and encodes only what is new.

All of it may be forgotten at any time. It is relied on only while nothing of a thread has been dropped, which is a
condition of every commit: as long as that holds, the entry that refers to what is remembered is there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from ..limits import THREAD_BYTES_REMEMBERED_MAX, THREAD_SECONDS_REMEMBERED, THREADS_REMEMBERED_MAX
from ..trees import TREE, Memo

if TYPE_CHECKING:
    from ..engine import Engine


class Life(msgspec.Struct, frozen=True):
    """How often something of a thread was dropped, and the newest id that went with all of it."""

    number: int = 0
    floor: str = ""


class Kept(msgspec.Struct, frozen=True):
    """A channel as it was put."""

    version: Any
    packed: bytes
    form: str
    known: set[bytes]
    """Objects that it refers to, or one before it that was put in the same life: they are in the store."""
    memo: Memo
    new: frozenset[bytes] = frozenset()
    """Those that are there when it has been put, too."""


class Remembered(msgspec.Struct, frozen=True):
    """The last checkpoint of a namespace of a thread that this process has put."""

    id: str = ""
    life: int = 0
    channels: dict[str, Kept] = {}

    @property
    def size(self) -> int:
        return sum(kept.memo.size for kept in self.channels.values())


_NOTHING = Remembered()


class Memory:
    """Of one agent. Whoever comes first is forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lives: OrderedDict[str, Life] = OrderedDict()
        self._last: OrderedDict[tuple[str, str], Remembered] = OrderedDict()
        self._bytes = 0
        self._contents: OrderedDict[bytes, tuple[Memo, int]] = OrderedDict()
        """Of trees, by what stands for them, and when they were put or read."""
        self._held = 0

    def life(self, thread: str) -> Life:
        """As this process knows it; most threads are in their first."""
        return self._lives.get(thread, Life())

    def look(self, engine: Engine, thread: str) -> Life:
        """As the store knows it."""
        rows = engine.store.read("thread_life", (engine.stream, thread))
        life = Life(*rows[0]) if rows else Life()
        with self._lock:
            self._lives[thread] = life
            while len(self._lives) > 16 * THREADS_REMEMBERED_MAX:
                self._lives.popitem(last=False)
        return life

    def last(self, thread: str, ns: str, life: int) -> Remembered:
        """What was put last, if it can be relied on."""
        found = self._last.get((thread, ns), _NOTHING)
        return found if found.life == life else _NOTHING

    def content(self, packed: bytes, now: int) -> bytes | None:
        """The bytes of a tree, if it was put or read a short time ago: what is damaged since must not stay hidden."""
        found = self._contents.get(packed)
        if found is None or now - found[1] > THREAD_SECONDS_REMEMBERED * 1000:
            return None
        memo, at = found
        data = memo.data
        if data is not memo.parts[0]:
            # In one piece from now on: who reads it again does not put a megabyte together each time.
            self.hold(Memo((data,), packed, len(data)), at)
        return data

    def hold(self, memo: Memo, now: int, instead: bytes = b"") -> None:
        """Keep the bytes of a tree, perhaps in place of another one."""
        with self._lock:
            for old in (memo.packed, instead):
                if old in self._contents:
                    self._held -= self._contents.pop(old)[0].size
            self._contents[memo.packed] = memo, now
            self._held += memo.size
            while self._held > THREAD_BYTES_REMEMBERED_MAX and len(self._contents) > 1:
                self._held -= self._contents.popitem(last=False)[1][0].size

    def remember(self, thread: str, ns: str, put: Remembered, now: int) -> None:
        """This was put last."""
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
