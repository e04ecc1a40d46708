"""The public API of `agent.threads`: arguments and documentation. The logic is in `perdure.work.threads`."""

from __future__ import annotations

import builtins
from typing import Any

from perdure.api.aio.base import AsyncFacade
from perdure.data.checkpoints import parse_retention
from perdure.journal.trees import Change
from perdure.values.durations import Duration
from perdure.work.threads import listing
from perdure.work.threads import prune as pruning
from perdure.work.threads import retention as retaining
from perdure.work.threads.conversations import check_thread
from perdure.work.threads.listing import PointInfo, ThreadInfo
from perdure.work.threads.retention import ThreadRetention


class AsyncThreads(AsyncFacade):
    """`agent.threads`: all conversations of this agent, those of `agent.thread` and those that a framework has saved.

    >>> for thread in await agent.threads.list():
    ...     print(thread.id, thread.checkpoints, thread.at)
    >>> await agent.threads.state("trip-42")
    {'messages': [...]}
    """

    __slots__ = ()

    async def list(self) -> builtins.list[ThreadInfo]:
        """Return all threads, sorted by id, without reading their state."""
        return await self._read(lambda: listing.list_threads(self._engine))

    async def state(self, thread: str, at: str | None = None, *, ns: str = "") -> dict[str, Any]:
        """Return the channel values of a thread: the newest, or those of the checkpoint `at`.

        An object of an unregistered class is returned as a dict, with its class name under `class`. Raises
        `ThreadNotFound`.
        """
        return await self._read(lambda: listing.state(self._engine, thread, at, ns))

    async def history(
        self, thread: str, *, ns: str | None = None, limit: int | None = None
    ) -> builtins.list[PointInfo]:
        """Return the checkpoints of a thread, newest first, without their states, of one or all namespaces."""
        return await self._read(lambda: listing.history(self._engine, thread, ns, limit))

    async def diff(self, thread: str, a: str, b: str | None = None, *, ns: str = "") -> builtins.list[Change]:
        """Return the changes from checkpoint `a` to `b`, or to the newest, path by path.

        >>> for change in await agent.threads.diff("trip-42", first, second):
        ...     print(change)
        """
        return await self._read(lambda: listing.diff(self._engine, thread, a, b, ns))

    async def delete(self, thread: str) -> int:
        """Delete a thread and return how many checkpoints or turns it had. Late writes do not revive it.

        The turns of `agent.thread` are erased, as by `agent.thread(id).delete()`.
        """
        return await self._do(retaining.delete(self._engine, check_thread(thread)))

    async def copy(self, source: str, target: str) -> int:
        """Copy a thread to another one and return how many checkpoints were copied. They share every value."""
        return await self._do(pruning.copy(self._engine, source, target))

    async def prune(self, thread: str, *, keep_last: int | None = None, keep_for: Duration | None = None) -> int:
        """Drop older checkpoints or turns of a thread and return how many. The newest of each namespace stays.

        >>> await agent.threads.prune("trip-42", keep_last=10, keep_for="30d")
        """
        return await self._do(
            retaining.shorten(self._engine, check_thread(thread), parse_retention(keep_last, keep_for))
        )

    async def retain(
        self,
        pattern: str = "*",
        *,
        keep_last: int | None = None,
        keep_for: Duration | None = None,
        idle_for: Duration | None = None,
    ) -> None:
        """Set what `gc` keeps of threads whose id matches a pattern. Without any limit, everything is kept.

        `gc` keeps the last `keep_last` checkpoints of each namespace and those younger than `keep_for`; of
        `agent.thread`, turns. A thread without writes for `idle_for` is deleted. A rule for an exact id wins over
        patterns, and a longer pattern over a shorter one.

        >>> await agent.threads.retain(keep_last=20, idle_for="90d")
        """
        await self._do(retaining.retain(self._engine, pattern, keep_last, keep_for, idle_for))

    async def retention(self) -> builtins.list[ThreadRetention]:
        """Return the rules, sorted by pattern."""
        return await self._read(lambda: retaining.retention(self._engine))
