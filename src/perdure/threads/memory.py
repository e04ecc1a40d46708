"""What a process remembers of threads, so that the next checkpoint stores and encodes only what is new.

All of it may be forgotten at any time. It is relied on only while nothing of a thread has been dropped, which is a
condition of every commit: as long as that holds, the entry that refers to what is remembered is there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from ..limits import THREAD_BYTES_REMEMBERED_MAX, THREADS_REMEMBERED_MAX
from ..trees import Memo

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
    ids: frozenset[bytes]
    memo: Memo | None


class Remembered(msgspec.Struct, frozen=True):
    """The last checkpoint of a namespace of a thread that this process has put."""

    id: str = ""
    life: int = 0
    channels: dict[str, Kept] = {}

    @property
    def size(self) -> int:
        return sum(len(kept.memo.data) for kept in self.channels.values() if kept.memo is not None)


_NOTHING = Remembered()


class Memory:
    """Of one agent. Whoever comes first is forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lives: OrderedDict[str, Life] = OrderedDict()
        self._last: OrderedDict[tuple[str, str], Remembered] = OrderedDict()
        self._bytes = 0

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

    def remember(self, thread: str, ns: str, put: Remembered) -> None:
        """This was put last."""
        with self._lock:
            self._bytes += put.size - self._last.pop((thread, ns), _NOTHING).size
            self._last[thread, ns] = put
            while len(self._last) > 1 and (
                len(self._last) > THREADS_REMEMBERED_MAX or self._bytes > THREAD_BYTES_REMEMBERED_MAX
            ):
                self._bytes -= self._last.popitem(last=False)[1].size
