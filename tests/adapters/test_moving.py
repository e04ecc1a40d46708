"""A conversation moves between frameworks, and a missing framework says what to install."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from perdure import Agent
from perdure.adapters.conversations import read_conversation
from perdure.errors import ThreadNotFound, WrongValue
from tests.adapters.frameworks import warm_up

CALL = {"id": "call-1", "type": "function", "function": {"name": "search", "arguments": '{"to": "NYC"}'}}


def test_a_conversation_goes_on_in_every_framework(tmp_path: Path) -> None:
    warm_up("openai-agents")
    warm_up("pydantic-ai")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from examples.moving_frameworks import THREAD, main

        last = main(f"sqlite:///{tmp_path}/trip.db")
    assert [message["role"] for message in last] == ["user", "assistant"] * 4 + ["user"]
    assert last[1]["content"] == [{"type": "tool_use", "id": "call-1", "name": "search", "input": {"to": "NYC"}}]
    assert last[5]["content"] == "I have read 5 items."  # question, call, result, answer, and the next question
    with Agent("travel", store=f"sqlite:///{tmp_path}/trip.db") as agent:
        in_chat = read_conversation(agent, THREAD, "openai")
        assert in_chat[1]["tool_calls"] == [CALL] and in_chat[2]["tool_call_id"] == "call-1"
        with pytest.raises(ThreadNotFound):
            read_conversation(agent, "other")
        with pytest.raises(WrongValue, match="shape='gemini'"):
            read_conversation(agent, THREAD, "gemini")


ADAPTERS = {
    "a2a.PerdureTaskStore": "a2a",
    "adk.DurabilityPlugin": "adk",
    "anthropic.durable": "anthropic",
    "claude.MemoryTool": "anthropic",
    "claude.durable": "claude",
    "crewai.PerdureFlowPersistence": "crewai",
    "openai.durable": "openai",
    "openai_agents.durable": "openai-agents",
    "pydantic_ai.Durability": "pydantic-ai",
    "strands.durable": "strands",
}
WITHOUT = """
import sys, importlib
for package in "a2a agents anthropic claude_agent_sdk crewai google.adk openai pydantic_ai strands".split():
    sys.modules[package] = None
for name in sys.argv[1:]:
    module, _, attribute = name.partition(".")
    try:
        getattr(importlib.import_module(f"perdure.adapters.{module}"), attribute)
    except Exception as error:
        print(type(error).__name__, error.hint)
"""


def test_a_missing_framework_says_which_extra_to_install() -> None:
    command = [sys.executable, "-c", WITHOUT, *ADAPTERS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f'ExtraMissing pip install "perdure[{extra}]"' for extra in ADAPTERS.values()]
