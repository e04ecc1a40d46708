"""The pages about what agents have, and about the store and the server, with a plain HTTP client."""

from __future__ import annotations

import html
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from perdure import Agent
from perdure.journal.lineage import events_of
from perdure.journal.stream_reader import iterate_streams
from perdure.journal.verify import agent_keys
from perdure.records import MemoryForgotten
from tests.page.things import fill
from tests.page.visitor import Visitor
from tests.server.conftest import server
from tests.server.harness import PATIENCE_SECONDS, Server

__all__ = ["server"]

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>[x](javascript:alert(1)) \u202e\"' &amp;"
HELD = ("threads", "memory", "workflows", "checkpoints", "workspace", "playbooks")
"""Lists of what one agent has."""
PAGES = ("agents", *HELD, "tasks", "usage")
LINK = re.compile(r'href="(/[^"]*)"')


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one of everything, of three agents."""
    folder = tmp_path_factory.mktemp("filled")
    running = Server(f"sqlite:///{folder / 'perdure.db'}", folder).start()
    for agent in ("ours", "theirs"):
        fill(running.store, agent, f"of-{agent}")
    fill(running.store, f"agent {HOSTILE}", HOSTILE)
    yield running
    running.kill()


def sign_in(server: Server, *options: str) -> Visitor:
    visitor = Visitor(server.origin)
    visitor.sign_in(server.make_key("ann", *options))
    return visitor


@pytest.fixture(scope="module")
def anyone(filled: Server) -> Visitor:
    return sign_in(filled)


def show(visitor: Visitor, path: str) -> str:
    answer = visitor.get(path)
    assert answer.status == 200, (path, answer.body[-500:])
    return answer.body.decode()


def walk(visitor: Visitor, agent: str) -> dict[str, str]:
    """Return all pages of an agent that its lists lead to."""
    name = quote(agent, safe="")
    first = [*(f"/{page}?agent={name}" for page in (*HELD, "usage")), "/tasks"]
    seen = {path: show(visitor, path) for path in first}
    for text in list(seen.values()):
        for url in map(html.unescape, LINK.findall(text)):
            if url.split("/")[1].split("?")[0] in PAGES and url.count("/") > 1 and name in url:
                seen[url] = seen.get(url) or show(visitor, url)
    return seen


@pytest.mark.parametrize("page", ["agents", *HELD])
def test_lists_are_reached_from_the_menu_and_lead_to_what_is_there(anyone: Visitor, page: str) -> None:
    assert f'href="/{page}"' in show(anyone, "/")
    text = show(anyone, f"/{page}?agent=ours" if page != "agents" else "/agents")
    assert re.search(rf'href="/{page}/ours', text)


def test_every_page_shows_markup_controls_and_links_in_texts_as_text(anyone: Visitor) -> None:
    pages = walk(anyone, f"agent {HOSTILE}")
    pages["/agents"] = show(anyone, "/agents")
    assert len(pages) > 15
    for path, text in pages.items():
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path
        assert "\u202e" not in text, path
        assert not re.search(r'<a [^>]*href="(?!/|"|#main)|\son\w+="|\sstyle="', text), path
        assert "&lt;script&gt;alert(1)" in text, path


def test_a_key_of_one_agent_sees_no_other(filled: Server) -> None:
    mine = sign_in(filled, "--agent", "ours")
    theirs = [path for path in walk(sign_in(filled), "theirs") if "theirs" in path]
    assert len(theirs) > 15
    for page in PAGES:
        assert "theirs" not in show(mine, f"/{page}")
    for path in theirs:
        answer = mine.get(path)
        assert answer.status == 403, path
        assert b"of-theirs" not in answer.body
    for path in walk(mine, "ours"):
        assert "theirs" not in show(mine, path)


def test_what_does_not_exist_is_said(filled: Server, anyone: Visitor) -> None:
    admin = sign_in(filled, "--role", "admin")
    for path in (
        "/threads/ours/none",
        "/workflows/ours/none",
        "/checkpoints/ours/none",
        "/memory/ours/id/none",
        "/playbooks/ours/none",
    ):
        assert anyone.get(path).status in (400, 404), path
    for path in (
        "/agents/none",
        "/workspace/ours/tasks%2Fnone.md",
        "/workspace/ours/MEMORY.md?version=99",
        "/keys/none",
    ):
        assert admin.get(path).status == 404, path
    assert anyone.get("/threads?agent=perdure%3Akeys").status == 403


def test_every_page_is_shown_on_each_kind_of_store(server: Server) -> None:
    fill(server.store, "ours", "here")
    admin = sign_in(server, "--role", "admin")
    assert len(walk(admin, "ours")) > 15
    assert "Nothing was edited" in verify(admin)
    assert "ours" in show(admin, "/agents")


def test_an_empty_store_says_what_fills_each_page(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path).start()
    try:
        visitor = sign_in(server)
        for page in PAGES:
            text = show(visitor, f"/{page}")
            assert 'class="empty"' in text, page
            assert 'class="command"' in text, page
    finally:
        server.kill()


def test_lists_without_a_choice_show_an_agent_that_has_something(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path).start()
    try:
        with Agent("a-empty", store=server.store) as agent, agent.run("r") as run:
            run.result = 1
        fill(server.store, "b-full", "here")
        visitor = sign_in(server)
        for page in HELD:
            assert "b-full/" in show(visitor, f"/{page}"), page
            assert 'class="empty"' in show(visitor, f"/{page}?agent=a-empty"), page
    finally:
        server.kill()


@pytest.mark.parametrize(
    "path", ["/threads/ours/thread%20of-ours", "/workflows/ours/flow%20of-ours", "/tasks", "/integrity"]
)
def test_pages_that_change_by_themselves_send_what_they_show(anyone: Visitor, path: str) -> None:
    cookies = "; ".join(f"{name}={value}" for name, value in anyone.cookies.items())
    connection = HTTPConnection(urlsplit(anyone.origin).netloc, timeout=PATIENCE_SECONDS)
    connection.request("GET", f"{path}:live", headers={"cookie": cookies})
    stream = connection.getresponse()
    sent = [next(line.decode() for line in stream if line.startswith(b"data: <"))]
    while (line := stream.readline()) != b"\n":
        sent.append(line.decode())
    connection.close()
    shown = show(anyone, path)
    told = [line.removeprefix("data: ").strip() for line in sent]
    assert len(told) > 3
    assert [line for line in told if line not in shown] == []


def test_long_lists_are_read_page_by_page(filled: Server, anyone: Visitor) -> None:
    with Agent("long", store=filled.store) as agent:
        for number in range(101):
            agent.checkpoint.create(f"c{number:03}", number)
        agent.memory.remember_all([f"memory number {number}." for number in range(101)], kind="episodic")
    for page, item in (("checkpoints", r'href="/checkpoints/long/c\d+'), ("memory", r'href="/memory/long/id/\w+')):
        first = show(anyone, f"/{page}?agent=long")
        [more] = re.findall(r'href="([^"]*)" rel="next"', first)
        second = show(anyone, html.unescape(more))
        assert 'rel="next"' not in second
        seen = re.findall(item, first), re.findall(item, second)
        assert [len(part) for part in seen] == [100, 1]
        assert len({*seen[0], *seen[1]}) == 101


# -- threads ----------------------------------------------------------------------------------------------------------


def test_a_thread_is_a_chat_with_its_turns_and_what_waits(filled: Server, anyone: Visitor) -> None:
    with Agent("talker", store=filled.store) as agent:
        thread = agent.thread("trip")
        with thread.turn("Book it") as turn:
            turn.messages.append(
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "book", "input": {"n": 3}}]}
            )
            turn.messages.append(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "8841"}]}
            )
            turn.reply("It is booked")
        with pytest.raises(ZeroDivisionError), thread.turn("And now divide"):
            _ = 1 / 0
    text = show(anyone, "/threads/talker/trip")
    assert text.index("Book it") < text.index("<code>book</code>") < text.index("8841") < text.index("It is booked")
    assert text.index("It is booked") < text.index("And now divide") < text.index("No reply yet")
    assert 'href="/runs/talker/' in text


def test_a_long_thread_is_shown_turn_by_turn_from_the_end(filled: Server, anyone: Visitor) -> None:
    with Agent("talker", store=filled.store) as agent:
        thread = agent.thread("long")
        for number in range(1, 24):
            with thread.turn(f"question <{number}>") as turn:
                turn.reply("yes")
    newest = show(anyone, "/threads/talker/long")
    assert "&lt;23&gt;" in newest
    assert "&lt;3&gt;" not in newest
    assert 'href="/threads/talker/long?before=4"' in newest
    oldest = show(anyone, "/threads/talker/long?before=4")
    assert re.findall(r"question &lt;(\d+)&gt;", oldest) == ["1", "2", "3"]


# -- memory -----------------------------------------------------------------------------------------------------------


def test_search_finds_what_recall_finds_and_says_why_and_counts_no_use(filled: Server, anyone: Visitor) -> None:
    with Agent("rememberer", store=filled.store) as agent:
        [liked, _] = agent.memory.remember_all(["Ann likes window seats", "The weather was fine"])
        text = show(anyone, "/memory?agent=rememberer&q=which+seats+does+Ann+like&about=&user=&all=false")
        assert "window seats" in text
        assert re.search(r"covers \d+% of the question · words [^<]*seats", text)
        assert "weather" not in text or text.index("window") < text.index("weather")
    with Agent("rememberer", store=filled.store) as agent:
        assert agent.memory.get(liked.id).uses == 0


def test_a_subject_is_followed_over_time_with_its_contradictions(filled: Server, anyone: Visitor) -> None:
    with Agent("rememberer", store=filled.store) as agent:
        old = agent.memory.remember("Bob works in Oslo", about="bob.place", valid_from="2026-01-01")
        agent.memory.remember("Bob works in Bergen", about="bob.place", valid_from="2026-05-01", supersedes=[old.id])
        agent.memory.remember("Bob works in Narvik", about="bob.place", valid_from="2026-06-01")
    text = show(anyone, "/memory/rememberer/subject?about=bob.place")
    assert text.index("Oslo") < text.index("Bergen") < text.index("Narvik")
    pairs = show(anyone, "/memory/rememberer/contradictions")
    assert "Bergen" in pairs
    assert "Narvik" in pairs
    assert "Oslo" not in pairs


def test_forgetting_asks_is_for_writers_and_is_journalled_with_who_did_it(filled: Server, anyone: Visitor) -> None:
    with Agent("rememberer", store=filled.store) as agent:
        made = agent.memory.remember("The secret is 4711")
        agent.state.set("notes", "copy", "The secret is 4711")
    path = f"/memory/rememberer/id/{made.id}"
    reader = sign_in(filled, "--role", "reader")
    assert "Forget it" not in show(reader, path)
    assert reader.post(path, form_token=reader.form_token("/runs")).status == 403
    foreign = sign_in(filled, "--agent", "ours")
    assert foreign.post(path, form_token=foreign.form_token("/runs")).status == 403
    assert "4711" in show(anyone, path)
    answer = anyone.post(path, reason="asked by mail", form_token=anyone.form_token(path))
    assert (answer.status, answer.headers["location"]) == (303, "/memory?agent=rememberer&left=1")
    assert "still in 1 other place:" in show(anyone, answer.headers["location"])
    assert anyone.get(path).status == 404
    assert "4711" not in show(anyone, "/memory?agent=rememberer")
    with Agent("rememberer", store=filled.store) as agent:
        store = agent._engine.store
        entries = [one for stream, *_ in iterate_streams(store) for one in events_of(store, stream, fork=False)]
    told = [entry.record for entry in entries if isinstance(entry.record, MemoryForgotten)]
    [erasure] = [one for one in told if made.id in one.ids]
    assert erasure.reason == "asked by mail"
    assert erasure.by.startswith("ann (key ")


# -- workflows and checkpoints ----------------------------------------------------------------------------------------


def test_a_workflow_is_a_graph_with_the_status_of_every_step(anyone: Visitor) -> None:
    text = show(anyone, "/workflows/ours/flow%20of-ours")
    assert len(re.findall(r"<rect ", text)) == 4
    assert len(re.findall(r'<path class="edge', text)) == 4
    assert len(re.findall(r'<path class="edge done"', text)) == 2
    assert text.count('<g class="w-completed">') == 1
    assert text.count('<g class="w-blocked">') == 1
    heights = {name: y for y, name in re.findall(r'y="(\d+)" class="head">([^<]*)<', text)}
    assert int(heights["search of-ours"]) < int(heights["book"]) == int(heights["pay"]) < int(heights["report"])


def test_two_versions_of_a_checkpoint_are_compared(anyone: Visitor) -> None:
    newest = show(anyone, "/checkpoints/ours/point%20of-ours")
    assert "What changed since version 1" in newest
    assert re.search("<del>1</del>.*\n.*<ins>2</ins>", newest)
    back = show(anyone, "/checkpoints/ours/point%20of-ours?version=1&since=2")
    assert re.search("<del>2</del>.*\n.*<ins>1</ins>", back)
    assert "What changed" not in show(anyone, "/checkpoints/ours/point%20of-ours?version=1")


# -- agents -----------------------------------------------------------------------------------------------------------


def test_an_agent_shows_its_identity_and_how_to_take_it_away(filled: Server, anyone: Visitor) -> None:
    with Agent("ours", store=filled.store) as agent:
        key = agent_keys(agent._engine.store)["ours"].hex()
    text = show(anyone, "/agents/ours")
    assert "perdure export ours agent.perdure" in text
    assert f"<code>{key[:32]}" in text


# -- files, playbooks, tasks, usage -----------------------------------------------------------------------------------


def test_a_file_has_a_history_with_what_each_version_changed(anyone: Visitor) -> None:
    assert re.search(r'href="/workspace/ours/MEMORY.md"', show(anyone, "/workspace?agent=ours"))
    newest = show(anyone, "/workspace/ours/MEMORY.md")
    assert '<div class="d-removed">- first of-ours</div><div class="d-added">+ second of-ours</div>' in newest
    numbers = re.findall(r'href="/workspace/ours/MEMORY.md\?version=(\d+)"', newest)
    before = show(anyone, f"/workspace/ours/MEMORY.md?version={numbers[1]}")
    assert "second of-ours" not in before
    assert "first of-ours" in before


def test_a_playbook_shows_what_it_says_and_what_it_has_done(anyone: Visitor) -> None:
    text = show(anyone, "/playbooks/ours/book")
    assert "look at of-ours" in text
    assert re.search(r"(cheap of-ours|strong)</td>(?s:.*?)100%", text)
    assert "$0.50" in text


def test_queues_show_what_waits_in_them(filled: Server, anyone: Visitor) -> None:
    text = show(anyone, "/tasks")
    assert re.search(r"queue of-ours</td>(?s:.*?)queued </span>1<", text)
    assert "task of-ours" in text
    mine = show(sign_in(filled, "--agent", "ours"), "/tasks")
    assert "queue of-ours" in mine
    assert "of-theirs" not in mine


def test_processes_at_work_are_shown_with_their_runs(filled: Server, anyone: Visitor) -> None:
    with Agent("worker", store=filled.store) as agent, agent.run("at work") as run:
        assert 'href="/runs/worker/at%20work"' in show(anyone, "/tasks")
        run.result = 1
    assert "at%20work" not in show(anyone, "/tasks")


def test_usage_shows_what_was_spent_and_saved(filled: Server, anyone: Visitor) -> None:
    with Agent("saver", store=filled.store) as agent:
        for attempt in range(2):
            with suppress(ZeroDivisionError), agent.run("resumed") as run:
                run.step(lambda: run.usage(model="big", input_tokens=9, cost_usd=2.0), name="think")
                run.result = 1 / attempt
    text = show(anyone, "/usage?agent=saver")
    assert re.search(r"<b>\$2.00</b>spent in 1 call<", text)
    assert re.search(r"<b>\$2.00</b>saved by resuming", text)
    assert re.search(r"big</td>(?s:.*?)spent </span>\$2.00<(?s:.*?)saved </span>\$2.00<", text)
    assert re.search(r'class="b-spent" x="0" y="0" width="20" height="140"', text)
    assert "saver" in show(anyone, "/usage")
    assert sign_in(filled, "--agent", "ours").get("/usage?agent=saver").status == 403
    assert "saver" not in show(sign_in(filled, "--agent", "ours"), "/usage")


# -- integrity --------------------------------------------------------------------------------------------------------


def verify(visitor: Visitor) -> str:
    """Begin a check, and return the page when it has ended."""
    answer = visitor.post("/integrity", form_token=visitor.form_token("/runs"))
    assert answer.status == 303, answer.body
    while "Verifying:" in (text := show(visitor, "/integrity")):
        time.sleep(0.05)
    return text


def test_an_admin_verifies_the_journal_and_damage_is_found(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path).start()
    try:
        fill(server.store, "ours", "x")
        admin = sign_in(server, "--role", "admin")
        assert "Nobody has verified" in show(admin, "/integrity")
        assert "Nothing was edited" in verify(admin)
        assert "Nothing was edited" in show(sign_in(server, "--role", "reader"), "/integrity")
        with sqlite3.connect(tmp_path / "perdure.db") as file:
            file.execute("UPDATE journal SET at = at + 1 WHERE id = (1 << 32 | 1)")
        assert "The journal is damaged" in verify(admin)
    finally:
        server.kill()


def test_only_admins_of_the_whole_store_verify(filled: Server) -> None:
    for options, status in ((("--role", "writer"), 403), (("--role", "admin", "--agent", "ours"), 403)):
        visitor = sign_in(filled, *options)
        assert visitor.post("/integrity", form_token=visitor.form_token("/runs")).status == status
    assert sign_in(filled, "--agent", "ours").get("/integrity").status == 403
    assert "Verify now" not in show(sign_in(filled), "/integrity")


# -- keys -------------------------------------------------------------------------------------------------------------


def test_an_admin_creates_a_key_and_sees_its_secret_once(filled: Server) -> None:
    admin = sign_in(filled, "--role", "admin")
    made = admin.post("/keys", name="new <b>", role="reader", agent="ours", form_token=admin.form_token("/keys"))
    [secret] = re.findall(r"pdk_\w+", made.body.decode())
    assert "new &lt;b&gt;" in made.body.decode()
    listed = show(admin, "/keys")
    assert "new &lt;b&gt;" in listed
    assert secret not in listed
    new = Visitor(filled.origin)
    assert new.sign_in(secret).status == 303
    assert new.get("/threads?agent=theirs").status == 403


def test_a_key_is_rotated_and_revoked(filled: Server) -> None:
    admin, key = sign_in(filled, "--role", "admin"), filled.make_key("old")
    path = f"/keys/{key.split('_')[1]}"
    assert "Rotate the key" in show(admin, path)
    answer = admin.post(path, do="rotate", form_token=admin.form_token(path))
    [secret] = re.findall(r"pdk_\w+", answer.body.decode())
    assert Visitor(filled.origin).sign_in(key).status == 400
    assert Visitor(filled.origin).sign_in(secret).status == 303
    assert admin.post(path, do="revoke", form_token=admin.form_token(path)).status == 303
    assert Visitor(filled.origin).sign_in(secret).status == 400
    assert "revoked" in show(admin, path)


def test_keys_are_for_admins_and_within_their_reach(filled: Server) -> None:
    for role in ("reader", "writer"):
        visitor = sign_in(filled, "--role", role)
        assert visitor.get("/keys").status == 403
        assert 'href="/keys"' not in show(visitor, "/")
        assert visitor.post("/keys", name="x", role="admin", form_token=visitor.form_token("/runs")).status == 403
    bound, foreign = sign_in(filled, "--role", "admin", "--agent", "ours"), filled.make_key("secret name")
    path = f"/keys/{foreign.split('_')[1]}"
    assert "secret name" not in show(bound, "/keys")
    assert bound.get(path).status == 404
    assert bound.post(path, do="revoke", form_token=bound.form_token("/keys")).status == 404
    refused = bound.post("/keys", name="x", role="admin", agent="theirs", form_token=bound.form_token("/keys"))
    assert refused.status == 403
    assert Visitor(filled.origin).sign_in(foreign).status == 303
