"""`PerdureStore`: LangGraph's long-term memory, kept in `agent.state`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from langgraph.store.base import NOT_PROVIDED, BaseStore, NotProvided, Op, PutOp, Result, TTLConfig

from perdure.adapters.langgraph import known_types
from perdure.adapters.langgraph.store_index import StoreIndex
from perdure.adapters.langgraph.store_ops import OperationBatch, locate_item
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.data import state
from perdure.data.state import StateVersion
from perdure.errors import WrongType, WrongValue
from perdure.kernel.protocol import drive_async, drive_sync, read_protocol
from perdure.maintenance import retention
from perdure.values.hints import name_hint

if TYPE_CHECKING:
    from perdure.data.search.key_ranking import SearchQuery

StoreNamespace = tuple[str, ...]
IndexedFields = Literal[False] | list[str] | None
TtlMinutes = float | None | NotProvided
_TTL_KEYS = ("refresh_on_read", "omit_expired", "default_ttl", "sweep_interval_minutes")


class PerdureStore(BaseStore):
    """A durable LangGraph store with versions, history and search; sync and async.

    >>> store = PerdureStore("sqlite:///agent.db", index={"words": True})
    >>> graph = builder.compile(store=store)
    >>> store.put(("users", "ann"), "diet", {"text": "eats no fish"})
    >>> store.search(("users",), query="fish?")[0].value["text"]
    'eats no fish'

    Pass an agent, or the URL of a store. The items are the agent's state: plain Python reads the same value with
    `agent.state.get("users.ann", "diet")`, and values set there are found here. A put inside a step, an effect or an
    item lands with it.

    `index` is LangGraph's: `embed`, `dims` and `fields`. A query then matches by meaning and by words, unless `"words":
    False`; `{"words": True}` alone needs no model. `ttl` is LangGraph's too, and needs no sweeper.
    """

    supports_ttl = True

    def __init__(
        self,
        store_or_agent: AgentOrStore = None,
        *,
        agent: str = "langgraph",
        index: Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        known_types.learn()
        self._home = EngineHolder(store_or_agent, agent)
        self._engine = self._home.engine
        self._index = None if index is None else StoreIndex(index)
        self.ttl_config = None if ttl is None else _check_ttl(ttl)
        self._warned = False

    def __repr__(self) -> str:
        return f"PerdureStore({self._engine.shown_url!r}, agent={self._engine.name!r})"

    # -- LangGraph's interface ----------------------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute several operations: reads see the state before the batch, and all puts are one commit."""
        batch = self._check_batch(OperationBatch(ops, self._index))
        vectors, questions = self._embed_batch(batch)
        return drive_sync(self._engine.store, batch.perform(self._engine, vectors, questions))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute several operations under asyncio. See `batch`."""
        batch = self._check_batch(OperationBatch(ops, self._index))
        vectors, questions = await self._embed_batch_async(batch)
        return await drive_async(self._engine.store, batch.perform(self._engine, vectors, questions))

    def put(
        self,
        namespace: StoreNamespace,
        key: str,
        value: Mapping[str, Any],
        index: IndexedFields = None,
        *,
        ttl: TtlMinutes = NOT_PROVIDED,
        if_version: int | None = None,
    ) -> None:
        """Store an item. With `if_version`, raises `VersionConflict` unless it has that version (0 means no item).

        `ttl` is in minutes since the last read or write.
        """
        if if_version is None:
            super().put(namespace, key, value, index, ttl=ttl)
        else:
            self.put_if(namespace, key, value, if_version, index, ttl=ttl)

    async def aput(
        self,
        namespace: StoreNamespace,
        key: str,
        value: Mapping[str, Any],
        index: IndexedFields = None,
        *,
        ttl: TtlMinutes = NOT_PROVIDED,
        if_version: int | None = None,
    ) -> None:
        """Store an item under asyncio. See `put`."""
        if if_version is None:
            await super().aput(namespace, key, value, index, ttl=ttl)
        else:
            await self.aput_if(namespace, key, value, if_version, index, ttl=ttl)

    # -- extensions ---------------------------------------------------------------------------------------------------

    def put_if(
        self,
        namespace: StoreNamespace,
        key: str,
        value: Mapping[str, Any] | None,
        version: int,
        index: IndexedFields = None,
        *,
        ttl: TtlMinutes = NOT_PROVIDED,
    ) -> int:
        """Store an item if it still has a version, and return the new version. Raises `VersionConflict` otherwise.

        >>> seen = store.version(("users", "ann"), "diet")
        >>> store.put_if(("users", "ann"), "diet", {"text": "eats fish again"}, seen)
        """
        batch = OperationBatch([self._put(namespace, key, value, index, ttl)], self._index, version)
        vectors, _ = self._embed_batch(batch)
        return drive_sync(self._engine.store, batch.put_one(self._engine, vectors))

    async def aput_if(
        self,
        namespace: StoreNamespace,
        key: str,
        value: Mapping[str, Any] | None,
        version: int,
        index: IndexedFields = None,
        *,
        ttl: TtlMinutes = NOT_PROVIDED,
    ) -> int:
        """Store an item conditionally under asyncio. See `put_if`."""
        batch = OperationBatch([self._put(namespace, key, value, index, ttl)], self._index, version)
        vectors, _ = await self._embed_batch_async(batch)
        return await drive_async(self._engine.store, batch.put_one(self._engine, vectors))

    def version(self, namespace: StoreNamespace, key: str) -> int:
        """Return the version of an item, for `put_if`: 1, then 2, and so on; 0 if it does not exist."""
        return drive_sync(self._engine.store, state.version(self._engine, *locate_item(namespace, key)))

    async def aversion(self, namespace: StoreNamespace, key: str) -> int:
        """Return the version of an item under asyncio. See `version`."""
        return await drive_async(self._engine.store, state.version(self._engine, *locate_item(namespace, key)))

    def history(self, namespace: StoreNamespace, key: str) -> list[StateVersion]:
        """Return every version that an item has had, oldest first: `version`, `value`, `at` and `deleted`."""
        return drive_sync(self._engine.store, read_protocol(state.history, self._engine, *locate_item(namespace, key)))

    async def ahistory(self, namespace: StoreNamespace, key: str) -> list[StateVersion]:
        """Return every version of an item under asyncio. See `history`."""
        return await drive_async(
            self._engine.store, read_protocol(state.history, self._engine, *locate_item(namespace, key))
        )

    # -- compatibility with other stores ------------------------------------------------------------------------------

    def setup(self) -> None:
        """Do nothing: this store needs no setup. It exists for compatibility."""

    def sweep_ttl(self) -> int:
        """Remove expired items now and return how many. Otherwise later puts remove them."""
        return retention.sweep([self._engine], lambda *_: None).count

    async def asweep_ttl(self) -> int:
        """Remove expired items under asyncio. See `sweep_ttl`."""
        return await drive_async(self._engine.store, read_protocol(self.sweep_ttl))

    def start_ttl_sweeper(self, sweep_interval_minutes: int | None = None) -> Future[None]:
        """Do nothing: expired items are never returned, and later puts remove them. It exists for compatibility."""
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Do nothing. It exists for compatibility."""
        return True

    def close(self) -> None:
        """Close the store if it was opened by URL. An agent is closed by its owner."""
        self._home.close()

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> PerdureStore:
        """Return a store for a path or URL, as the stores of LangGraph do. Use it with `with` or `async with`."""
        return cls(conn_string, **options)

    def __enter__(self) -> PerdureStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> PerdureStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- internals ----------------------------------------------------------------------------------------------------

    def _put(
        self, labels: StoreNamespace, key: str, value: Mapping[str, Any] | None, index: IndexedFields, ttl: TtlMinutes
    ) -> PutOp:
        default = None if self.ttl_config is None else self.ttl_config.get("default_ttl")
        return PutOp(labels, str(key), value, index, default if isinstance(ttl, NotProvided) else ttl)

    def _check_batch(self, batch: OperationBatch) -> OperationBatch:
        if self._index is None and batch.queries and not self._warned:
            self._warned = True
            hint = "create the store with index={'words': True}, or LangGraph's index= with an embed function"
            warnings.warn(f"this store has no index, so a query finds nothing: {hint}", UserWarning, stacklevel=4)
        return batch

    def _embed_batch(self, batch: OperationBatch) -> tuple[dict[str, bytes], dict[str, SearchQuery]]:
        if self._index is None:
            return {}, {}
        return self._index.vectors(batch.texts), self._index.questions(batch.queries)

    async def _embed_batch_async(self, batch: OperationBatch) -> tuple[dict[str, bytes], dict[str, SearchQuery]]:
        if self._index is None:
            return {}, {}
        return await self._index.vectors_async(batch.texts), await self._index.questions_async(batch.queries)


def _check_ttl(ttl: Any) -> TTLConfig:
    if not isinstance(ttl, Mapping):
        raise WrongType(f"ttl must be LangGraph's TTLConfig, such as {{'default_ttl': 60}} (minutes), not {ttl!r}")
    for key in ttl:
        if key not in _TTL_KEYS:
            raise WrongValue(f"ttl has no {key!r}; {name_hint(key, _TTL_KEYS)}")
    return cast(TTLConfig, dict(ttl))
