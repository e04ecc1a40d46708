"""Messages that `chat.start` hands to workers: each becomes one turn, in order, whoever takes its task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from perdure import Agent, AsyncAgent
from perdure.errors import RunBusy, WrongType
from perdure.kernel.protocol import Protocol, Read, drive_sync
from perdure.platform.failpoints import CommitMoment, Site
from perdure.work.threads.turn import TurnRequest, open_turn, read_last_turn

from .chat import Chat
from .kit import World, die, kill_at, run_in_child, wait_until


@contextmanager
def workers(*agents: Agent) -> Iterator[None]:
    """Workers of these agents, until the block ends."""
    made = [agent.worker() for agent in agents]
    threads = [threading.Thread(target=worker.run) for worker in made]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in made:
            worker.drain()
        for thread in threads:
            thread.join()


def test_started_messages_become_turns_in_their_order(store_url: str, world: World, program: Chat) -> None:
    texts = [f"m{number}" for number in range(6)]
    handles = [program.chat.start("user", text, id=text) for text in texts]
    program.chat.start("user", "m0", id="m0")
    assert [queued.input for queued in program.thread.pending] == texts
    with workers(program.agent, Chat(store_url, world).agent):
        assert [handle.result(timeout=60) for handle in handles] == [f"re: {text}" for text in texts]
    assert program.contents() == [part for text in texts for part in (text, f"re: {text}")]
    assert program.thread.pending == []
    assert [world.count(f"asked {text}") for text in texts] == [1] * 6


@pytest.mark.parametrize("site", [Site.TASK, Site.RUN_CLAIM, Site.STEP_DONE, Site.STATE, Site.RUN_END])
@pytest.mark.parametrize("moment", [CommitMoment.BEFORE, CommitMoment.AFTER])
def test_a_worker_killed_in_a_started_turn_loses_no_message(
    store_url: str, world: World, site: Site, moment: CommitMoment
) -> None:
    def start() -> None:
        for text in ("one", "two", "three"):
            Chat(store_url, world).chat.start("user", text, id=text)

    def work() -> None:
        chat = Chat(store_url, world)
        with workers(chat.agent):
            wait_until(lambda: len(chat.contents()) == 6)
        die()

    kill_at(start if site is Site.TASK else lambda: (start(), work()), site, moment)
    run_in_child(start)
    run_in_child(work)
    program = Chat(store_url, world)
    assert program.contents() == ["one", "re: one", "two", "re: two", "three", "re: three"]


def test_a_started_turn_that_asks_a_person_is_parked(store_url: str, world: World) -> None:
    agent = Chat(store_url, world).agent

    @agent.turn
    def book(turn: Any) -> None:
        turn.reply("booked" if turn.approve(f"Book {turn.input}?") else "left")

    first, second = book.start("user", "a flight"), book.start("user", "a hotel")
    with workers(agent):
        wait_until(lambda: agent.queues.list()[0].parked == 2)
        agent.runs.answer("user#1", True)
        assert first.result(timeout=60) == "booked"
        wait_until(lambda: any(run.id == "user#2" and run.status == "waiting" for run in agent.runs.list()))
        agent.runs.answer("user#2", False)
        assert second.result(timeout=60) == "left"


def test_a_started_turn_waits_for_a_turn_that_is_open_elsewhere(program: Chat) -> None:
    with workers(program.agent):
        with program.thread.turn("by hand") as turn:
            handle = program.chat.start("user", "started")
            wait_until(lambda: program.agent.queues.list()[0].parked == 1)
            turn.reply("re: by hand")
        assert handle.result(timeout=60) == "re: started"
    assert program.contents() == ["by hand", "re: by hand", "started", "re: started"]


def test_a_turn_by_hand_opens_a_started_message_and_the_worker_returns_its_reply(program: Chat) -> None:
    handle = program.chat.start("user", "hello")
    with program.thread.turn() as turn:
        turn.reply(f"by hand: {turn.input}")
    with workers(program.agent):
        assert handle.result(timeout=60) == "by hand: hello"
    assert program.contents() == ["hello", "by hand: hello"]


def test_a_resumed_run_starts_its_message_once(store_url: str, world: World) -> None:
    def work(dies: bool) -> None:
        chat = Chat(store_url, world)
        with chat.agent.run("r"):
            chat.chat.start("user", "hello")
            if dies:
                die()

    run_in_child(partial(work, True))
    work(False)
    program = Chat(store_url, world)
    assert len(program.thread.pending) == 1
    with workers(program.agent):
        wait_until(lambda: len(program.contents()) == 2)
    assert program.contents() == ["hello", "re: hello"]


def test_started_messages_of_an_asynchronous_agent(store_url: str) -> None:
    async def talk() -> None:
        agent = AsyncAgent("bot", store=store_url)

        @agent.turn
        async def chat(turn: Any) -> None:
            await asyncio.sleep(0)
            await turn.reply(f"re: {turn.input}")

        handles = [await chat.start("user", text) for text in ("one", "two", "three")]
        worker = agent.worker()
        work = asyncio.ensure_future(worker.run())
        assert [await handle.result(timeout=60) for handle in handles] == ["re: one", "re: two", "re: three"]
        worker.drain()
        await work
        assert [turn.input for turn in await agent.thread("user").turns()] == ["one", "two", "three"]

    asyncio.run(talk())


def test_a_synchronous_agent_refuses_an_asynchronous_turn(program: Chat) -> None:
    async def chat(turn: Any) -> None: ...

    with pytest.raises(WrongType, match="chat is async: use AsyncAgent"):
        program.agent.turn(chat)


def acting_after(protocol: Protocol[Any], call: Callable[..., Any], act: Callable[[], object]) -> Protocol[Any]:
    """Execute a protocol in which something else happens after the first read of this kind."""
    acts, request = [act], next(protocol)
    while True:
        answer = yield request
        if acts and isinstance(request, Read) and request.call is call:
            acts.pop()()
        try:
            request = protocol.send(answer)
        except StopIteration as stop:
            return stop.value


def test_a_retried_request_meets_its_turn_just_begun(program: Chat) -> None:
    """The turn of the same id begins between two reads of the thread: it is busy, not closed by a later turn."""
    engine, request = program.agent._engine, TurnRequest("user", "two", "r2")
    program.chat("user", "one", id="r1")
    other = program.thread.turn("two", id="r2")
    with pytest.raises(RunBusy):
        drive_sync(engine.store, acting_after(open_turn(engine, request), read_last_turn, other.__enter__))
    other.reply("re: two")
    other.__exit__(None, None, None)
    assert program.chat("user", "two", id="r2") == "re: two"


def test_a_message_that_another_takes_between_two_looks_is_no_failure(
    program: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("m0", "m1"):
        program.chat.start("user", text, id=text)
    look, stale = program.chat._find_earlier, [True, True]
    # Twice as if another worker had begun the earlier message after this one was refused because of it.
    monkeypatch.setattr(program.chat, "_find_earlier", lambda request: None if stale and stale.pop() else look(request))
    assert program.chat("user", "m1", id="m1") == "re: m1"
    assert [turn.input for turn in program.thread.turns()] == ["m0", "m1"]
