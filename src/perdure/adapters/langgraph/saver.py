"""`PerdureSaver`: a LangGraph checkpointer over a Perdure store."""

from __future__ import annotations

import copy
import random
import warnings
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

from perdure.adapters.langgraph import known_types
from perdure.adapters.langgraph.checkpoints import SaverCheckpoints
from perdure.adapters.langgraph.serializers import CodecForm, CodecSerializer, SerdeForm
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.errors import NotDurableWarning, WrongValue
from perdure.journal.retention_rules import RetentionRule
from perdure.kernel.protocol import Protocol, drive_async, drive_sync, read_protocol
from perdure.work.threads import prune as pruning

T = TypeVar("T")

_RUNNING, _DURABILITY = "__pregel_runtime", "__pregel_durability"
"""Keys of the configuration in which LangGraph passes a running graph, and the durability if the caller chose one."""
_STRATEGIES = ("keep_latest", "delete")


class PerdureSaver(BaseCheckpointSaver[Any]):
    """Stores the threads of LangGraph graphs in a Perdure store: a SQLite file or PostgreSQL.

        saver = PerdureSaver("agent.db")                      # or "postgresql://...", or an Agent
        graph = builder.compile(checkpointer=saver)
        graph.invoke(inputs, {"configurable": {"thread_id": "1"}}, durability="sync")

    LangGraph's own default, `durability="async"`, starts a node while the checkpoint before it is still being saved: a
    kill there loses it. The saver warns once about a graph that leaves the choice to that default.

    Checkpoints share what they have in common, so a conversation takes the space of its messages. Every method exists
    in a sync and an async form, for any thread and event loop. When it returns, its data is on disk.

    Perdure's codec writes the values: exact and readable without LangGraph. Messages, LangGraph types and plain data
    classes (pydantic models, dataclasses, enums, ...) are stored as they are. List other classes in `allow`, or
    register them with `perdure.stored`. A `serde` replaces the codec for every value and the metadata.

    `on_conflict="refuse"` raises `ThreadConflict` if another writer has continued the thread in the meantime; time
    travel still works. With "fork", LangGraph's own behaviour, both continue and the newest checkpoint is the current
    one.
    """

    def __init__(
        self,
        store: AgentOrStore = None,
        *,
        agent: str = "langgraph",
        serde: SerializerProtocol | None = None,
        allow: Iterable[type] = (),
        on_conflict: str = "fork",
    ) -> None:
        if on_conflict not in ("fork", "refuse"):
            raise WrongValue(f'on_conflict={on_conflict!r}: use "fork" or "refuse"')
        super().__init__(serde=serde or CodecSerializer())
        known_types.learn()
        known_types.allow(allow)
        self._home = EngineHolder(store, agent)
        self._engine = self._home.engine
        self._advised: set[str] = set()
        """What was warned about; shared with clones, because LangGraph makes one for each graph."""
        form = CodecForm() if serde is None else SerdeForm(self.serde)
        self._points = SaverCheckpoints(self._engine, form, self.get_next_version, refuses=on_conflict == "refuse")

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> PerdureSaver:
        """Return a saver for a path or URL, as the savers of LangGraph do. Use it with `with` or `async with`.

        >>> with PerdureSaver.from_conn_string("agent.db") as saver:
        ...     graph = builder.compile(checkpointer=saver)
        """
        return cls(conn_string, **options)

    def __repr__(self) -> str:
        return f"PerdureSaver({self._engine.shown_url!r}, agent={self._engine.name!r})"

    # -- how protocols are driven -------------------------------------------------------------------------------------

    def _do(self, protocol: Protocol[T]) -> T:
        return drive_sync(self._engine.store, protocol)

    async def _ado(self, protocol: Protocol[T]) -> T:
        return await drive_async(self._engine.store, protocol)

    async def _read(self, call: Callable[..., T], *args: Any) -> T:
        return await drive_async(self._engine.store, read_protocol(call, *args))

    # -- reading ------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes: the one of `checkpoint_id`, or the newest."""
        return self._points.get(config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint under asyncio. See `get_tuple`."""
        return await self._read(self._points.get, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first.

        Filters: a thread, equal metadata, before another one, up to `limit`.
        """
        return iter(self._points.list_checkpoints(config, filter, before, limit))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Iterate over checkpoints under asyncio. See `list`."""
        found = self._points.list_checkpoints(config, filter, before, limit)
        while (one := await self._read(next, found, None)) is not None:
            yield one

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to channels up to a checkpoint, since the last checkpoint with their full value."""
        return self._points.deltas(config, channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to channels under asyncio. See `get_delta_channel_history`."""
        return await self._read(self._points.deltas, config, channels)

    # -- writing ------------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint whose parent is the one in `config`. It is on disk when the call returns."""
        self._advise(config)
        return self._do(self._points.put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint under asyncio. See `put`."""
        self._advise(config)
        return await self._ado(self._points.put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task since the checkpoint in `config`, which may be stored later."""
        self._do(self._points.put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task under asyncio. See `put_writes`."""
        await self._ado(self._points.put_writes(config, writes, task_id, task_path))

    # -- letting go ---------------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread. Late writes do not revive it; a new checkpoint starts it again."""
        self._do(pruning.delete(self._engine, str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread under asyncio. See `delete_thread`."""
        await self._ado(pruning.delete(self._engine, str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, except those that other runs need to compute a channel's value."""
        self._do(pruning.delete_runs(self._engine, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs under asyncio. See `delete_for_runs`."""
        await self._ado(pruning.delete_runs(self._engine, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread to another one. They share every value."""
        self._do(pruning.copy(self._engine, str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread under asyncio. See `copy_thread`."""
        await self._ado(pruning.copy(self._engine, str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the newest checkpoint of each namespace of some threads, or everything ("delete").

        Checkpoints that the newest one needs stay too: with delta channels, its values depend on earlier ones.
        """
        for thread in thread_ids:
            self._do(self._prune(str(thread), strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune threads under asyncio. See `prune`."""
        for thread in thread_ids:
            await self._ado(self._prune(str(thread), strategy))

    def _advise(self, config: RunnableConfig) -> None:
        """Warn once if a graph runs with LangGraph's default durability, which a saver cannot change."""
        given = config.get("configurable", {})
        if _RUNNING not in given or _DURABILITY in given or _DURABILITY in self._advised:
            return
        self._advised.add(_DURABILITY)
        warnings.warn(
            'LangGraph starts the next node before this checkpoint is on disk: pass durability="sync" to graph.invoke, '
            'ainvoke, stream or astream, so that a crash loses nothing; durability="async" accepts it silently',
            NotDurableWarning,
            stacklevel=2,
        )

    def _prune(self, thread: str, strategy: str) -> Protocol[int]:
        if strategy not in _STRATEGIES:
            raise WrongValue(f"strategy={strategy!r}: use one of {', '.join(_STRATEGIES)}")
        if strategy == "delete":
            return pruning.delete(self._engine, thread)
        return pruning.prune(self._engine, thread, RetentionRule(last=1))

    # -- the rest -----------------------------------------------------------------------------------------------------

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the next channel version: a number, or text after the text version of another saver."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"
        return 1 if current is None else current + 1

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> PerdureSaver:
        """Return a saver that also accepts classes by module and name. LangGraph passes those of a graph's schema."""
        clone = copy.copy(self)
        if isinstance(self.serde, CodecSerializer):
            known_types.allow_named(extra_allowlist)
            return clone
        base = super().with_allowlist(extra_allowlist)
        clone.serde = base.serde
        clone._points = self._points.with_form(SerdeForm(clone.serde))
        return clone

    def close(self) -> None:
        """Close the store if this saver opened it."""
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
