"""`/mcp` of `perdure serve`: the same tools with keys, roles and tenants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from perdure import Agent
from tests.mcp.test_tools import READ_ONLY, TOOLS
from tests.server.harness import Client, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("http")
    running = Server(f"sqlite:///{folder / 'perdure.db'}", folder).start()
    yield running
    running.kill()


def rpc(client: Client, method: str, params: dict[str, Any] | None = None, path: str = "/mcp") -> Any:
    answer = client.post(path, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
    assert answer.status == 200, answer.body
    return answer.json()


def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    result = rpc(client, "tools/call", {"name": tool, "arguments": arguments})["result"]
    assert not result["isError"], result
    found: dict[str, Any] = result["structuredContent"]
    return found


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_works_with_a_key(server: Server, mode: Any) -> None:
    key = await asyncio.to_thread(server.make_key, "official", "--agent", f"coder-{mode}")
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"})
    async with http, McpClient(streamable_http_client(f"{server.origin}/mcp", http_client=http), mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        made = await client.call_tool("remember", {"text": "The user likes tea"})
        assert not made.is_error
        found = await client.call_tool("recall", {"query": "what does the user like?"})
        assert "tea" in found.content[0].text
        assert "tea" in (await client.read_resource("perdure://memories")).contents[0].text


def test_a_reader_sees_and_calls_read_only_tools(server: Server) -> None:
    writer, reader = server.writer(), server.client(server.make_key("reader", "--role", "reader"))
    call(writer, "set_state", key="a", value=1)
    assert {tool["name"] for tool in rpc(reader, "tools/list")["result"]["tools"]} == READ_ONLY
    assert call(reader, "get_state", key="a")["value"] == 1
    refused = rpc(reader, "tools/call", {"name": "set_state", "arguments": {"key": "a", "value": 2}})["result"]
    assert refused["isError"] and "role writer" in refused["content"][0]["text"]
    assert call(writer, "get_state", key="a")["value"] == 1
    with Agent("perdure:server", store=server.store) as audit:
        noted = [event.payload["operation"] for event in audit.events.read() if "mcp" in event.payload["path"]]
    assert noted.count("mcp_set_state") == 1 and "mcp_get_state" not in noted


def test_a_key_reaches_its_own_tenant_and_agent_only(server: Server) -> None:
    acme, bound = server.writer("--tenant", "acme"), server.writer("--agent", "travel")
    call(acme, "set_state", key="who", value="acme")
    call(bound, "set_state", key="who", value="travel")
    assert not call(server.writer(), "get_state", key="who")["found"]
    assert rpc(server.writer(), "tools/list", path="/mcp?agent=travel")["result"]["tools"]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    assert bound.post("/mcp?agent=other", message).status == 403
    assert server.client().post("/mcp", message).status == 401


def test_an_action_is_finished_with_its_ticket(server: Server) -> None:
    first, second = server.writer("--agent", "once"), server.writer("--agent", "once")
    begun = call(first, "begin_once", key="mail")
    assert begun["act"]
    assert call(second, "begin_once", key="mail")["status"] == "in_progress"
    stolen = rpc(second, "tools/call", {"name": "finish_once", "arguments": {"key": "mail"}})["result"]
    assert stolen["isError"]
    assert call(first, "finish_once", key="mail", result=1, ticket=begun["ticket"])["status"] == "done"
    assert call(second, "begin_once", key="mail")["result"] == 1


async def test_a_client_without_a_handshake_subscribes(server: Server) -> None:
    key = await asyncio.to_thread(server.make_key, "listener", "--agent", "listened")
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"})
    uri = "perdure://memories"
    async with http, McpClient(streamable_http_client(f"{server.origin}/mcp", http_client=http)) as client:
        await client.call_tool("remember", {"text": "first"})
        async with client.listen(resource_subscriptions=[uri]) as changes:
            assert changes.honored.resource_subscriptions == [uri]
            await client.call_tool("remember", {"text": "second"})
            assert (await anext(changes)).uri == uri
        with pytest.raises(MCPError, match="there is no resource"):
            async with client.listen(resource_subscriptions=["perdure://nothing"]):
                raise AssertionError


def test_a_call_with_a_progress_token_is_answered_as_a_stream(server: Server) -> None:
    client = server.writer("--agent", "long")
    params = {"name": "remember", "arguments": {"text": "The user likes tea"}, "_meta": {"progressToken": 7}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    streamed = client.post("/mcp", message, {"accept": "application/json, text/event-stream"})
    assert streamed.status == 200 and streamed.headers["content-type"].startswith("text/event-stream")
    last = streamed.body.decode().strip().splitlines()[-1]
    result = json.loads(last.removeprefix("data: "))["result"]
    assert not result["isError"] and result["structuredContent"]["text"] == "The user likes tea"
    assert client.post("/mcp", message, {"accept": "application/json"}).json()["result"]["isError"] is False


def test_hostile_messages_are_refused(server: Server, tmp_path: Path) -> None:
    client = server.writer()
    assert client.get("/mcp").status == 405
    for body, code in ((b"{", -32700), (b"[]", -32600), (b'{"id": 1}', -32600), (b"[" * 100_000, -32700)):
        answer = client.request("POST", "/mcp", body)
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, code)
    assert client.post("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert client.post("/mcp", message, {"origin": "https://evil.example"}).status == 403
    assert client.post("/mcp", message, {"origin": server.origin}).status == 200
    assert client.post("/mcp", message, {"mcp-method": "tools/call"}).json()["error"]["code"] == -32020


def test_a_server_without_keys_answers_only_to_names_of_this_machine(tmp_path: Path) -> None:
    """A page whose name leads to 127.0.0.1 would reach it with the visitor's browser."""
    running = Server(f"sqlite:///{tmp_path / 'a.db'}", tmp_path, "--no-auth").start()
    try:
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        evil = {"host": "evil.example", "origin": "http://evil.example"}
        assert running.client().post("/mcp", message, evil).status == 403
        assert running.client().post("/mcp", message, {"host": "evil.example"}).status == 403
        assert (
            running.client().post("/mcp", message, {"host": "localhost:1", "origin": "http://localhost"}).status == 200
        )
    finally:
        running.kill()
