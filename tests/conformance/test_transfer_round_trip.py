"""An agent that has everything moves from a file to a server and back: each noun reads the same in all three stores."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Agent
from perdure.errors import StoreMovedWarning
from perdure.values.clock import SystemClock

from . import rich_store
from .agent_contents import read_everything
from .test_transfer import sound

SPACES = ("trip", "kept", "cache")


class Visited(msgspec.Struct):
    """A kind of event."""

    city: str
    nights: int = 1


def travel(store: object) -> Agent:
    """The agent, with the kind that it has registered."""
    agent = Agent("travel", store=store)  # type: ignore[arg-type]
    agent.events.kind("VISITED", schema=Visited, version=3)
    return agent


class Later(SystemClock):
    """A clock that is an hour and a half ahead."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 5_400_000


def enrich(agent: Agent, folder: Path) -> None:
    """What the store in which everything has happened does not have yet."""
    agent.state.set("cache", "short", "soon gone", ttl="1h")
    agent.state.set("cache", "long", "stays", ttl="1d")
    for number in range(5):
        agent.state.set("cache", "counted", [number, rich_store.LARGE])
    agent.events.append(Visited("Oslo", 3))
    agent.events.append("PLAIN", {"page": rich_store.LARGE})
    agent.checkpoint.retain("draft", keep_last=3)
    agent.threads.retain("guest-*", idle_for="1d")
    agent.queues.set("default", concurrency=3)
    agent.memory.remember("Bob lives in Bonn", about="bob", source="web", valid_from="2020-01-01")
    agent.memory.remember("Bob lives in Berlin", about="bob", valid_from="2023-01-01")
    agent.memory.rollback(source="web", by="ann")
    with agent.run("compacted") as run:
        for number in range(12):
            run.messages.append({"role": "user", "content": f"message {number} " * 20})
        run.usage(model="gpt-4o", input_tokens=10, output_tokens=3, cost_usd=0.01)
    home = agent.workspace(folder, git=False)
    home.append("MEMORY.md", "- Ann likes trains.")
    agent.log("The hotel has no rooms in May.")
    home.task("paris", "- [ ] find a hotel\n")


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreMovedWarning)
        path = rich_store.copy_to(tmp_path / "rich.db")
        enrich(travel(path), tmp_path / "desk")
    return path


def test_every_noun_reads_the_same_in_all_three_stores(rich: Path, store_url: str, tmp_path: Path) -> None:
    agent = travel(rich)
    before = read_everything(agent, tmp_path / "desk", SPACES)
    assert all(before.values()), "there is something of each noun"
    homes: list[Any] = [store_url, tmp_path / "again.db"]
    for number, home in enumerate(homes):
        agent.export(tmp_path / f"{number}.perdure", move=True, private_key=True, passphrase="p")
        agent = Agent.import_from(tmp_path / f"{number}.perdure", store=home, passphrase="p")
        agent = travel(home)
        after = read_everything(agent, tmp_path / f"desk {number}", SPACES)
        for noun, had in before.items():
            assert after[noun] == had, noun
    agent._engine.store.clock = Later()
    assert dict(agent.state.items("cache")).keys() == {"long", "counted"}
    for url in (f"sqlite:///{rich}", store_url, f"sqlite:///{tmp_path / 'again.db'}"):
        sound(url)
