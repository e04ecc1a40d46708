"""The public face of `agent.checkpoint`. Only arguments and documentation: `perdure.checkpoints` decides."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from .. import checkpoints
from ..checkpoints import CheckpointInfo, Pace, Retention, Wanted, Which, new_name
from ..durations import Duration
from ..run.awaitables import plain
from ..trees import Change
from .face import AsyncFace

R = TypeVar("R")


class AsyncCheckpoints(AsyncFace):
    """`agent.checkpoint`: named snapshots of a whole value, of which each new one stores only what has changed.

    >>> await agent.checkpoint.create("analysis-30pct", {"progress": 0.3, "next_action": "read page 31"})
    >>> (await agent.checkpoint.restore("analysis-30pct")).next_action
    'read page 31'
    """

    async def create(
        self,
        name: str,
        data: Any,
        *,
        labels: Iterable[str] = (),
        meta: Any = None,
        keep_last: int | None = None,
        keep_for: Duration | None = None,
    ) -> int:
        """Keep a value under a name, and return its version: 1, then 2, and so on. Older ones are not touched.

        The whole value is looked at, so that no change is missed. Inside a step, an effect or an item the checkpoint
        lands with it, and 0 is returned. `keep_last` and `keep_for` are remembered for this name, as with `retain`.
        """
        wanted = Wanted.read(name, data, labels, meta, keep_last, keep_for)
        return await self._do(checkpoints.create(self._engine, wanted))

    async def retain(self, name: str, *, keep_last: int | None = None, keep_for: Duration | None = None) -> None:
        """Say how many versions of a name are kept, or for how long; without either, all of them again.

        >>> await agent.checkpoint.retain("crawl-*", keep_last=10, keep_for="30d")

        `name` may be a pattern. `keep_last` is applied whenever one is made, `keep_for` by `gc`. The newest version of
        a name, and every version with a label, stays whatever the rule.
        """
        keep = checkpoints.read_keep(keep_last, keep_for)
        await self._do(checkpoints.retain(self._engine, name, keep))

    async def retention(self) -> builtins.list[Retention]:
        """The rules that `retain` has set."""
        return await self._read(lambda: checkpoints.retention(self._engine))

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
        return await self._do(checkpoints.delete(self._engine, name, version))


class AsyncAutosave:
    """What `agent.autosave` returns: call `tick` in your loop, and it saves when it is time."""

    def __init__(
        self,
        checkpoint: AsyncCheckpoints,
        state: Callable[[], Any],
        pace: Pace,
        name: str,
        *,
        keep_last: int | None = None,
        keep_for: Duration | None = None,
    ) -> None:
        if not callable(state):
            raise TypeError(f"a function is needed that returns the state: autosave(lambda: state), not {state!r:.100}")
        self._checkpoint = checkpoint
        self._state = state
        self._pace = pace
        self._name = new_name(name)
        self._keep_last = keep_last
        self._keep_for = keep_for

    async def tick(self) -> bool:
        """A piece of work is done, and the state is whole; whether it was saved."""
        if not self._pace.due():
            return False
        await self.save()
        return True

    async def save(self) -> int:
        """Save now; returns the version."""
        state = plain(self._state(), self._state)
        version = await self._checkpoint.create(self._name, state, keep_last=self._keep_last, keep_for=self._keep_for)
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
