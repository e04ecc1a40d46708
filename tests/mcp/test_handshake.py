"""The connection itself: the handshake, hostile lines, the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mcp.harness import StdioServer


def test_the_handshake_imports_nothing_of_the_agent() -> None:
    """Importing it takes longer than a client should wait."""
    program = (
        "import sys, perdure.mcp.stdio; print([m for m in sys.modules if m.startswith(('perdure.api', 'asyncio'))])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_newest_known_revision_is_offered_for_an_unknown_one(tmp_path: Path) -> None:
    with StdioServer(tmp_path / "a.db", handshake=False) as server:
        for wanted, given in (("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")):
            assert server.request("initialize", {"protocolVersion": wanted})["protocolVersion"] == given
        meta = {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}
        error = server.exchange("server/discover", {"_meta": meta})["error"]
        assert (error["code"], "2026-07-28" in error["data"]["supported"]) == (-32022, True)
        assert not (tmp_path / "a.db").exists()
        assert server.close() == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_lines_that_are_no_requests_are_answered_and_the_connection_goes_on(tmp_path: Path, when: str) -> None:
    with StdioServer(tmp_path / "a.db") as server:
        if when == "after":
            server.call("get_state")
        for line, code in ((b"{\n", -32700), (b"[1]\n", -32600), (b"[" * 100_000 + b"\n", -32700), (b"7\n", -32600)):
            server.write(line)
            assert server.read()["error"]["code"] == code
        server.write(b"\n")
        assert server.exchange("no/method")["error"]["code"] == -32601
        assert server.exchange("tools/call", {"name": 7})["error"]["code"] == -32602
        assert server.exchange("resources/read", {"uri": "file:///etc/passwd"})["error"]["code"] == -32002
        assert server.request("ping") == {}


def test_a_cancelled_request_is_not_answered(tmp_path: Path) -> None:
    with StdioServer(tmp_path / "a.db") as server:
        server.call("get_state")
        server.send({"id": "gone", "method": "subscriptions/listen", "params": {}})
        assert server.read()["method"] == "notifications/subscriptions/acknowledged"
        server.send({"method": "notifications/cancelled", "params": {"requestId": "gone"}})
        server._number = 0
        assert server.exchange("ping")["id"] == 1
        assert server.close() == 0
