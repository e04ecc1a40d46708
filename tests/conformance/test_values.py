"""Values as people have them: data classes come back as their class, wherever they are put and whoever reads."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

import msgspec
import pytest

from perdure import Agent, AsyncAgent
from perdure.errors import NotStorable

from .kit import World, agent_at, die, run_in_child

pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")


class Cabin(enum.Enum):
    ECONOMY = "economy"


class Seat(msgspec.Struct, frozen=True):
    row: int


@dataclass
class Flight:
    number: str
    seats: Any = field(default_factory=list)
    cabin: Cabin = Cabin.ECONOMY


class Trip(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    flights: list[Flight]
    best: Flight | None = None
    page: pydantic.HttpUrl = pydantic.HttpUrl("https://fly.example/pd42")
    host: IPv4Address = IPv4Address("10.0.0.1")


def trip() -> Trip:
    flight = Flight("PD 42", [Seat(4)])
    return Trip(flights=[flight], best=flight)


def use_everywhere(agent: Agent) -> list[Any]:
    """Put a value everywhere, and return what is read."""

    @agent.step
    def search(wanted: Trip) -> dict[str, Any]:
        return {"found": [(wanted, Cabin.ECONOMY)]}

    with agent.run("trip", input=trip()) as run:
        found = search(trip())
        run.state["best"] = trip()
        run.messages.append(trip())
        run.event("CHOSEN", trip())
        run.checkpoint("chosen", {"trip": trip()})
        run.result = trip()
        read = [found["found"][0][0], run.state["best"], run.messages[-1], run.input]
    agent.state.set("trips", "best", trip())
    return [*read, agent.state.get("trips", "best"), agent.runs.result("trip")]


def test_a_data_class_comes_back_from_everywhere_in_another_process(store_url: str) -> None:
    def first() -> None:
        assert use_everywhere(agent_at(store_url)) == [trip()] * 6

    assert run_in_child(first) == 0
    read = use_everywhere(agent_at(store_url))
    assert read == [trip()] * 6
    assert {type(one) for one in read} == {Trip}
    assert {type(one.best) for one in read} == {Flight}


async def test_a_data_class_comes_back_under_asyncio(store_url: str) -> None:
    calls = []
    for _ in range(2):
        agent = AsyncAgent("tester", store=store_url)

        @agent.step
        async def search() -> list[Trip]:
            calls.append(1)
            return [trip()]

        async with agent.run("trip") as run:
            assert await search() == [trip()]
            await run.messages.append(trip())
            await run.state.set("best", trip())
            assert run.state["best"] == run.messages[-1] == trip()
    assert calls == [1]


def test_a_local_class_is_declared_by_the_agent_or_by_a_step(store_url: str) -> None:
    @dataclass
    class Declared:
        x: int

    @dataclass
    class Annotated:
        x: int

    agent = agent_at(store_url)
    with pytest.raises(NotStorable, match="types="):
        agent.state.set("a", "b", Declared(1))
    agent = Agent("tester", store=store_url, types=[Declared])
    agent.state.set("a", "b", Declared(1))
    assert agent.state.get("a", "b") == Declared(1)

    def ask() -> Any:
        return Annotated(2)

    ask.__annotations__["return"] = Annotated
    with agent.run("r") as run:
        assert run.step(ask) == Annotated(2)
    with agent.run("r") as run:
        assert run.step(ask) == Annotated(2)


def test_messages_of_langchain_are_messages(store_url: str) -> None:
    messages = pytest.importorskip("langchain_core.messages", reason="langchain_core is not installed")
    said = messages.AIMessage("hi", tool_calls=[{"name": "book", "args": {}, "id": "t"}])
    agent = agent_at(store_url)
    for _ in range(2):
        with agent.run("r") as run:
            run.messages.append(messages.HumanMessage("book"))
            run.messages.append(said)
            assert list(run.messages) == [messages.HumanMessage("book"), said]
            assert "hi" in str(run.context(budget=2000).messages)


class Overloaded(Exception):
    def __init__(self, retry_after: int) -> None:
        super().__init__(f"try again in {retry_after} s")
        self.retry_after = retry_after


def test_an_exception_that_the_program_catches_is_the_same_after_a_kill(store_url: str, world: World) -> None:
    """Otherwise a `try` around a step takes another way after a crash than before it."""

    def program(dies: bool) -> Any:
        agent = agent_at(store_url)

        @agent.step
        def ask() -> str:
            world.do("asked")
            raise Overloaded(7)

        @agent.step
        def check() -> Trip:
            world.do("checked")
            return Trip(flights=[], best="none")

        with agent.run("r") as run:
            try:
                run.result = ask()
            except Overloaded as error:
                run.state["waited"] = error.retry_after
            try:
                check()
            except pydantic.ValidationError as error:
                run.state["wrong"] = error.errors()[0]["loc"]
            if dies:
                die()
        return run.state["waited"], run.state["wrong"]

    run_in_child(lambda: program(True))
    assert program(False) == (7, ("best",))
    assert world.read_all() == ["asked", "checked"]


async def test_an_exception_of_an_async_step_is_the_same_on_replay(store_url: str) -> None:
    for _ in range(2):
        agent = AsyncAgent("tester", store=store_url)

        @agent.step
        async def ask() -> str:
            raise Overloaded(7)

        async with agent.run("r"):
            with pytest.raises(Overloaded, match="try again in 7 s"):
                await ask()
