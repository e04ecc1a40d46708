"""An agent moves house: into a file and out of it, between stores of either kind, whole or not at all."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from perdure import (
    Agent,
    AgentExists,
    AgentMoved,
    AgentNotFound,
    AgentRetired,
    AsyncAgent,
    ExportDamaged,
    LeaseLost,
    NotDone,
    RunWaiting,
    StoreMovedWarning,
    WrongPassphrase,
)
from perdure.cli.main import main
from perdure.engine import Engine
from perdure.failpoints import Moment, Site
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.moving import lines
from perdure.moving.checking import check
from perdure.moving.importing import bring_in
from perdure.moving.leaving import contents_of
from tests.unit import rich_store

from .kit import World, die, in_child, killed_at

NAMES = ("travel", "keeper")


def sound(store_url: str) -> None:
    """Whatever is in a store verifies, and its views are what the journal says."""
    engine = Engine("looker", store=store_url)
    assert [it for it in verify(engine.store).findings if it.severity == "damage"] == []
    assert rebuild.check(engine.store) == []
    engine.close()


def agents_in(path: Path) -> list[str]:
    """Who lives in a file."""
    return [name for name, *_ in Engine("looker", store=path).store.read("all_agents")] if path.exists() else []


def seen(agent: Agent) -> list[Any]:
    """What the agent's users see of it."""
    runs = [(it.id, it.status, it.error) for it in agent.runs.list()]
    kept = [(it.name, it.version, it.size, it.digest) for it in agent.artifacts.list()]
    events = [(it.kind, it.run, it.at) for it in agent.events.read()]
    state = [
        (ns, agent.state.items(ns), agent.state.history(ns, key)) for ns in ("trip", "kept") for key in ("page", "k")
    ]
    threads = [(it.id, it.checkpoints, agent.threads.state(it.id)) for it in agent.threads.list()]
    points = [(it.name, it.version, it.labels) for it in agent.checkpoint.list()]
    flows = [(flow.name, flow.progress) for flow in agent.workflows.list()]
    return [sorted(runs), kept, events, state, threads, points, flows, str(agent.usage()), str(agent.savings())]


@pytest.fixture
def rich(tmp_path: Path) -> Iterator[Path]:
    """A store in which everything has happened, with two agents in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreMovedWarning)
        yield rich_store.copy_to(tmp_path / "rich.db", folded=True)


def test_everything_of_an_agent_arrives_and_comes_back(rich: Path, store_url: str, tmp_path: Path) -> None:
    for name in NAMES:
        agent = Agent(name, store=rich)
        out = agent.export(tmp_path / f"{name}.perdure")
        there = Agent.import_from(out.path, store=store_url)
        back = there.export(tmp_path / f"{name}.back")
        again = Agent.import_from(back.path, store=tmp_path / "again.db")
        assert seen(again) == seen(there) == seen(agent)
        hashes = {contents_of(it._engine).hex() for it in (agent, there, again)}
        assert hashes == {out.contents, back.contents}
        assert len({it.identity.public_key for it in (agent, there, again)}) == 3, "each is an identity of its own"
        parents = [(it.identity.parent.name, it.identity.parent.public_key) for it in (there, again)]  # type: ignore[union-attr]
        assert parents == [(name, agent.identity.public_key), (name, there.identity.public_key)]
    assert Agent("travel", store=store_url).artifacts.load("model") == rich_store.NOISE * 39 + b"edited"
    for url in (store_url, f"sqlite:///{tmp_path / 'again.db'}"):
        sound(url)


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
    refused(agent, program)
    fresh, again = traveller(origin, world)
    fresh._engine.close()
    refused(fresh, again)

    there = Agent.import_from(tmp_path / "x.perdure", store=target, passphrase="open sesame")
    assert (contents_of(there._engine), there.identity.public_key) == (before, key)
    assert there.identity.parent is None
    there, program = traveller(target, world)
    there.state.set("memory", "stop", False)
    assert program() == "thanks for booked NYC"
    assert world.all() == ["search", "book", "thank"]
    assert there.state.get("memory", "city")["text"] == rich_store.LARGE
    assert [it["content"] for it in there.runs.get("trip").messages] == ["to NYC"]
    assert there.identity.verify(b"it is me", there.identity.sign(b"it is me"))
    sound(target)
    sound(origin)


def refused(agent: Agent, program: Callable[[], object]) -> None:
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


def test_whoever_has_a_run_open_loses_it(store_url: str, tmp_path: Path) -> None:
    agent, entered, moved = Agent("agent", store=store_url), threading.Event(), threading.Event()
    lost: list[BaseException] = []

    def work() -> None:
        try:
            with agent.run("long") as run:
                run.step(lambda: 1, name="first")
                entered.set()
                assert moved.wait(20)
                run.step(lambda: 2, name="second")
        except LeaseLost as error:
            lost.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(20)
    Agent(agent.name, store=store_url).export(tmp_path / "x.perdure", move=True)
    moved.set()
    thread.join()
    assert len(lost) == 1
    there = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db")
    with there.run("long") as run:
        assert [run.step(lambda: 3, name=name) for name in ("first", "second")] == [1, 3]
    sound(f"sqlite:///{tmp_path / 'there.db'}")
    unsigned = [it.what for it in verify(there._engine.store).findings]
    assert "unsigned" in unsigned, "the key stayed behind, and nobody hides that"


PLACES = [
    *((Site.LEAVE, moment) for moment in (Moment.BEGUN, Moment.WRITTEN, Moment.AFTER)),
    *((Site.UPLOAD, moment) for moment in (Moment.WRITTEN, Moment.AFTER)),
    *((Site.ARRIVE, moment) for moment in (Moment.BEGUN, Moment.WRITTEN, Moment.AFTER)),
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
        killed_at(move, site, moment)
        visible = (
            [name for name, *_ in Engine("looker", store=where).store.read("all_agents")] if where.exists() else []
        )
        assert visible == (["agent"] if (site, moment) == PLACES[-1] else [])
        if site == Site.LEAVE and moment != Moment.AFTER:
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


def test_nothing_of_other_agents_goes_along_and_nothing_of_its_own_is_left(store_url: str, tmp_path: Path) -> None:
    agent, other = Agent("agent", store=store_url), Agent("agent/process other", store=store_url)
    with agent.run("mine") as run:

        def both() -> None:
            agent.state.set("own", "a", "mine: kept")
            other.state.set("secret", "b", "theirs: " + rich_store.LARGE)

        run.step(both, name="both")
    with other.run("theirs") as run:
        run.state["diary"] = "theirs: diary"
        run.step(lambda: agent.state.set("own", "c", "mine: " + rich_store.LARGE), name="for the other")
    other.events.append("theirs: event", {})
    agent.export(tmp_path / "x.perdure")
    assert b"theirs" not in plain(tmp_path / "x.perdure") + contents(tmp_path / "x.perdure")
    there = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db", name="child")
    assert there.state.items("own") == agent.state.items("own")
    assert [it.id for it in there.runs.list()] == ["mine"]
    assert contents_of(there._engine) == contents_of(agent._engine)
    sound(f"sqlite:///{tmp_path / 'there.db'}")


def test_a_copy_never_believes_that_what_its_origin_has_begun_did_not_happen(
    store_url: str, world: World, tmp_path: Path
) -> None:
    def pay() -> None:
        with Agent("agent", store=store_url).run("pay") as run:
            run.effect(die, name="charge")

    in_child(pay)
    Agent("agent", store=store_url).export(tmp_path / "x.perdure")
    child = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db")
    with pytest.raises(RunWaiting, match="may still be at it"), child.run("pay", wait=0) as run:
        run.effect(lambda: world.do("charge"), name="charge", check=lambda: NotDone)
    assert world.all() == []


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


# -- the file ---------------------------------------------------------------------------------------------------------


def plain(path: Path) -> bytes:
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def contents(path: Path) -> bytes:
    """All that is in a file, with nothing packed any more."""
    found = []
    for line in lines.lines_of(path):
        for field in msgspec.structs.astuple(line):
            found.append(field if isinstance(field, bytes) else str(field).encode())
        if isinstance(line, lines.Object):
            found.append(
                zstandard.ZstdDecompressor().decompress(line.data[1:]) if line.data[:1] == b"\x01" else line.data
            )
    return b"\n".join(found)


def rewritten(path: Path, edit: Callable[[list[Any]], list[Any]], *, honest: bool) -> Path:
    """The file with other lines; an honest last line fits them, and is not signed."""
    changed = edit(list(lines.lines_of(path)))
    made = path.with_name("forged.perdure")
    *body, end = [msgspec.json.encode(it) + b"\n" for it in changed]
    if honest:
        last = msgspec.structs.replace(changed[-1], sha256=sha256(b"".join(body)).digest(), signature=b"")
        end = msgspec.json.encode(last) + b"\n"
    made.write_bytes(zstandard.ZstdCompressor().compress(b"".join(body) + end))
    return made


def test_a_file_that_was_changed_is_refused_wherever_that_was(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    agent.checkpoint.create("c", {"text": [rich_store.LARGE, rich_store.NOISE]})
    with agent.run("r") as run:
        run.step(lambda: rich_store.LARGE, name="large")
    path = Path(agent.export(tmp_path / "x.perdure").path)
    assert check(path).signed
    found = list(lines.lines_of(path))

    def without(place: int) -> Callable[[list[Any]], list[Any]]:
        return lambda all_lines: all_lines[:place] + all_lines[place + 1 :]

    def later(kind: type) -> Callable[[list[Any]], list[Any]]:
        def edit(all_lines: list[Any]) -> list[Any]:
            place = max(n for n, it in enumerate(all_lines) if isinstance(it, kind))
            fields = {"at": 7} if kind is not lines.Object else {"data": b"\x00" + bytes(all_lines[place].size)}
            all_lines[place] = msgspec.structs.replace(all_lines[place], **fields)
            return all_lines

        return edit

    # Who has no key can leave out all signatures: then the file says that it is not signed.
    edits = [(without(n), True) for n, it in enumerate(found[:-1]) if not isinstance(it, lines.Seal)]
    edits += [(without(n), False) for n in range(len(found))]
    edits += [(later(kind), True) for kind in (lines.Entry, lines.Object)]
    for edit, honest in edits:
        forged = rewritten(path, edit, honest=honest)
        with pytest.raises(ExportDamaged):
            Agent.import_from(forged, store=tmp_path / "there.db", name="agent")
    whole = path.read_bytes()
    for end in (0, 1, len(whole) // 2, len(whole) - 1):
        forged.write_bytes(whole[:end])
        with pytest.raises(ExportDamaged):
            check(forged)
    assert (
        not (tmp_path / "there.db").exists() or Engine("x", store=tmp_path / "there.db").store.read("all_agents") == []
    )


def test_the_private_key_needs_its_passphrase(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    agent.state.set("a", "b", 1)
    for wrong in ({"private_key": True}, {"passphrase": "p"}):
        with pytest.raises(ValueError, match="passphrase"):
            agent.export(tmp_path / "x.perdure", **wrong)  # type: ignore[arg-type]
    agent.export(tmp_path / "x.perdure", move=True, private_key=True, passphrase="right")
    signer = agent._engine.signer
    assert signer is not None
    assert signer.seed not in contents(tmp_path / "x.perdure")
    for passphrase in (None, "wrong", ""):
        with pytest.raises(WrongPassphrase):
            Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db", passphrase=passphrase)
    there = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db", passphrase="right")
    assert there._engine.signer is not None
    assert there._engine.signer.seed == signer.seed
    assert verify(there._engine.store).findings == ()


async def test_under_asyncio_it_is_the_same(store_url: str, tmp_path: Path) -> None:
    agent = AsyncAgent("agent", store=store_url)
    await agent.state.set("a", "b", 1)
    told: list[tuple[int, int]] = []
    out = await agent.export(tmp_path / "x.perdure", move=True, progress=lambda *it: told.append(it))
    assert told[-1][0] == told[-1][1] == out.entries
    with pytest.raises(AgentMoved):
        await agent.state.set("a", "b", 2)
    there = await AsyncAgent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db")
    assert await there.state.get("a", "b") == 1
    with pytest.raises(AgentExists):
        bring_in(there._engine, out.path)


def test_the_commands_move_an_agent_and_say_so(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Agent("agent", store=store_url).state.set("a", "b", 1)
    path, there = str(tmp_path / "x.perdure"), str(tmp_path / "there.db")

    def told(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--json"]) == code
        seen = capsys.readouterr()
        return json.loads(seen.out or seen.err)

    assert "did you mean 'agent'" in told("export", "agant", path, "--store", store_url, code=2)["error"]["hint"]
    out = told("export", "agent", path, "--move", "--store", store_url)
    assert (out["agent"], out["moved"], out["signed"], out["private_key"]) == ("agent", True, True, False)
    checked = told("import", path, "--check")
    assert (checked["ok"], checked["contents"], checked["move"]) == (True, out["contents"], True)
    arrived = told("import", path, "--name", "again", "--store", there)
    assert (arrived["agent"], arrived["how"], arrived["contents"]) == ("again", "moved", out["contents"])
    Path(path).write_bytes(Path(path).read_bytes()[:-7])
    assert told("import", path, "--check", code=1)["ok"] is False
    assert told("import", path, "--store", there, code=2)["error"]["code"] == "PD805"
