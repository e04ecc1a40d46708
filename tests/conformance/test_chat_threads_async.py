"""Threads under asyncio: the rules of a conversation hold on `AsyncAgent` as on `Agent`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import AsyncAgent, RunBusy, RunWaiting
from perdure.errors import AlreadyReplied, InputChanged, NoTurn, RunFinished, TurnUnfinished

from .kit import World, die, run_in_child


class AsyncChat:
    """The chat program of `chat.py`, for asyncio."""

    def __init__(self, store_url: str, world: World) -> None:
        self.agent, self.world = AsyncAgent("tester", store=store_url), world
        self.thread = self.agent.thread("user")
        self.ask = self.agent.step(name="ask")(self._ask)
        self.pay = self.agent.effect(name="pay")(self._pay)
        self.chat = self.agent.turn()(self.turn)

    async def _ask(self, messages: list[Any]) -> str:
        self.world.do(f"asked {messages[-1]['content']}")
        return f"re: {messages[-1]['content']}"

    async def _pay(self, amount: int, dies: bool) -> str:
        self.world.do(f"paid {amount}")
        if dies:
            die()
        return f"receipt {amount}"

    async def turn(self, turn: Any) -> Any:
        return await self.ask((await turn.context()).messages)

    def contents(self) -> list[str]:
        return [message["content"] for message in self.thread.messages]


class Processes:
    """Runs pieces of the program, each with an agent and an event loop of its own."""

    def __init__(self, store_url: str, world: World) -> None:
        self.store_url, self.world = store_url, world

    def run(self, work: Callable[[AsyncChat], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            chat = AsyncChat(self.store_url, self.world)
            try:
                return await work(chat)
            finally:
                await chat.agent.close()

        return asyncio.run(main())

    def kill(self, work: Callable[[AsyncChat], Awaitable[Any]]) -> None:
        """Another process does the work, which ends in its death."""
        run_in_child(lambda: self.run(work))


@pytest.fixture
def processes(store_url: str, world: World) -> Processes:
    return Processes(store_url, world)


async def die_after_asking(chat: AsyncChat) -> None:
    async with chat.thread.turn("hello") as turn:
        await chat.thread.state.set("city", "NYC")
        await chat.ask((await turn.context()).messages)
        die()


async def die_while_paying(chat: AsyncChat) -> None:
    async with chat.thread.turn("buy"):
        await chat.pay(5, True)


def test_a_killed_turn_is_finished_before_the_next_one(processes: Processes, world: World) -> None:
    async def go_on(chat: AsyncChat) -> None:
        with pytest.raises(TurnUnfinished):
            async with chat.thread.turn("second"):
                pass
        await chat.agent.memory.remember("hello is a greeting")  # what the context chose is recorded
        chat.world.do("resumed")
        reply = await chat.agent.turn(_resumed(chat))("user", "second")
        assert reply == "re: second"
        assert chat.contents() == ["hello", "re: hello", "second", "re: second"]
        assert chat.thread.state["city"] == "NYC"

    def _resumed(chat: AsyncChat) -> Callable[[Any], Awaitable[Any]]:
        async def turn(turn: Any) -> Any:
            if turn.number == 1:
                await chat.thread.state.set("city", "NYC")
            return await chat.turn(turn)

        return turn

    processes.kill(die_after_asking)
    processes.run(go_on)
    assert world.read_all() == ["asked hello", "resumed", "asked second"]


def test_an_abandoned_turn_keeps_the_users_message(processes: Processes) -> None:
    async def go_on(chat: AsyncChat) -> None:
        async with chat.thread.turn("second", on_unfinished="abandon") as turn:
            await turn.reply("late")
        assert chat.contents() == ["hello", "second", "late"]
        assert [one.status for one in await chat.thread.turns()] == ["cancelled", "finished"]

    processes.kill(die_after_asking)
    processes.run(go_on)


def test_a_message_waits_behind_a_turn_in_doubt(processes: Processes, world: World) -> None:
    async def ask_next(chat: AsyncChat) -> None:
        async def turn(turn: Any) -> None:
            await turn.reply(await chat.pay(5, True) if turn.number == 1 else "done")

        shop = chat.agent.turn(turn)
        with pytest.raises(RunWaiting):
            await shop("user", "next")
        assert [one.input for one in chat.thread.pending] == ["next"]
        with pytest.raises(TurnUnfinished):
            async with chat.thread.turn("next", on_unfinished="abandon"):
                pass
        await chat.agent.runs.answer("user#1", done="receipt 5")
        assert await shop("user", "third") == "done"
        assert chat.contents() == ["buy", "receipt 5", "next", "done", "third", "done"]

    processes.kill(die_while_paying)
    processes.run(ask_next)
    assert world.count("paid 5") == 1


def test_the_id_of_a_request_is_the_turn(processes: Processes, world: World) -> None:
    async def talk(chat: AsyncChat) -> None:
        assert [await chat.chat("user", "hello", id="x") for _ in range(2)] == ["re: hello"] * 2
        with pytest.raises(InputChanged):
            await chat.chat("user", "other", id="x")
        with pytest.raises(NoTurn):
            async with chat.thread.turn():
                pass
        with pytest.raises(ZeroDivisionError):
            async with chat.thread.turn("fails", id="y"):
                raise ZeroDivisionError
        assert await chat.chat("user", "last") == "re: last"
        with pytest.raises(RunFinished, match="ZeroDivisionError.*another id="):
            await chat.chat("user", "fails", id="y")
        async with chat.thread.turn("twice") as turn:
            await turn.reply("one")
            with pytest.raises(AlreadyReplied):
                await turn.reply("two")

    processes.run(talk)
    assert world.read_all() == ["asked hello", "asked last"]


def test_one_thread_has_one_open_turn(processes: Processes) -> None:
    async def talk(chat: AsyncChat) -> None:
        opened, go = asyncio.Event(), asyncio.Event()

        async def slow(turn: Any) -> None:
            opened.set()
            await go.wait()
            await turn.reply("slow reply")

        first = asyncio.create_task(chat.agent.turn(slow)("user", "slow"))
        await opened.wait()
        for call in (chat.chat("user", "quick"), chat.thread.state.set("city", "NYC"), chat.thread.delete()):
            with pytest.raises(RunBusy):
                await call
        second = asyncio.create_task(chat.chat("user", "quick", wait=60))
        go.set()
        assert await asyncio.gather(first, second) == ["slow reply", "re: quick"]
        assert await asyncio.gather(*[chat.chat(f"user-{n}", "hi") for n in range(5)]) == ["re: hi"] * 5
        assert chat.contents() == ["slow", "slow reply", "quick", "re: quick"]

    processes.run(talk)


def test_a_fork_and_the_list(processes: Processes) -> None:
    async def talk(chat: AsyncChat) -> None:
        for number in (1, 2):
            async with chat.thread.turn(f"m{number}") as turn:
                await chat.thread.state.set("n", number)
                await turn.reply(f"r{number}")
        other = await chat.thread.fork(at=1, to="other")
        assert (dict(other.state), [one["content"] for one in other.messages]) == ({"n": 1}, ["m1", "r1"])
        assert [one.id for one in await chat.agent.threads.list()] == ["other", "user"]
        assert await chat.thread.delete() == 2
        assert chat.contents() == []

    processes.run(talk)
