"""Puts a server on standard streams behind an HTTP address, for tools that only speak HTTP."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class HttpBridge:
    """One process for all clients, one after the other. What it sends unasked goes to every request that waits."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.Queue[dict[str, Any]]] = {}
        bridge = self

        class Handler(_Handler):
            """Answers for this bridge."""

            to = bridge

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/mcp"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for target in (self._read, self._server.serve_forever):
            threading.Thread(target=target, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._process.kill()
        self._process.communicate()

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Return everything that comes up to the answer, which is the last."""
        number, heard = next(self._numbers), []
        self._waiting[number] = queue.Queue()
        self.send({**message, "id": number})
        while (reply := self._waiting[number].get()).get("id") != number:
            heard.append(reply)
        del self._waiting[number]
        return [*heard, {**reply, "id": message["id"]}]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            waits = self._waiting.get(message.get("id"))
            for one in [waits] if waits is not None else [*self._waiting.values()]:
                one.put(message)


class _Handler(BaseHTTPRequestHandler):
    to: HttpBridge
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self.to.send(message)
            self._write(202, b"", "text/plain")
            return
        lines = [f"event: message\ndata: {json.dumps(one)}\n\n" for one in self.to.ask(message)]
        self._write(200, "".join(lines).encode(), "text/event-stream")

    def do_GET(self) -> None:
        self._write(405, b"", "text/plain")

    def _write(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
