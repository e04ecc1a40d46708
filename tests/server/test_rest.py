"""The REST API: every noun once, and the rules that all of them share."""

from __future__ import annotations

import gzip
import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, RunWaiting
from tests.conformance.kit import wait_until
from tests.server.harness import Client, Server, Stream

AGENT = "/v1/agents/travel"


@pytest.fixture(scope="module")
def client(shared_server: Server) -> Client:
    return shared_server.writer("--role", "admin")


def test_state_has_versions_conditions_and_pages(client: Client) -> None:
    key = f"{AGENT}/state/a%2Fb%20%23/x%3Ay"  # any character may be in a name
    assert client.put(key, {"value": 1}, {"if-none-match": "*"}).headers["etag"] == '"1"'
    assert client.put(key, {"value": 2}, {"if-none-match": "*"}).status == 412
    assert client.put(key, {"value": 2}, {"if-match": '"1"'}).json()["version"] == 2
    stale = client.put(key, {"value": 3}, {"if-match": '"1"'})
    assert (stale.status, stale.json()["code"]) == (412, "PD408")
    assert client.get(key, {"if-none-match": '"2"'}).status == 304
    assert client.post(f"{key}:incr", {"by": 5}).json()["value"] == 7
    assert client.delete(key).json() == {"deleted": True}
    for name in "abc":
        client.put(f"{AGENT}/state/pages/{name}", {"value": name})
    first = client.get(f"{AGENT}/state/pages?limit=2").json()
    assert (list(first["items"]), first["next"]) == (["a", "b"], "b")
    assert list(client.get(f"{AGENT}/state/pages?limit=2&cursor=b").json()["items"]) == ["c"]


EXTENDED = [
    {"$tuple": [1, {"$decimal": "1.10"}]},
    {"$bytes": "aGk="},
    {"$datetime": "2026-11-18T06:25:17+00:00"},
    {"$int": "9007199254740993"},
    {"$float": "nan"},
    {"$set": [1]},
    {"$map": [[1, "one"], ["$x", 2]]},
    {"$uuid": "12345678-1234-5678-1234-567812345678"},
    {"$seconds": 1.5},
]


def test_values_that_json_lacks_come_back_as_they_were(client: Client) -> None:
    key = f"{AGENT}/state/values/all"
    assert client.put(key, {"value": EXTENDED}).status == 200
    assert client.get(key).json()["value"] == EXTENDED
    bad = client.put(key, {"value": {"$date": "never"}})
    assert (bad.status, bad.json()["code"]) == (400, "PD904")
    assert client.get(key).json()["value"] == EXTENDED


def test_checkpoints_workflows_memories_threads_artifacts(client: Client) -> None:
    assert client.post(f"{AGENT}/checkpoints", {"name": "draft", "data": {"page": 1}}).status == 201
    assert client.post(f"{AGENT}/checkpoints", {"name": "draft", "data": {"page": 2}}).json()["version"] == 2
    assert client.get(f"{AGENT}/checkpoints/draft?version=1").json()["data"] == {"page": 1}
    assert client.get(f"{AGENT}/checkpoints/draft").json()["version"] == 2
    assert client.post(f"{AGENT}/workflows", {"name": "report", "steps": ["scrape", "write"]}).status == 201
    assert client.get(f"{AGENT}/workflows/report/next").json()["step"]["action"] == "scrape"
    assert client.post(f"{AGENT}/workflows/report/steps/1:complete", {"result": 5}).json()["status"] == "completed"
    assert client.get(f"{AGENT}/workflows/report/next").json()["step"]["action"] == "write"
    assert client.get(f"{AGENT}/workflows/nope/next").status == 404
    memory = client.post(f"{AGENT}/memories", {"text": "Alice prefers aisle seats", "about": "alice"}).json()
    found = client.post(f"{AGENT}/memories:recall", {"query": "which seat does Alice like?"}).json()
    assert found["memories"][0]["memory"]["id"] == memory["id"]
    assert client.post(f"{AGENT}/memories:forget", {"about": "alice"}).json()["ids"] == [memory["id"]]
    assert client.get(f"{AGENT}/memories/{memory['id']}").status == 404
    assert client.post(f"{AGENT}/threads/u1/messages", {"input": "hi", "reply": "hello"}).json()["turn"] == 1
    assert [m["content"] for m in client.get(f"{AGENT}/threads/u1/messages").json()["messages"]] == ["hi", "hello"]
    assert client.get(f"{AGENT}/threads/nobody/messages").status == 404
    assert client.get(f"{AGENT}/context?thread=u1&budget=1000").json()["messages"][-1]["content"] == "hello"
    content = bytes(range(256)) * 40_000  # larger than a JSON body may be
    assert client.put(f"{AGENT}/artifacts/file.bin", content).json()["version"] == 1
    assert client.get(f"{AGENT}/artifacts/file.bin").body == content
    assert client.get(f"{AGENT}/artifacts").json()["artifacts"][0]["size"] == len(content)
    for path in ("bootstrap", "handoff", "usage", "savings"):
        assert client.get(f"{AGENT}/{path}").status == 200, path


def test_runs_are_listed_forked_and_cancelled(client: Client) -> None:
    for number in range(3):
        client.post(f"/v1/agents/clerk/threads/t{number}/messages", {"input": "hi", "reply": "hello"})
    first = client.get("/v1/agents/clerk/runs?limit=2").json()
    second = client.get(f"/v1/agents/clerk/runs?limit=2&cursor={first['next']}").json()
    assert [run["id"] for run in first["runs"] + second["runs"]] == ["t2#1", "t1#1", "t0#1"]
    assert client.get("/v1/agents/clerk/runs/t0%231").json()["result"] == "hello"
    assert client.post("/v1/agents/clerk/runs/t0%231:fork", {"to": "other"}).json()["id"] == "other"
    assert client.post("/v1/agents/clerk/runs/other:cancel", {"reason": "no"}).json()["obeyed"]
    assert {run["id"] for run in client.get("/v1/runs?status=cancelled").json()["runs"]} == {"other"}
    assert client.get("/v1/agents/clerk/runs/nope").json()["code"] == "PD303"


def test_lists_of_runs_and_memories_are_read_page_by_page(server: Server, writer: Client) -> None:
    with Agent("clerk", store=server.store) as agent:

        @agent.task
        def file_away(number: int) -> None: ...

        for number in range(3):
            with agent.run(f"r{number}"):
                pass
            file_away.start(f"q{number}", number)
        for number in range(5):
            agent.memory.remember(f"number {number}", about="numbers")

    def pages(path: str, field: str) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            page = writer.get(f"/v1/{path}limit=2{cursor}").json()
            assert 0 < len(page[field]) <= 2
            found += [one["id"] for one in page[field]]
            if page["next"] is None:
                return found
            cursor = f"&cursor={page['next']}"

    newest = [one["id"] for one in writer.get("/v1/runs").json()["runs"]]
    assert sorted(newest) == ["q0", "q1", "q2", "r0", "r1", "r2"]
    assert pages("agents/clerk/runs?", "runs") == pages("runs?", "runs") == newest
    assert pages("runs?status=finished&", "runs") == ["r2", "r1", "r0"]
    memories = [one["id"] for one in writer.get("/v1/agents/clerk/memories?all=true").json()["memories"]]
    assert len(memories) == 5
    assert pages("agents/clerk/memories?all=true&", "memories") == memories
    assert pages("agents/clerk/memories?all=true&about=numbers&", "memories") == memories
    for wrong in ("x", "1", "1.x", "-1.2", "1.2.%25", f"{1 << 70}.1", "1.0.AA=="):
        for path in ("runs", "agents/clerk/memories"):
            assert writer.get(f"/v1/{path}?cursor={wrong}").status in (200, 400), wrong


def test_an_idempotency_key_carries_a_request_out_once_even_after_a_crash(server: Server, writer: Client) -> None:
    once, path = {"idempotency-key": "k-1"}, "/v1/agents/a/state/n/count:incr"
    first = writer.post(path, {"by": 1}, once)
    again = writer.post(path, {"by": 1}, once)
    assert (again.status, again.body, again.headers["idempotency-replayed"]) == (200, first.body, "true")
    differs = writer.post(path, {"by": 2}, once)
    assert (differs.status, differs.json()["code"]) == (422, "PD906")
    port = server.port
    server.kill()
    server.start(port)
    writer = server.client(writer.key)
    assert writer.post(path, {"by": 1}, once).body == first.body
    other = server.writer()
    assert other.post(path, {"by": 1}, once).json()["value"] == 2  # keys of other people are other keys
    assert writer.post(path, {"by": "x"}, {"idempotency-key": "k-2"}).status == 400
    assert writer.post(path, {"by": 1}, {"idempotency-key": "k-2"}).json()["value"] == 3


def test_a_server_killed_around_its_write_carries_the_request_out_once(store_url: str, tmp_path: Path) -> None:
    server, path, body = Server(store_url, tmp_path), "/v1/agents/a/events", {"kind": "PAID", "payload": 5}
    key = server.make_key("test", "--role", "admin")
    talk, turn = "/v1/agents/a/threads/t/messages", {"input": "hi", "reply": "hello"}

    def send(failpoint: str, name: str, path: str = path, body: Any = body) -> None:
        """Send a request to a server that dies before it answers."""
        server.start(env={"PERDURE_FAILPOINT": failpoint})
        with pytest.raises((OSError, http.client.HTTPException)):
            server.client(key).post(path, body, {"idempotency-key": name})
        wait_until(lambda: server.died)
        server.kill()

    try:
        send("event.append:written", "k-1")  # nothing landed, so the next one carries it out
        send("event.append:after", "k-1")
        send("state.write:after#2", "k-2")  # the claim of the key is the first write of state, the answer the second
        send("run.end:after", "k-3", talk, turn)
        server.start()
        client = server.client(key)
        told = client.post(path, body, {"idempotency-key": "k-1"})
        assert (told.status, told.json(), told.headers["idempotency-replayed"]) == (201, {"appended": 1}, "true")
        assert client.post(path, body, {"idempotency-key": "k-1"}).body == told.body
        kept = client.post(path, body, {"idempotency-key": "k-2"})
        assert (kept.status, kept.headers["idempotency-replayed"]) == (201, "true")
        events = client.get(path).json()["events"]
        assert [one["payload"] for one in events] == [5, 5]
        assert client.post(talk, turn, {"idempotency-key": "k-3"}).json()["turn"] == 1
        assert len(client.get(talk).json()["messages"]) == 2
        audited = [one["operation"] for one in client.get("/v1/audit").json()["writes"]]
        assert sorted(audited) == ["append_event", "append_event", "create_turn"], "once for each write"
    finally:
        server.kill()


WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    "state/n/count:incr": ("state.write:after#2", {"by": 5}),  # the claim of the key is the first write of state
    "checkpoints": ("checkpoint.write:after", {"name": "c", "data": {"a": [1, 2]}, "labels": ["x"]}),
    "workflows": ("workflow.write:after", {"name": "w", "steps": ["one", "two"]}),
    "workflows/plan/steps/1:complete": ("workflow.write:after", {"result": 7, "note": "done"}),
    "runs/r:send": ("run.signal:after", {"name": "go", "payload": 1}),
}


@pytest.mark.stores("sqlite")
def test_the_answer_of_a_write_survives_a_crash_right_after_its_commit(store_url: str, tmp_path: Path) -> None:
    """The retry is told what an undisturbed server would have told, and changes nothing."""
    server, base = Server(store_url, tmp_path), "/v1/agents/a/"
    secret = server.make_key("test")
    with Agent("a", store=server.store) as agent:
        agent.state.set("n", "count", 1)
        agent.workflows.create("plan", ["one", "two"])
        with pytest.raises(RunWaiting), agent.run("r", wait=0) as run:
            run.wait_event("go")
    try:
        for path, (failpoint, body) in WRITES.items():
            server.start(env={"PERDURE_FAILPOINT": failpoint})
            with pytest.raises((OSError, http.client.HTTPException)):
                server.client(secret).post(base + path, body, {"idempotency-key": path})
            wait_until(lambda: server.died)
            server.kill()
        server.start()
        client = server.client(secret)
        told = {}
        for path, (_, body) in WRITES.items():
            reply = client.post(base + path, body, {"idempotency-key": path})
            assert (reply.status // 100, reply.headers.get("idempotency-replayed")) == (2, "true"), (path, reply.body)
            assert client.post(base + path, body, {"idempotency-key": path}).body == reply.body
            told[path] = reply.json()
        count, made, planned, step, _ = told.values()
        assert count["value"] == client.get(base + "state/n/count").json()["value"] == 6
        assert made["version"] == client.get(base + "checkpoints/c").json()["version"] == 1
        assert planned == client.get(base + "workflows/w").json()
        assert [step, "done"] == [client.get(base + "workflows/plan").json()["steps"][0], step["note"]]
        more = {"name": "c", "data": {"a": [1, 2], "b": 3}}
        assert client.post(base + "checkpoints", more).json()["version"] == 2
        assert client.get(base + "checkpoints/c").json()["data"] == more["data"]
        with agent.run("r", wait=0) as run:
            assert run.wait_event("go") == 1
            with pytest.raises(RunWaiting):
                run.wait_event("go")
    finally:
        server.kill()


def test_a_stream_of_events_resumes_exactly_and_ends_with_the_server(server: Server, writer: Client) -> None:
    path = "/v1/agents/a/events"
    for number in range(5):
        writer.post(path, {"kind": "SEEN", "payload": number})
    stream = Stream(server, writer.key, f"{path}:follow?since=")
    seen = [next(events) for events in [stream.events()] for _ in range(3)]
    stream.close()
    assert [json.loads(data)["payload"] for _, _, data in seen] == [0, 1, 2]
    resumed = Stream(server, writer.key, f"{path}:follow", last=seen[-1][1])
    events = resumed.events()
    assert [json.loads(next(events)[2])["payload"] for _ in range(2)] == [3, 4]
    writer.post(path, {"kind": "SEEN", "payload": 5})
    assert json.loads(next(events)[2])["payload"] == 5
    assert server.stop() == 0
    assert [kind for kind, _, _ in events] == ["stop"]
    resumed.close()


def test_a_wrong_field_is_told_the_right_ones(client: Client) -> None:
    wrong = client.post(f"{AGENT}/events", {"kind": "SEEN", "value": 1})
    assert (wrong.status, wrong.json()["hint"]) == (400, "the fields are kind, payload")
    asked = client.get(f"{AGENT}/checkpoints?page=2")
    assert (asked.status, asked.json()["hint"]) == (400, "the parameters are cursor, limit")
    nested = client.post(f"{AGENT}/workflows", {"name": "w", "steps": [{"nmae": "x"}]})
    assert nested.json()["hint"] == "GET /v1/openapi.json describes every request"


def test_each_of_many_followers_gets_each_event_once(client: Client, shared_server: Server) -> None:
    """They share one look at the store. Each has a filter of its own, and agents do not wake each other in vain."""
    path = "/v1/agents/followed/events"
    streams = [Stream(shared_server, client.key, f"{path}:follow?kind=K{number % 2}") for number in range(10)]
    read = [stream.events() for stream in streams]
    for number in range(20):
        client.post(path, {"kind": f"K{number % 2}", "payload": number})
    for nth, events in enumerate(read):
        found = [json.loads(next(events)[2])["payload"] for _ in range(10)]
        assert found == list(range(nth % 2, 20, 2))
    for stream in streams:
        stream.close()
    late = Stream(shared_server, client.key, f"{path}:follow")  # the first one after all have left
    client.post(path, {"kind": "K0", "payload": "late"})
    assert json.loads(next(late.events())[2])["payload"] == "late"
    late.close()
    assert client.get(f"{path}:follow?since=nonsense").status == 422


def test_answers_are_compressed_and_described(client: Client) -> None:
    document = client.get("/v1/openapi.json", {"accept-encoding": "gzip"})
    assert document.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(document.body))["openapi"] == "3.1.0"
    for accepted, encoding in (
        ("zstd", "zstd"),
        ("gzip;q=0.8, br", "gzip"),
        ("zstd;q=0, gzip", "gzip"),
        ("gzip; q=0.0", None),
    ):
        answer = client.get("/v1/openapi.json", {"accept-encoding": accepted})
        assert answer.headers.get("content-encoding") == encoding, accepted
    assert b'perdure_http_requests_total{operation="get_openapi",status="200"}' in client.get("/metrics").body


def test_no_time_of_the_api_is_a_number(shared_server: Server) -> None:
    schemas = shared_server.client().get("/v1/openapi.json").json()["components"]["schemas"]
    times = {
        (name, part): str(schema)
        for name, record in schemas.items()
        for part, schema in record.get("properties", {}).items()
        if part.endswith("_at")
    }
    assert ("QuestionEntry", "asked_at") in times
    assert [place for place, schema in times.items() if "integer" in schema or "number" in schema] == []
