"""A chat program for the tests of threads."""

from __future__ import annotations

from typing import Any

import pytest

from .kit import World, agent_at, die, run_in_child


class Chat:
    """A chat program: its model answers with what it was shown, and the world counts the paid calls."""

    def __init__(self, store_url: str, world: World) -> None:
        self.agent, self.world = agent_at(store_url), world
        self.thread = self.agent.thread("user")
        self.ask = self.agent.step(name="ask")(self._ask)
        self.pay = self.agent.effect(name="pay")(self._pay)
        self.chat = self.agent.turn(self.turn)

    def _ask(self, messages: list[Any]) -> str:
        self.world.do(f"asked {messages[-1]['content']}")
        return f"re: {messages[-1]['content']}"

    def _pay(self, amount: int) -> str:
        self.world.do(f"paid {amount}")
        return f"receipt {amount}"

    def turn(self, turn: Any) -> None:
        turn.reply(self.ask(list(turn.messages)))

    def contents(self) -> list[str]:
        return [message["content"] for message in self.thread.messages]


@pytest.fixture
def program(store_url: str, world: World) -> Chat:
    return Chat(store_url, world)


def kill_in_turn(store_url: str, world: World, text: str, *, after_ask: bool = True) -> None:
    """A process opens a turn, asks the model, and dies before it replies."""

    def doomed() -> None:
        chat = Chat(store_url, world)
        with chat.thread.turn(text) as turn:
            if after_ask:
                chat.ask(list(turn.messages))
            die()

    run_in_child(doomed)
