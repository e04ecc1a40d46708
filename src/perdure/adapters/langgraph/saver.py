"""`PerdureSaver`: a LangGraph checkpointer over a Perdure store."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ...journal.keeping import Keep
from ...run.requests import Protocol, drive_async, drive_sync, reading
from ...threads import keeping
from . import known
from .forms import OwnForm, OwnSerializer, SerdeForm
from .opening import Given, Home
from .points import Points

T = TypeVar("T")

_STRATEGIES = ("keep_latest", "delete")


class PerdureSaver(BaseCheckpointSaver[Any]):
    """Keeps the threads of LangGraph graphs in a Perdure store: a SQLite file or PostgreSQL.

        saver = PerdureSaver("agent.db")                      # or "postgresql://...", or an Agent
        graph = builder.compile(checkpointer=saver)
        graph.invoke(inputs, {"configurable": {"thread_id": "1"}})

    What two checkpoints have in common is stored once, so that a conversation takes the space of its messages. Every
    method exists sync and async, and may be called from any thread and any event loop. What has returned is on disk.

    Values are written by Perdure's own codec: exact, readable without LangGraph, and without names of code. Messages
    and the types of LangGraph are known; classes of yours are listed in `allow`, or registered with `perdure.stored`.
    A `serde` is used instead for every value and the metadata, if you give one.

    `on_conflict="refuse"` raises `ThreadConflict` when another writer has gone on with a thread meanwhile; time travel
    goes on working. With "fork", as LangGraph has it, both go on and the newest is where the thread is.
    """

    def __init__(
        self,
        store: Given = None,
        *,
        agent: str = "langgraph",
        serde: SerializerProtocol | None = None,
        allow: Iterable[type] = (),
        on_conflict: str = "fork",
    ) -> None:
        if on_conflict not in ("fork", "refuse"):
            raise ValueError(f'on_conflict={on_conflict!r}: give "fork" or "refuse"')
        super().__init__(serde=serde or OwnSerializer())
        known.learn()
        known.allow(allow)
        self._home = Home(store, agent)
        self._engine = self._home.engine
        form = OwnForm() if serde is None else SerdeForm(self.serde)
        self._points = Points(self._engine, form, self.get_next_version, refuses=on_conflict == "refuse")

    def __repr__(self) -> str:
        return f"PerdureSaver({self._engine.shown_url!r}, agent={self._engine.name!r})"

    # -- how protocols are driven -------------------------------------------------------------------------------------

    def _do(self, protocol: Protocol[T]) -> T:
        return drive_sync(self._engine.store, protocol)

    async def _ado(self, protocol: Protocol[T]) -> T:
        return await drive_async(self._engine.store, protocol)

    async def _read(self, call: Callable[..., T], *args: Any) -> T:
        return await drive_async(self._engine.store, reading(call, *args))

    # -- reading ------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint with the writes that go on from it: the one of `checkpoint_id`, or the newest."""
        return self._points.get(config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The same under asyncio."""
        return await self._read(self._points.get, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of a thread, or of all; with equal metadata; before one; so many at most."""
        return iter(self._points.listed(config, filter, before, limit))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The same under asyncio."""
        found = self._points.listed(config, filter, before, limit)
        while (one := await self._read(next, found, None)) is not None:
            yield one

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to channels up to a checkpoint, since the nearest one that has their value."""
        return self._points.deltas(config, channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The same under asyncio."""
        return await self._read(self._points.deltas, config, channels)

    # -- writing ------------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint that goes on from the one in `config`. When this returns, it is on disk."""
        return self._do(self._points.put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """The same under asyncio."""
        return await self._ado(self._points.put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task has written since the checkpoint in `config`, which may be put later."""
        self._do(self._points.put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """The same under asyncio."""
        await self._ado(self._points.put_writes(config, writes, task_id, task_path))

    # -- letting go ---------------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Drop a thread. What comes late for it does not bring it back; a new checkpoint begins it anew."""
        self._do(keeping.delete(self._engine, str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """The same under asyncio."""
        await self._ado(keeping.delete(self._engine, str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Drop what runs have put, but not what checkpoints of other runs need to know a channel's value."""
        self._do(keeping.delete_runs(self._engine, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """The same under asyncio."""
        await self._ado(keeping.delete_runs(self._engine, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Put all of one thread into another. They share every value."""
        self._do(keeping.copy(self._engine, str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The same under asyncio."""
        await self._ado(keeping.copy(self._engine, str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Drop all of threads but the newest checkpoint of each namespace, or everything ("delete").

        Checkpoints that the newest one needs stay too: with delta channels its values are made of what came before.
        """
        for thread in thread_ids:
            self._do(self._pruned(str(thread), strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """The same under asyncio."""
        for thread in thread_ids:
            await self._ado(self._pruned(str(thread), strategy))

    def _pruned(self, thread: str, strategy: str) -> Protocol[int]:
        if strategy not in _STRATEGIES:
            raise ValueError(f"strategy={strategy!r}: give one of {', '.join(_STRATEGIES)}")
        if strategy == "delete":
            return keeping.delete(self._engine, thread)
        return keeping.prune(self._engine, thread, Keep(last=1))

    # -- the rest -----------------------------------------------------------------------------------------------------

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The version after one: numbers; after the text of another saver, text of its kind."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"
        return 1 if current is None else current + 1

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> PerdureSaver:
        """A saver that also knows classes by module and name: LangGraph calls it with those of a graph's schema."""
        clone = copy.copy(self)
        if isinstance(self.serde, OwnSerializer):
            known.allow_named(extra_allowlist)
            return clone
        base = super().with_allowlist(extra_allowlist)
        clone.serde = base.serde
        clone._points = self._points.with_form(SerdeForm(clone.serde))
        return clone

    def close(self) -> None:
        """Give the store back, if this saver has opened it itself."""
        self._home.close()

    def __enter__(self) -> PerdureSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> PerdureSaver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
