"""`turn.compact`: older turns of a thread become a summary in contexts, once, and nothing of them is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import AsyncAgent
from perdure.errors import NothingCompacted

from .chat import Chat
from .kit import World, check_views, die, run_in_child

LAYOUT = ["conversation"]


def talked(program: Chat, turns: int = 6) -> None:
    for number in range(1, turns + 1):
        with program.thread.turn(f"m{number}") as turn:
            if number == 2:
                turn.messages.append({"role": "user", "content": "Never at night.", "pinned": True})
            turn.reply(f"r{number}")


def contents(turn: Any, budget: int = 4000) -> list[str]:
    return [one["content"] for one in turn.context(budget=budget, layout=LAYOUT).messages]


def test_older_turns_become_a_summary_for_this_turn_and_later_ones(program: Chat, world: World) -> None:
    def told(messages: list[Any]) -> str:
        world.do(" ".join(one["content"] for one in messages))
        return "They counted."

    talked(program)
    with program.thread.turn("m7") as turn:
        done = turn.compact(keep=3, summarise=told)
        assert (done.messages, done.summary.split("\n")[1]) == (10, "They counted.")
        assert contents(turn) == [done.summary, "Never at night.", "m6", "r6", "m7"]
        turn.reply("r7")
    assert world.read_all() == ["m1 r1 m2 r2 m3 r3 m4 r4 m5 r5"]
    with program.thread.turn("m8") as turn:
        assert contents(turn) == [done.summary, "Never at night.", "m6", "r6", "m7", "r7", "m8"]
        assert program.agent.open(done.ref).count("m3") == 1
        turn.reply("r8")
    assert [one["content"] for one in program.thread.messages][:2] == ["m1", "r1"]
    assert len(program.thread.messages) == 17
    check_views(program.agent)


def test_a_second_compaction_begins_with_the_first_summary(program: Chat, world: World) -> None:
    talked(program)
    for number, keep in ((7, 3), (8, 1)):
        with program.thread.turn(f"m{number}") as turn:
            turn.compact(keep=keep, summarise=lambda messages: " + ".join(one["content"] for one in messages))
            turn.reply(f"r{number}")
    with program.thread.turn("m9") as turn:
        shown = contents(turn)
        assert "m1 + r1" in shown[0] and "m6 + r6 + m7 + r7" in shown[0]
        assert shown[1:] == ["Never at night.", "m8", "r8", "m9"]
        assert turn.compact(keep=100).messages == 0
        turn.uncompact()
        assert contents(turn)[:2] == ["m1", "r1"]
        with pytest.raises(NothingCompacted):
            turn.uncompact()
    check_views(program.agent)


def test_a_summary_is_shown_however_long_ago_it_was_made(program: Chat) -> None:
    talked(program)
    with program.thread.turn("m7") as turn:
        summary = turn.compact(keep=1).summary
        turn.reply("r7")
    for number in range(8, 40):
        with program.thread.turn(f"m{number} " + "word " * 60) as turn:
            turn.reply(f"r{number}")
    with program.thread.turn("last") as turn:
        shown = contents(turn, 600)
        assert summary in shown
        assert not any(one.startswith("m9 ") for one in shown)
    other = program.thread.fork(to="other")
    with other.turn("forked") as turn:
        assert summary in contents(turn)


def test_killed_after_a_compaction_the_same_messages_are_shown(store_url: str, world: World) -> None:
    def talk(dies: bool) -> list[str]:
        program = Chat(store_url, world)
        with program.thread.turn("m7") as turn:
            before = contents(turn)
            done = turn.compact(keep=3, summarise=lambda messages: world.do("summed up") or "short")
            after = contents(turn)
            program.agent.step(name="model")(lambda *given: world.do("paid"))(before, repr(done), after)
            if dies:
                die()
            turn.reply("r7")
        return after

    talked(Chat(store_url, world))
    run_in_child(lambda: talk(True))
    assert "short" in talk(False)[0]
    assert (world.count("summed up"), world.count("paid")) == (1, 1)
    check_views(store_url)


def test_forgetting_a_message_erases_the_summary_of_its_turn(program: Chat) -> None:
    with program.thread.turn("My diagnosis is secret.") as turn:
        turn.reply("I see.")
    talked(program, 3)
    with program.thread.turn("more") as turn:
        turn.compact(keep=1, summarise=lambda messages: "A medical matter.")
        turn.reply("ok")
    done = program.agent.memory.forget(text="My diagnosis is secret.", everywhere=True)
    assert "summary" in {one.kind for one in (*done.erased, *done.elsewhere)}
    check_views(program.agent)


def test_asyncio_compacts_threads_too(store_url: str) -> None:
    async def main() -> None:
        agent = AsyncAgent("tester", store=store_url)
        thread = agent.thread("user")
        for number in range(4):
            async with thread.turn(f"m{number}") as turn:
                await turn.reply(f"r{number}")

        async def told(messages: list[Any]) -> str:
            return f"{len(messages)} messages"

        async with thread.turn("last") as turn:
            done = await turn.compact(keep=1, summarise=told)
            assert done.messages == 8
            assert "8 messages" in (await turn.context(layout=LAYOUT)).messages[0]["content"]
            await turn.uncompact()
            assert (await turn.context(layout=LAYOUT)).messages[0]["content"] == "m0"
        await agent.close()

    asyncio.run(main())
