"""The suites that frameworks publish for stores, and the stores of frameworks that publish none."""

from __future__ import annotations

import itertools
import random
import re
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from a2a.auth.user import User
    from a2a.server.context import ServerCallContext
    from a2a.types.a2a_pb2 import ListTasksRequest, Message, Task
    from agents.memory import Session
    from anthropic.lib.tools import ToolError
    from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
    from claude_agent_sdk import tool as claude_tool
    from claude_agent_sdk.testing import run_session_store_conformance
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.genai import types
    from pydantic_ai.workspaces import WorkspaceRef
    from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
    from pydantic_ai_harness.memory._store import MemoryConflictError, MemoryOperation
    from pydantic_ai_harness.step_persistence._types import ContinuableSnapshot, RunRecord, StepEvent, ToolEffectRecord
    from strands.types.exceptions import SessionException
    from strands.types.session import SessionAgent, SessionMessage

    from perdure.adapters.a2a import PerdureTaskStore
    from perdure.adapters.adk import PerdureArtifactService, PerdureMemoryService, PerdureSessionService
    from perdure.adapters.claude import AsyncMemoryTool, MemoryTool, PerdureSessionStore, durable
    from perdure.adapters.openai_agents import PerdureSession
    from perdure.adapters.pydantic_ai import PerdureMemoryStore, PerdureStepStore, PerdureWorkspace
    from perdure.adapters.strands import PerdureSessionManager

from perdure import Agent, Done
from perdure.errors import ForeignThread, StoreClosed


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# -- Claude -----------------------------------------------------------------------------------------------------------


async def test_claude_sessions_pass_the_official_suite(tmp_path: Path) -> None:
    number = itertools.count()
    await run_session_store_conformance(lambda: PerdureSessionStore(tmp_path / f"{next(number)}.db"))


async def test_a_repeated_tool_call_of_a_claude_turn_gets_the_first_result(tmp_path: Path) -> None:
    """A killed turn is asked again by the CLI: until the model has given its answer, equal calls are the same call."""
    done: list[int] = []

    @claude_tool("pay", "Pay", {"amount": int})
    async def pay(arguments: Any) -> Any:
        done.append(arguments["amount"])
        return {"content": [{"type": "text", "text": f"paid {len(done)}"}]}

    answer = {"type": "assistant", "uuid": "u1", "message": {"stop_reason": "end_turn"}}
    for expected, ends in ((1, False), (1, True), (2, True)):
        store = PerdureSessionStore(tmp_path / "shop.db")
        result = await durable(pay, session=store).handler({"amount": 10})
        assert result["content"][0]["text"] == f"paid {expected}" and len(done) == expected
        if ends:
            await store.append({"project_key": "p", "session_id": "s"}, [{**answer, "uuid": f"u{expected}"}])
        store.session().calls.leave()


def test_the_memory_tool_answers_as_that_of_anthropic(tmp_path: Path) -> None:
    theirs, ours = BetaLocalFilesystemMemoryTool(str(tmp_path)), MemoryTool(tmp_path / "memory.db")
    for command in memory_commands(random.Random(4), 150):
        assert call(ours, command) == call(theirs, command), command


def memory_commands(chosen: random.Random, count: int) -> list[dict[str, Any]]:
    """Commands of all kinds on files that exist or not. Folders are made first: refused commands make none here."""
    files = [f"/memories/{name}" for name in ("a.txt", "b.txt", "d/c.txt", "d/e/f.txt", ".hidden")]
    texts = ["hello\nworld\nhello", "x", "", "one\ntwo\nthree\nfour\nfive\nsix\n", "a" * 1500]
    made: list[dict[str, Any]] = [
        {"command": "create", "path": f"/memories/{folder}/.keep", "file_text": ""} for folder in ("d/e", "d")
    ]
    for _ in range(count):
        path = chosen.choice([*files, *files, "/memories", "/memories/d", "/etc/x", "/memories/../x"])
        shape: dict[str, Any] = chosen.choice(
            [
                {"command": "view", "path": path},
                {"command": "view", "path": path, "view_range": [chosen.randint(0, 3), chosen.choice([-1, 2])]},
                {"command": "create", "path": path, "file_text": chosen.choice(texts)},
                {"command": "str_replace", "path": path, "old_str": chosen.choice(["hello", "x"]), "new_str": "Q"},
                {"command": "insert", "path": path, "insert_line": chosen.randint(-1, 4), "insert_text": "new\n"},
                {"command": "delete", "path": chosen.choice(files)},
                {"command": "rename", "old_path": chosen.choice(files), "new_path": chosen.choice(files)},
            ]
        )
        made.append(shape)
    return made


FOLDER_SIZE = re.compile(r"(?m)^[0-9.]+[BKMG](\t/memories(?:/.*/|/d|/d/e)?)$")
"""The size of a folder, which depends on the file system."""


def call(tool: Any, command: dict[str, Any]) -> str:
    try:
        return FOLDER_SIZE.sub(r"\1", str(tool.call(command)))
    except ToolError as error:
        return f"refused: {error}"


async def test_both_memory_tools_share_their_files(tmp_path: Path) -> None:
    MemoryTool(tmp_path / "memory.db").call({"command": "create", "path": "/memories/a", "file_text": "hi"})
    seen = await AsyncMemoryTool(tmp_path / "memory.db").call({"command": "view", "path": "/memories/a"})
    assert str(seen).endswith("1\thi")


# -- Pydantic AI ------------------------------------------------------------------------------------------------------


class TestWorkspace(WorkspaceBackendSuite):
    """The official suite. It skips 18 rules: it needs commands for them, also to make links, FIFOs and permissions."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> PerdureWorkspace:  # type: ignore[override]
        return PerdureWorkspace(tmp_path / "files.db")

    @pytest.fixture
    def fresh_backend(self, tmp_path: Path) -> Callable[[], PerdureWorkspace]:  # type: ignore[override]
        return lambda: PerdureWorkspace(tmp_path / "files.db")

    @pytest.fixture
    def attach_backend(self, tmp_path: Path) -> Callable[[WorkspaceRef], PerdureWorkspace]:  # type: ignore[override]
        return lambda ref: PerdureWorkspace(tmp_path / "files.db", ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[PerdureWorkspace], Awaitable[None]]:  # type: ignore[override]
        return lambda backend: backend.destroy()

    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        return False


async def test_memory_files_are_compared_before_they_are_set(tmp_path: Path) -> None:
    store = PerdureMemoryStore(tmp_path / "memory.db")
    first = await store.write("notes/a", "one", expected_version=None, operation=MemoryOperation("op1", "f"))
    again = await store.write("notes/a", "one", expected_version=None, operation=MemoryOperation("op1", "f"))
    assert again.replayed and again.version == first.version
    with pytest.raises(MemoryConflictError):
        await store.write("notes/a", "two", expected_version="other")
    await store.write("notes/a", "two words", expected_version=first.version)
    found = await store.read("notes/a", max_chars=3)
    assert found is not None and (found.content, found.truncated) == ("two", True)
    hits = await store.search("notes/", "words", limit=5, max_files=9, max_chars=99, max_file_chars=99)
    assert [hit.path for hit in hits.matches] == ["notes/a"] == await store.list_paths("notes/", limit=9)


async def test_snapshots_of_steps_are_threads(tmp_path: Path) -> None:
    store = PerdureStepStore(tmp_path / "steps.db")
    await store.register_run(RunRecord(run_id="r1", conversation_id="c"))
    for _ in range(2):
        await store.append_event(StepEvent(run_id="r1", kind="run_started", step_index=0, idempotency_key="k"))
    await store.save_snapshot(ContinuableSnapshot(run_id="r1", step_index=1, messages=[]))
    await store.save_snapshot(ContinuableSnapshot(run_id="r1", step_index=2, messages=[], state="interrupted"))
    await store.record_tool_effect(ToolEffectRecord(tool_call_id="t", tool_name="pay", run_id="r1", status="started"))
    assert [run.run_id for run in await store.list_runs(conversation_id="c")] == ["r1"]
    assert len(await store.list_events(run_id="r1")) == 1
    complete, newest = [
        await store.latest_snapshot(run_id="r1", include_interrupted=interrupted) for interrupted in (False, True)
    ]
    assert complete is not None and newest is not None and (complete.step_index, newest.step_index) == (1, 2)
    assert len(await store.list_unresolved_tool_effects(run_id="r1")) == 1
    with Agent("pydantic-ai", store=tmp_path / "steps.db") as agent:
        assert [thread.framework for thread in agent.threads.list()] == ["pydantic-ai"]


# -- OpenAI Agents ----------------------------------------------------------------------------------------------------


async def test_a_session_of_openai_agents_keeps_the_order_of_its_items(tmp_path: Path) -> None:
    session = PerdureSession(tmp_path / "chat.db", "user-1")
    assert isinstance(session, Session)
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "x"},
    ]
    await session.add_items(said[:2])
    await session.add_items(said[2:])
    assert await session.get_items() == said and await session.get_items(limit=1) == said[2:]
    assert await session.pop_item() == said[2]
    await session.add_items(said[2:])  # the same words after an answer are a new turn
    other = PerdureSession(tmp_path / "chat.db", "user-1")
    assert await other.get_items() == said
    await other.clear_session()
    assert await session.get_items() == [] and await session.pop_item() is None
    with (
        Agent("openai-agents", store=tmp_path / "chat.db") as agent,
        pytest.raises(ForeignThread, match="openai-agents"),
    ):
        agent.thread("user-1").turn("go on").__enter__()


async def test_a_closed_session_refuses_everything_and_close_can_be_awaited(tmp_path: Path) -> None:
    """As the bundled sessions do: their `close` is a coroutine in some, a function in others."""
    with Agent("openai-agents", store=tmp_path / "chat.db") as agent:
        for owner in (agent, tmp_path / "chat.db"):
            session = PerdureSession(owner, "user-1", {"limit": 1})
            assert session.session_settings.limit == 1
            await session.add_items([{"role": "user", "content": "hi"}])
            session.close()
            await session.close()
            for call in (session.get_items, session.pop_item, session.clear_session, partial(session.add_items, [])):
                with pytest.raises(StoreClosed):
                    await call()


# -- Strands ----------------------------------------------------------------------------------------------------------


def test_strands_hears_of_what_does_not_exist(tmp_path: Path) -> None:
    sessions = PerdureSessionManager(tmp_path / "chat.db", "s1").session_repository
    agent = SessionAgent(agent_id="a", state={}, conversation_manager_state={})
    message = SessionMessage.from_message({"role": "user", "content": [{"text": "hi"}]}, 0)
    for change in (
        lambda: sessions.update_agent("s1", agent),
        lambda: sessions.update_message("s1", "a", message),
        lambda: sessions.delete_session("s2"),
    ):
        with pytest.raises(SessionException, match="does not exist"):
            change()
    sessions.create_agent("s1", agent)
    sessions.create_message("s1", "a", message)
    sessions.update_message("s1", "a", message)
    sessions.delete_session("s1")
    assert sessions.read_session("s1") is None and sessions.read_agent("s1", "a") is None


# -- Google ADK -------------------------------------------------------------------------------------------------------

PLACE: Any = {"app_name": "shop", "user_id": "ann", "session_id": "s1"}


async def test_adk_sessions_share_the_state_of_app_and_user(tmp_path: Path) -> None:
    service = PerdureSessionService(tmp_path / "adk.db")
    session = await service.create_session(**PLACE, state={"app:a": 1, "user:u": 2, "own": 3, "temp:t": 4})
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**PLACE)
    words = types.Content(role="user", parts=[types.Part(text="I like window seats")])
    actions = EventActions(state_delta={"own": 5, "user:u": 6, "temp:t": 7})
    await service.append_event(session, Event(author="user", content=words, actions=actions))
    again = PerdureSessionService(tmp_path / "adk.db")
    found = await again.get_session(**PLACE)
    assert found is not None and found.state == {"app:a": 1, "user:u": 6, "own": 5}
    assert len(found.events) == 1
    other = await again.create_session(app_name="shop", user_id="ann", session_id="s2")
    assert other.state == {"app:a": 1, "user:u": 6} and await again.get_user_state(app_name="shop", user_id="ann") == {
        "u": 6
    }
    assert [one.id for one in (await again.list_sessions(app_name="shop")).sessions] == ["s1", "s2"]
    memory = PerdureMemoryService(tmp_path / "adk.db")
    for _ in range(2):
        await memory.add_session_to_memory(found)
    heard = await memory.search_memory(app_name="shop", user_id="ann", query="window seats")
    assert len(heard.memories) == 1
    await again.delete_session(**PLACE)
    assert await again.get_session(**PLACE) is None


async def test_adk_artifacts_have_versions(tmp_path: Path) -> None:
    service = PerdureArtifactService(uri=f"perdure://{tmp_path}/adk.db")
    for data in (b"one", b"two"):
        await service.save_artifact(
            **PLACE, filename="a.bin", artifact=types.Part.from_bytes(data=data, mime_type="x/y")
        )
    await service.save_artifact(**PLACE, filename="user:b", artifact=types.Part(text="mine"))
    assert await service.list_versions(**PLACE, filename="a.bin") == [0, 1]
    for version, data in ((None, b"two"), (0, b"one")):
        part = await service.load_artifact(**PLACE, filename="a.bin", version=version)
        assert part is not None and part.inline_data is not None and part.inline_data.data == data
    assert await service.list_artifact_keys(**PLACE) == ["a.bin", "user:b"]
    await service.delete_artifact(**PLACE, filename="a.bin")
    assert await service.list_artifact_keys(**PLACE) == ["user:b"]


# -- A2A --------------------------------------------------------------------------------------------------------------


class Person(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


async def test_a2a_tasks_belong_to_their_owner(tmp_path: Path) -> None:
    ann, bob = (ServerCallContext(user=Person(name)) for name in ("ann", "bob"))
    store = PerdureTaskStore(tmp_path / "tasks.db")
    task = Task(id="t1", context_id="c1", history=[Message(message_id="m1")])
    await store.save(task, ann)
    task.history.append(Message(message_id="m2"))
    await store.save(task, ann)
    again = PerdureTaskStore(tmp_path / "tasks.db")
    assert await again.get("t1", ann) == task and await again.get("t1", bob) is None
    assert [one.id for one in (await again.list(ListTasksRequest(context_id="c1"), ann)).tasks] == ["t1"]
    assert not (await again.list(ListTasksRequest(), bob)).tasks
    await again.delete("t1", ann)
    assert await again.get("t1", ann) is None


def test_a_check_may_answer_with_a_plain_value() -> None:
    from perdure.adapters.claude.tools import _to_content

    assert _to_content(Done("x").result) == {"content": [{"type": "text", "text": "x"}]}
