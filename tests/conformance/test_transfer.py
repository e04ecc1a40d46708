"""An agent moves house: into a file and out of it, between stores of either kind, whole or not at all."""

from __future__ import annotations

import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Agent, NotDone, RunWaiting
from perdure.errors import (
    AgentExists,
    AgentMoved,
    AgentNotFound,
    AgentRetired,
    ExportUnsigned,
    LeaseLost,
    StoreMovedWarning,
)
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.kernel.engine import Engine
from perdure.platform.failpoints import CommitMoment, Site
from perdure.transfer.export import contents_of

from . import rich_store
from .kit import World, die, kill_at, run_in_child

NAMES = ("travel", "keeper")
KEY: dict[str, Any] = {"private_key": True, "passphrase": "p"}
OPEN: dict[str, Any] = {"passphrase": "p"}


def sound(store_url: str) -> None:
    """Whatever is in a store verifies, and its views are what the journal says."""
    engine = Engine("looker", store=store_url)
    assert [finding for finding in verify(engine.store).findings if finding.severity == "damage"] == []
    assert rebuild.check(engine.store) == []
    engine.close()


def agents_in(path: Path) -> list[str]:
    """Who lives in a file."""
    return [name for name, *_ in Engine("looker", store=path).store.read("all_agents")] if path.exists() else []


def read_visible(agent: Agent) -> list[Any]:
    """What the agent's users see of it."""
    runs = [(run.id, run.status, run.error) for run in agent.runs.list()]
    kept = [(artifact.name, artifact.version, artifact.size, artifact.digest) for artifact in agent.artifacts.list()]
    events = [(event.kind, event.run, event.at) for event in agent.events.read()]
    state = [
        (ns, agent.state.items(ns), agent.state.history(ns, key)) for ns in ("trip", "kept") for key in ("page", "k")
    ]
    threads = [(thread.id, thread.checkpoints, agent.threads.state(thread.id)) for thread in agent.threads.list()]
    points = [(checkpoint.name, checkpoint.version, checkpoint.labels) for checkpoint in agent.checkpoint.list()]
    flows = [(flow.name, flow.progress) for flow in agent.workflows.list()]
    known = [msgspec.structs.replace(memory, entry=(0, 0)) for memory in agent.memory.list()]
    found = [(memory.id, round(memory.score, 5)) for memory in agent.memory.recall("Where does Ann live?", k=9)]
    costs = str(agent.usage()), str(agent.savings())
    return [sorted(runs), kept, events, state, threads, points, flows, known, found, costs]


@pytest.fixture
def rich(tmp_path: Path) -> Iterator[Path]:
    """A store in which everything has happened, with two agents in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreMovedWarning)
        yield rich_store.copy_to(tmp_path / "rich.db", compacted=True)


def test_everything_of_an_agent_arrives_and_comes_back(rich: Path, store_url: str, tmp_path: Path) -> None:
    for name in NAMES:
        agent = Agent(name, store=rich)
        out = agent.export(tmp_path / f"{name}.perdure")
        there = Agent.import_from(out.path, store=store_url)
        back = there.export(tmp_path / f"{name}.back")
        again = Agent.import_from(back.path, store=tmp_path / "again.db")
        hashes = {contents_of(other_agent._engine).contents.hex() for other_agent in (agent, there, again)}
        assert hashes == {out.contents, back.contents}
        assert read_visible(again) == read_visible(there) == read_visible(agent)
        assert len({other_agent.identity.public_key for other_agent in (agent, there, again)}) == 3, (
            "each is an identity of its own"
        )
        parents = [
            (other_agent.identity.parent.name, other_agent.identity.parent.public_key) for other_agent in (there, again)
        ]  # type: ignore[union-attr]
        assert parents == [(name, agent.identity.public_key), (name, there.identity.public_key)]
    assert Agent("travel", store=store_url).artifacts.load("model") == rich_store.NOISE * 39 + b"edited"
    for url in (store_url, f"sqlite:///{tmp_path / 'again.db'}"):
        sound(url)


def test_an_agent_moves_away_and_comes_back_with_what_is_new(rich: Path, store_url: str, tmp_path: Path) -> None:
    agent, asked = Agent("travel", store=rich), "Where does Ann live?"
    [oslo] = [memory for memory in agent.memory.list(about="ann") if "Oslo" in memory.text]
    agent.export(tmp_path / "there", move=True, private_key=True, passphrase="p")
    away = Agent.import_from(tmp_path / "there", store=store_url, passphrase="p")
    away.memory.forget(oslo)
    away.memory.remember("Ann lives in Cairo", about="ann")
    away.state.set("trip", "page", 7)
    with away.run("interrupted") as run:
        run.step(lambda: rich_store.LARGE + "new", name="new")
    with away.run("more"):
        away.checkpoint.create("draft", {"pages": [rich_store.LARGE, rich_store.NOISE, "new"]})
    new, found = read_visible(away), away.memory.recall(asked)[0].text
    out = away.export(tmp_path / "back", move=True, private_key=True, passphrase="p")
    back = Agent.import_from(tmp_path / "back", store=rich, passphrase="p")
    assert contents_of(back._engine).contents.hex() == out.contents
    assert (read_visible(back), back.memory.recall(asked)[0].text) == (new, found)
    assert [arrival.how for arrival in back.identity.arrivals] == ["moved", "moved"]
    back.state.set("trip", "page", 8)
    with pytest.raises(AgentMoved):
        away.state.set("trip", "page", 9)
    sound(f"sqlite:///{rich}")
    for wrong in ("there", "back"):
        with pytest.raises(AgentExists):
            Agent.import_from(tmp_path / wrong, store=rich, passphrase="p")


class Stopped(Exception):
    """By which the program ends in the middle."""


def traveller(store_url: str, world: World) -> tuple[Agent, Callable[[], str]]:
    """An agent, and its program: two steps, an effect between them, and something that it is stopped by."""
    agent = Agent("traveller", store=store_url)

    @agent.step
    def search(city: str) -> str:
        world.do("search")
        agent.state.set("memory", "city", {"name": city, "text": rich_store.LARGE})
        return city

    @agent.effect
    def book(city: str, *, key: str) -> str:
        world.do("book")
        return f"booked {city}"

    @agent.step
    def thank(what: str) -> str:
        world.do("thank")
        return f"thanks for {what}"

    def program() -> str:
        with agent.run("trip", input="NYC") as run:
            run.messages.append({"role": "user", "content": "to NYC"})
            booked = book(search("NYC"))
            if agent.state.get("memory", "stop", True):
                raise Stopped
            run.result = thank(booked)
            return str(run.result)

    return agent, program


@pytest.mark.parametrize("home", ["file", "here"])
def test_a_moved_agent_goes_on_at_the_right_step_and_the_original_refuses(
    store_url: str, world: World, tmp_path: Path, home: str
) -> None:
    file = f"sqlite:///{tmp_path / 'other.db'}"
    origin, target = (file, store_url) if home == "file" else (store_url, file)
    agent, program = traveller(origin, world)
    with pytest.raises(Stopped):
        program()
    before, key = contents_of(agent._engine), agent.identity.public_key
    agent.export(tmp_path / "x.perdure", move=True, private_key=True, passphrase="open sesame")
    check_refused(agent, program)
    fresh, again = traveller(origin, world)
    fresh._engine.close()
    check_refused(fresh, again)

    there = Agent.import_from(tmp_path / "x.perdure", store=target, passphrase="open sesame")
    assert (contents_of(there._engine), there.identity.public_key) == (before, key)
    assert there.identity.parent is None
    there, program = traveller(target, world)
    there.state.set("memory", "stop", False)
    assert program() == "thanks for booked NYC"
    assert world.read_all() == ["search", "book", "thank"]
    assert there.state.get("memory", "city")["text"] == rich_store.LARGE
    assert [message["content"] for message in there.runs.get("trip").messages] == ["to NYC"]
    assert there.identity.verify(b"it is me", there.identity.sign(b"it is me"))
    sound(target)
    sound(origin)


def check_refused(agent: Agent, program: Callable[[], object]) -> None:
    """Whatever would write for an agent that has left."""
    other = Agent("other", store=agent._engine.url)
    acts: list[Callable[[], object]] = [
        program,
        lambda: agent.run("new").__enter__(),
        lambda: agent.state.set("memory", "stop", False),
        lambda: agent.events.append("SEEN", {}),
        lambda: agent.send_event("trip", "paid"),
        lambda: agent.runs.fork("trip"),
        lambda: agent.runs.undo("trip"),
        lambda: agent.runs.cancel("trip"),
        lambda: agent.artifacts.save("model", b"weights"),
        lambda: agent.checkpoint.create("now", {}),
        lambda: agent.workflows.create("plan", ["search"]),
    ]
    for act in acts:
        with pytest.raises(AgentMoved, match=r"has moved: it went into .*x\.perdure on "):
            act()

    def meddle() -> None:
        with other.run("meddling") as run:
            run.step(lambda: agent.state.set("memory", "stop", False), name="meddle")

    with pytest.raises(AgentMoved):
        meddle()
    assert agent.state.get("memory", "stop") is None
    assert agent.runs.get("trip").status == "failed", "it can still be read"


def test_an_open_run_is_lost_when_its_agent_moves(store_url: str, tmp_path: Path) -> None:
    agent, entered, moved = Agent("agent", store=store_url), threading.Event(), threading.Event()
    lost: list[BaseException] = []

    def work() -> None:
        try:
            with agent.run("long") as run:
                run.step(lambda: 1, name="first")
                entered.set()
                assert moved.wait()
                run.step(lambda: 2, name="second")
        except LeaseLost as error:
            lost.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait()
    Agent(agent.name, store=store_url).export(tmp_path / "x.perdure", move=True)
    moved.set()
    thread.join()
    assert len(lost) == 1
    there = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db")
    with there.run("long") as run:
        assert [run.step(lambda: 3, name=name) for name in ("first", "second")] == [1, 3]
    sound(f"sqlite:///{tmp_path / 'there.db'}")
    unsigned = [item.what for item in verify(there._engine.store).findings]
    assert "unsigned" in unsigned, "the key stayed behind, and nobody hides that"


PLACES = [
    *((Site.LEAVE, moment) for moment in (CommitMoment.BEGUN, CommitMoment.WRITTEN, CommitMoment.AFTER)),
    *((Site.UPLOAD, moment) for moment in (CommitMoment.WRITTEN, CommitMoment.AFTER)),
    *((Site.ARRIVE, moment) for moment in (CommitMoment.BEGUN, CommitMoment.WRITTEN, CommitMoment.AFTER)),
]


def test_killed_anywhere_it_is_here_or_there_and_goes_on(store_url: str, tmp_path: Path) -> None:
    path, where = tmp_path / "x.perdure", tmp_path / "there.db"

    def make() -> None:
        agent = Agent("agent", store=store_url)
        agent.artifacts.save("weights", rich_store.NOISE * 200)
        with agent.run("r") as run:
            run.step(lambda: "done", name="step")

    def move() -> None:
        if not path.exists():
            Agent("agent", store=store_url).export(path, move=True)
        Agent.import_from(path, store=where).close()

    make()
    for site, moment in PLACES:
        kill_at(move, site, moment)
        visible = (
            [name for name, *_ in Engine("looker", store=where).store.read("all_agents")] if where.exists() else []
        )
        assert visible == (["agent"] if (site, moment) == PLACES[-1] else [])
        if site == Site.LEAVE and moment != CommitMoment.AFTER:
            Agent("agent", store=store_url).state.set("still", moment, "here")
        else:
            with pytest.raises(AgentMoved):
                Agent("agent", store=store_url).state.set("still", "not", "here")
    there = Agent("agent", store=where)
    assert there.artifacts.load("weights") == rich_store.NOISE * 200
    assert dict(there.state.items("still")) == {"begun": "here", "written": "here"}
    sound(f"sqlite:///{where}")


def test_a_move_that_cannot_be_written_leaves_the_agent_at_home(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    agent.state.set("a", "b", 1)

    def full(done: int, total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        agent.export(tmp_path / "x.perdure", move=True, progress=full)
    assert list(tmp_path.glob("x.perdure*")) == []
    agent.state.set("a", "b", 2)
    with pytest.raises(FileNotFoundError):
        agent.export(tmp_path / "nowhere" / "x.perdure", move=True)
    agent.export(tmp_path / "x.perdure", move=True)
    with pytest.raises(FileExistsError):
        agent.export(tmp_path / "x.perdure", move=True)
    agent.export(tmp_path / "second.perdure", move=True)  # the first file was lost
    with pytest.raises(AgentMoved, match="--take-back"):
        Agent.import_from(tmp_path / "second.perdure", store=store_url)
    Agent.import_from(tmp_path / "second.perdure", store=store_url, take_back=True)
    agent.state.set("a", "b", 3)
    with pytest.raises(AgentExists):
        Agent.import_from(tmp_path / "second.perdure", store=store_url, take_back=True)
    sound(store_url)


# -- whose is what ----------------------------------------------------------------------------------------------------


def test_a_copy_never_believes_that_what_its_origin_has_begun_did_not_happen(
    store_url: str, world: World, tmp_path: Path
) -> None:
    def pay() -> None:
        with Agent("agent", store=store_url).run("pay") as run:
            run.effect(die, name="charge")

    run_in_child(pay)
    Agent("agent", store=store_url).export(tmp_path / "x.perdure")
    child = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db")
    with pytest.raises(RunWaiting, match="may still execute it"), child.run("pay", wait=0) as run:
        run.effect(lambda: world.do("charge"), name="charge", check=lambda: NotDone)
    assert world.read_all() == []


def test_a_copy_is_of_one_moment(store_url: str, tmp_path: Path) -> None:
    agent, stop = Agent("agent", store=store_url), threading.Event()
    agent.state.set("pair", "left", 0)
    agent.state.set("pair", "right", 0)

    def work() -> None:
        writer, number = Agent("agent", store=store_url), 0
        while not stop.is_set():
            number += 1
            with writer.run(f"run {number}") as run:
                run.step(lambda n: agent.state.set("pair", "left", n), number, name="left")
                run.step(lambda n: agent.state.set("pair", "right", n), number, name="right")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(3):
            agent.export(tmp_path / f"{number}.perdure")
    finally:
        stop.set()
        thread.join()
    for number in range(3):
        there = Agent.import_from(tmp_path / f"{number}.perdure", store=tmp_path / f"{number}.db")
        pair = dict(there.state.items("pair"))
        assert 0 <= pair["left"] - pair["right"] <= 1
        sound(f"sqlite:///{tmp_path / f'{number}.db'}")


def test_a_retired_agent_is_read_and_copied_and_writes_nothing(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    agent.state.set("a", "b", 1)
    agent.retire("replaced by another")
    with pytest.raises(AgentRetired, match="replaced by another"):
        agent.state.set("a", "b", 2)
    with pytest.raises(AgentRetired):
        agent.export(tmp_path / "x.perdure", move=True)
    agent.export(tmp_path / "x.perdure")
    child = Agent.import_from(tmp_path / "x.perdure", store=store_url, name="child")
    child.state.set("a", "b", 3)
    assert (agent.state.get("a", "b"), child.state.get("a", "b")) == (1, 3)
    with pytest.raises(AgentNotFound):
        Agent("nobody", store=store_url).export(tmp_path / "y.perdure")
    sound(store_url)


def test_an_agent_may_move_on_without_its_key_and_nothing_is_damaged(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=tmp_path / "home.db")
    agent.state.set("a", "b", 1)
    shutil.rmtree(tmp_path / "home.db.keys")  # whoever moves it does not have the key
    homes: list[Any] = [tmp_path / "home.db", store_url, tmp_path / "there.db", tmp_path / "last.db"]
    for number, (home, there) in enumerate(pairwise(homes)):
        out = Agent("agent", store=home).export(tmp_path / str(number), move=True)
        assert not out.signed
        with pytest.raises(ExportUnsigned, match="not signed"):
            Agent.import_from(out.path, store=there)
        Agent.import_from(out.path, store=there, accept_unsigned=True).close()
        findings = verify(Engine("looker", store=there).store).findings
        assert {finding.severity for finding in findings} == {"unsigned"}
