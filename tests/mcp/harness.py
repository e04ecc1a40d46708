"""A real `perdure mcp` in its own process, and a client that speaks JSON lines with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 60.0


class ServerDied(Exception):
    """The server has closed its output."""


class StdioServer:
    """One `perdure mcp` process, after the handshake."""

    def __init__(self, store: Path, agent: str = "coder", failpoint: str = "", handshake: bool = True) -> None:
        command = [sys.executable, "-m", "perdure.cli", "mcp", "--agent", agent, "--store", str(store)]
        env = {**os.environ, **({"PERDURE_FAILPOINT": failpoint} if failpoint else {})}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self._number = 0
        if handshake:
            self.request("initialize", {"protocolVersion": "2025-11-25", "clientInfo": {"name": "test"}})
            self.send({"method": "notifications/initialized"})

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ServerDied from error

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ServerDied
        message: dict[str, Any] = json.loads(line)
        return message

    def exchange(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the whole answer. Notifications in between are left out."""
        self._number += 1
        self.send({"id": self._number, "method": method, "params": params or {}})
        while (message := self.read()).get("id") != self._number:
            continue
        return message

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self.exchange(method, params)
        result: dict[str, Any] = answer["result"]
        return result

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its structured result."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        assert not result["isError"], result
        found: dict[str, Any] = result["structuredContent"]
        return found

    def refusal(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that refuses, and return what it tells the model."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        assert result["isError"], result
        text: str = result["content"][0]["text"]
        return text

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def close(self) -> int:
        """Close its input, as a client that leaves does, and return its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._end()

    def _end(self) -> int:
        code = self._process.wait(PATIENCE_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue  # what was not sent when it died
        return code

    def __enter__(self) -> StdioServer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._end()
