"""What lies beside a moving agent: archives go along or are told of, waits that lead nowhere say so, and no twins."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from perdure import Agent
from perdure.cli.main import main
from perdure.errors import AgentExists, AgentMoved, ExportDamaged, StoreUnavailable
from perdure.journal import archive
from perdure.platform.failpoints import CommitMoment, Site
from perdure.store import open_store
from perdure.store.base import Store
from perdure.transfer import file_format
from perdure.transfer.check import check

from . import rich_store
from .kit import kill_at
from .test_transfer import KEY, OPEN, sound
from .test_transfer_file import decompress_file

AT_ONCE = 1e-6


def finish(agent: Agent, name: str) -> None:
    """A run that is worth compaction."""
    with agent.run(name) as run:
        for number in range(8):
            run.step(lambda n=number: f"{name} {n}: {rich_store.LARGE}", name=f"step {number}")
        run.result = name


def compact(agent: Agent, **more: Any) -> tuple[str, ...]:
    time.sleep(0.005)
    return tuple(agent.gc(compact_before=AT_ONCE, **more).archives)


def let_go(agent: Agent) -> str:
    """A memory that a rule has let go; returns the archive."""
    agent.memory.remember("Bob was here, and nobody cares", about="bob", importance=0.1)
    agent.memory.remember("Ann was here", about="ann", importance=0.9)
    agent.memory.retain("semantic", max_items=1)
    [path] = agent.gc().archives
    return path


def folder_of(agent: Agent) -> Path:
    return Path(archive.folder_of(agent._engine.store))


def read_archives(agent: Agent) -> dict[str, bytes]:
    """What is beside the store of an agent."""
    folder = folder_of(agent)
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    """What a command says."""
    assert main([*arguments, "--json"]) == code
    seen = capsys.readouterr()
    return json.loads(seen.out or seen.err)


def open_store_at(url: str) -> Store:
    return open_store(url)


# -- archives ---------------------------------------------------------------------------------------------------------


def test_archives_go_along_and_are_known_where_they_arrive(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = f"sqlite:///{tmp_path / 'first.db'}"
    Agent("other", store=store_url).state.set("a", "b", 1)  # so that numbers of streams are other ones there
    agent = Agent("agent", store=first)
    finish(agent, "old")
    compact(agent)
    let_go(agent)
    before = read_archives(agent)
    assert len(before) == 2
    out = agent.export(tmp_path / "1.perdure", move=True, private_key=True, passphrase="p")
    assert (out.archives, out.notes) == (2, ())
    assert check(out.path).archives == 2

    there = Agent.import_from(out.path, store=store_url, passphrase="p")
    assert sorted(read_archives(there).values()) == sorted(before.values()), "byte for byte"
    name = there.runs.get("old").archive
    assert name.startswith(agent._engine.store.identity) and name in read_archives(there)
    for arguments in (("verify", *read_archives(there)), ("show", name)):
        assert main(["archive", *arguments, "--store", store_url]) == 0
    assert "matches this one" in (said := capsys.readouterr().out)
    assert "step 7" in said

    # Compacted once more, and moved on: what comes later names what came before, wherever it is.
    there.state.set("s", "k", rich_store.LARGE[:500])
    for number in range(12):
        there.state.set("s", "k", [number, rich_store.LARGE[:500]])
    finish(there, "new")
    assert len(compact(there)) >= 2
    every = read_archives(there)
    there.export(tmp_path / "2.perdure", move=True, private_key=True, passphrase="p")
    last = Agent.import_from(tmp_path / "2.perdure", store=tmp_path / "last.db", passphrase="p")
    assert sorted(read_archives(last).values()) == sorted(every.values())
    assert last.runs.get("old").archive == name
    assert last.runs.get("new").archive in read_archives(last)
    assert main(["archive", "verify", *read_archives(last), "--store", f"sqlite:///{tmp_path / 'last.db'}"]) == 0
    for url in (first, store_url, f"sqlite:///{tmp_path / 'last.db'}"):
        sound(url)


def test_a_stream_that_was_compacted_in_two_stores_has_all_of_its_archives(file_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=file_url)

    def change(whose: Agent) -> None:
        for number in range(12):
            whose.state.set("s", "k", [number, rich_store.LARGE[:200]])

    change(agent)
    compact(agent)
    change(agent)
    compact(agent)
    assert len(read_archives(agent)) == 3, "of one stream two, of which the second names the first"
    assert agent.export(tmp_path / "x.perdure").notes == ()
    child = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db", name="child")
    assert sorted(read_archives(child).values()) == sorted(read_archives(agent).values())
    assert len(read_archives(Agent.import_from(tmp_path / "x.perdure", store=file_url, name="sister"))) == 3, (
        "in one place"
    )
    sound(f"sqlite:///{tmp_path / 'there.db'}")


def test_what_stays_behind_is_told_at_once_and_in_the_file(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, elsewhere = Agent("agent", store=store_url), tmp_path / "elsewhere"
    finish(agent, "old")
    [path] = [Path(item) for item in compact(agent, archive=elsewhere)]
    dry = agent.export(tmp_path / "x.perdure", move=True, dry_run=True)
    assert not (tmp_path / "x.perdure").exists()
    agent.state.set("still", "at", "home")
    out = run_command(capsys, "export", "agent", str(tmp_path / "x.perdure"), "--store", store_url)
    [note] = out["notes"]
    assert dry.notes == (note,) and dry.dry_run
    assert path.name in note and str(folder_of(agent)) in note
    assert run_command(capsys, "import", str(tmp_path / "x.perdure"), "--check")["notes"] == [note]
    there = str(tmp_path / "there.db")
    assert run_command(capsys, "import", str(tmp_path / "x.perdure"), "--store", there)["notes"] == [note]

    whole = agent.export(tmp_path / "y.perdure", archive=elsewhere)
    assert (whole.archives, whole.notes) == (1, ())
    path.write_bytes(path.read_bytes()[:-9])
    [note] = agent.export(tmp_path / "z.perdure", archive=elsewhere).notes
    assert path.name in note and "stays behind" in note
    with pytest.raises(NotADirectoryError):
        agent.export(tmp_path / "0.perdure", archive=tmp_path / "nowhere")


def test_an_archive_that_others_have_something_in_stays(file_url: str, tmp_path: Path) -> None:
    agent, other = Agent("agent", store=file_url), Agent("other", store=file_url)
    with agent.run("old") as run:
        for number in range(8):
            run.step(
                lambda n=number: other.state.set("secret", "k", f"theirs {n} {rich_store.LARGE}"), name=f"s {number}"
            )
    assert len(compact(agent)) == 1
    out = agent.export(tmp_path / "x.perdure")
    assert out.archives == 0
    assert "it holds data of other agents" in out.notes[0]
    assert b"theirs" not in decompress_file(tmp_path / "x.perdure")


def test_what_was_compacted_moves_without_the_key_too(file_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=file_url)
    finish(agent, "old")
    compact(agent)
    agent.export(tmp_path / "x.perdure", move=True)

    def arrive() -> Agent:
        return Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db")

    kill_at(arrive, Site.ARRIVE, CommitMoment.WRITTEN)  # when archives are there, and nothing else
    there = arrive()
    assert [there.runs.get("old").archive] == list(read_archives(there))
    sound(f"sqlite:///{tmp_path / 'there.db'}")


def rewritten(path: Path, change: Callable[[Any], Any]) -> Path:
    """The file with other lines, as somebody without a key could write it."""
    made = path.with_name("forged.perdure")
    *body, end = [change(line) for line in file_format.lines_of(path)]
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in body)
    last = msgspec.structs.replace(end, sha256=sha256(data).digest(), signature=b"")
    made.write_bytes(zstandard.ZstdCompressor().compress(data + msgspec.json.encode(last) + b"\n"))
    return made


def test_a_forged_archive_is_refused_and_leads_nowhere(file_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=file_url)
    finish(agent, "old")
    compact(agent)
    let_go(agent)
    path = Path(agent.export(tmp_path / "x.perdure").path)
    finish(agent, "another")
    compact(agent)
    another = Path(agent.export(tmp_path / "y.perdure").path)
    parts = [line for line in file_format.lines_of(another) if isinstance(line, file_format.ExportArchivePart)]

    def called(name: str) -> Callable[[Any], Any]:
        return lambda item: (
            file_format.ExportArchive(name, item.size) if isinstance(item, file_format.ExportArchive) else item
        )

    def filled(item: Any) -> Any:
        return (
            file_format.ExportArchivePart(bytes(len(item.data)))
            if isinstance(item, file_format.ExportArchivePart)
            else item
        )

    def cut(item: Any) -> Any:
        return (
            file_format.ExportArchive(item.name, item.size + 1) if isinstance(item, file_format.ExportArchive) else item
        )

    names = ["../escaped.memories.jsonl", "/tmp/x.memories.jsonl", "x.db", f"{'0' * 32}-../../1.jsonl.zst", ""]
    known = next(line.name for line in file_format.lines_of(path) if isinstance(line, file_format.ExportArchive))
    names.append(known[:-30] + "9" + known[-29:])
    assert len(parts) > 2
    for change in (*map(called, names), filled, cut):
        with pytest.raises(ExportDamaged):
            Agent.import_from(rewritten(path, change), store=tmp_path / "there.db")
    assert list(tmp_path.rglob("escaped*")) == []
    assert not any((tmp_path / "there.db.archive").glob("*"))


def test_a_forgotten_text_is_in_no_archive_that_moves_or_comes_back(file_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=file_url)
    path = Path(let_go(agent))
    agent.export(tmp_path / "1", move=True, private_key=True, passphrase="p")
    away = Agent.import_from(tmp_path / "1", store=tmp_path / "away.db", passphrase="p")
    away.memory.remember("Dan was here, and nobody cares", about="dan", importance=0.1)
    assert b"Bob" in (folder_of(away) / path.name).read_bytes()
    again = away.memory.remember("Bob was here, and nobody cares", about="bob")
    [trace] = away.memory.forget(again).elsewhere
    assert trace.what == str(folder_of(away) / path.name), "what has come along is looked through too"
    path.write_bytes(path.read_bytes() + path.read_bytes().replace(b"Bob", b"Eve").replace(b'"id":"', b'"id":"x'))
    away.export(tmp_path / "2", move=True, private_key=True, passphrase="p")
    Agent.import_from(tmp_path / "2", store=file_url, passphrase="p")
    assert b"Eve" not in path.read_bytes(), "what only one of the two has was forgotten in the other place"
    assert b"Bob" in path.read_bytes()


# -- twins ------------------------------------------------------------------------------------------------------------


def test_a_moved_file_is_imported_once_into_a_store_under_whatever_name(store_url: str, tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    agent = Agent("agent", store=store_url)
    agent.state.set("a", "b", 1)
    agent.export(tmp_path / "x", move=True, private_key=True, passphrase="p")
    moved = Agent.import_from(tmp_path / "x", store=there, name="first", passphrase="p")
    for name in (None, "first", "second"):
        with pytest.raises(AgentExists):
            Agent.import_from(tmp_path / "x", store=there, name=name, passphrase="p")
    moved.export(tmp_path / "y", move=True)
    with pytest.raises(AgentExists, match="was imported here on"):
        Agent.import_from(tmp_path / "x", store=there, name="second", passphrase="p")
    assert [name for name, *_ in open_store_at(f"sqlite:///{there}").read("all_agents")] == ["first"]


def test_an_agent_renamed_in_its_own_store_is_not_imported_a_second_time(file_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=file_url)
    agent.state.set("a", "b", 1)
    agent.export(tmp_path / "x", move=True)
    Agent.import_from(tmp_path / "x", store=file_url, name="renamed").state.set("a", "b", 2)
    with pytest.raises(AgentExists, match="as 'renamed'"):
        Agent.import_from(tmp_path / "x", store=file_url, take_back=True)
    with pytest.raises(AgentMoved):
        agent.state.set("a", "b", 3)


def test_twins_in_two_stores_are_known_by_their_numbers(
    file_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent("agent", store=file_url)
    agent.state.set("a", "b", 1)
    agent.export(tmp_path / "x", move=True, **KEY)
    twins = [Agent.import_from(tmp_path / "x", store=tmp_path / f"{number}.db", **OPEN) for number in range(2)]
    one, two = [item.identity.arrivals[-1] for item in twins]
    assert one.file == two.file and one.number != two.number
    said = run_command(capsys, "verify", "--store", str(tmp_path / "0.db"))
    assert [(item["agent"], item["number"], item["file"]) for item in said["arrivals"]] == [
        ("agent", one.number, one.file)
    ]
    # Whichever comes back first is the one; the other is refused.
    for number, twin in enumerate(twins):
        twin.export(tmp_path / f"back {number}", move=True, **KEY)
    Agent.import_from(tmp_path / "back 1", store=file_url, **OPEN)
    with pytest.raises(AgentExists):
        Agent.import_from(tmp_path / "back 0", store=file_url, **OPEN)


def test_the_store_that_it_left_lets_it_arrive_once_if_it_is_asked(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    agent.state.set("a", "b", 1)
    agent.export(tmp_path / "x", move=True, **KEY)
    agent.export(tmp_path / "y", move=True, **KEY)  # the first was thought to be lost
    one, two = (tmp_path / name for name in ("one.db", "two.db"))
    first = Agent.import_from(tmp_path / "x", store=one, origin=store_url, **OPEN)
    for file in ("x", "y"):
        with pytest.raises(AgentMoved, match=r"one\.db"):
            Agent.import_from(tmp_path / file, store=two, origin=store_url, **OPEN)
    assert open_store_at(f"sqlite:///{two}").read("all_agents") == []
    for act in (
        lambda: agent.state.set("a", "b", 2),
        lambda: agent.export(tmp_path / "z", move=True, **KEY),
        lambda: Agent.import_from(tmp_path / "y", store=store_url, take_back=True, **OPEN),
    ):
        with pytest.raises(AgentMoved, match=r"into sqlite:///.*one\.db"):
            act()
    sound(store_url)

    with pytest.raises(AgentExists, match="was imported here"):  # who asks again, in the same store, is let through
        Agent.import_from(tmp_path / "x", store=one, origin=store_url, **OPEN)
    first.state.set("a", "b", 3)
    first.export(tmp_path / "back", move=True, **KEY)
    back = Agent.import_from(tmp_path / "back", store=store_url, origin=one, **OPEN)
    back.state.set("a", "c", 4)
    assert dict(back.state.items("a")) == {"b": 3, "c": 4}
    assert [(item.how, item.store) for item in back.identity.arrivals] == [
        ("moved", agent._engine.store.identity),
        ("moved", first._engine.store.identity),
    ]
    # And away once more: what each of the two stores has been told meanwhile is in both.
    back.export(tmp_path / "again", move=True, **KEY)
    again = Agent.import_from(tmp_path / "again", store=one, origin=store_url, **OPEN)
    assert dict(again.state.items("a")) == {"b": 3, "c": 4}
    assert len(again.identity.arrivals) == 3
    for url in (store_url, f"sqlite:///{one}"):
        sound(url)


def test_an_origin_must_be_the_one_and_the_move_must_hold(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=store_url)
    agent.state.set("a", "b", 1)
    agent.export(tmp_path / "copy")
    agent.export(tmp_path / "x", move=True)
    Agent.import_from(tmp_path / "x", store=store_url, take_back=True)
    agent.export(tmp_path / "y", move=True)
    Agent("other", store=tmp_path / "other.db").state.set("a", "b", 1)
    wrong: list[tuple[str, Any, Any, str]] = [
        ("copy", store_url, ValueError, "a copy does not replace its original"),
        ("y", tmp_path / "other.db", StoreUnavailable, "is not the store"),
        ("y", tmp_path / "nowhere.db", StoreUnavailable, "there is no store"),
        ("x", store_url, AgentExists, "has continued in"),
    ]
    for file, origin, error, words in wrong:
        with pytest.raises(error, match=words):
            Agent.import_from(tmp_path / file, store=tmp_path / "there.db", origin=origin)
    assert not (tmp_path / "nowhere.db").exists()
    kill_at(
        lambda: Agent.import_from(tmp_path / "y", store=tmp_path / "there.db", origin=store_url),
        Site.ARRIVE,
        CommitMoment.WRITTEN,
    )
    Agent.import_from(tmp_path / "y", store=tmp_path / "there.db", origin=store_url)
