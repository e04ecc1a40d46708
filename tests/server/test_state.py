"""State over REST, on every kind of store."""

from __future__ import annotations

from tests.server.harness import Client, Server

KEY = "/v1/agents/travel/state/trip/city"


def test_a_value_is_kept_over_a_crash_of_the_server(server: Server, writer: Client) -> None:
    assert writer.get(KEY).status == 404
    assert writer.put(KEY, {"value": {"name": "Oslo", "seen": {"$date": "2026-11-18"}}}).status == 200
    port = server.port
    server.kill()
    server.start(port)
    found = server.client(writer.key).get(KEY)
    assert found.json()["value"] == {"name": "Oslo", "seen": {"$date": "2026-11-18"}}
    assert (found.json()["version"], found.headers["etag"]) == (1, '"1"')
    assert server.client(writer.key).get("/v1/agents").json() == {"agents": [{"name": "travel"}]}


def test_a_request_without_a_valid_key_is_refused(server: Server, writer: Client) -> None:
    for client in (server.client(), server.client("pdk_a_b"), server.client(writer.key[:-1] + "x")):
        refused = client.get(KEY)
        assert (refused.status, refused.headers["content-type"]) == (401, "application/problem+json")
        assert refused.json()["code"] == "PD901"
    assert server.client().get(f"{KEY}?api_key={writer.key}").status == 401
    assert server.client().get(KEY, {"x-api-key": writer.key}).status == 404
