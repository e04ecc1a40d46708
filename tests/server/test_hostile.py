"""Hostile requests: fuzzed from our own description, oversized, slow, smuggled, foreign."""

from __future__ import annotations

import gzip
import json
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.server.fuzz import FuzzRequest, RequestMaker
from tests.server.harness import Client, Reply, Server, Stream

KEY = "/v1/agents/travel/state/trip/city"


@pytest.fixture(scope="module")
def client(shared_server: Server) -> Client:
    return shared_server.writer("--role", "admin")


def fuzz(client: Client, count: int, seed: int) -> None:
    """Send requests; every answer must be one that the document describes."""
    maker = RequestMaker(client.get("/v1/openapi.json").json(), seed)
    statuses = set()
    for request in maker.requests(count):
        reply = client.request(request.method, request.path, request.body, request.headers)
        check(request, reply)
        statuses.add(reply.status)
    assert {200, 201, 400, 404, 422} <= statuses  # otherwise it did not try much


def check(request: FuzzRequest, reply: Reply) -> None:
    about = f"{request.method} {request.path} {request.body!r}: {reply.status} {reply.body[:500]!r}"
    assert reply.status < 500, about
    media = reply.headers.get("content-type", "")
    if reply.status >= 400:
        assert media == "application/problem+json", about
        problem = json.loads(reply.body)
        assert problem["code"].startswith("PD"), about
        assert problem["detail"], about
    elif reply.status != 304:
        described = request.operation["responses"][str(reply.status)].get("content", {})
        assert not reply.body or media in described, about


def test_no_request_from_our_own_description_breaks_the_server(client: Client) -> None:
    fuzz(client, 1500, seed=18)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_twenty_thousand_requests_do_not_break_the_server(client: Client) -> None:
    for seed in range(10):
        fuzz(client, 2000, seed)


def talk(server: Server, sent: bytes) -> bytes:
    """Send raw bytes and return everything until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        line.sendall(sent)
        found = b""
        while part := line.recv(65536):
            found += part
        return found


def head(client: Client, *lines: str, path: str = KEY, method: str = "PUT") -> bytes:
    fixed = (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {client.key}", "Connection: close")
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def test_bodies_beyond_a_limit_change_nothing(client: Client) -> None:
    assert client.put(f"{KEY}2", b'{"value": "' + b"x" * 9_000_000 + b'"}').status == 413
    deep = b'{"value": ' + b"[" * 70 + b"]" * 70 + b"}"
    assert client.put(f"{KEY}2", deep).status == 400
    bomb = gzip.compress(b" " * 10_000_000)
    assert client.put(f"{KEY}2", bomb, {"content-encoding": "gzip"}).status == 400
    assert client.put(f"{KEY}2", b"value=1", {"content-type": "application/x-www-form-urlencoded"}).status == 400
    assert client.get(f"{KEY}2").status == 404


def test_a_body_is_not_read_before_the_key_is_checked(shared_server: Server, client: Client) -> None:
    stranger = shared_server.client("pdk_0_0")
    answer = talk(shared_server, head(stranger, "Content-Length: 100000000"))
    assert answer.startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Transfer-Encoding: xchunked",),
        ("Content-Length: +5",),
        ("X: " + "y" * 100_000,),
        ("Bad Header: 1",),
    ],
)
def test_smuggled_and_oversized_headers_are_refused(
    lines: tuple[str, ...], shared_server: Server, client: Client
) -> None:
    answer = talk(shared_server, head(client, *lines) + b"0\r\n\r\nGET /v1/keys HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.split(b" ", 2)[1] in (b"400", b"431", b"501"), answer[:200]
    assert answer.count(b"HTTP/1.1 ") == 1  # the rest was not taken for a second request


def test_a_slow_client_is_cut_and_others_are_served(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path / 'perdure.db'}", tmp_path, "--header-timeout", "200ms").start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\n")
            assert server.client().get("/healthz").status == 200
            with suppress(ConnectionResetError):
                assert line.recv(100) == b""  # cut; without the limit this would wait for ever
    finally:
        server.kill()


@pytest.mark.parametrize(
    "path",
    ["/v1/agents/../keys", "//v1/keys", "/v1/keys/", "/V1/keys", "/v1/agents/a/state/n/%ff", "/v1/agents/%2e%2e/runs"],
)
def test_paths_mean_what_they_say(path: str, shared_server: Server) -> None:
    # Outside of the API there are only pages: that there is none at a path may be told to everybody.
    assert shared_server.client().get(path).status in ((401,) if path.startswith("/v1/") else (401, 404))
    assert shared_server.writer().get(path).status in (200, 400, 404), path


def test_no_other_site_may_read_answers(client: Client) -> None:
    for method in ("OPTIONS", "GET"):
        answer = client.request(method, KEY, headers={"origin": "https://evil.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]
    refused = client.request("PATCH", KEY)
    assert (refused.status, refused.json()["code"]) == (405, "PD908")


def probes(secret: dict[str, str]) -> Iterator[tuple[str, str, object, dict[str, str]]]:
    """Every way to name something of the other tenant."""
    base = "/v1/agents/vault"
    for path in (
        *("", "/state/box", "/state/box/gold", "/checkpoints", "/checkpoints/plan", "/workflows", "/workflows/heist"),
        *("/workflows/heist/next", "/events", "/memories", f"/memories/{secret['memory']}", "/threads"),
        *("/threads/talk/messages", "/context?thread=talk", "/runs", "/runs/talk%231", "/artifacts", "/artifacts/map"),
        *("/usage", "/savings", "/handoff", "/bootstrap", "/questions", f"/events?cursor={secret['position']}"),
    ):
        yield "GET", f"{base}{path}", None, {}
    for path in ("/v1/runs", "/v1/agents", "/v1/keys", "/v1/audit", f"/v1/runs?cursor={secret['cursor']}"):
        yield "GET", path, None, {}
    yield "POST", f"{base}/memories:recall", {"query": "where is the gold?"}, {}
    yield "POST", f"{base}/state/box/gold:incr", {"by": 1}, {"idempotency-key": "theirs"}
    yield "DELETE", f"/v1/keys/{secret['key']}", None, {}
    yield "POST", f"/v1/keys/{secret['key']}:rotate", None, {}


def mutate_probes(secret: dict[str, str], count: int) -> Iterator[tuple[str, str, object, dict[str, str]]]:
    """Yield the fixed probes, then variants of them: other methods, keys, cursors, tenants and spellings of the path.

    The same count makes the same probes. Streams without an end are asked for by `Last-Event-ID` on a page instead.
    """
    fixed, draw = list(probes(secret)), random.Random(18)
    yield from fixed
    for _ in range(count - len(fixed)):
        method, path, body, headers = draw.choice(fixed)
        headers = dict(headers)
        if draw.random() < 0.4:
            headers["idempotency-key"] = "theirs"
        if draw.random() < 0.4:
            headers[draw.choice(("perdure-tenant", "x-tenant", "x-forwarded-host"))] = "bank"
        if draw.random() < 0.2:
            headers["last-event-id"] = secret["position"]
        if draw.random() < 0.4:
            cursor = draw.choice((secret["cursor"], secret["position"], secret["memory"], secret["key"], "0.1"))
            path += f"{'&' if '?' in path else '?'}{draw.choice(('cursor', 'tenant', 'since'))}={cursor}"
        if draw.random() < 0.3:
            path = path.replace("/v1/", draw.choice(("/v1/../bank/", "/v1/bank/", "/bank/v1/", "/v1/%2e%2e/bank/")), 1)
        if draw.random() < 0.3:
            method = draw.choice(("GET", "POST", "PUT", "DELETE", "PATCH"))
            body = draw.choice((None, {"value": "stolen"}, b"stolen"))
        yield method, path, body, headers


def probe_tenants(server: Server, count: int) -> None:
    """Let a tenant's admin try to read and change what another tenant has."""
    owner, thief = (server.writer("--role", "admin", "--tenant", name) for name in ("bank", "thief"))
    base = "/v1/agents/vault"
    owner.put(f"{base}/state/box/gold", {"value": "TREASURE"})
    owner.post(f"{base}/checkpoints", {"name": "plan", "data": "TREASURE"})
    owner.post(f"{base}/workflows", {"name": "heist", "steps": [{"action": "dig", "title": "TREASURE"}]})
    owner.post(f"{base}/events", {"kind": "K", "payload": "TREASURE"}, {"idempotency-key": "theirs"})
    memory = owner.post(f"{base}/memories", {"text": "the TREASURE is in the cellar"}).json()["id"]
    owner.post(f"{base}/threads/talk/messages", {"input": "TREASURE", "reply": "TREASURE"})
    owner.put(f"{base}/artifacts/map", b"TREASURE")
    position = owner.get(f"{base}/events").json()["events"][0]["position"]
    secret = {"memory": memory, "position": position, "cursor": "9999999999999.1", "key": owner.key.split("_")[1]}
    plain = len(list(probes(secret)))
    for number, (method, path, body, headers) in enumerate(mutate_probes(secret, count)):
        found = thief.request(method, path, body, headers)
        assert b"TREASURE" not in found.body, (method, path, headers)
        assert found.status < 500, (method, path, headers, found.body)
        if number < plain:  # later, the thief has a vault of its own
            assert b"vault" not in found.body or path.startswith(base), path
            assert found.status in (200, 404), (path, found.body)
    assert owner.get(f"{base}/state/box/gold").json()["value"] == "TREASURE"
    assert owner.get(f"{base}/artifacts/map").body == b"TREASURE"
    assert len(owner.get(f"{base}/events").json()["events"]) == 1
    assert owner.get("/v1/keys").json()["keys"][0]["revoked_at"] is None


def test_nothing_of_another_tenant_is_found_or_changed(server: Server) -> None:
    probe_tenants(server, 500)


def test_streams_tell_nothing_of_another_tenant(server: Server) -> None:
    """Streams without an end, from each position and with each header by which they might reach another tenant."""
    owner, thief = (server.writer("--role", "admin", "--tenant", name) for name in ("bank", "thief"))
    path = "/v1/agents/vault/events"
    owner.post(path, {"kind": "K", "payload": "TREASURE"})
    position = owner.get(path).json()["events"][0]["position"]
    thief.post(path, {"kind": "K", "payload": "own"})
    queries = ("", "?since=", f"?since={position}", "?kind=K&since=")
    streams = [Stream(server, thief.key, f"{path}:follow{query}", last) for query in queries for last in ("", position)]
    owner.post(path, {"kind": "K", "payload": "TREASURE"})
    thief.post(path, {"kind": "K", "payload": "last"})
    for stream in streams:
        payloads = []
        for kind, _, data in stream.events():
            assert kind == "event"
            payloads.append(json.loads(data)["payload"])
            if payloads[-1] == "last":
                break
        assert set(payloads) <= {"own", "last"}
        stream.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_probes_find_nothing_of_another_tenant(server: Server) -> None:
    probe_tenants(server, 10_000)


def test_secrets_are_in_no_error_and_no_log(shared_server: Server, client: Client) -> None:
    secret = client.key.rpartition("_")[2]
    for reply in (
        client.get(f"{KEY}?api_key={client.key}"),
        client.get(f"/v1/nope/{client.key}"),
        shared_server.client(client.key + "x").get(KEY),
    ):
        assert secret.encode() not in reply.body
    command = Path(f"/proc/{shared_server.pid}/cmdline").read_bytes()
    assert secret.encode() not in command
    assert secret not in shared_server.log
