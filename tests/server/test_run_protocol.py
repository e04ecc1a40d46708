"""The run protocol over HTTP: several servers, keys, bad requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.server.harness import Client, Reply, Server

RUN = "/v1/agents/travel/runs/trip"


def send(to: Client, verb: str, /, **body: Any) -> dict[str, Any]:
    answer: Reply = to.post(f"{RUN}:{verb}", body)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def test_two_servers_serve_one_session(server: Server, writer: Client, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    second = Server(server.store, tmp_path / "second").start()
    try:
        other = second.client(writer.key)
        session = send(writer, "open", client="client-one", input={"to": "NYC"})["session"]
        search = {"session": session, "name": "search", "arguments": {"city": "NYC"}}
        assert send(other, "step", **search)["status"] == "run"
        assert send(other, "step", **search, result=["PD 42"])["status"] == "done"
        assert send(writer, "step", **search)["result"] == ["PD 42"]
        begun = send(writer, "intend", session=session, name="book", arguments={"flight": "PD 42"})
        assert begun["status"] == "run" and begun["key"] and begun["lease_ms"] > 0
        assert send(other, "heartbeat", session=session) == {"lease_ms": 30_000, "order": ""}
        told = {"session": session, "name": "book", "intent": begun["entry"], "result": {"$bytes": "aGk="}}
        assert send(other, "outcome", **told) == send(writer, "outcome", **told)
        listed = other.get(f"{RUN}/calls?session={session}&limit=1").json()
        assert [one["name"] for one in listed["calls"]] == ["search"]
        assert other.get(f"{RUN}/calls?session={session}&after={listed['next']}").json()["next"] is None
        assert send(other, "close", session=session, result=1) == send(writer, "close", session=session, result=1)
        again = send(other, "open", client="client-two")
        assert (again["finished"], again["result"], again["recorded"]) == (True, 1, 2)
        assert again["calls"][1]["result"] == {"$bytes": "aGk="}
    finally:
        second.kill()


def test_what_is_wrong_is_refused_and_changes_nothing(shared_server: Server) -> None:
    writer, reader = shared_server.writer(), shared_server.writer("--role", "reader")
    opening = {"client": "client-one"}
    assert reader.post(f"{RUN}:open", opening).status == 403
    assert shared_server.writer("--agent", "other").post(f"{RUN}:open", opening).status == 403
    assert writer.post(f"{RUN}:step", {"session": "1.30000.client-one", "name": "x"}).status == 404
    session = send(writer, "open", **opening)["session"]
    busy = writer.post(f"{RUN}:open", {"client": "client-two"})
    assert (busy.status, busy.json()["code"]) == (409, "PD301") and "client-one" in busy.json()["detail"]
    forged = session.replace("client-one", "client-two")
    for verb, body in (
        ("step", {"name": "x", "result": 1}),
        ("intend", {"name": "x"}),
        ("heartbeat", {}),
        ("close", {}),
    ):
        stolen = writer.post(f"{RUN}:{verb}", {"session": forged, **body})
        assert (stolen.status, stolen.json()["code"]) == (409, "PD306"), verb
    wrong: list[dict[str, Any]] = [
        {"name": ""},
        {"name": "x" * 1000},
        {"name": "x", "nth": 10**12},
        {"name": "x", "nth": -1},
        {"name": "x", "arguments": {"a": {"$bytes": 1}}},
        {"name": "x", "retries": -1},
        {"name": "x", "resutl": 1},
        {"name": "\0"},
        {"name": "x", "scope": [["loop"]]},
    ]
    for body in wrong:
        refused = writer.post(f"{RUN}:step", {"session": session, "result": 1, **body})
        assert 400 <= refused.status < 500 and refused.json()["code"].startswith("PD"), body
    assert send(writer, "close", session=session, how="interrupted") == {"status": "interrupted"}
    assert send(writer, "open", **opening)["recorded"] == 0
