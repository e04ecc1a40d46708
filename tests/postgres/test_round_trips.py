"""Round trips, counted outside of our code: the price of a commit is the way to the server and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from perdure import Agent
from perdure.adapters.langgraph import PerdureSaver
from tests.postgres.cluster import Cluster
from tests.postgres.proxy import Proxy


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster) as proxy:
        yield proxy


@pytest.fixture
def agent(proxy: Proxy, schema: str) -> Iterator[Agent]:
    """One that is warm: its connections are there, its agent is known, its statements are prepared."""
    agent = Agent("traveller", store=proxy.url(schema))
    for number in range(8):
        with agent.run(f"warm-{number}") as run:
            run.step(lambda: None, id="look")
            run.effect(lambda: None, name="act")
            run.state["key"] = 1
    yield agent
    agent.close()


def trips(proxy: Proxy, work: Callable[[], object]) -> int:
    before = len(proxy.trips)
    work()
    return len(proxy.trips) - before


def test_a_step_takes_one_and_an_effect_two(agent: Agent, proxy: Proxy) -> None:
    with agent.run("trip") as run:
        for number in range(5):
            assert trips(proxy, partial(run.step, lambda: None, id=f"look-{number}")) == 1
            assert trips(proxy, partial(run.effect, lambda: None, name="act")) == 2
            assert trips(proxy, partial(run.state.set, "key", number)) == 1


def test_a_look_at_the_state_takes_one_and_a_change_two(agent: Agent, proxy: Proxy) -> None:
    agent.state.set("crawl", "page", 0)
    for number in range(3):
        assert trips(proxy, partial(agent.state.get, "crawl", "page")) == 1
        assert trips(proxy, partial(agent.state.set, "crawl", "page", number)) == 2


def test_a_checkpoint_is_restored_level_by_level(agent: Agent, proxy: Proxy) -> None:
    pages = [f"page {number} " * 100 for number in range(1000)]
    agent.checkpoint.create("crawl", pages)
    assert trips(proxy, partial(agent.checkpoint.restore, "crawl")) <= 10
    assert agent.checkpoint.restore("crawl") == pages


def test_what_is_recorded_takes_none(agent: Agent, proxy: Proxy) -> None:
    def work() -> None:
        for number in range(5):
            run.step(lambda: None, id=f"look-{number}")
            run.effect(lambda: None, name="act")

    with pytest.raises(KeyError), agent.run("trip") as run:
        work()
        raise KeyError
    with agent.run("trip") as run:
        assert trips(proxy, work) == 0


def test_opening_and_ending_a_run_takes_few(agent: Agent, proxy: Proxy) -> None:
    """A guard against creep, not a law: what they take today."""
    taken = {}
    for name in ("new", "taken over", "finished"):
        run = agent.run("trip")
        taken[f"open {name}"] = trips(proxy, run.__enter__)
        error = (KeyError, KeyError("no luck"), None) if name == "new" else (None, None, None)
        taken[f"end {name}"] = trips(proxy, partial(run.__exit__, *error))
    most = {
        "open new": 4,
        "end new": 2,
        "open taken over": 5,
        "end taken over": 2,
        "open finished": 3,
        "end finished": 0,
    }
    assert {name: count for name, count in taken.items() if count > most[name]} == {}


def test_a_checkpoint_of_a_thread_and_its_writes_take_one_each(agent: Agent, proxy: Proxy) -> None:
    """However much the thread holds; and where it is takes two, and one more for a large write."""
    saver = PerdureSaver(agent)
    where: Any = {"configurable": {"thread_id": "trip", "checkpoint_ns": ""}}
    said: list[str] = []
    for number in range(12):
        said.append(f"{number} " * 400)
        made: Any = {
            "v": 4,
            "id": f"{number:08}",
            "channel_values": {"said": said},
            "channel_versions": {"said": number},
        }
        before = len(proxy.trips)
        where = saver.put(where, made, {"step": number}, {"said": number})
        saver.put_writes(where, [("said", [said[-1]])], f"task-{number}")
        if number > 8:  # then the statements are prepared
            assert len(proxy.trips) - before == 2
    assert trips(proxy, partial(saver.get_tuple, where)) <= 3
