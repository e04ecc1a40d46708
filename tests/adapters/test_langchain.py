"""LangChain's history, store and cache in Perdure, and the official suites of the store and the cache."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation

from perdure import Agent
from perdure.adapters.conversations import read_conversation
from perdure.adapters.langchain import PerdureCache, PerdureChatHistory, PerdureKeyValueStore
from tests.adapters.test_environments import ROOT, make_environment

OFFICIAL = """
import pytest
from langchain_tests.integration_tests import base_store, cache
from perdure.adapters.langchain import PerdureCache, PerdureKeyValueStore

class Values:
    @pytest.fixture
    def three_values(self):
        return b"foo", b"bar", b"buzz"

    @pytest.fixture
    def kv_store(self, tmp_path):
        return PerdureKeyValueStore(tmp_path / "store.db")

    @pytest.fixture
    def cache(self, tmp_path):
        return PerdureCache(tmp_path / "cache.db")

class TestStore(Values, base_store.BaseStoreSyncTests): ...
class TestAsyncStore(Values, base_store.BaseStoreAsyncTests): ...
class TestCache(Values, cache.SyncCacheTestSuite): ...
class TestAsyncCache(Values, cache.AsyncCacheTestSuite): ...
"""


def test_a_history_is_a_thread_that_another_process_continues(tmp_path: Path) -> None:
    call = {"name": "search", "args": {"to": "NYC"}, "id": "call-1", "type": "tool_call"}
    said = [HumanMessage("Book a flight"), AIMessage("", tool_calls=[call])]
    PerdureChatHistory(tmp_path / "chat.db", "user-1").add_messages(said)
    again = PerdureChatHistory(tmp_path / "chat.db", "user-1")
    again.add_ai_message("Done.")
    assert again.messages == [*said, AIMessage("Done.")]
    with Agent("langchain", store=tmp_path / "chat.db") as agent:
        assert [(thread.id, thread.framework) for thread in agent.threads.list()] == [("user-1", "langchain")]
        assert read_conversation(agent, "user-1", "openai")[1]["tool_calls"][0]["function"]["name"] == "search"
    again.clear()
    assert again.messages == PerdureChatHistory(tmp_path / "chat.db", "user-1").messages == []


def test_a_cache_and_a_store_survive_their_process(tmp_path: Path) -> None:
    answers = [ChatGeneration(message=AIMessage("four")), Generation(text="vier", generation_info={"n": 1})]
    PerdureCache(tmp_path / "cache.db").update("2+2", "model", answers)
    cache = PerdureCache(tmp_path / "cache.db")
    assert cache.lookup("2+2", "model") == answers and cache.lookup("2+2", "other") is None
    cache.clear()
    assert cache.lookup("2+2", "model") is None
    PerdureKeyValueStore(tmp_path / "cache.db").mset([("a/1", b"one"), ("a/2", b"two"), ("b", [1.5])])
    store = PerdureKeyValueStore(tmp_path / "cache.db")
    store.mdelete(["a/2", "missing"])
    assert store.mget(["a/1", "a/2", "b"]) == [b"one", None, [1.5]] and list(store.yield_keys(prefix="a/")) == ["a/1"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_official_suites_of_langchain_pass(tmp_path: Path) -> None:
    programs = make_environment(tmp_path, "langchain-tests", "langgraph")
    (tmp_path / "test_official.py").write_text(OFFICIAL)
    command = [programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, "test_official.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-4000:]
