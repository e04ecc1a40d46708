"""The public API of `agent.checkpoint`: arguments and documentation. The logic is in `perdure.data.checkpoints`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.api.aio.base import AsyncFacade
from perdure.data import checkpoints
from perdure.data.checkpoints import (
    AutosavePace,
    CheckpointInfo,
    CheckpointRef,
    CheckpointRequest,
    CheckpointRetention,
    check_new_name,
)
from perdure.errors import WrongType
from perdure.journal.trees import Change
from perdure.kernel.awaitables import require_plain
from perdure.run.wait import NO_DEFAULT
from perdure.values.durations import Duration

R = TypeVar("R")


class AsyncCheckpoints(AsyncFacade):
    """`agent.checkpoint`: named snapshots of a whole value. A new version stores only what has changed.

    >>> await agent.checkpoint.create("analysis-30pct", {"progress": 0.3, "next_action": "read page 31"})
    >>> (await agent.checkpoint.restore("analysis-30pct")).next_action
    'read page 31'
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers refuse this by themselves

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            raise WrongType(
                "agent.checkpoint is not a function",
                hint="agent.checkpoint.create(name, data), or in a run: run.checkpoint(name, data)",
            )

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
        """Save a value under a name and return its version: 1, then 2, and so on. Older versions stay.

        The whole value is compared, so an in-place change is never missed. Inside a step, an effect or an item the
        checkpoint lands with it, and the call returns 0. `keep_last` and `keep_for` set the retention rule of this
        name, as `retain` does.
        """
        wanted = CheckpointRequest.read(name, data, labels, meta, keep_last, keep_for)
        return await self._do(checkpoints.create(self._engine, wanted))

    async def retain(self, name: str, *, keep_last: int | None = None, keep_for: Duration | None = None) -> None:
        """Set how many versions of a name are kept, or for how long. Without either limit, all versions are kept.

        >>> await agent.checkpoint.retain("crawl-*", keep_last=10, keep_for="30d")

        `name` may be a pattern. `keep_last` applies whenever a checkpoint is created, `keep_for` when `gc` runs. The
        newest version of a name and all versions with a label always stay.
        """
        keep = checkpoints.parse_retention(keep_last, keep_for)
        await self._do(checkpoints.retain(self._engine, name, keep))

    async def retention(self) -> builtins.list[CheckpointRetention]:
        """Return the rules that `retain` has set."""
        return await self._read(lambda: checkpoints.retention(self._engine))

    async def restore(self, name: CheckpointRef, version: int | None = None, *, default: Any = NO_DEFAULT) -> Any:
        """Return a copy of the saved value: the newest version of the name, unless `version` is given.

        >>> work = await agent.checkpoint.restore("crawl", default={"page": 0})

        The keys of a dict are available as attributes too. Without `default`, raises `CheckpointNotFound`, which lists
        the existing names.
        """
        return await self._read(lambda: checkpoints.restore(self._engine, name, version, default))

    async def list(self, label: str | None = None) -> builtins.list[CheckpointInfo]:
        """Return all checkpoints of this agent, oldest first, or only those with a label."""
        return await self._read(lambda: checkpoints.list_checkpoints(self._engine, label))

    async def diff(self, a: CheckpointRef, b: CheckpointRef) -> builtins.list[Change]:
        """Return the changes from `a` to `b`, path by path. Each is a name, or (name, version).

        >>> for change in await agent.checkpoint.diff(("draft", 1), ("draft", 2)):
        ...     print(change)
        """
        return await self._read(lambda: checkpoints.diff(self._engine, a, b))

    async def delete(self, name: str, version: int | None = None) -> int:
        """Delete one version, or all versions of a name. Returns how many were deleted."""
        return await self._do(checkpoints.delete(self._engine, name, version))


class AsyncAutosave:
    """Saves a checkpoint periodically, returned by `agent.autosave`: call `tick` in your loop."""

    def __init__(
        self,
        checkpoint: AsyncCheckpoints,
        state: Callable[[], Any],
        pace: AutosavePace,
        name: str,
        *,
        keep_last: int | None = None,
        keep_for: Duration | None = None,
    ) -> None:
        if not callable(state):
            raise WrongType(
                f"autosave needs a function that returns the state: autosave(lambda: state), not {state!r:.100}"
            )
        self._checkpoint = checkpoint
        self._state = state
        self._pace = pace
        self._name = check_new_name(name)
        self._keep_last = keep_last
        self._keep_for = keep_for

    async def tick(self) -> bool:
        """Count one unit of work, after which the state is consistent. Saves if due; returns whether it did."""
        if not self._pace.count_tick():
            return False
        await self.save()
        return True

    async def save(self) -> int:
        """Save now and return the version."""
        state = require_plain(self._state(), self._state)
        version = await self._checkpoint.create(self._name, state, keep_last=self._keep_last, keep_for=self._keep_for)
        self._pace.begin()
        return version

    async def __aenter__(self) -> AsyncAutosave:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the state may be half changed, so the last saved version stays the one to resume from.
        if error is None and self._pace.has_ticks:
            await self.save()
