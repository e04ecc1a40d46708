"""Threads of `agent.thread` and `@agent.turn`: a conversation over many requests and processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import AsyncAgent, InDoubt, RunBusy, RunWaiting
from perdure.cli.main import main
from perdure.errors import (
    AlreadyReplied,
    Diverged,
    ForeignThread,
    InputChanged,
    NoTurn,
    PointNotFound,
    RunExists,
    RunFinished,
    ThreadNotFound,
    TurnUnfinished,
    VersionConflict,
)
from perdure.kernel.protocol import drive_sync
from perdure.work.threads.turn import TurnRequest, enqueue

from .chat import Chat, kill_in_turn
from .kit import World, check_views, die, run_children, run_in_child, wait_until


def test_each_message_is_a_turn_of_its_own(program: Chat) -> None:
    for number, text in enumerate(("hello", "yes", "yes"), 1):
        assert program.chat("user", text) == f"re: {text}"
        assert program.agent.runs.get(f"user#{number}").finished
    assert program.contents() == ["hello", "re: hello", "yes", "re: yes", "yes", "re: yes"]
    assert [(one.number, one.run, one.input, one.result) for one in program.thread.turns()][-1] == (
        *(3, "user#3", "yes", "re: yes"),
    )
    check_views(program.agent)


def test_a_killed_turn_is_resumed_by_the_same_input(store_url: str, world: World) -> None:
    kill_in_turn(store_url, world, "hello")
    program = Chat(store_url, world)
    assert program.chat("user", "hello") == "re: hello"
    assert world.read_all() == ["asked hello"]
    assert program.contents() == ["hello", "re: hello"]


def test_without_input_the_unfinished_turn_is_resumed(store_url: str, world: World) -> None:
    program = Chat(store_url, world)
    with pytest.raises(NoTurn), program.thread.turn():
        pass
    kill_in_turn(store_url, world, "hello")
    with program.thread.turn() as turn:
        assert (turn.id, turn.input, turn.number) == ("user#1", "hello", 1)
        program.turn(turn)
    with pytest.raises(NoTurn), program.thread.turn():
        pass


def test_the_same_id_is_the_same_turn(program: Chat) -> None:
    assert program.chat("user", "yes", id="request-1") == "re: yes"
    assert program.chat("user", "yes", id="request-1") == "re: yes"
    with program.thread.turn("yes", id="request-1") as turn:
        assert turn.finished
        assert turn.result == "re: yes"
        program.turn(turn)
    with pytest.raises(InputChanged), program.thread.turn("no", id="request-1"):
        pass
    assert program.chat("user", "yes", id="request-2") == "re: yes"
    assert program.contents() == ["yes", "re: yes"] * 2


def test_a_call_finishes_the_killed_turn_first(store_url: str, world: World) -> None:
    kill_in_turn(store_url, world, "hello")
    program = Chat(store_url, world)
    assert program.chat("user", "second") == "re: second"
    assert world.read_all() == ["asked hello", "asked second"]
    assert program.contents() == ["hello", "re: hello", "second", "re: second"]


def test_a_block_refuses_another_input_or_gives_the_killed_turn_up(store_url: str, world: World) -> None:
    kill_in_turn(store_url, world, "hello")
    program = Chat(store_url, world)
    with pytest.raises(TurnUnfinished) as refused, program.thread.turn("second"):
        pass
    assert "thread.turn()" in refused.value.hint
    with program.thread.turn("second", on_unfinished="abandon") as turn:
        program.turn(turn)
    assert program.contents() == ["hello", "second", "re: second"]
    assert [one.status for one in program.thread.turns()] == ["cancelled", "finished"]
    with pytest.raises(ValueError, match="on_unfinished"):
        program.thread.turn("x", on_unfinished="maybe")


def test_a_turn_in_doubt_keeps_new_messages_in_the_queue(store_url: str, world: World) -> None:
    def doomed() -> None:
        chat = Chat(store_url, world)
        pay = chat.agent.effect(name="pay")(lambda amount: die())
        with chat.thread.turn("buy"):
            pay(5)

    run_in_child(doomed)
    program = Chat(store_url, world)

    def turn(turn: Any) -> None:
        if turn.input == "buy":
            program.pay(5)
        turn.reply(f"done: {turn.input}")

    chat = program.agent.turn(turn)
    for _ in range(2):  # retried, it is queued once
        with pytest.raises(RunWaiting):
            chat("user", "second")
    assert [one.input for one in program.thread.pending] == ["second"]
    for options in ({}, {"on_unfinished": "abandon"}):
        with pytest.raises(TurnUnfinished, match="in doubt"), program.thread.turn("third", **options):
            pass
    with pytest.raises(TurnUnfinished):
        program.thread.delete()
    program.agent.runs.answer("user#1", retry=True)
    assert chat("user", "third") == "done: third"
    assert program.contents()[::2] == ["buy", "second", "third"]
    assert program.thread.pending == []
    assert world.count("paid 5") == 1
    check_views(program.agent)


def test_a_message_behind_an_effect_that_fails_in_doubt_is_queued_too(store_url: str, world: World) -> None:
    def doomed() -> None:
        chat = Chat(store_url, world)
        with chat.thread.turn("buy"):
            chat.agent.effect(name="pay", in_doubt="fail")(lambda: die())()

    run_in_child(doomed)
    program = Chat(store_url, world)
    pay = program.agent.effect(name="pay", in_doubt="fail")(lambda: "paid")

    @program.agent.turn
    def chat(turn: Any) -> None:
        turn.reply(pay() if turn.input == "buy" else "ok")

    with pytest.raises(InDoubt):
        chat("user", "second", id="second")
    with pytest.raises(InputChanged):
        chat("user", "another", id="second")
    assert [one.input for one in program.thread.pending] == ["second"]
    program.agent.runs.answer("user#1", done="receipt")
    assert chat("user", "third") == "ok"
    assert program.contents() == ["buy", "receipt", "second", "ok", "third", "ok"]
    check_views(program.agent)


def test_a_queued_message_is_opened_without_input(store_url: str, world: World) -> None:
    kill_in_turn(store_url, world, "hello")
    program = Chat(store_url, world)
    drive_sync(program.agent._engine.store, enqueue(program.agent._engine, TurnRequest("user", "next", "q")))
    with program.thread.turn() as turn:
        assert turn.input == "hello"
    with pytest.raises(TurnUnfinished, match="queued"), program.thread.turn("other"):
        pass
    with program.thread.turn() as turn:
        assert turn.input == "next"
    assert program.thread.pending == []


def test_a_failed_turn_is_not_in_the_way(program: Chat) -> None:
    with pytest.raises(ZeroDivisionError), program.thread.turn("hello") as turn:
        turn.messages.append({"role": "assistant", "content": "half"})
        raise ZeroDivisionError
    assert program.chat("user", "second") == "re: second"
    assert program.contents() == ["hello", "second", "re: second"]
    assert "half" in [message["content"] for message in program.thread.raw]


def test_a_turn_that_replied_and_was_killed_is_closed(store_url: str, world: World) -> None:
    def doomed() -> None:
        chat = Chat(store_url, world)
        with chat.thread.turn("hello") as turn:
            turn.reply("early")
            die()

    run_in_child(doomed)
    program = Chat(store_url, world)
    with program.thread.turn("second") as turn:
        turn.reply("late")
    assert program.contents() == ["hello", "early", "second", "late"]
    assert [one.result for one in program.thread.turns()] == ["early", "late"]


def test_what_changed_the_world_stays_when_a_turn_is_given_up(program: Chat) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "pay"}}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "receipt 1"}
    with pytest.raises(ZeroDivisionError), program.thread.turn("buy") as turn:
        turn.messages.append({"role": "assistant", "content": "let me think"})
        turn.messages.append(call)
        program.pay(1)
        turn.messages.append(result)
        program.pay(2)
        raise ZeroDivisionError
    kept = program.thread.messages
    assert kept[:3] == [{"role": "user", "content": "buy"}, call, result]
    assert "pay(amount=2)" in kept[3]["content"]
    assert "receipt 2" in kept[3]["content"]
    assert len(kept) == 4
    assert len(program.thread.raw) == 4


def _tool_messages(kind: str) -> list[Any]:
    """A call of two tools and their results, as objects of a framework or a provider."""
    if kind == "langchain":
        made = pytest.importorskip("langchain_core.messages", reason="langchain_core is not installed")
        calls = [{"name": "pay", "args": {}, "id": one} for one in "ab"]
        return [made.AIMessage("", tool_calls=calls), *(made.ToolMessage("ok", tool_call_id=one) for one in "ab")]
    if kind == "openai":
        chat = pytest.importorskip("openai.types.chat", reason="openai is not installed")
        calls = [{"id": one, "type": "function", "function": {"name": "pay", "arguments": "{}"}} for one in "ab"]
        called = chat.ChatCompletionMessage.construct(role="assistant", tool_calls=calls)
        return [called, *({"role": "tool", "tool_call_id": one, "content": "ok"} for one in "ab")]
    types = pytest.importorskip("anthropic.types", reason="anthropic is not installed")
    blocks = [types.ToolUseBlock.construct(type="tool_use", id=one, name="pay", input={}) for one in "ab"]
    results = [{"type": "tool_result", "tool_use_id": one, "content": "ok"} for one in "ab"]
    return [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


@pytest.mark.parametrize("kind", ["langchain", "openai", "anthropic"])
def test_calls_of_tools_stay_as_the_objects_that_they_are(program: Chat, kind: str) -> None:
    """Both results follow their call, although both effects ran before the first result was written."""
    call, *results = _tool_messages(kind)
    with pytest.raises(ZeroDivisionError), program.thread.turn("buy") as turn:
        turn.messages.append({"role": "assistant", "content": "let me think"})
        turn.messages.append(call)
        program.pay(1)
        program.pay(2)
        for result in results:
            turn.messages.append(result)
        raise ZeroDivisionError
    assert program.thread.messages == [{"role": "user", "content": "buy"}, call, *results]


def test_a_failed_turn_is_resumed_by_its_id_until_a_later_one_begins(program: Chat) -> None:
    """Its state is that of its start: going on with it later would take back what later turns have written."""
    for ident in ("r1", "r2"):
        with pytest.raises(ZeroDivisionError), program.thread.turn("first", id=ident):
            program.thread.state["city"] = "old"
            raise ZeroDivisionError
    with program.thread.turn("first", id="r2") as turn:
        program.thread.state["city"] = "old"
        turn.reply("resumed")
    with program.thread.turn("second") as turn:
        with pytest.raises(RunFinished, match="later turn"):
            program.chat("user", "first", id="r1", wait=60)
        program.thread.state["city"] = "new"
        turn.reply("late")
    with pytest.raises(RunFinished, match="ZeroDivisionError.*another id="), program.thread.turn("first", id="r1"):
        pass
    assert program.thread.state["city"] == "new"
    assert program.contents() == ["first", "first", "resumed", "second", "late"]
    assert program.chat("user", "first", id="r3") == "re: first"


def test_a_function_may_return_its_reply(program: Chat) -> None:
    def both(turn: Any) -> str:
        turn.reply("given")
        return "returned"

    for number, (function, reply) in enumerate(((lambda turn: "returned", "returned"), (both, "given")), 1):
        assert program.agent.turn(function)("user", "hello", id=str(number)) == reply
        assert program.agent.turn(function)("user", "hello", id=str(number)) == reply
    assert program.contents() == ["hello", "returned", "hello", "given"]


def test_an_open_turn_is_busy_and_wait_queues_behind_it(store_url: str, world: World) -> None:
    def slow() -> None:
        chat = Chat(store_url, world)
        with chat.thread.turn("slow") as turn:
            world.do("open")
            wait_until(lambda: world.count("go"))
            turn.reply("slow reply")

    program = Chat(store_url, world)
    with run_children(slow):
        wait_until(lambda: world.count("open"))
        for call in (lambda: program.chat("user", "quick"), lambda: program.thread.turn("quick").__enter__()):
            with pytest.raises(RunBusy):
                call()
        with pytest.raises(RunBusy):
            program.thread.state["city"] = "NYC"
        with pytest.raises(RunBusy):
            program.thread.delete()
        world.do("go")
        assert program.chat("user", "quick", wait=60) == "re: quick"
    assert program.contents() == ["slow", "slow reply", "quick", "re: quick"]


def test_a_turn_has_one_reply_or_none(program: Chat) -> None:
    with program.thread.turn("silent"):
        pass
    assert program.thread.turns()[0].result is None
    with program.thread.turn("twice") as turn:
        turn.reply("one")
        with pytest.raises(AlreadyReplied):
            turn.reply("two")
    with program.thread.turn("in a step") as turn:
        program.agent.step(name="reply")(lambda: turn.reply("from a step"))()
        with pytest.raises(AlreadyReplied):
            turn.reply("two")
    assert [one.result for one in program.thread.turns()] == [None, "one", "from a step"]


def test_a_value_is_a_reply_too(store_url: str, world: World) -> None:
    """It is the result as it is, and a message of the assistant in later contexts, also when the turn was killed."""

    def talk(dies: bool) -> None:
        with Chat(store_url, world).thread.turn({"to": "NYC"}) as turn:
            turn.reply({"flight": 7})
            if dies:
                die()

    run_in_child(lambda: talk(True))
    program = Chat(store_url, world)
    for value in (7, ["a", "b"], {"role": "assistant", "content": "said"}):
        with program.thread.turn("next") as turn:
            turn.reply(value)
    assert [one.result for one in program.thread.turns()][:3] == [{"flight": 7}, 7, ["a", "b"]]
    with program.thread.turn("last") as turn:
        shown = turn.context(layout=["conversation"]).messages
    assert [one["role"] for one in shown] == ["user", "assistant"] * 4 + ["user"]
    assert [shown[place]["content"] for place in (0, 1, 3, 7)] == ['{"to": "NYC"}', '{"flight": 7}', "7", "said"]


def test_another_reply_on_replay_diverges(program: Chat) -> None:
    with program.thread.turn("hello", id="r") as turn:
        turn.reply("one")
    with pytest.raises(Diverged, match="reply"), program.thread.turn("hello", id="r") as turn:
        turn.reply("two")


def test_thread_state_is_a_snapshot_with_the_turns_own_writes(store_url: str, world: World) -> None:
    def doomed() -> None:
        chat = Chat(store_url, world)
        chat.thread.state["city"] = "NYC"
        with chat.thread.turn("hello") as turn:
            turn.state["own"] = 1
            chat.thread.state["city"] = chat.thread.state["city"] + "!"
            chat.agent.step(name="write")(lambda: chat.thread.state.set("step", 2))()
            die()

    run_in_child(doomed)
    program = Chat(store_url, world)
    program.thread.state["later"] = "outside"  # the turn was killed, and is not open
    with program.thread.turn() as turn:
        assert dict(program.thread.state) == {"city": "NYC"}
        turn.state["own"] = 1
        program.thread.state["city"] = program.thread.state["city"] + "!"
        program.agent.step(name="write")(lambda: program.thread.state.set("step", 2))()
        assert dict(turn.thread.state) == {"city": "NYC!", "step": 2}
        assert dict(turn.state) == {"own": 1}
    assert dict(program.thread.state) == {"city": "NYC!", "later": "outside", "step": 2}
    del program.thread.state["later"]
    assert "later" not in program.thread.state
    check_views(program.agent)


def test_a_fork_begins_after_a_turn_with_the_state_as_of_then(program: Chat) -> None:
    for number in range(1, 5):
        with program.thread.turn(f"m{number}") as turn:
            program.thread.state["n"] = number
            turn.reply(f"r{number}")
    other = program.thread.fork(at=2, to="other")
    assert dict(other.state) == {"n": 2}
    assert program.chat("other", "m3") == "re: m3"
    assert [one["content"] for one in other.messages] == ["m1", "r1", "m2", "r2", "m3", "re: m3"]
    assert [one.run for one in other.turns()] == ["user#1", "user#2", "other#3"]
    assert dict(other.fork(to="third").state) == {"n": 2}
    with pytest.raises(PointNotFound):
        program.thread.fork(at=9, to="nowhere")
    with pytest.raises(ThreadNotFound):
        program.agent.thread("nobody").fork(to="nowhere")
    with pytest.raises(VersionConflict, match="choose another id for the fork"):
        program.thread.fork(to="other")
    assert len(program.contents()) == 8


def test_a_deleted_thread_begins_anew(program: Chat) -> None:
    program.chat("user", "hello")
    program.thread.state["city"] = "NYC"
    program.agent.memory.remember("Ann likes the aisle.", thread="user")
    program.agent.memory.remember("Bob likes the window.", thread="other")
    assert program.thread.delete() == 1
    assert len(program.agent.memory.list()) == 2
    assert program.contents() == []
    assert dict(program.thread.state) == {}
    assert [one.id for one in program.agent.threads.list()] == []
    assert program.chat("user", "again") == "re: again"
    assert program.contents() == ["again", "re: again"]
    assert [one.id for one in program.agent.threads.list()] == ["user"]
    program.thread.delete(memories=True)
    assert [one.text for one in program.agent.memory.list()] == ["Bob likes the window."]


def test_threads_are_listed_with_their_framework(program: Chat) -> None:
    program.chat("user", "hello")
    program.chat("user", "again")
    [info] = program.agent.threads.list()
    assert (info.id, info.framework, info.turns, info.newest) == ("user", "perdure", 2, "user#2")


def test_a_run_that_has_the_name_of_a_turn_is_not_taken_over(program: Chat) -> None:
    with program.agent.run("user#1"):
        pass
    with pytest.raises(RunExists), program.thread.turn("hello"):
        pass


def test_threads_of_langgraph_are_foreign(program: Chat) -> None:
    pytest.importorskip("langgraph")
    from langgraph.checkpoint.base import empty_checkpoint

    from perdure.adapters.langgraph import PerdureSaver

    PerdureSaver(program.agent).put(
        {"configurable": {"thread_id": "graph", "checkpoint_ns": ""}}, empty_checkpoint(), {"source": "input"}, {}
    )
    with pytest.raises(ForeignThread), program.agent.thread("graph").turn("hello"):
        pass
    program.chat("user", "hello")
    assert [(one.id, one.framework) for one in program.agent.threads.list()] == [
        ("graph", "langgraph"),
        ("user", "perdure"),
    ]


def test_asyncio_has_the_same_threads(store_url: str) -> None:
    async def main() -> None:
        agent = AsyncAgent("tester", store=store_url)

        @agent.step
        async def ask(messages: list[Any]) -> str:
            return f"re: {messages[-1]['content']}"

        @agent.turn
        async def chat(turn: Any) -> None:
            await turn.thread.state.set("n", turn.number)
            await turn.reply(await ask(list(turn.messages)))

        assert await chat("user", "hello") == "re: hello"
        assert await chat("user", "hello", id="x") == "re: hello"
        assert await chat("user", "hello", id="x") == "re: hello"
        thread = agent.thread("user")
        async with thread.turn("bye") as turn:
            await turn.reply("bye")
        assert [one["content"] for one in thread.messages] == ["hello", "re: hello"] * 2 + ["bye", "bye"]
        assert [one.status for one in await thread.turns()] == ["finished"] * 3
        assert thread.state["n"] == 2
        assert len((await thread.fork(at=1, to="b")).messages) == 2
        assert await thread.delete() == 3
        await agent.close()

    asyncio.run(main())


def test_the_command_line_shows_threads(program: Chat, store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    program.chat("user", "hello")
    program.thread.state["city"] = "NYC"
    for arguments, told in (
        ([], ("user", "perdure", "1 turn")),
        (["user"], ("user#1", "hello", "re: hello", "city", "NYC")),
        (["user", "--json"], ('"framework": "perdure"', '"city": "NYC"', '"re: hello"')),
    ):
        assert main(["threads", *arguments, "--store", store_url]) == 0
        out = capsys.readouterr().out
        for words in told:
            assert words in out
