"""An import that fails, or is killed, leaves nothing: no row, no large value, no key, no archive, no temporary file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure import records as r
from perdure.errors import AgentExists, ExportDamaged, StorageFull
from perdure.journal.keys import SigningKey
from perdure.journal.object_gc import collect
from perdure.kernel.engine import Engine
from perdure.platform.failpoints import CommitMoment, Site
from perdure.transfer import file_format, import_file
from perdure.transfer.import_writes import ImportEntries

from . import rich_store
from .forged_files import Forger, dump, replace
from .kit import Behind, kill_at
from .test_transfer import sound
from .test_transfer_archives import compact, finish, let_go

STRANGER = SigningKey(bytes(range(32)))


def make_loaded_agent(url: str, path: Path, **more: Any) -> Path:
    """An agent with everything that is written before its entries: large values, archives, a key."""
    agent = Agent("agent", store=url)
    finish(agent, "old")
    compact(agent)
    let_go(agent)
    agent.artifacts.save("weights", rich_store.NOISE * 400)
    agent.state.set("a", "b", rich_store.LARGE)
    agent.memory.remember(rich_store.LARGE, about="pages")
    agent.export(path, **more)
    agent.close()
    return path


def make_request(**more: Any) -> dict[str, Any]:
    return {"private_key": True, "passphrase": "p", **more}


@pytest.fixture
def loaded_file(tmp_path: Path) -> Path:
    """A move of it, with the private key."""
    (tmp_path / "home").mkdir()
    return make_loaded_agent(
        f"sqlite:///{tmp_path / 'home' / 'home.db'}", tmp_path / "home" / "x", **make_request(move=True)
    )


def make_inhabited_store(url: str) -> None:
    """Somebody lives in the store already, and has large values of their own."""
    other = Agent("other", store=url)
    other.state.set("a", "b", rich_store.LARGE)
    other.artifacts.save("weights", rich_store.NOISE * 40)
    other.close()


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """The commit of the entries fails when all of them are written."""

    def say(self: ImportEntries, arriving: Any) -> Any:
        yield []
        raise error

    monkeypatch.setattr(ImportEntries, "_record_arrival", say)


@pytest.mark.parametrize("error", [StorageFull("no space"), KeyboardInterrupt(), AgentExists("just now")])
def test_a_commit_that_fails_leaves_nothing(
    loaded_file: Path, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    make_inhabited_store(store_url)
    before = dump(store_url, tmp_path)
    with monkeypatch.context() as patched:
        fails(patched, error)
        with pytest.raises(type(error)):
            Agent.import_from(loaded_file, store=store_url, passphrase="p")
    assert dump(store_url, tmp_path) == before
    there = Agent.import_from(loaded_file, store=store_url, passphrase="p")
    assert there.artifacts.load("weights") == rich_store.NOISE * 400
    sound(store_url)


def test_what_was_committed_is_not_undone_when_its_answer_is_lost(
    loaded_file: Path, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_inhabited_store(store_url)
    real = import_file._AgentImport._write

    def write(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        raise StorageFull("after the commit")

    monkeypatch.setattr(import_file._AgentImport, "_write", write)
    with pytest.raises(StorageFull):
        Agent.import_from(loaded_file, store=store_url, passphrase="p")
    there = Agent("agent", store=store_url)
    assert there.artifacts.load("weights") == rich_store.NOISE * 400
    assert there._engine.signer is not None, "its key is here"
    sound(store_url)


@pytest.mark.parametrize(
    ("site", "moment"),
    [
        (Site.UPLOAD, CommitMoment.AFTER),
        *((Site.ARRIVE, moment) for moment in (CommitMoment.BEGUN, CommitMoment.WRITTEN)),
    ],
)
def test_an_import_killed_before_its_commit_can_be_repeated(
    loaded_file: Path, store_url: str, tmp_path: Path, site: Site, moment: CommitMoment
) -> None:
    make_inhabited_store(store_url)
    before = dump(store_url, tmp_path / "nowhere")
    kill_at(lambda: Agent.import_from(loaded_file, store=store_url, passphrase="p"), site, moment)
    after = dump(store_url, tmp_path / "nowhere")
    waits = ("objects", "uploads", "upload_objects")
    assert {name: rows for name, rows in after.items() if name not in waits} == {
        name: rows for name, rows in before.items() if name not in waits
    }
    assert set(before["objects"]) <= set(after["objects"])
    with Behind(store_url) as store:
        store.execute("DELETE FROM holders")  # as if the lease of the killed process had run out
    engine = Engine("looker", store=store_url)
    collect(engine.store, grace=-1)  # what `perdure gc` does a day later
    engine.close()
    assert dump(store_url, tmp_path / "nowhere") == before
    there = Agent.import_from(loaded_file, store=store_url, passphrase="p")
    assert there.artifacts.load("weights") == rich_store.NOISE * 400
    sound(store_url)


CONTRADICTIONS: dict[str, Callable[[Any], Any]] = {
    "two memories of one id": lambda item: replace(item, id="one"),
    "a memory without a text": lambda item: replace(item, value=b"\x00\x01"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_what_only_the_store_finds_out_is_told_and_leaves_nothing(store_url: str, tmp_path: Path, what: str) -> None:
    (tmp_path / "home").mkdir()
    agent = Agent("agent", store=tmp_path / "home" / "home.db")
    agent.artifacts.save("weights", rich_store.NOISE * 40)
    for text in ("Ann lives in Oslo", "Bob likes tea"):
        agent.memory.remember(text, about=text[:3])
    forger = Forger(Path(agent.export(tmp_path / "home" / "x").path))
    for place, _, record in list(forger.records()):
        if isinstance(record, r.MemoryKept):
            forger.put(place, CONTRADICTIONS[what](record))
    forger.drop_lines(file_format.ExportPiece, file_format.ExportVector)
    forged = forger.write_file(signer=STRANGER)
    make_inhabited_store(store_url)
    before = dump(store_url, tmp_path)
    with pytest.raises(ExportDamaged):
        Agent.import_from(forged, store=store_url)
    assert dump(store_url, tmp_path) == before


def test_an_archive_of_others_is_neither_replaced_nor_thinned_out(file_url: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    forger = Forger(make_loaded_agent(f"sqlite:///{tmp_path / 'home' / 'home.db'}", tmp_path / "home" / "x"))
    victim = Agent("victim", store=file_url)
    let_go(victim)
    [kept] = Path(f"{file_url.removeprefix('sqlite:///')}.archive").glob("*.memories.jsonl")
    content = kept.read_bytes()
    name = next(
        item.name
        for item in forger.lines
        if isinstance(item, file_format.ExportArchive) and item.name.endswith("memories.jsonl")
    )
    forged = Forger(tmp_path / "home" / "x")
    forged.lines = [
        replace(item, name=kept.name) if isinstance(item, file_format.ExportArchive) and item.name == name else item
        for item in forged.lines
    ]
    path = forged.write_file(rechain=False)
    with pytest.raises(ExportDamaged, match="the journal names no memories"):
        Agent.import_from(path, store=file_url, accept_unsigned=True)
    assert kept.read_bytes() == content
    assert sorted(os.listdir(kept.parent)) == [kept.name]


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/b", ""])
def test_an_archive_leads_nowhere_whatever_its_journal_calls_it(file_url: str, tmp_path: Path, name: str) -> None:
    (tmp_path / "home").mkdir()
    agent = Agent("agent", store=tmp_path / "home" / "home.db")
    let_go(agent)
    forger = Forger(Path(agent.export(tmp_path / "home" / "x").path))
    forger.change(r.MemoryForgotten, lambda item: replace(item, ids=(name,)))
    forger.lines = [
        replace(line, name=f"{name}.memories.jsonl") if isinstance(line, file_format.ExportArchive) else line
        for line in forger.lines
    ]
    with pytest.raises(ExportDamaged, match="is not the name of an archive"):
        Agent.import_from(forger.write_file(signer=STRANGER), store=file_url, name="child")
    assert list(tmp_path.rglob("*escaped*")) == []
