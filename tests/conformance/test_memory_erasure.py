"""`agent.memory.forget(everywhere=True)`: erased where nobody needs it, and told with the reason where it is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.data import state
from perdure.data.events.read import Event
from perdure.errors import ResultErased
from perdure.journal import objects
from perdure.journal.agent_writes import SetKey
from perdure.journal.documents import IndexedDocument
from perdure.kernel.protocol import drive_sync
from perdure.memory.erasure.forget import ForgetResult
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site
from perdure.work.threads import write
from perdure.work.threads.write import NewThreadCheckpoint

from .kit import agent_at, check_views
from .test_memory_forgetting import SECRET, search_store
from .test_recall import embed_letters
from .test_transfer import KEY, OPEN


@pytest.fixture(autouse=True)
def store_uncompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "compress", lambda data: b"\x00" + bytes(data))


def list_left(report: ForgetResult) -> list[tuple[str, str]]:
    assert all(trace.left for trace in report.elsewhere)
    return sorted((trace.kind, trace.run) for trace in report.elsewhere)


def list_erased(report: ForgetResult) -> list[str]:
    return sorted(trace.kind for trace in report.erased)


# -- runs that somebody needs -----------------------------------------------------------------------------------------


class Finder:
    """A program with a step that finds the secret, and counts how often it does."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.calls = agent, 0

        def find() -> str:
            self.calls += 1
            return SECRET

        self.find = agent.step(find)

    def run(self, name: str, *, ends: bool = True) -> None:
        with suppress(KeyboardInterrupt), self.agent.run(name):
            self.find()
            if not ends:
                raise KeyboardInterrupt


def test_what_a_fork_at_work_shares_stays_until_it_is_over(store_url: str) -> None:
    agent = agent_at(store_url)
    finder = Finder(agent)
    finder.run("origin")
    agent.runs.fork("origin", at="find", to="fork")
    agent.runs.fork("fork", to="fork of the fork")
    finder.run("fork")
    report = agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    assert list_left(report) == [("step", "origin")]
    assert "fork of the fork" in report.elsewhere[0].left
    finder.run("fork of the fork")
    assert finder.calls == 1, "it was replayed"
    assert list_erased(agent.memory.forget(text=SECRET, everywhere=True)) == ["step"]
    assert search_store(store_url) == set()
    check_views(store_url)


@pytest.mark.stores("sqlite")
def test_what_was_forked_off_before_it_does_not_matter(store_url: str) -> None:
    agent = agent_at(store_url)
    finder = Finder(agent)
    finder.run("origin")
    agent.runs.fork("origin", at=1, to="fork")
    report = agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    assert (list_left(report), list_erased(report)) == ([], ["step"])
    check_views(store_url)


def test_a_fork_at_the_moment_of_an_erasure_gets_all_of_it(store_url: str) -> None:
    agent = agent_at(store_url)
    finder = Finder(agent)
    finder.run("origin")
    kept = agent.memory.remember(SECRET)

    def fork(site: Site, moment: CommitMoment) -> None:
        if (site, moment) == (Site.FORGET, CommitMoment.BEFORE):
            failpoints.arm(None)
            agent.runs.fork("origin", to="fork")

    failpoints.arm(fork)
    report = agent.memory.forget(kept, everywhere=True)
    failpoints.arm(None)
    assert list_left(report) == [("step", "origin")]
    finder.run("fork")
    assert finder.calls == 1
    check_views(store_url)


def test_what_is_part_of_a_run_at_work_stays_until_that_is_over(store_url: str) -> None:
    agent = agent_at(store_url)
    finder = Finder(agent)

    def outer(*, ends: bool) -> None:
        with suppress(KeyboardInterrupt), agent.run("outer"):
            finder.run("inner")
            if not ends:
                raise KeyboardInterrupt

    outer(ends=False)
    report = agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    assert list_left(report) == [("step", "inner")]
    assert "outer" in report.elsewhere[0].left
    outer(ends=True)
    assert finder.calls == 1
    assert list_erased(agent.memory.forget(text=SECRET, everywhere=True)) == ["step"]
    check_views(store_url)


# -- what a run came to -----------------------------------------------------------------------------------------------


def test_the_result_of_a_run_that_is_over_is_erased_and_says_so(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("over", input={"who": "bob"}) as run:
        run.result = {"answer": SECRET}
    with suppress(KeyboardInterrupt), agent.run("asked", input=SECRET):
        raise KeyboardInterrupt
    agent.runs.cancel("asked")
    report = agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    assert (list_erased(report), list_left(report)) == (["result"], [("input", "asked")])
    with pytest.raises(ResultErased, match="'over' was erased"):
        agent.runs.result("over")
    info = agent.runs.get("over")
    assert (info.status, info.finished, info.result, info.erased) == ("finished", True, None, True)
    with agent.run("over") as run:
        run.result = "something else"  # as every replay sets it
        assert run.finished
        with pytest.raises(ResultErased):
            _ = run.result
    check_views(store_url)
    agent.gc(compact_before=0.001)
    assert agent.runs.get("over").status == "finished"
    check_views(store_url)


def test_a_run_whose_result_was_erased_is_finished_wherever_its_agent_goes(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)

    @agent.task
    def answer() -> str:
        return SECRET

    assert answer.run("asked") == SECRET
    agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    with pytest.raises(ResultErased):
        answer.result("asked")
    agent.export(tmp_path / "it.perdure")
    copy = Agent.import_from(tmp_path / "it.perdure", store=tmp_path / "other.db", name="copy")
    assert copy.runs.get("asked").status == "finished"
    check_views(f"sqlite:///{tmp_path / 'other.db'}")


def test_what_an_agent_forgets_while_it_is_away_is_forgotten_at_home_too(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    kept = agent.memory.remember(SECRET)
    with agent.run("over") as run:
        run.state["secret"] = SECRET * 500
        run.messages.append(SECRET)
        run.result = SECRET
    agent.export(tmp_path / "there.perdure", move=True, **KEY)
    away = Agent.import_from(tmp_path / "there.perdure", store=tmp_path / "away.db", **OPEN)
    assert list_left(away.memory.forget(kept.id, everywhere=True)) == []
    away.export(tmp_path / "back.perdure", move=True, **KEY)
    home = Agent.import_from(tmp_path / "back.perdure", store=store_url, **OPEN)
    assert search_store(store_url) == set()
    assert (home.runs.get("over").state, home.runs.get("over").erased) == ({}, True)
    check_views(store_url)


def test_how_a_run_failed_before_it_finished_goes_too(store_url: str) -> None:
    agent = agent_at(store_url)
    with suppress(ValueError), agent.run("clumsy"):
        raise ValueError(SECRET)
    with agent.run("clumsy"):
        pass
    report = agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    assert (list_erased(report), list_left(report)) == (["failure"], [])
    assert search_store(store_url) == set()
    assert agent.runs.get("clumsy").status == "finished"
    check_views(store_url)


# -- conversations ----------------------------------------------------------------------------------------------------


def test_a_summary_of_what_was_said_is_told_and_goes_with_it(store_url: str) -> None:
    agent = agent_at(store_url)
    secret = f"{SECRET}, and so on for long: " + "what nobody needs to know " * 30

    def talk(name: str, *, ends: bool) -> None:
        with suppress(KeyboardInterrupt), agent.run(name) as run:
            run.messages.extend({"role": "user", "content": one} for one in ("hello", secret, "what else?", "bye"))
            assert "xylophage" in run.compact(keep=1).summary
            if not ends:
                raise KeyboardInterrupt

    talk("over", ends=True)
    talk("open", ends=False)
    kept = agent.memory.remember(secret)
    kinds = [trace.kind for trace in agent.memory.forget(kept).elsewhere]
    assert sorted(kinds) == ["message", "message", "summary", "summary"]
    report = agent.memory.forget(text=secret, everywhere=True)
    assert list_erased(report) == ["message", "summary"]
    assert list_left(report) == [("message", "open"), ("summary", "open")]
    agent.runs.cancel("open")
    assert list_erased(agent.memory.forget(text=secret, everywhere=True)) == ["message", "summary"]
    assert search_store(store_url) == set()
    assert len(agent.runs.get("over").messages) == 3
    check_views(store_url)


@pytest.mark.stores("sqlite")
def test_a_summary_stays_that_only_begins_alike(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("over") as run:
        run.messages.extend(f"Quetzalcoatl keeps a pet, number {n}: {'x' * 200}" for n in range(4))
        run.compact(keep=1)
    report = agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    assert (report.erased, report.elsewhere) == ((), ())


@pytest.mark.stores("sqlite")
def test_the_first_words_of_a_message_that_is_gone_are_found(store_url: str) -> None:
    """As a summary has them that an older version has left."""
    agent = agent_at(store_url)
    with agent.run("over") as run:
        run.messages.extend(["one", "two"])
        run.compact(keep=0, summarise=lambda messages: f"- user: {SECRET[:30]}…")
    report = agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    assert list_erased(report) == ["step", "summary"]
    assert search_store(store_url) == set()


# -- what lies beside the journal -------------------------------------------------------------------------------------


def test_documents_that_are_found_by_words_leave_no_word(store_url: str) -> None:
    agent = agent_at(store_url)
    kept = agent.memory.remember(SECRET)
    engine = agent._engine
    packed, made = objects.pack(engine.store, {"text": SECRET}, "value")
    place = (engine.stream, "notes", "k")
    documents = [IndexedDocument("text", SECRET, "letters", bytes(8))]
    drive_sync(engine.store, state.land(engine, Site.STATE, [SetKey(place, packed, made, documents=documents)]))
    assert {"documents"} <= search_store(store_url)
    agent.memory.forget(kept, everywhere=True)
    assert search_store(store_url) == set()
    check_views(store_url)


def note_event(state: list[Any], event: Event) -> list[Any]:
    return [*state, event.payload]


def test_what_replays_have_kept_is_told_and_goes(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.events.append("TOLD", SECRET)
    agent.events.append("TOLD", "nothing")
    assert agent.events.replay(note_event, [], snapshot="all", version=1, every=1) == [SECRET, "nothing"]
    kept = agent.memory.remember(SECRET)
    assert sorted(trace.kind for trace in agent.memory.forget(kept).elsewhere) == ["event", "snapshot"]
    report = agent.memory.forget(text=SECRET, everywhere=True)
    assert (list_erased(report), list_left(report)) == (["event", "snapshot"], [])
    assert search_store(store_url) == set()
    assert agent.events.replay(note_event, [], snapshot="all", version=1, every=1) == ["nothing"]
    check_views(store_url)


def test_what_was_deleted_is_erased_and_what_was_not_is_told(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.checkpoint.create("draft", {"text": SECRET})
    agent.checkpoint.create("draft", {"text": SECRET * 500})
    agent.artifacts.save("file", SECRET.encode() * 500)
    made = NewThreadCheckpoint("talk", "", "1", "", {}, {}, {"said": [SECRET]}, {"said": "1"})
    drive_sync(agent._engine.store, write.put_checkpoint(agent._engine, made))
    report = agent.memory.forget(agent.memory.remember(SECRET), everywhere=True)
    assert list_left(report) == [("artifact", ""), ("checkpoint", ""), ("checkpoint", ""), ("thread", "")]
    agent.checkpoint.delete("draft")
    agent.artifacts.delete("file")
    agent.threads.delete("talk")
    report = agent.memory.forget(text=SECRET, everywhere=True)
    assert (list_erased(report), list_left(report)) == (["artifact", "checkpoint", "checkpoint", "thread"], [])
    assert search_store(store_url) == set()
    assert agent.checkpoint.create("draft", 3) == 3, "no number is given twice"
    check_views(store_url)


class Index:
    """A vector database outside, in memory."""

    def __init__(self) -> None:
        self.spaces: dict[str, dict[int, Sequence[float]]] = {}
        self.marks: dict[str, int] = {}

    def put(self, space: str, vectors: Sequence[tuple[int, Sequence[float]]], mark: int) -> None:
        self.spaces.setdefault(space, {}).update(vectors)
        self.marks[space] = mark

    def mark(self, space: str) -> int:
        return self.marks.get(space, 0)

    def nearest(self, space: str, vector: Sequence[float], count: int) -> list[int]:
        return list(self.spaces.get(space, {}))[:count]

    def drop(self, space: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.spaces.get(space, {}).pop(number, None)

    def count(self, space: str) -> int:
        return len(self.spaces.get(space, {}))

    def numbers(self, space: str) -> Iterable[int]:
        return self.spaces.get(space, {})

    @property
    def all(self) -> int:
        return sum(map(len, self.spaces.values()))


def test_an_unreachable_vector_database_catches_up_on_erasure(store_url: str) -> None:
    index = Index()

    def opened(*, attached: bool, embedder: Any = embed_letters) -> Agent:
        agent = Agent("tester", store=store_url, embedder=embedder)
        agent.memory.vectors = index if attached else None
        return agent

    agent = opened(attached=True)
    secret, *_ = agent.memory.remember_all([SECRET, "The parrot", "The cat", "The dog"], kind="episodic")
    agent.memory.recall("parrot")
    assert index.all == 4
    agent.close()
    agent = opened(attached=False)
    report = agent.memory.forget(secret)
    assert any("vector database" in note for note in report.notes)
    agent.memory.remember("The fish", kind="episodic")
    agent.close()
    assert index.all == 4
    agent = opened(attached=True)
    agent.memory.recall("parrot")
    assert index.all == 4, "one is gone, one is new"
    assert agent.memory.forget(agent.memory.list()[0]).notes == opened(attached=True).memory.forget(text="x" * 8).notes
    assert index.all == 3
    agent.close()
    agent = opened(attached=True, embedder=embed_by_length)
    agent.memory.reembed()
    assert index.all == 0, "of the other model nothing is left"
    agent.memory.recall("parrot")
    assert index.all == 3
    agent.close()


def embed_by_length(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, float(len(text))] for text in texts]


# -- honest about the rest --------------------------------------------------------------------------------------------


@pytest.mark.stores("sqlite")
def test_what_was_made_of_it_in_other_words_is_told(store_url: str) -> None:
    memory = agent_at(store_url).memory
    kept = memory.remember(SECRET)
    made = memory.remember("Somebody keeps an insect", derived_from=kept)
    report = memory.forget(kept, everywhere=True)
    [trace] = report.elsewhere
    assert (trace.kind, trace.what, "rephrase" in trace.left) == ("memory", made.id, True)
    assert memory.get(made.id).text == "Somebody keeps an insect"


def test_what_other_agents_have_is_told_and_left(store_url: str, tmp_path: Path) -> None:
    """Agents share a store: what one forgets, another may need."""
    other = agent_at(store_url, "other")
    other.memory.remember(SECRET)
    other.state.set("notes", "a", {"text": SECRET, "more": 1})
    other.events.append("HEARD", {"text": SECRET})
    other.checkpoint.create("c", {"text": SECRET})
    other.workspace(tmp_path / "desk", git=False).write("MEMORY.md", f"- {SECRET}\n")
    with other.run("r") as run:
        run.step(lambda: SECRET, name="find")
        run.messages.append({"role": "user", "content": SECRET})
        run.result = SECRET
    memory = agent_at(store_url).memory
    report = memory.forget(memory.remember(SECRET), everywhere=True)
    assert {trace.left for trace in report.elsewhere} == {"it belongs to agent 'other': forget it there"}
    kinds = {"checkpoint", "event", "memory", "message", "result", "state", "step"}
    assert ({trace.kind for trace in report.elsewhere}, report.erased) == (kinds, ())
    assert other.state.get("notes", "a") == {"text": SECRET, "more": 1}
    assert (other.runs.result("r"), len(other.runs.get("r").messages)) == (SECRET, 1)
    assert (tmp_path / "desk/MEMORY.md").read_text() == f"- {SECRET}\n"
    assert other.memory.forget(text=SECRET, everywhere=True).erased
    check_views(store_url)


def test_lines_of_other_agents_in_an_archive_stay(store_url: str) -> None:
    memories = [agent_at(store_url, name) for name in ("one", "other")]
    for agent in memories:
        agent.memory.remember_all([f"{SECRET} {n}" for n in range(3)], kind="episodic")
        agent.memory.retain("episodic", max_items=1)
    [own], [others] = [agent.gc().archives for agent in memories]
    untouched = Path(others).read_bytes()
    report = memories[0].memory.forget(text=SECRET, everywhere=True)
    assert own in [trace.what for trace in report.erased]
    assert [trace.what for trace in report.elsewhere if trace.kind == "archive"] == [others]
    assert Path(others).read_bytes() == untouched


def test_a_text_is_forgotten_that_no_memory_has_any_more(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.memory.remember(f"Once: {SECRET}!")
    agent.memory.remember("Bob", user="bob")
    agent.state.set("notes", "k", SECRET)
    report = agent.memory.forget(text=SECRET)
    assert (report.count, [trace.kind for trace in report.elsewhere]) == (1, ["state"])
    assert (agent.memory.forget(text=SECRET).ids, bool(agent.memory.forget(text="nobody knows it"))) == ((), False)
    assert str(agent.memory.forget(text=SECRET)) == "nothing to forget; the text is still in 1 other places"
    report = agent.memory.forget(text=SECRET, everywhere=True)
    assert (report.count, list_erased(report), bool(report)) == (0, ["state"], True)
    assert search_store(store_url) == set()
    assert any("too short" in note for note in agent.memory.forget(user="bob").notes)
    for wrong in ({"text": "Bob"}, {"text": SECRET, "user": "bob"}):
        with pytest.raises((TypeError, ValueError)):
            agent.memory.forget(**wrong)
    check_views(store_url)


@pytest.mark.stores("sqlite")
def test_that_it_was_of_use_is_not_written_down_after_it_is_gone(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.memory.remember(SECRET)
    [kept] = agent.memory.recall("xylophage")
    agent.memory.forget(kept)
    agent.close()
    assert agent_at(store_url)._engine.store.read("all_memory_uses") == []
