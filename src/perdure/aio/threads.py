"""The public face of `agent.threads`. Only arguments and documentation: `perdure.threads` decides."""

from __future__ import annotations

import builtins
from typing import Any

from ..checkpoints import read_keep
from ..durations import Duration
from ..threads import keeping, listing, retaining
from ..threads.listing import PointInfo, ThreadInfo
from ..threads.retaining import ThreadRetention
from ..trees import Change
from .face import AsyncFace


class AsyncThreads(AsyncFace):
    """`agent.threads`: conversations that a framework has saved with this agent, readable without the framework.

    >>> for thread in await agent.threads.list():
    ...     print(thread.id, thread.checkpoints, thread.at)
    >>> await agent.threads.state("trip-42")
    {'messages': [...]}
    """

    async def list(self) -> builtins.list[ThreadInfo]:
        """All threads, by their ids. No state is read."""
        return await self._read(lambda: listing.listed(self._engine))

    async def state(self, thread: str, at: str | None = None, *, ns: str = "") -> dict[str, Any]:
        """The values of a thread: where it is, or at the checkpoint of that id.

        An object of a class that nobody has registered here comes as a dict, with its name under `class`.
        """
        return await self._read(lambda: listing.state(self._engine, thread, at, ns))

    async def history(
        self, thread: str, *, ns: str | None = None, limit: int | None = None
    ) -> builtins.list[PointInfo]:
        """The checkpoints of a thread, newest first, without their states; of one namespace, or of all."""
        return await self._read(lambda: listing.history(self._engine, thread, ns, limit))

    async def diff(self, thread: str, a: str, b: str | None = None, *, ns: str = "") -> builtins.list[Change]:
        """What changed from checkpoint `a` to `b`, or to where the thread is, path by path.

        >>> for change in await agent.threads.diff("trip-42", first, second):
        ...     print(change)
        """
        return await self._read(lambda: listing.diff(self._engine, thread, a, b, ns))

    async def delete(self, thread: str) -> int:
        """Drop a thread; returns how many checkpoints it had. What comes late for it does not bring it back."""
        return await self._do(keeping.delete(self._engine, thread))

    async def copy(self, source: str, target: str) -> int:
        """Put all of one thread into another; returns how many checkpoints. They share every value."""
        return await self._do(keeping.copy(self._engine, source, target))

    async def prune(self, thread: str, *, keep_last: int | None = None, keep_for: Duration | None = None) -> int:
        """Drop older checkpoints of a thread; returns how many went. The newest of each namespace stays.

        >>> await agent.threads.prune("trip-42", keep_last=10, keep_for="30d")
        """
        return await self._do(keeping.prune(self._engine, thread, read_keep(keep_last, keep_for)))

    async def retain(
        self,
        pattern: str = "*",
        *,
        keep_last: int | None = None,
        keep_for: Duration | None = None,
        idle_for: Duration | None = None,
    ) -> None:
        """Say for all threads whose id fits a pattern what `gc` keeps of them; without a rule everything stays again.

        `keep_last` checkpoints of each namespace, and those younger than `keep_for`; a thread to which nothing was put
        for `idle_for` goes whole. The rule of an id itself goes before, and of several patterns the longest.

        >>> await agent.threads.retain(keep_last=20, idle_for="90d")
        """
        await self._do(retaining.retain(self._engine, pattern, keep_last, keep_for, idle_for))

    async def retention(self) -> builtins.list[ThreadRetention]:
        """The rules, by pattern."""
        return await self._read(lambda: retaining.retention(self._engine))
