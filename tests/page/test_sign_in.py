"""Signing in, sessions, forms and roles of the page, with a plain HTTP client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent, RunWaiting
from tests.page.visitor import Visitor
from tests.server.conftest import shared_server
from tests.server.harness import Server

__all__ = ["shared_server"]

HOSTILE = '<img src=x onerror=alert(1)>\x1b[2J\u202e"'


@pytest.fixture
def visitor(shared_server: Server) -> Visitor:
    return Visitor(shared_server.origin)


def sign_in(server: Server, *options: str) -> Visitor:
    visitor = Visitor(server.origin)
    visitor.sign_in(server.make_key("ann", *options))
    return visitor


def ask(server: Server, run_id: str, text: str = "Go on?", agent: str = "asker") -> None:
    """Let a run ask, and leave."""
    with Agent(agent, store=server.store) as asker, pytest.raises(RunWaiting), asker.run(run_id, wait=0) as run:
        run.approve(text)


@pytest.mark.parametrize("path", ["/", "/runs", "/questions", "/runs?status=failed"])
def test_a_visitor_is_sent_to_sign_in(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status == 303
    assert answer.headers["location"].startswith("/login?next=%2F")


def test_a_key_opens_a_session_in_a_cookie_that_scripts_and_other_sites_cannot_use(shared_server: Server) -> None:
    visitor = Visitor(shared_server.origin)
    answer = visitor.sign_in(shared_server.make_key("ann"))
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie  # plain HTTP on loopback
    assert visitor.get("/runs").status == 200


def test_behind_tls_the_cookie_travels_over_tls_only(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path, "--behind-proxy").start()
    try:
        visitor = Visitor(server.origin)
        assert "secure" in visitor.sign_in(server.make_key()).headers["set-cookie"].lower()
    finally:
        server.kill()


def test_a_wrong_key_opens_nothing_and_says_so(visitor: Visitor) -> None:
    answer = visitor.sign_in("pdk_aaaaaaaaaaaa_" + "0" * 48)
    assert answer.status == 400
    assert b"the key is not valid" in answer.body
    assert visitor.get("/runs").status == 303


def test_signing_in_leads_to_no_other_site(shared_server: Server) -> None:
    for there in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"):
        visitor = Visitor(shared_server.origin)
        answer = visitor.sign_in(shared_server.make_key("ann"), there)
        assert answer.headers["location"] == "/"


def test_guessing_is_slowed_down(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path).start()
    try:
        visitor = Visitor(server.origin)
        statuses = [visitor.sign_in(f"pdk_x_{number}").status for number in range(12)]
        assert statuses[:10] == [400] * 10
        assert statuses[10:] == [429] * 2
    finally:
        server.kill()


def test_a_session_ends_with_its_key(shared_server: Server) -> None:
    for end in ("revoke", "rotate"):
        key = shared_server.make_key("ann")
        visitor = Visitor(shared_server.origin)
        visitor.sign_in(key)
        assert visitor.get("/runs").status == 200
        command = [sys.executable, "-m", "perdure.cli", "keys", end, key.split("_")[1], "--store", shared_server.store]
        subprocess.run(command, check=True, capture_output=True)
        assert visitor.get("/runs").status == 303


def test_signing_out_ends_the_session_on_the_server(shared_server: Server) -> None:
    visitor = sign_in(shared_server)
    kept = dict(visitor.cookies)
    assert visitor.post("/logout", form_token=visitor.form_token("/runs")).status == 303
    visitor.cookies = kept  # a thief of the cookie comes too late
    assert visitor.get("/runs").status == 303


def test_a_session_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path).start()
    try:
        visitor = sign_in(server)
        port = server.port
        server.stop()
        server.start(port)
        assert visitor.get("/runs").status == 200
    finally:
        server.kill()


def test_a_form_needs_the_token_of_its_session(shared_server: Server) -> None:
    ask(shared_server, "csrf")
    one, other = sign_in(shared_server), sign_in(shared_server)
    [question] = re.findall(r"/questions/\d+-\d+", one.get("/questions").body.decode())[:1]
    for token in ("", "0" * 64, other.form_token(question)):
        assert one.post(question, answer="yes", form_token=token).status == 403
    foreign = {"origin": "https://evil.example"}
    assert one.post(question, foreign, answer="yes", form_token=one.form_token(question)).status == 403
    site = {"sec-fetch-site": "cross-site"}
    assert one.post(question, site, answer="yes", form_token=one.form_token(question)).status == 403
    answer = one.post(question, answer="yes", form_token=one.form_token(question))
    assert (answer.status, answer.headers["location"]) == (303, "/runs/asker/csrf")
    assert question.encode() not in one.get("/questions").body


def test_a_reader_sees_and_changes_nothing(shared_server: Server) -> None:
    ask(shared_server, "read-only")
    reader = sign_in(shared_server, "--role", "reader")
    questions = re.findall(r"/questions/\d+-\d+", reader.get("/questions").body.decode())
    answer = reader.post(questions[0], answer="yes", form_token=reader.form_token("/runs"))
    assert answer.status == 403
    assert questions[0].encode() in reader.get("/questions").body


def test_a_key_of_one_agent_shows_no_other(shared_server: Server) -> None:
    ask(shared_server, "theirs", "Their secret?", "theirs")
    ask(shared_server, "ours", "Our question?", "ours")
    ours = sign_in(shared_server, "--agent", "ours")
    for path in ("/", "/runs", "/questions"):
        assert b"heirs" not in ours.get(path).body
    assert ours.get("/runs?agent=theirs").status == 403
    everything = sign_in(shared_server).get("/questions").body.decode()
    [theirs] = re.findall(r'(/questions/\d+-\d+)">.*Their secret', everything)
    assert ours.get(theirs).status == 409
    assert ours.post(theirs, answer="yes", form_token=ours.form_token("/runs")).status == 409


def test_pages_let_nothing_foreign_in(shared_server: Server, visitor: Visitor) -> None:
    for answer in (visitor.get("/login"), sign_in(shared_server).get("/"), visitor.get("/runs/none/none/none/none")):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert not re.search(rb"<script(?! src=)|\son\w+=|\sstyle=|javascript:", answer.body)


def test_hostile_names_are_shown_as_text(shared_server: Server) -> None:
    agent = Agent("<b>agent</b>", store=shared_server.store)
    with agent.run(HOSTILE.replace("\x1b", "")) as run:
        run.result = 1
    agent.close()
    shown = sign_in(shared_server).get("/runs").body.decode()
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown
    assert "<img src=x" not in shown
    assert "\u202e" not in shown
    assert "\\u202e" in shown


def test_files_are_kept_by_their_hash(visitor: Visitor) -> None:
    [url] = re.findall(r"/assets/page\.css\?v=\w+", visitor.get("/login").body.decode())
    first = visitor.get(url)
    assert "immutable" in first.headers["cache-control"]
    assert visitor.get(url, {"if-none-match": first.headers["etag"]}).status == 304
    assert "immutable" not in visitor.get("/assets/page.css").headers["cache-control"]
    assert visitor.get("/assets/..%2Fpage.py").status == 404
    assert visitor.get("/favicon.ico").headers["content-type"] == "image/svg+xml"


def test_all_files_together_are_small() -> None:
    import perdure.server.page as page

    [folder] = page.__path__
    files = [path for path in Path(folder, "assets").iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 200_000
    assert Path(folder, "assets", "htmx.LICENSE").is_file()


@pytest.fixture
def ui(tmp_path: Path) -> Iterator[str]:
    """The link of `perdure ui` on a new store."""
    store = f"sqlite:///{tmp_path / 'perdure.db'}"
    agent = Agent("local", store=store)
    with agent.run("r1") as run:
        run.result = 1
    agent.close()
    command = [sys.executable, "-m", "perdure.cli", "ui", "--store", store, "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        told = ""
        while not told.rstrip().endswith("}"):
            told += process.stdout.readline()
        yield json.loads(told)["url"]
        process.terminate()


def test_the_link_of_perdure_ui_works_once(ui: str) -> None:
    origin, _, token = ui.partition("/enter")
    me, thief = Visitor(origin), Visitor(origin)
    assert me.get("/enter?token=wrong").status == 200
    assert me.get("/runs").status == 303
    assert me.get("/enter" + token).status == 303
    assert b"r1" in me.get("/runs").body
    assert b"works once" in thief.get("/enter" + token).body
    assert thief.get("/runs").status == 303
    assert me.get("/v1/runs").status == 404  # nothing but the page
    assert me.get("/runs", {"host": "evil.example"}).status == 403  # a name that was rebound to loopback
