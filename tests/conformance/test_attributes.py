"""Mistyped attributes are refused: an assignment that nothing reads would be lost silently."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, AsyncAgent, PerdureError

from .kit import agent_at


def test_a_mistyped_result_is_refused_and_the_run_has_none(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("r") as run:
        with pytest.raises(AttributeError, match="Run has no attribute 'resutl' .did you mean 'result'"):
            run.resutl = 5  # type: ignore[attr-defined]
        run.result = 6
    assert agent.runs.result("r") == 6


async def test_the_asynchronous_faces_refuse_it_too(file_url: str) -> None:
    async with AsyncAgent("a", store=file_url) as agent, agent.run("r") as run:
        for target, mistyped in ((run, "resutl"), (agent, "memroy"), (run.state, "city"), (run.messages, "pinnned")):
            with pytest.raises(PerdureError, match=mistyped):
                setattr(target, mistyped, 1)


def test_an_attribute_of_the_state_names_the_key_to_set(file_url: str) -> None:
    with agent_at(file_url).run("r") as run:
        with pytest.raises(AttributeError, match=r"run\.state\['city'\] = \.\.\."):
            run.state.city = "NYC"  # type: ignore[attr-defined]
        assert dict(run.state) == {}


@pytest.mark.parametrize("name", ["memroy", "sttae", "anything"])
def test_an_agent_refuses_unknown_attributes(file_url: str, name: str) -> None:
    with pytest.raises(AttributeError, match=f"Agent has no attribute '{name}'"):
        setattr(agent_at(file_url), name, 1)


def parts_of(agent: Any) -> list[Any]:
    thread = agent.thread("ann")
    whole = [agent.memory, agent.events, agent.workflows, agent.queues, agent.artifacts, agent.threads, agent.runs]
    return [thread, thread.state, *whole, agent.checkpoint]


@pytest.mark.parametrize("kind", [Agent, AsyncAgent])
def test_every_part_of_an_agent_refuses_unknown_attributes(file_url: str, kind: type[Agent]) -> None:
    agent = kind("a", store=file_url)
    for part in parts_of(agent):
        with pytest.raises(AttributeError, match="has no attribute 'nmae'"):
            part.nmae = 5


def test_a_thread_names_what_was_meant(file_url: str) -> None:
    thread: Any = agent_at(file_url).thread("ann")
    with pytest.raises(PerdureError, match="Thread has no attribute 'stat' .did you mean 'state'"):
        thread.stat = 5
    with pytest.raises(PerdureError, match=r"thread\.state\['city'\] = \.\.\."):
        thread.state.city = "NYC"
    assert dict(thread.state) == {}


def test_what_cannot_be_set_says_so_as_python_does(file_url: str) -> None:
    with agent_at(file_url).run("r") as run, pytest.raises(AttributeError, match="finished"):
        run.finished = True  # type: ignore[misc]


def test_a_subclass_of_an_agent_may_have_attributes_of_its_own(file_url: str) -> None:
    class Travel(Agent):
        def __init__(self, **options: Any) -> None:
            super().__init__("travel", **options)
            self.airline = "AA"

    assert Travel(store=file_url).airline == "AA"
