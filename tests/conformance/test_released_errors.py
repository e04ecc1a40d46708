"""What has failed is let go.

The traceback of an error leads through our frames to what was being done, and that to objects of the user's, which may
hold the error: a circle. It must not last for ever, in programs that run for months.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from perdure import Agent

from .kit import agent_at


class Client:
    """As many do, it remembers what went wrong last."""

    last: ValueError | None = None

    def fail(self, *_: object) -> None:
        try:
            raise ValueError("torn")
        except ValueError as error:
            self.last = error
            raise


def raise_in_step(agent: Agent, client: Client) -> None:
    with agent.run("step") as run:
        run.step(client.fail, name="fail")


def raise_in_items(agent: Agent, client: Client) -> None:
    with agent.run("map") as run:
        run.map(client.fail, [1, 2])


def raise_in_update(agent: Agent, client: Client) -> None:
    agent.state.update("a", "b", client.fail)


def raise_in_replay(agent: Agent, client: Client) -> None:
    agent.events.append("SEEN", {"page": 1})
    agent.events.replay(client.fail, 0)


@pytest.mark.parametrize("where", [raise_in_step, raise_in_items, raise_in_update, raise_in_replay])
def test_what_has_failed_is_let_go(store_url: str, where: Callable[[Agent, Client], None]) -> None:
    agent, alive = agent_at(store_url), weakref.WeakSet[Client]()

    def fail() -> None:
        client = Client()
        alive.add(client)
        try:
            where(agent, client)
        except ValueError:
            assert client.last is not None

    fail()
    gc.collect()
    assert len(alive) == 0
