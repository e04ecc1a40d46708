"""`python writer.py STORE FILE`: writes everything that a store can keep; with `unfinished`, is killed in a run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from perdure import Agent, InDoubt, RunWaiting, stored
from tests.releases.store_program import CONVERSATION, FLIGHT, KILLED_AT, LARGE, NOISE, PLAIN, unfinished


@stored(FLIGHT, version=1)
@dataclass(frozen=True)
class Flight:
    """As it was once: the price is a Decimal in no currency."""

    number: str
    price: Decimal


def flight(number: str = "AA1") -> Flight:
    return Flight(number, Decimal("99.90"))


def write(agent: Agent) -> None:
    """Runs in every status, then whatever else there is."""

    @agent.step
    def search(city: str) -> dict[str, Any]:
        return {"city": city, "flights": [flight(), flight("BB2")], "page": LARGE}

    @agent.effect
    def book(number: str, *, key: str) -> str:
        if number == "lost":
            raise TimeoutError("the line went dead")
        return f"booked {number}"

    with agent.run("finished", input={"to": "NYC", "plain": PLAIN}) as run:
        search("NYC")
        book("AA1")
        run.state["flight"], run.state["dropped"] = flight(), NOISE
        del run.state["dropped"]
        for item in run.each(["a", "b"]):
            run.state[item] = item
            run.messages.append({"role": "user", "content": item})
        run.event("DECISION", {"why": "cheapest"})
        with agent.run("child"):
            search("BOS")
        run.result = flight("CC3")
    with contextlib.suppress(RuntimeError), agent.run("failed"):
        raise RuntimeError("no money")
    with contextlib.suppress(KeyboardInterrupt), agent.run("interrupted"):
        search("LAX")
        raise KeyboardInterrupt
    with contextlib.suppress(InDoubt), agent.run("waiting"):
        book("lost")
    with contextlib.suppress(RunWaiting), agent.run("waiting", wait=0):
        book("lost")
    for part in (state, checkpoint, artifacts, usage, events, workflows):
        part(agent)


def state(agent: Any) -> None:
    agent.state.set("crawl", "page", 29)
    agent.state.set("crawl", "page", 30)
    agent.state.set("crawl", "flight", flight())
    agent.state.update("crawl", "findings", lambda seen: [*(seen or []), LARGE])
    agent.state.set("crawl", "gone", 1)
    agent.state.delete("crawl", "gone")
    agent.state.set("crawl", "short", 1, ttl=0.001)
    with agent.state.transaction() as t:
        t.set("bank", "alice", 90)
        t.set("bank", "bob", 110)


def checkpoint(agent: Any) -> None:
    agent.checkpoint.create("talk", {"messages": CONVERSATION, "flight": flight()}, labels=("first",), meta={"by": 1})
    more = [*CONVERSATION, {"role": "user", "content": "one more"}]
    agent.checkpoint.create("talk", {"messages": more, "flight": flight("DD4"), "next_action": "read page 31"})
    agent.checkpoint.create("dropped", [NOISE])
    agent.checkpoint.delete("dropped")


def artifacts(agent: Any) -> None:
    agent.artifacts.save("report", LARGE.encode(), note="a draft")
    agent.artifacts.save("report", LARGE.encode() + NOISE, labels=["best"])
    agent.artifacts.save("dropped", NOISE)
    agent.artifacts.delete("dropped")


def usage(agent: Any) -> None:
    def ask() -> str:
        run.usage(model="gpt-4o", input_tokens=1200, output_tokens=300, cost_usd=0.5)
        return "an answer"

    with agent.run("paid") as run:
        run.result = run.step(ask)


def events(agent: Any) -> None:
    for number in range(3):
        agent.events.append("ORDER_PLACED", {"order": number, "flight": flight()})
    assert agent.events.replay(lambda total, event: total + event.payload.get("order", 0), 0) == 3


def workflows(agent: Any) -> None:
    plan = agent.workflows.create(name="report", steps=["scrape", "analyse", "write", "send"])
    plan.complete(1, result=[flight()], note="by hand")
    plan.complete(2, result=LARGE)
    plan.start(3)


def killed(agent: Agent, outside: Path) -> None:
    """The process that is in the middle of a review when the power fails."""
    calls: list[int] = []

    def happened() -> None:
        calls.append(1)
        if len(calls) == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    unfinished(agent, outside, lambda file: flight(file), happened)


def main() -> None:
    store, outside = sys.argv[1], Path(sys.argv[2])
    agent = Agent("keeper", store=store)
    if len(sys.argv) > 3:
        killed(agent, outside)
    write(agent)
    agent.close()


if __name__ == "__main__":
    main()
