"""begin_once and finish_once: a session that is killed at any moment neither repeats nor loses its action."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.harness import ServerDied, StdioServer

KEY = "invoice-17"
COMMITS = ("run.claim", "effect.intent", "effect.outcome", "run.end")
MOMENTS = [
    *(f"{site}:{moment}" for site in COMMITS for moment in ("before", "after")),
    "told",
    "acted",
]
"""Around each commit of both tools, and while the agent acts."""


def behave(server: StdioServer, world: Path, stop: str = "") -> object:
    """Behave as the tools tell an agent to: act only when allowed, check what is unknown, report."""
    while not (known := server.call("begin_once", key=KEY, action="send the invoice", details={"to": "ann"}))["act"]:
        if known["status"] == "done":
            return known["result"]
        assert known["status"] == "unknown", known
        assert known["details"] == {"to": "ann"}
        happened = world.exists()
        told = {"outcome": "done", "result": world.read_text()} if happened else {"outcome": "not_done"}
        server.call("finish_once", key=KEY, **told)
    if stop == "told":
        server.kill()
        raise ServerDied
    with world.open("a") as file:
        file.write("sent;")
    if stop == "acted":
        server.kill()
        raise ServerDied
    return server.call("finish_once", key=KEY, result="sent;", ticket=known["ticket"])["result"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_action_happens_once_whenever_the_session_is_killed(tmp_path: Path, moment: str) -> None:
    store, world = tmp_path / "a.db", tmp_path / "world"
    failpoint = moment if ":" in moment else ""
    with StdioServer(store, failpoint=failpoint) as first, pytest.raises(ServerDied):
        behave(first, world, moment)
    with StdioServer(store) as second:
        assert behave(second, world) == "sent;"
        assert second.call("begin_once", key=KEY)["result"] == "sent;"
    assert world.read_text() == "sent;"


def test_a_second_session_is_told_what_the_first_one_does(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with StdioServer(store) as first, StdioServer(store) as second:
        ticket = first.call("begin_once", key=KEY, action="pay")["ticket"]
        seen = second.call("begin_once", key=KEY)
        assert (seen["status"], seen["act"], seen["action"]) == ("in_progress", False, "pay")
        assert str(first.pid) in seen["holder"]
        assert "pass the ticket" in second.refusal("finish_once", key=KEY, result=1)
        assert first.call("begin_once", key=KEY)["status"] == "in_progress"
        assert first.call("finish_once", key=KEY, result=5, ticket=ticket)["status"] == "done"
        assert second.call("begin_once", key=KEY)["result"] == 5
        assert second.call("finish_once", key=KEY, result=6)["result"] == 5


def test_an_unknown_outcome_is_settled_by_whoever_checks_first(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    with StdioServer(store) as first:
        first.call("begin_once", key=KEY)
        first.kill()
    with StdioServer(store) as second, StdioServer(store) as third:
        assert second.call("begin_once", key=KEY)["status"] == "unknown"
        assert third.call("begin_once", key=KEY)["status"] == "unknown"
        assert f"`{KEY}` was begun and may have happened" in third.call("wake_up")["text"]
        assert second.call("finish_once", key=KEY, outcome="not_done")["status"] == "not_done"
        assert third.call("begin_once", key=KEY)["status"] == "go"
        assert second.call("begin_once", key=KEY)["status"] == "in_progress"
        assert third.call("finish_once", key=KEY, outcome="unknown")["status"] == "unknown"
        assert second.call("finish_once", key=KEY, outcome="done", result={"id": 9})["result"] == {"id": 9}
        assert third.call("begin_once", key=KEY)["result"] == {"id": 9}


def test_what_was_never_begun_cannot_be_finished(tmp_path: Path) -> None:
    with StdioServer(tmp_path / "a.db") as server:
        assert "call begin_once first" in server.refusal("finish_once", key=KEY)
        server.call("begin_once", key=KEY)
        server.call("finish_once", key=KEY, outcome="not_done")
        assert "call begin_once first" in server.refusal("finish_once", key=KEY, result=1)
        assert server.call("begin_once", key=KEY)["status"] == "go"
