"""Threads over many processes: killed anywhere, in long conversations, in contexts, moved and pruned."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Done, NotDone
from perdure.platform.failpoints import CommitMoment, Site

from .chat import Chat
from .kit import (
    WallClock,
    World,
    agent_at,
    check_views,
    die,
    kill_at,
    run_children,
    run_in_child,
    run_in_children,
    wait_until,
)


@pytest.mark.parametrize("moment", CommitMoment)
@pytest.mark.parametrize(
    "site", [Site.RUN_CLAIM, Site.STEP_DONE, Site.EFFECT_INTENT, Site.EFFECT_OUTCOME, Site.WRITE, Site.RUN_END]
)
def test_killed_at_every_commit_no_message_is_lost_or_doubled(
    store_url: str, world: World, site: Site, moment: CommitMoment
) -> None:
    def talk(text: str) -> None:
        chat = Chat(store_url, world)

        @chat.agent.effect(check=lambda amount, key: Done("ok") if world.count(f"paid {amount}") else NotDone())
        def pay(amount: int) -> str:
            world.do(f"paid {amount}")
            return "ok"

        @chat.agent.turn
        def turn(turn: Any) -> None:
            answer = chat.ask(list(turn.messages))
            chat.agent.thread("user").state[turn.input] = pay(len(turn.input))
            turn.reply(answer)

        turn("user", text, id=text)

    kill_at(lambda: talk("one"), site, moment)
    talk("two!")
    talk("one")
    talk("two!")
    program = Chat(store_url, world)
    started = site != Site.RUN_CLAIM or moment == CommitMoment.AFTER
    assert program.contents() == [
        part for text in (("one", "two!") if started else ("two!", "one")) for part in (text, f"re: {text}")
    ]
    assert (world.count("paid 3"), world.count("paid 4")) == (1, 1)
    assert dict(program.thread.state) == {"one": "ok", "two!": "ok"}
    check_views(program.agent)


def test_two_processes_start_one_turn_each(store_url: str, world: World) -> None:
    def talk() -> None:
        chat = Chat(store_url, world)
        for number in range(5):
            chat.chat("user", f"{number}", id=f"{os.getpid()}-{number}", wait=60)

    program = Chat(store_url, world)
    assert set(run_in_children(2, talk)) == {0}
    turns = program.thread.turns()
    assert [one.number for one in turns] == list(range(1, 11))
    assert sorted(one.input for one in turns) == sorted([f"{number}" for number in range(5)] * 2)
    assert len(program.contents()) == 20
    check_views(program.agent)


def test_turns_in_processes_that_are_killed_at_random(store_url: str, world: World) -> None:
    talk_in_many_processes(store_url, world, 50)


@pytest.mark.soak
def test_a_thousand_turns_in_processes_that_are_killed_at_random(store_url: str, world: World) -> None:
    talk_in_many_processes(store_url, world, 1000)


def talk_in_many_processes(store_url: str, world: World, turns: int) -> None:
    """Each turn is a process of its own; a third of them is killed somewhere, and its request comes again."""
    sites = (Site.RUN_CLAIM, Site.STEP_DONE, Site.WRITE, Site.RUN_END)
    chance = random.Random(16)

    def talk(number: int) -> None:
        Chat(store_url, world).chat("user", f"m{number}", id=f"request-{number}")

    for number in range(turns):
        if chance.random() < 1 / 3:
            kill_at(partial(talk, number), chance.choice(sites), chance.choice(list(CommitMoment)))
        assert run_in_child(partial(talk, number)) == 0
    program = Chat(store_url, world)
    assert program.contents() == [part for number in range(turns) for part in (f"m{number}", f"re: m{number}")]
    check_views(program.agent)


def test_workers_do_turns_too(program: Chat) -> None:
    handle = program.chat.start("user", "hello", id="r1")
    worker = program.agent.worker()
    work = threading.Thread(target=worker.run)
    work.start()
    try:
        assert handle.result(timeout=60) == "re: hello"
    finally:
        worker.drain()
        work.join()
    assert program.chat("user", "hello", id="r1") == "re: hello"
    assert program.contents() == ["hello", "re: hello"]


def test_context_shows_the_whole_thread_and_reads_backwards(program: Chat) -> None:
    with program.thread.turn("begin") as turn:
        turn.messages.append({"role": "system", "content": "Be brief."})
        turn.reply("ok")
    for number in range(40):
        with program.thread.turn(f"m{number} " + "word " * 50) as turn:
            turn.reply(f"r{number}")
    with program.thread.turn("last") as turn:
        whole = turn.context(budget=100_000)
        assert [one["content"] for one in whole.messages if one["role"] != "system"][::2][:2] == [
            "begin",
            "m0 " + "word " * 50,
        ]
        small = turn.context(budget=600)
        contents = [one["content"] for one in small.messages]
        assert contents[-1] == "last"
        assert any("Be brief." in one for one in contents)
        assert not any("m3 " in one for one in contents)
        assert any("r39" in one for one in contents)
        assert small.tokens <= 600
        turn.reply("done")


def test_a_pointer_leads_to_a_message_of_an_earlier_turn(program: Chat) -> None:
    program.chat("user", "hello")
    program.chat("user", "second")
    assert program.agent.open("perdure:user#10001") == "re: hello"
    assert program.agent.open("perdure:user#20000") == "second"


@pytest.mark.parametrize("kind", ["run", "turn"])
def test_a_context_is_the_same_on_replay_although_a_memory_has_come(store_url: str, world: World, kind: str) -> None:
    def talk(dies: bool) -> list[Any]:
        program = Chat(store_url, world)
        agent = program.agent
        block = agent.run("r") if kind == "run" else agent.thread("c").turn("Which seat do I like?")
        with block as run:
            if kind == "run":
                run.messages.append({"role": "user", "content": "Which seat do I like?"})
            shown = run.context(budget=4000).messages
            agent.step(name="model")(lambda messages: world.do("paid"))(shown)
            if dies:
                die()
        return shown

    agent_at(store_url).memory.remember("I like the aisle seat.")
    run_in_child(lambda: talk(True))
    agent_at(store_url).memory.remember("I like the window seat now, and no other seat.")
    shown = talk(False)
    if kind == "run":  # finished, it is replayed; a finished turn would be followed by a new one
        assert talk(False) == shown
    assert world.count("paid") == 1
    assert "aisle" in str(shown)
    assert "window" not in str(shown)
    check_views(store_url)


class StoreCounter:
    """Counts what a store is asked and what it returns, so that a busy machine gives the same verdict."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._inside = False
        for name in ("read", "scan", "_statement"):
            if hasattr(store, name):
                monkeypatch.setattr(type(store), name, self._counting(getattr(type(store), name)))

    def _counting(self, function: Any) -> Any:
        def counted(store: Any, *args: Any) -> Any:
            if self._inside:
                return function(store, *args)
            self._inside = True
            try:
                *given, take = args if callable(args[-1]) else (*args, None)
                result = function(store, *given, *([lambda rows: take(self._seen(rows))] if take else []))
            finally:
                self._inside = False
            self.counts["queries"] += 1
            return result if take else self._seen(result)

        return counted

    def _seen(self, rows: Any) -> list[Any]:
        there = list(rows)
        self.counts["rows"] += len(there)
        self.counts["bytes"] += sum(len(one) for row in there for one in row if isinstance(one, str | bytes))
        return there


LONG = 1000 if os.environ.get("PERDURE_HYPOTHESIS") == "soak" else 150
"""Turns. A cost that grows with the thread is fifteen times as large at the end as at turn 10, at least."""


def test_a_turn_costs_the_same_in_a_long_thread(program: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    counter, counts = StoreCounter(program.agent._engine.store, monkeypatch), list[Counter[str]]()
    for number in range(LONG):
        counter.counts.clear()
        with program.thread.turn(f"m{number:04} " + "word " * 400, id=f"request {number:04}") as turn:
            program.thread.state["n"] = number
            turn.reply(program.ask(turn.context(budget=1000).messages))
        counts.append(counter.counts.copy())
    for what in ("queries", "rows", "bytes"):
        assert 0 < counts[-1][what] <= 1.2 * counts[9][what], what


def test_retention_counts_turns_and_deletes_idle_threads(
    program: Chat, store_url: str, world: World, clock: WallClock
) -> None:
    for number in range(5):
        program.chat("user", f"m{number}")
        program.chat("idle", f"m{number}")
    program.agent.threads.retain("user", keep_last=2)
    program.agent.threads.retain("idle", idle_for="1d")
    program.agent.gc()
    assert program.contents() == ["m3", "re: m3", "m4", "re: m4"]
    assert len(program.agent.thread("idle").turns()) == 5
    clock.advance(2 * 86_400)
    program.chat("user", "m5")
    program.agent.gc()
    assert [one.number for one in program.thread.turns()] == [5, 6]
    assert [one.id for one in program.agent.threads.list()] == ["user"]
    assert program.chat("idle", "again") == "re: again"
    assert program.agent.thread("idle").messages[0]["content"] == "again"


def test_a_thread_moves_with_its_agent(program: Chat, tmp_path: Path) -> None:
    program.chat("user", "hello")
    program.thread.state["city"] = "NYC"
    program.agent.export(tmp_path / "agent.perdure")
    moved = Agent.import_from(tmp_path / "agent.perdure", store=tmp_path / "other.db")
    thread = moved.thread("user")
    with thread.turn("second") as turn:
        assert [one["content"] for one in turn.context(layout=["conversation"]).messages] == [
            "hello",
            "re: hello",
            "second",
        ]
        turn.reply("re: second")
    assert (turn.id, dict(thread.state)) == ("user#2", {"city": "NYC"})
    check_views(moved)
    moved.close()


def test_who_waits_for_a_turn_that_is_killed_finishes_it_first(store_url: str, world: World) -> None:
    def doomed() -> None:
        chat = Chat(store_url, world)
        with chat.thread.turn("first") as turn:
            chat.ask(list(turn.messages))
            world.do("open")
            wait_until(lambda: world.count("go"))
            die()

    program = Chat(store_url, world)
    with run_children(doomed):
        wait_until(lambda: world.count("open"))
        timer = threading.Timer(0.2, world.do, ("go",))
        timer.start()
        assert program.chat("user", "second", wait=60) == "re: second"
        timer.join()
    assert program.contents() == ["first", "re: first", "second", "re: second"]
    assert world.count("asked first") == 1


@pytest.mark.parametrize("kind", ["run", "turn"])
def test_a_context_is_cut_on_replay_as_it_was_recorded(
    store_url: str, world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tokenizer, another budget, other rules for cutting: replay decides nothing again."""
    call = {"role": "assistant", "content": None, "tool_calls": [_call("c1"), _call("c2")]}
    results = [{"role": "tool", "tool_call_id": one, "content": f"{one} " + "line\n" * 900} for one in ("c1", "c2")]
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}

    def talk(dies: bool, budget: int, tokens: Any = None) -> tuple[Any, ...]:
        agent = agent_at(store_url)
        block = agent.run("r") if kind == "run" else agent.thread("c").turn("What now?")
        with block as run:
            for number in range(30):
                run.messages.append({"role": "user", "content": f"question {number} " + "word " * 40})
                run.messages.append({"role": "assistant", "content": f"answer {number}"})
            for message in (call, *results, picture, {"role": "user", "content": "And now?"}):
                run.messages.append(message)
            shown = run.context(budget=budget, tokens=tokens)
            agent.step(name="model")(lambda messages: world.do("paid"))(shown.messages)
            if dies:
                world.do(repr((shown.messages, shown.anthropic(cache=True), shown.text, repr(shown), shown.dropped)))
                die()
        return shown.messages, shown.anthropic(cache=True), shown.text, repr(shown), shown.dropped

    if kind == "turn":
        with agent_at(store_url).thread("c").turn("Before. " + "word " * 100) as turn:
            turn.reply("Yes. " + "word " * 100)
    agent_at(store_url).memory.remember("What now? I like the aisle seat.")
    run_in_child(lambda: talk(True, 1500))
    [recorded] = [line for line in world.read_all() if line != "paid"]
    agent_at(store_url).memory.remember("What now? I like the window seat.")
    monkeypatch.setattr("perdure.presence.context.window.FULL", 0.3)
    monkeypatch.setattr("perdure.presence.context.measure.LINE_CHARACTERS", 20)
    assert repr(talk(False, 3000, lambda text: len(text))) == recorded
    assert world.count("paid") == 1
    check_views(store_url)


def _call(ident: str) -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": "look", "arguments": "{}"}}
