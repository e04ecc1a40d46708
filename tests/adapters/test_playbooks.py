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


async def ask_openai_agents(folder: Path, kill: str, id: str, step: str, tier: str) -> str:
    """Call the model without `session=`: a finished session takes the same input as a new turn."""
    from agents import Agent as FrameworkAgent
    from agents import Model, ModelResponse, RunConfig, Runner, Usage
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    from perdure.adapters.openai_agents import PerdureSession, durable_model

    class Scripted(Model):
        async def get_response(self, instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            if len(input) == 1:
                World(folder).do(f"think {step} {tier}")
            said = "thought" if len(input) == 1 else answer(World(folder), kill, step, tier)
            text = ResponseOutputText(text=said, type="output_text", annotations=[])
            message = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[message], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("nothing streams here")

    session = PerdureSession(f"sqlite:///{folder}/plays.db", f"{id}-{step}")
    agent: Any = FrameworkAgent("caller", model=durable_model(session, Scripted()))
    quiet = RunConfig(tracing_disabled=True)
    first = await Runner.run(agent, [{"role": "user", "content": f"think about {step}"}], run_config=quiet)
    follow_up: Any = {"role": "user", "content": f"do {step} as {tier}"}
    done = await Runner.run(agent, [*first.to_input_list(), follow_up], run_config=quiet)
    session.close()
    return str(done.final_output)


async def ask_pydantic_ai(folder: Path, kill: str, id: str, step: str, tier: str) -> str:
    from pydantic_ai import Agent as FrameworkAgent
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    from perdure.adapters.pydantic_ai import Durability

    def respond(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart(answer(World(folder), kill, step, tier))])

    durability = Durability(f"sqlite:///{folder}/plays.db")
    agent: Any = FrameworkAgent(FunctionModel(respond), capabilities=[durability], name="caller")
    return str((await agent.run("go", run_id=f"{id}-{step}-{tier}")).output)


ASK = {"pydantic-ai": ask_pydantic_ai, "openai-agents": ask_openai_agents}


async def follow(folder: Path, framework: str, kill: str = "") -> None:
    async with AsyncAgent("player", store=f"sqlite:///{folder}/plays.db") as agent:
        await agent.playbooks.learn("analysis", steps=["a", "b"])
        async with agent.playbooks.run("analysis", "one", tiers=TIERS, tier="cheap") as play:
            async for step in play.steps():
                accepted = False
                while not accepted:
                    tier = await play.choose_model(step.name)
                    said = await ASK[framework](folder, kill, "one", step.name, tier)
                    if (step.name, tier, kill) == ("b", "cheap", "answered"):
                        die()
                    accepted = await play.record_attempt(step.name, said, accepted=said == "good", cost_usd=1) == "good"
                    if (step.name, tier, kill) == ("b", "cheap", "recorded"):
                        die()
            play.result = said


@pytest.mark.parametrize("framework", ASK)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_play_whose_calls_a_framework_makes_resumes_after_a_kill(moment: str, framework: str, tmp_path: Path) -> None:
    def program(kill: str) -> None:
        asyncio.run(follow(tmp_path, framework, kill))

    assert run_in_child(partial(program, moment)) == 9
    assert run_in_child(partial(program, "")) == 0
    again = {"b cheap": 2} if moment == "call" else {}
    asked = Counter(World(tmp_path).read_all())
    thoughts = [asked.pop(line) for line in list(asked) if line.startswith("think ")]
    assert asked == {"a cheap": 1, "b cheap": 1, "b strong": 1} | again
    assert thoughts == ([1, 1, 1] if framework == "openai-agents" else [])
    with Agent("player", store=f"sqlite:///{tmp_path}/plays.db") as agent:
        assert agent.runs.result("one") == "good"
        tiers = [
            {tier: one.tries for tier, one in step.tiers.items()} for step in agent.playbooks.report("analysis").steps
        ]
    assert tiers == [{"cheap": 1}, {"cheap": 1, "strong": 1}]
