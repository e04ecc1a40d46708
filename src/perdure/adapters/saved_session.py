"""The sessions of a framework as threads of Perdure: listed, read, copied, exported and deleted like all threads.

Every change is a checkpoint that shares what it has in common with the one before. The framework's name is the
namespace, so that each framework continues its own history of a conversation that several have had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from perdure.errors import ThreadConflict, ThreadDeleted
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, Read
from perdure.work.threads import read, retention, write
from perdure.work.threads.cache import cache_of

MESSAGES = "messages"
"""The channel with the items of a session."""


class SessionState(msgspec.Struct, frozen=True):
    """A session as it was read or written last."""

    items: list[Any] = []
    about: dict[str, Any] = {}
    """What the adapter keeps beside the items."""
    checkpoint: str = ""


SessionChange: TypeAlias = Callable[[SessionState], SessionState | None]
"""Returns the next state, or None to leave the session as it is. It may be called again after a conflict."""


class SavedSession:
    """One session of a framework. `begin` returns the items of a session that this framework has not saved yet."""

    def __init__(
        self,
        engine: Engine,
        thread: str,
        framework: str,
        ns: str | None = None,
        *,
        begin: Callable[[], list[Any]] = list,
    ) -> None:
        self.engine, self.thread, self._begin = engine, thread, begin
        self._framework, self._ns = framework, framework if ns is None else ns
        self._last: SessionState | None = None

    def load(self) -> Protocol[SessionState]:
        """Return the newest state."""
        self._last = yield Read(self.read)
        return self._last

    def read(self) -> SessionState:
        """Return the newest state, blocking."""
        found = read.find_newest(self.engine, self.thread, self._ns)
        if found is None:
            return SessionState(self._begin())
        values = read.values_of(self.engine, found.put)
        about = read.unpack_value(self.engine, found.put.heading, found.put.form)
        return SessionState(list(values.get(MESSAGES, ())), about, found.put.id)

    def change(self, make: SessionChange) -> Protocol[SessionState]:
        """Write what `make` returns for the newest state, durably."""
        state = self._last or (yield from self.load())
        while True:
            wanted = make(state)
            if wanted is None:
                # Nothing was written, so nothing has proven that this state is the newest.
                fresh = yield from self.load()
                if fresh.checkpoint == state.checkpoint:
                    return fresh
                state = fresh
                continue
            name = _next_id(state.checkpoint, self.engine.store.clock.wall_ms())
            try:
                yield from write.put_checkpoint(self.engine, self._checkpoint(name, state.checkpoint, wanted))
            except (ThreadConflict, ThreadDeleted):
                state = yield from self.load()
                continue
            self._last = SessionState(wanted.items, wanted.about, name)
            return self._last

    def _checkpoint(self, name: str, parent: str, wanted: SessionState) -> write.NewThreadCheckpoint:
        return write.NewThreadCheckpoint(
            self.thread,
            self._ns,
            name,
            parent,
            wanted.about,
            {"source": self._framework, "step": len(wanted.items)},
            {MESSAGES: wanted.items},
            {MESSAGES: name},
            on_head=True,
            framework=self._framework,
        )

    def append(self, items: Sequence[Any]) -> Protocol[SessionState]:
        """Add items."""
        return self.change(lambda state: SessionState([*state.items, *items], state.about))

    def delete(self) -> Protocol[int]:
        """Delete the thread with the calls of its turns, and what other frameworks have stored under its name."""
        self._last = None
        return (yield from retention.delete(self.engine, self.thread))

    @property
    def life(self) -> int:
        """How often something of the thread was deleted: its runs begin anew then."""
        return cache_of(self.engine).read_life(self.engine, self.thread).number if self.engine.is_known() else 0


def _next_id(before: str, now_ms: int) -> str:
    """Return an id that sorts after the one before, and after those of earlier times."""
    last = int(before.partition("-")[0], 16) if before else 0
    return f"{max(now_ms, last + 1):012x}-session"
