"""What deleting a conversation erases, what outlasts it, and what a process finds that was killed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, RunBusy, RunWaiting
from perdure.errors import RunDeleted, RunNotFound, ThreadNotFound, TurnUnfinished
from perdure.journal import rebuild
from perdure.platform.failpoints import CommitMoment, Site

from .chat import Chat, kill_in_turn
from .kit import WallClock, World, check_views, kill_at

SECRET = "The gold is buried under the third oak tree."
LARGE = "oak " * 20_000


def spoken(program: Chat) -> None:
    """A turn that leaves a secret wherever a turn can leave one."""
    agent = program.agent

    def noted() -> str:
        agent.state.set("places", "kept", "a map")
        agent.memory.remember("The user likes trees.", thread="user")
        agent.checkpoint.create("kept", {"a": 1})
        return SECRET

    with program.thread.turn(SECRET, id="request-1") as turn:
        agent.step(name="note")(noted)()
        agent.step(name="large")(lambda: LARGE + SECRET)()
        turn.state["secret"] = SECRET
        turn.event("SPOKEN", {"text": SECRET})
        agent.events.append("SPOKEN", {"in the open": SECRET})
        turn.usage(model="gpt-4o", input_tokens=100, output_tokens=10)
        program.thread.state["where"] = SECRET
        with agent.run("nested", input=SECRET) as run:
            run.result = SECRET
        program.pay(5)
        turn.reply(f"re: {SECRET}")
    program.thread.state["outside"] = SECRET


def stored(agent: Agent) -> bytes:
    """Everything that the store has: the bytes of its files, or every row of its tables."""
    store = agent._engine.store
    if store.one_host:
        return b"".join(path.read_bytes() for path in Path(store.path).parent.rglob("perdure.db*") if path.is_file())
    queries = (
        "all_runs",
        "all_run_state",
        "all_agent_state",
        "all_answers",
        "all_questions",
        "all_signals",
        "all_tasks",
    )
    rows: list[Any] = [row for query in queries for row in store.read(query)]
    for stream, *_ in store.read("all_streams"):
        rows += store.read("journal_of", (stream, 0))
    return repr(rows).encode()


def test_a_deleted_conversation_is_in_no_file(program: Chat) -> None:
    spoken(program)
    assert SECRET.encode() in stored(program.agent)
    assert program.thread.delete() == 1
    assert SECRET.encode() not in stored(program.agent)
    with pytest.raises(RunDeleted):
        program.agent.runs.get("user#1")
    with pytest.raises(RunNotFound), program.agent.run("nested"):
        pass
    assert [run.id for run in program.agent.runs.list()] == []
    check_views(program.agent)


def test_what_the_agent_learned_outlasts_the_conversation(program: Chat) -> None:
    agent = program.agent
    spoken(program)
    agent.events.append("EARLIER")
    before = (agent.usage().cost_usd, agent.usage().calls)
    program.thread.delete()
    for _ in range(2):
        assert agent.state.get("places", "kept") == "a map"
        assert [one.value for one in agent.state.history("places", "kept")] == ["a map"]
        assert [one.text for one in agent.memory.list()] == ["The user likes trees."]
        assert [one.kind for one in agent.events.read()] == ["EARLIER"]
        assert agent.checkpoint.restore("kept").a == 1
        assert (agent.usage().cost_usd, agent.usage().calls) == before
        rebuild.rebuild(agent._engine.store)
    check_views(agent)


def test_a_deleted_thread_begins_anew_with_the_same_ids(program: Chat) -> None:
    spoken(program)
    program.thread.delete()
    assert program.chat("user", "hello", id="request-1") == "re: hello"
    assert program.contents() == ["hello", "re: hello"]
    assert [one.run for one in program.thread.turns()] == ["user#2"]
    assert dict(program.thread.state) == {}
    assert program.thread.delete() == 1
    assert program.thread.delete() == 0
    check_views(program.agent)


def test_a_turn_that_a_rule_has_erased_is_not_done_again(program: Chat) -> None:
    for number in range(4):
        program.chat("user", f"m{number} {SECRET}", id=f"r{number}")
        program.thread.state["n"] = number
    program.agent.threads.retain("user", keep_last=2)
    program.agent.gc(vacuum=True)
    with pytest.raises(RunDeleted):
        program.chat("user", f"m0 {SECRET}", id="r0")
    assert program.chat("user", f"m3 {SECRET}", id="r3") == f"re: m3 {SECRET}"
    assert [one.number for one in program.thread.turns()] == [3, 4]
    assert dict(program.thread.state) == {"n": 3}
    assert stored(program.agent).count(b"m1 The gold") == 0
    check_views(program.agent)


def test_the_list_of_threads_deletes_and_shortens_conversations_too(program: Chat) -> None:
    for number in range(4):
        program.chat("user", f"m{number}")
    assert program.agent.threads.prune("user", keep_last=2) == 2
    assert program.contents() == ["m2", "re: m2", "m3", "re: m3"]
    with pytest.raises(ThreadNotFound, match="turns"):
        program.agent.threads.state("user")
    assert program.agent.threads.delete("user") == 2
    assert b"re: m" not in stored(program.agent)
    check_views(program.agent)


def test_a_fork_keeps_the_turns_that_it_shares(program: Chat) -> None:
    for number in range(3):
        program.chat("user", f"m{number}")
    other = program.thread.fork(at=2, to="other")
    third = other.fork(at=1, to="third")
    program.thread.delete()
    assert [one["content"] for one in other.messages] == ["m0", "re: m0", "m1", "re: m1"]
    assert b"re: m2" not in stored(program.agent)
    other.delete()
    assert [one["content"] for one in third.messages] == ["m0", "re: m0"]
    assert b"re: m1" not in stored(program.agent)
    assert program.chat("third", "next") == "re: next"
    third.delete()
    assert b"re: m0" not in stored(program.agent)
    check_views(program.agent)


def test_a_run_that_was_forked_stays_until_its_fork_is_gone(program: Chat) -> None:
    program.chat("user", "hello")
    program.agent.runs.fork("user#1", at=3, to="branch")
    program.thread.delete()
    assert program.contents() == []
    with program.agent.run("branch") as run:
        assert [one["content"] for one in run.messages] == ["hello"]
    check_views(program.agent)


def test_a_queued_message_and_an_answer_go_with_the_conversation(program: Chat) -> None:
    agent = program.agent

    @agent.turn
    def chat(turn: Any) -> None:
        turn.reply(turn.ask("Where?") if turn.number == 1 else "ok")

    with pytest.raises(RunWaiting):
        chat("user", "hello")
    with pytest.raises(RunWaiting):
        chat("user", f"queued: {SECRET}")
    with pytest.raises(TurnUnfinished, match="perdure show user#1") as refused:
        program.thread.delete()
    assert "abandon" not in str(refused.value)
    agent.runs.answer("user#1", SECRET)
    assert chat("user", "last") == "ok"
    assert len(program.thread.turns()) == 3
    program.thread.delete()
    assert SECRET.encode() not in stored(agent)
    check_views(agent)


@pytest.mark.parametrize("answered_by", ["the worker", "another caller"])
def test_the_task_of_a_turn_goes_with_it(program: Chat, answered_by: str) -> None:
    import threading

    handle = program.chat.start("user", SECRET, id="r1")
    if answered_by == "another caller":
        program.chat("user", "next")
        assert program.contents()[::2] == [SECRET, "next"]
    worker = program.agent.worker()
    work = threading.Thread(target=worker.run)
    work.start()
    try:
        handle.result(timeout=60)
    finally:
        worker.drain()
        work.join()
    program.thread.delete()
    assert SECRET.encode() not in stored(program.agent)
    check_views(program.agent)


def test_a_killed_turn_is_deleted_and_not_resumed(store_url: str, world: World) -> None:
    kill_in_turn(store_url, world, SECRET)
    program = Chat(store_url, world)
    assert program.thread.delete() == 1
    assert SECRET.encode() not in stored(program.agent)
    with pytest.raises(RunDeleted), program.agent.run("user#1"):
        pass
    check_views(program.agent)


def test_a_thread_that_is_open_is_not_deleted(program: Chat) -> None:
    with program.thread.turn("hello") as turn:
        with pytest.raises(RunBusy):
            program.thread.delete()
        turn.reply("still here")
    assert program.contents() == ["hello", "still here"]


def test_a_store_with_an_erased_conversation_moves(program: Chat, tmp_path: Path) -> None:
    spoken(program)
    program.thread.delete()
    program.chat("user", "hello")
    program.agent.export(tmp_path / "agent.perdure")
    assert SECRET.encode() not in (tmp_path / "agent.perdure").read_bytes()
    moved = Agent.import_from(tmp_path / "agent.perdure", store=tmp_path / "other.db")
    assert [one["content"] for one in moved.thread("user").messages] == ["hello", "re: hello"]
    assert moved.state.get("places", "kept") == "a map"
    assert moved.checkpoint.restore("kept").a == 1
    assert moved.usage().calls == 1
    assert moved.thread("user").delete() == 1
    check_views(moved)
    moved.close()


def test_compaction_leaves_the_turns_that_a_thread_shows(program: Chat, clock: WallClock) -> None:
    with program.agent.run("plain#1") as run:
        for number in range(20):
            run.messages.append({"role": "user", "content": f"message {number}"})
    program.chat("user", "hello")
    program.chat("gone", "hello")
    program.agent.thread("gone").delete()
    clock.advance(86_400)
    program.agent.gc(compact_before="1h")
    assert program.contents() == ["hello", "re: hello"]
    assert program.agent.runs.get("plain#1").archive
    check_views(program.agent)


def test_a_compacted_run_of_a_turn_is_erased_too(program: Chat, clock: WallClock, tmp_path: Path) -> None:
    with program.thread.turn("hello") as turn:
        with program.agent.run("nested") as run:
            run.state["secret"] = SECRET
            for number in range(20):
                run.messages.append({"role": "user", "content": f"{number} {SECRET}"})
            run.result = SECRET
        turn.reply("ok")
    clock.advance(86_400)
    program.agent.gc(compact_before="1h", archive=tmp_path / "archive")
    assert program.agent.runs.get("nested").archive
    check_views(program.agent)
    program.thread.delete()
    assert SECRET.encode() not in stored(program.agent)
    check_views(program.agent)


@pytest.mark.parametrize(
    ("site", "moment"),
    [
        (Site.STATE, CommitMoment.AFTER),
        (Site.ERASE, CommitMoment.WRITTEN),
        (Site.ERASE, CommitMoment.AFTER),
        (Site.COLLECT, CommitMoment.BEFORE),
    ],
)
def test_killed_while_deleting(store_url: str, world: World, site: Site, moment: CommitMoment) -> None:
    program = Chat(store_url, world)
    spoken(program)
    kill_in_turn(store_url, world, f"second {SECRET}")
    kill_at(lambda: Chat(store_url, world).thread.delete(), site, moment)
    for _ in range(2):
        program.thread.delete()
        program.agent.gc()
        assert program.contents() == []
    assert SECRET.encode() not in stored(program.agent)
    assert program.agent.state.get("places", "kept") == "a map"
    assert program.chat("user", "hello") == "re: hello"
    check_views(program.agent)
