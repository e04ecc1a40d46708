"""The real `claude` and `codex`, connected by `perdure connect`. A model on loopback does what the prompts say."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent
from perdure.cli.main import main
from perdure.importers.items import ImportedConversation, ImportedItem, text_of
from perdure.importers.reader import ImportReader
from perdure.importers.sources import SOURCES
from tests.mcp.hook_client import PATIENCE_SECONDS, HookFolder
from tests.mcp.model_api import SAID, ModelApi
from tests.mcp.test_tools import TOOLS

_NODE = Path(__file__).parents[2] / "build" / "node" / "node_modules"
FACT = "The shop listens on port 7000"
LEARN = json.dumps({"text": FACT, "pinned": True})
WOKEN = "this is your durable memory"


def find_claude() -> str:
    """The program in the package claude-agent-sdk, or an installed one."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    places = spec.submodule_search_locations if spec is not None else None
    bundled = Path(next(iter(places)), "_bundled", "claude") if places else None
    return str(bundled) if bundled is not None and bundled.exists() else shutil.which("claude") or ""


def find_codex() -> str:
    """The program of the npm package that `make node-tools` installs, or an installed one."""
    found = next(iter(_NODE.glob("codex-linux-*/vendor/*/bin/codex")), None)
    return str(found) if found is not None else shutil.which("codex") or ""


class CodingAgent:
    """A coding agent with a home folder of its own."""

    def __init__(self, folder: HookFolder, model: ModelApi, command: list[str], **env: str) -> None:
        self.folder, self.model = folder, model
        self._command = command
        self._env = {"HOME": str(folder.home), "PATH": os.environ["PATH"], **env}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._command, *arguments],
            cwd=self.folder.project,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, given: str = "") -> str:
        """Run to the end, and return what the tool printed on both outputs."""
        process = self.start(*arguments)
        printed, errors = process.communicate(given, PATIENCE_SECONDS)
        assert process.returncode == 0, printed + errors
        return printed + errors

    def kill_while_it_works(self, prompt: str) -> None:
        """Start a session whose model stops answering, and kill it there."""
        process = self.start(prompt)
        assert process.stdin is not None
        process.stdin.close()
        try:
            assert self.model.hangs.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()

    @property
    def pinned(self) -> list[str]:
        with Agent("assistant", store=self.folder.store) as agent:
            return [memory.text for memory in agent.memory.list(tags="pinned")]


def said_by_user(session: ImportedItem) -> list[str]:
    assert isinstance(session, ImportedConversation)
    return [text_of(turn["content"]) for turn in session.messages if turn["role"] == "user"]


def problems_of(folder: HookFolder) -> list[str]:
    """What the hooks noted. A machine that is busy may make one too slow: that is noted too, and no mistake."""
    return [line for line in folder.log.splitlines() if "no answer to" not in line]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookFolder]:
    home = tempfile.mkdtemp(prefix="perdure-home-")
    monkeypatch.setenv("HOME", home)
    found = HookFolder(Path(home))
    yield found
    found.close()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def model() -> Iterator[ModelApi]:
    with ModelApi() as api:
        yield api


def connect_claude(folder: HookFolder, model: ModelApi) -> CodingAgent:
    assert main(["connect", "claude-code", "--yes"]) == 0
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "false"}
    command = [find_claude(), "--allowedTools", "mcp__perdure", "Write", "--print"]
    return CodingAgent(folder, model, command, ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="none", **quiet)


def connect_codex(folder: HookFolder, model: ModelApi) -> CodingAgent:
    assert main(["connect", "codex", "--yes"]) == 0
    config = folder.home / ".codex" / "config.toml"
    provider = f'[model_providers.fake]\nname = "fake"\nbase_url = "{model.url}/v1"\nenv_key = "FAKE_KEY"\n'
    config.write_text(f'model = "fake"\nmodel_provider = "fake"\n{provider}\n{config.read_text()}')
    trust = ["--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"]
    return CodingAgent(folder, model, [find_codex(), "exec", *trust], FAKE_KEY="none")


def check_advice(agent: CodingAgent, tool: str) -> None:
    """Check that the model is told what to do: after a result, and after an error."""
    model = agent.model
    agent.run(f'When do we deploy? CALL {tool.format("recall")} {{"query": "deploy"}}')
    first, *_, after = model.requests("When do we deploy?")
    told = "Nothing is remembered about this. Do not guess"
    assert told not in first and told in after
    agent.run(f"Clean up. CALL {tool.format('forget')} {{}}")
    assert "say what to forget" in model.requests("Clean up.")[-1]


@pytest.mark.skipif(not find_claude(), reason="no claude here: it is in the PyPI package claude-agent-sdk")
def test_claude_code_wakes_up_with_what_a_killed_session_learned(folder: HookFolder, model: ModelApi) -> None:
    claude = connect_claude(folder, model)

    claude.kill_while_it_works(f"Move the shop to its new port. CALL mcp__perdure__remember {LEARN}\nHANG")
    assert {f"mcp__perdure__{tool}" for tool in TOOLS} <= model.tools()
    assert claude.pinned == [FACT]

    model.bodies.clear()
    path = folder.project / "shop.py"
    written = json.dumps({"file_path": str(path), "content": "PORT = 7000\n"})
    assert SAID in claude.run(f"Which port has the shop? CALL Write {written}")
    [first, *_] = model.requests("Which port has the shop?")
    for part in (WOKEN, FACT, "Move the shop to its new port", "it ended without a note"):
        assert part in first
    assert first.count("Move the shop to its new port") == 1
    assert path.read_text() == "PORT = 7000\n"
    with Agent("assistant", store=folder.store) as agent:
        assert [event.payload.result["files"] for event in agent.events.read(kind="tool_result")] == [[str(path)]]

    model.bodies.clear()
    turns = ("Read the plan", "/compact", "What comes after the plan?")
    lines = [{"type": "user", "message": {"role": "user", "content": turn}} for turn in turns]
    given = "".join(json.dumps(line) + "\n" for line in lines)
    claude.run("--input-format", "stream-json", "--output-format", "stream-json", "--verbose", given=given)
    [after] = model.requests("What comes after the plan?")
    assert WOKEN in after and FACT in after
    assert "first request: Read the plan" in after and "last request" not in after
    assert not problems_of(folder)

    read = [*SOURCES["claude-code"].read(ImportReader(folder.home / ".claude" / "projects"))]
    [said] = [texts for session in read if (texts := said_by_user(session))[0] == "Read the plan"]
    assert [text for text in said if "<command-name>" not in text] == ["Read the plan", "What comes after the plan?"]


@pytest.mark.skipif(not find_claude(), reason="no claude here: it is in the PyPI package claude-agent-sdk")
def test_claude_code_tells_the_model_what_the_tools_advise(folder: HookFolder, model: ModelApi) -> None:
    check_advice(connect_claude(folder, model), "mcp__perdure__{}")


@pytest.mark.skipif(not find_codex(), reason="no codex here: `make node-tools` installs it from npm")
def test_codex_wakes_up_with_what_a_killed_session_learned(folder: HookFolder, model: ModelApi) -> None:
    codex = connect_codex(folder, model)

    codex.kill_while_it_works(f"Move the shop to its new port. CALL mcp__perdure/remember {LEARN}\nHANG")
    assert codex.pinned == [FACT]
    assert {tool["name"] for tool in model.tools_of("mcp__perdure")} == set(TOOLS)

    model.bodies.clear()
    compacting = ["--config", "model_auto_compact_token_limit=500"]  # each answer says that it took more
    ran = json.dumps({"cmd": "echo 3 passed"})
    printed = codex.run(*compacting, f"Which port has the shop? CALL exec_command {ran}")
    assert "clamping" not in printed
    first, *_, after = model.requests("Which port has the shop?")
    for part in (WOKEN, FACT, "Move the shop to its new port", "it ended without a note"):
        assert part in first
    assert "context compacted" in printed
    assert after.count(WOKEN) == 1 and FACT in after and "first request: Which port has the shop?" in after
    with Agent("assistant", store=folder.store) as agent:
        [event] = [event.payload for event in agent.events.read(kind="tool_result")]
    assert event.ok and event.result["command"] == "echo 3 passed" and "3 passed" in event.result["outcome"]
    assert not problems_of(folder)


@pytest.mark.skipif(not find_codex(), reason="no codex here: `make node-tools` installs it from npm")
def test_codex_tells_the_model_what_the_tools_advise(folder: HookFolder, model: ModelApi) -> None:
    check_advice(connect_codex(folder, model), "mcp__perdure/{}")
