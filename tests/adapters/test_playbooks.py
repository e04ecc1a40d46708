"""A play whose calls are made by a framework: killed in between, it resumes, and no call or attempt is paid twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, AsyncAgent
from tests.conformance.kit import World, die, run_in_child

TIERS = ["cheap", "strong"]
MOMENTS = ("call", "answered", "recorded")
"""In a model call, after it, and after the refused attempt was recorded; each at the cheap tier of step b."""


def answer(world: World, kill: str, step: str, tier: str) -> str:
    world.do(f"{step} {tier}")
    if (step, tier, kill) == ("b", "cheap", "call"):
        die()
    return "bad" if (step, tier) == ("b", "cheap") else "good"


async def ask(folder: Path, kill: str, id: str, step: str, tier: str) -> str:
    from pydantic_ai import Agent as FrameworkAgent
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    from perdure.adapters.pydantic_ai import Durability

    def respond(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart(answer(World(folder), kill, step, tier))])

    durability = Durability(f"sqlite:///{folder}/plays.db")
    agent: Any = FrameworkAgent(FunctionModel(respond), capabilities=[durability], name="caller")
    return str((await agent.run("go", run_id=f"{id}-{step}-{tier}")).output)


async def follow(folder: Path, kill: str = "") -> None:
    async with AsyncAgent("player", store=f"sqlite:///{folder}/plays.db") as agent:
        await agent.playbooks.learn("analysis", steps=["a", "b"])
        async with agent.playbooks.run("analysis", "one", tiers=TIERS, tier="cheap") as play:
            async for step in play.steps():
                accepted = False
                while not accepted:
                    tier = await play.choose_model(step.name)
                    said = await ask(folder, kill, "one", step.name, tier)
                    if (step.name, tier, kill) == ("b", "cheap", "answered"):
                        die()
                    accepted = await play.record_attempt(step.name, said, accepted=said == "good", cost_usd=1) == "good"
                    if (step.name, tier, kill) == ("b", "cheap", "recorded"):
                        die()
            play.result = said


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_play_with_pydantic_ai_resumes_after_a_kill(moment: str, tmp_path: Path) -> None:
    def program(kill: str) -> None:
        asyncio.run(follow(tmp_path, kill))

    assert run_in_child(partial(program, moment)) == 9
    assert run_in_child(partial(program, "")) == 0
    again = {"b cheap": 2} if moment == "call" else {}
    assert Counter(World(tmp_path).read_all()) == {"a cheap": 1, "b cheap": 1, "b strong": 1} | again
    with Agent("player", store=f"sqlite:///{tmp_path}/plays.db") as agent:
        assert agent.runs.result("one") == "good"
        tiers = [
            {tier: one.tries for tier, one in step.tiers.items()} for step in agent.playbooks.report("analysis").steps
        ]
    assert tiers == [{"cheap": 1}, {"cheap": 1, "strong": 1}]
