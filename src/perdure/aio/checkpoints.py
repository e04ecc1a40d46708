"""The public face of `agent.checkpoint`. Only arguments and documentation: `perdure.checkpoints` decides."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from .. import checkpoints
from ..checkpoints import CheckpointInfo, Pace, Which
from ..engine import Engine
from ..run.requests import drive_async, reading
from ..trees import Change

R = TypeVar("R")


class AsyncCheckpoints:
    """`agent.checkpoint`: named snapshots of a whole value, of which each new one stores only what has changed.

    >>> await agent.checkpoint.create("analysis-30pct", {"progress": 0.3, "next_action": "read page 31"})
    >>> (await agent.checkpoint.restore("analysis-30pct")).next_action
    'read page 31'
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self, name: str, data: Any, *, labels: Iterable[str] = (), meta: Any = None) -> int:
        """Keep a value under a name, and return its version: 1, then 2, and so on. Older ones are not touched.

        The whole value is looked at, so that no change is missed. Inside a step, an effect or an item the checkpoint
        lands with it, and 0 is returned.
        """
        return await drive_async(self._engine.store, checkpoints.create(self._engine, name, data, labels, meta))

    async def restore(self, name: Which, version: int | None = None) -> Any:
        """The value again, as a copy; the newest of that name unless a version is given.

        The keys of a dict are attributes too. `CheckpointNotFound` says which names there are.
        """
        return await self._read(lambda: checkpoints.restore(self._engine, name, version))

    async def list(self, label: str | None = None) -> builtins.list[CheckpointInfo]:
        """All checkpoints of this agent, oldest first; those with a label."""
        return await self._read(lambda: checkpoints.listed(self._engine, label))

    async def diff(self, a: Which, b: Which) -> builtins.list[Change]:
        """What changed from `a` to `b`, path by path; each a name, or (name, version).

        >>> for change in await agent.checkpoint.diff(("draft", 1), ("draft", 2)):
        ...     print(change)
        """
        return await self._read(lambda: checkpoints.diff(self._engine, a, b))

    async def delete(self, name: str, version: int | None = None) -> int:
        """Delete one version, or all of a name; returns how many."""
        return await drive_async(self._engine.store, checkpoints.delete(self._engine, name, version))

    async def _read(self, call: Callable[[], R]) -> R:
        return await drive_async(self._engine.store, reading(call))


class AsyncAutosave:
    """What `agent.autosave` returns: call `tick` in your loop, and it saves when it is time."""

    def __init__(self, checkpoint: AsyncCheckpoints, state: Callable[[], Any], pace: Pace, name: str) -> None:
        self._checkpoint = checkpoint
        self._state = state
        self._pace = pace
        self._name = name

    async def tick(self) -> bool:
        """A piece of work is done, and the state is whole; whether it was saved."""
        if not self._pace.due():
            return False
        await self.save()
        return True

    async def save(self) -> int:
        """Save now; returns the version."""
        version = await self._checkpoint.create(self._name, self._state())
        self._pace.begin()
        return version

    async def __aenter__(self) -> AsyncAutosave:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the state may be half changed: what was saved last is the better place to go on from.
        if error is None and self._pace.anything:
            await self.save()
