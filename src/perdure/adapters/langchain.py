"""LangChain: conversations that are threads of Perdure, a key-value store, and a cache of model answers.

    from perdure.adapters.langchain import PerdureChatHistory

    chain = RunnableWithMessageHistory(model, lambda session_id: PerdureChatHistory("agent.db", session_id))

Needs `pip install perdure[langgraph]`. See docs/guides/langchain.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.adapters.call_policy import digest_of
from perdure.adapters.open_engine import AgentOrStore, EngineHolder
from perdure.adapters.saved_session import SavedSession, SessionState
from perdure.api.sync.state import AgentState
from perdure.errors import ExtraMissing
from perdure.kernel.protocol import drive_sync

try:
    from langchain_core.caches import BaseCache
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatGeneration, Generation
    from langchain_core.stores import BaseStore
except ModuleNotFoundError as missing:
    raise ExtraMissing(
        "perdure.adapters.langchain needs langchain-core", hint='pip install "perdure[langgraph]"'
    ) from missing

__all__ = ["PerdureCache", "PerdureChatHistory", "PerdureKeyValueStore"]

_FRAMEWORK = "langchain"


class PerdureChatHistory(BaseChatMessageHistory):
    """The messages of a session. Any process continues it, and `agent.threads` lists, searches and deletes it."""

    def __init__(self, store: AgentOrStore, session_id: str, *, agent: str = _FRAMEWORK) -> None:
        self._home = EngineHolder(store, agent)
        self._saved = SavedSession(self._home.engine, session_id, _FRAMEWORK)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # a writable attribute there
        """The messages, oldest first."""
        return list(drive_sync(self._home.engine.store, self._saved.load()).items)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages durably, all or none."""
        if messages:
            drive_sync(self._home.engine.store, self._saved.append(messages))

    def clear(self) -> None:
        """Remove all messages. `agent.threads.delete(session_id)` also deletes the earlier states."""
        drive_sync(self._home.engine.store, self._saved.change(lambda state: SessionState([], state.about)))


class PerdureKeyValueStore(BaseStore[str, Any]):
    """Values by key, in a namespace of `agent.state`: `CacheBackedEmbeddings` and others take it.

    Values are bytes, or anything else that Perdure stores.
    """

    def __init__(self, store: AgentOrStore = None, *, namespace: str = "langchain", agent: str = _FRAMEWORK) -> None:
        self._home = EngineHolder(store, agent)
        self._state, self._namespace = AgentState(self._home.engine), namespace

    def mget(self, keys: Sequence[str]) -> list[Any]:
        """Return the value of each key, or None."""
        return [self._state.get(self._namespace, key) for key in keys]

    def mset(self, key_value_pairs: Sequence[tuple[str, Any]]) -> None:
        """Set values durably, all or none."""
        with self._state.transaction() as change:
            for key, value in key_value_pairs:
                change.set(self._namespace, key, value)

    def mdelete(self, keys: Sequence[str]) -> None:
        """Delete keys, all or none."""
        with self._state.transaction() as change:
            for key in keys:
                change.delete(self._namespace, key)

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """Yield the keys that start with a prefix, sorted."""
        for key, _ in self._state.items(self._namespace):
            if key.startswith(prefix or ""):
                yield key


class PerdureCache(BaseCache):
    """Answers of models by their prompt, for all runs: `set_llm_cache(PerdureCache("agent.db"))`.

    It returns an old answer whenever the same is asked again. To pay for each call of a run once and to ask anew in
    the next run, use `DurableTools`.
    """

    def __init__(self, store: AgentOrStore = None, *, agent: str = _FRAMEWORK) -> None:
        self._home = EngineHolder(store, agent)
        self._state = AgentState(self._home.engine)

    def lookup(self, prompt: str, llm_string: str) -> Sequence[Generation] | None:
        """Return the answers to a prompt, or None."""
        found = self._state.get("langchain-cache", digest_of((prompt, llm_string)))
        return None if found is None else [_load(one) for one in found]

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Store the answers to a prompt durably."""
        self._state.set("langchain-cache", digest_of((prompt, llm_string)), [_dump(one) for one in return_val])

    def clear(self, **kwargs: Any) -> None:
        """Forget all answers."""
        with self._state.transaction() as change:
            for key, _ in self._state.items("langchain-cache"):
                change.delete("langchain-cache", key)


def _dump(generation: Generation) -> dict[str, Any]:
    message = generation.message if isinstance(generation, ChatGeneration) else None
    return {"text": generation.text, "message": message, "info": generation.generation_info}


def _load(stored: dict[str, Any]) -> Generation:
    if stored["message"] is not None:
        return ChatGeneration(message=stored["message"], generation_info=stored["info"])
    return Generation(text=stored["text"], generation_info=stored["info"])
