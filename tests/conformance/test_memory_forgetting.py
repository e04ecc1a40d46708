"""`agent.memory.forget`: nothing of the text is left, in any row, object or index, nor in the bytes of the files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure import Agent
from perdure.errors import MemoryNotFound
from perdure.journal import objects
from perdure.platform.failpoints import CommitMoment, Site
from perdure.store.postgres.url import is_postgres
from perdure.store.remote.address import is_remote

from .kit import Behind, agent_at, check_views, find_behind, kill_at

WORDS = ("quetzalcoatl", "xylophage", "4711-0815")
SECRET = "Quetzalcoatl keeps a xylophage under number 4711-0815"
FILLER = " ".join(f"filler{n}" for n in range(2000))


def read_everything(store_url: str) -> Iterator[tuple[str, str]]:
    """All that a store has, table by table: also the tables in which an index keeps itself."""
    own = find_behind(store_url) if is_remote(store_url) else store_url
    with Behind(own) as behind:
        tables = (
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
            if is_postgres(own)
            else "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        for (table,) in behind.execute(tables):
            for row in behind.execute(f"SELECT * FROM {table}"):
                yield table, repr([_text(value) for value in row]).casefold()
    with closing(agent_at(store_url)) as agent:
        store = agent._engine.store
        for (identity,) in store.read("object_ids", (b"", 1000)):
            yield "content of an object", _text(objects.fetch(store, identity)).casefold()
    if not is_postgres(own):
        path = Path(own.removeprefix("sqlite:///"))
        for file in path.parent.glob(f"{path.name}*"):
            if file.is_file():
                yield f"the bytes of {file.name}", _text(file.read_bytes()).casefold()


def _text(value: object) -> str:
    return bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else str(value)


def search_store(store_url: str) -> set[str]:
    return {where for where, text in read_everything(store_url) if any(word in text for word in WORDS)}


def fill(agent: Agent) -> None:
    """The secret in every form that a memory has, beside others that stay."""
    memory = agent.memory
    many = [{"text": f"Number {n} is of no importance", "meta": {"n": "x" * n}} for n in range(40)]
    memory.remember_all(many, kind="episodic", user="bob")
    first = memory.remember(SECRET, about="quetzalcoatl", user="quetzalcoatl", tags=["xylophage"], meta={"why": SECRET})
    memory.remember(SECRET + "!", about="quetzalcoatl", user="quetzalcoatl", source="xylophage mail")
    memory.remember(f"{SECRET} {FILLER}", kind="procedural", user="quetzalcoatl", meta={"large": SECRET * 200})
    memory.remember("Moved away: " + SECRET, about="quetzalcoatl", user="quetzalcoatl", supersedes=first)

    @agent.step
    def tell() -> None:
        memory.remember(f"In a step, {SECRET}", kind="episodic", user="quetzalcoatl")

    with agent.run("telling"):
        tell()
    memory.remember("Of bob", about="bob", user="bob", meta={"large": FILLER})


@pytest.fixture(autouse=True)
def store_uncompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "compress", lambda data: b"\x00" + bytes(data))


def test_nothing_is_left_of_what_was_forgotten(store_url: str) -> None:
    agent = agent_at(store_url)
    fill(agent)
    assert {"journal", "memories", "objects"} <= search_store(store_url)
    report = agent.memory.forget(user="quetzalcoatl", reason="asked for it", by="ann")
    assert (report.count, report.entries, report.elsewhere, report.erased) == (4, 5, (), ())
    assert report.objects > 0
    assert search_store(store_url) == set()
    agent.close()
    again = agent_at(store_url)
    assert search_store(store_url) == set()
    assert again.memory.list(user="quetzalcoatl", all=True) == again.memory.recall("xylophage") == []
    assert len(again.memory.list()) == 41
    assert again.memory.list(about="bob")[0].meta == {"large": FILLER}
    with pytest.raises(MemoryNotFound):
        again.memory.get(report.ids[0])
    with again.run("telling") as run:
        assert run.finished
    assert again.memory.forget(user="quetzalcoatl").count == 0
    with pytest.raises(TypeError, match="say which"):
        again.memory.forget()
    check_views(store_url)


def test_where_else_it_is_is_told_and_everywhere_erases_it(store_url: str) -> None:
    agent = agent_at(store_url)
    kept = agent.memory.remember(SECRET, user="q")
    agent.memory.remember(f"Summary: {SECRET}", derived_from=kept)
    agent.state.set("notes", "q", [SECRET, FILLER])
    agent.state.set("notes", "other", "stays")
    agent.checkpoint.create("draft", {"text": SECRET})

    @agent.step
    def recall() -> list[str]:
        return [memory.text for memory in agent.memory.recall("xylophage")]

    with agent.run("over") as run:
        recall()
        run.messages.append({"role": "user", "content": SECRET})
        run.event("TOLD", SECRET)
        run.state["n"] = 1
    with pytest.raises(KeyboardInterrupt), agent.run("open") as run:
        run.messages.append(SECRET)
        raise KeyboardInterrupt
    told = agent.memory.forget(kept)
    kinds = sorted(trace.kind for trace in told.elsewhere)
    assert kinds == ["checkpoint", "event", "memory", "message", "message", "state", "step"]
    assert {trace.run for trace in told.elsewhere} == {"", "over", "open"}
    again = agent.memory.remember(SECRET, user="q")
    report = agent.memory.forget(again, everywhere=True)
    assert (report.count, agent.memory.list(all=True)) == (2, [])  # with the summary
    assert sorted(trace.kind for trace in report.erased) == ["event", "message", "state", "step"]
    assert sorted((trace.kind, trace.run) for trace in report.elsewhere) == [("checkpoint", ""), ("message", "open")]
    assert all(trace.left for trace in report.elsewhere)
    assert (agent.state.get("notes", "q"), agent.state.get("notes", "other")) == (None, "stays")
    assert agent.runs.get("over").state == {"n": 1}
    agent.checkpoint.delete("draft")
    agent.runs.cancel("open")
    check_views(store_url)


def test_what_a_step_wrote_beside_the_text_stays(store_url: str) -> None:
    agent = agent_at(store_url)
    kept = agent.memory.remember(f'{SECRET}, says "Zoë"', user="q")

    @agent.step
    def think() -> list[str]:
        agent.state.set("bank", "balance", 42)
        run.messages.append({"role": "assistant", "content": "innocent"})
        return [memory.text for memory in agent.memory.recall("xylophage")]

    with agent.run("over") as run:
        think()
        arguments = [json.dumps({"text": kept.text}, ensure_ascii=value) for value in (True, False)]
        run.messages.extend({"role": "tool", "content": one} for one in arguments)
    version = agent.state.version("bank", "balance")
    report = agent.memory.forget(kept, everywhere=True)
    assert search_store(store_url) == set()
    assert (agent.state.get("bank", "balance"), agent.state.version("bank", "balance")) == (42, version)
    assert any("one more thing" in note for note in report.notes)
    check_views(store_url)


def test_what_two_share_stays_for_the_other(store_url: str) -> None:
    agent = agent_at(store_url)
    mine = agent.memory.remember(FILLER, kind="episodic", user="ann")
    theirs = agent.memory.remember(FILLER, kind="episodic", user="bob")
    assert agent.memory.forget(mine).objects == 0
    assert agent.memory.get(theirs.id).text == FILLER
    assert agent.memory.forget(theirs).objects == 1
    check_views(store_url)


def test_what_was_replaced_stays_so_and_a_repetition_goes_with_its_source(store_url: str) -> None:
    memory = agent_at(store_url).memory
    old = memory.remember("The office is in Rome", about="office")
    memory.remember("The office is in Rome.", about="office", source="web")
    new = memory.remember("The office is in Oslo", about="office", supersedes=old)
    assert memory.forget(source="web").entries == 1
    assert memory.get(old.id).count == 1
    memory.forget(new.id)
    assert (memory.get(old.id).current, memory.list(about="office")) == (False, [])
    check_views(store_url)


def test_killed_while_it_forgets_all_of_it_is_there_or_nothing(store_url: str) -> None:
    fill(agent := agent_at(store_url))
    agent.close()
    for moment in CommitMoment:
        kill_at(lambda: agent_at(store_url).memory.forget(user="quetzalcoatl"), Site.FORGET, moment)
        with closing(agent_at(store_url)) as agent:
            left = len(agent.memory.list(user="quetzalcoatl", all=True))
            assert left == (0 if moment == CommitMoment.AFTER else 4)
            # Who was killed did not come to empty the log: who has opened the store now has done it in his place.
            assert bool(search_store(store_url)) == bool(left)
        check_views(store_url)


def test_killed_before_views_are_made_anew_the_next_one_does_all_that_is_left(store_url: str) -> None:
    agent = agent_at(store_url)
    kept = agent.memory.remember(SECRET)
    with agent.run("over") as run:
        run.state["secret"] = SECRET
    agent.close()
    kill_at(lambda: agent_at(store_url).memory.forget(kept, everywhere=True), Site.REBUILD, CommitMoment.BEFORE)
    with closing(agent_at(store_url)) as agent:
        assert agent.runs.get("over").state == {}
    assert search_store(store_url) == set()
    check_views(store_url)
