"""The tabs of a run that list something: contexts as they were, memories read and written, long lists in pages."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent
from perdure.server.page.home import _find_queues as find_queues
from perdure.work.tasks import stalled
from tests.page.visitor import Visitor
from tests.server.harness import Server

EVENTS = 405


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("lists")
    server = Server(f"sqlite:///{folder / 'perdure.db'}", folder).start()
    with Agent("ours", store=server.store) as agent:
        fill(agent)
    yield server
    server.kill()


def fill(agent: Agent) -> None:
    @agent.step
    def learn() -> int:
        agent.memory.remember("Ann sits at the window")
        return 1

    agent.memory.remember("Ann flies on Mondays")
    with agent.run("trip") as run:
        run.messages.append("When does Ann fly?")
        run.context()
        run.messages.append({"role": "assistant", "content": "secondly"})
        run.messages.append("flood " * 4000)
        run.context(budget=1500)
        learn()
        run.result = 1
    with agent.run("long") as run:
        for number in range(EVENTS):
            run.event("tick", f"number {number}.")
        run.result = 1
    thread = agent.thread("talk")
    for words in ("first words", "second words"):
        with thread.turn(words) as turn:
            turn.context()
            turn.reply("yes")
    agent.memory.remember("Ann flies on Fridays")
    with agent.run("plain") as run:
        run.result = 1


def sign_in(server: Server, *options: str) -> Visitor:
    visitor = Visitor(server.origin)
    visitor.sign_in(server.make_key("ann", *options))
    return visitor


def show(visitor: Visitor, path: str) -> str:
    answer = visitor.get(path)
    assert answer.status == 200, (path, answer.body[-500:])
    return html.unescape(answer.body.decode())


def test_each_context_is_shown_as_the_model_saw_it(running: Server) -> None:
    visitor = sign_in(running)
    latest = show(visitor, "/runs/ours/trip?tab=context")
    links = re.findall(r'class="chip" href="([^"]+)"', latest)
    assert len(links) == 2
    first, last = (show(visitor, url) for url in links)
    assert "of 8,000 tokens" in first and "of 1,500 tokens" in last and "of 1,500 tokens" in latest
    assert "When does Ann fly?" in first and "Ann flies on Mondays" in first
    assert "secondly" not in first and "secondly" in last
    assert "Shortened or left out" in last and "Shortened or left out" not in first
    assert "Fridays" not in first + last  # it was remembered later
    assert "No context is recorded" in show(visitor, "/runs/ours/plain?tab=context")
    assert "cannot be shown" in show(visitor, "/runs/ours/trip?tab=context&entry=1")


def test_the_context_of_a_turn_has_the_turns_before_it(running: Server) -> None:
    text = show(sign_in(running), "/runs/ours/talk%232?tab=context")
    assert "first words" in text and "second words" in text


def test_memories_read_stand_beside_those_written(running: Server) -> None:
    text = show(sign_in(running), "/runs/ours/trip?tab=memory")
    read, written = text.split('id="written"')
    assert "Ann flies on Mondays" in read and "Ann flies on Mondays" not in written
    assert "Ann sits at the window" in written and "Ann sits at the window" not in read


def test_a_long_list_is_shown_page_by_page_to_its_end(running: Server) -> None:
    visitor, url, seen = sign_in(running), "/runs/ours/long?tab=events", []
    for _ in range(3):
        text = show(visitor, url)
        seen += re.findall(r"number (\d+)\.", text)
        following = re.findall(r'rel="next" href="([^"]+)"', text)
        url = following[0] if following else ""
    assert seen == [str(number) for number in range(EVENTS)]
    assert not url


def test_home_says_when_the_journal_was_verified(running: Server) -> None:
    visitor = sign_in(running, "--role", "admin")
    assert "not verified since the server started" in show(visitor, "/")
    visitor.post("/integrity", form_token=visitor.form_token("/integrity"))
    while "intact at" not in show(visitor, "/"):
        time.sleep(0.1)
    assert "intact at" not in show(sign_in(running, "--agent", "ours"), "/")


def test_a_queue_without_a_worker_is_told_from_one_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Agent("ours", store=f"sqlite:///{tmp_path / 'a.db'}") as agent:
        for queue in ("apples", "bread"):
            agent.task(name=queue, queue=queue)(str).start(f"in {queue}", "x")
        agent.queues.pause("apples")
        store = agent._engine.store
        assert [one.unserved for one in find_queues(store, None)] == [False, False]  # somebody may still come
        monkeypatch.setattr(stalled, "UNSERVED_MS", -1)
        assert [(one.queue.name, one.unserved) for one in find_queues(store, None)] == [
            ("bread", True),
            ("apples", False),
        ]
