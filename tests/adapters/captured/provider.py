"""A provider of models on loopback: it counts whole answers, and kills its caller where it is told."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any


class Provider(ThreadingHTTPServer):
    """Answers like OpenAI and Anthropic. `kills` and `fails` are moments such as `ask 2`, each used once."""

    daemon_threads = True

    def __init__(self, kills: list[str], fails: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.kills, self.fails = kills, fails
        self.paid: Counter[int] = Counter()
        self.lock = Lock()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def take(self, moments: list[str], moment: str) -> bool:
        """Return whether a moment was waited for, once."""
        with self.lock:
            if moment in moments:
                moments.remove(moment)
                return True
        return False

    def kill_at(self, moment: str, pid: str) -> bool:
        if kills := self.take(self.kills, moment):
            os.kill(int(pid), signal.SIGKILL)
        return kills


class Answer(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Provider

    def do_GET(self) -> None:
        _, _, turn, pid = self.path.split("/")
        self.server.kill_at(f"seen {turn}", pid)
        self._send(200, "text/plain", b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn, pid = int(asked["messages"][-1]["content"].split()[-1]), self.headers["x-pid"]
        if self.server.take(self.server.fails, f"ask {turn}"):
            return self._send(500, "application/json", b'{"error": {"message": "overloaded"}}')
        if self.server.kill_at(f"ask {turn}", pid):
            self.close_connection = True
            return None
        make = _make_anthropic if self.path.startswith("/v1/messages") else _make_openai
        whole, events = make(f"answer {turn}")
        if not asked.get("stream"):
            self.server.paid[turn] += 1
            return self._send(200, "application/json", json.dumps(whole).encode())
        return self._stream(turn, pid, events)

    def _stream(self, turn: int, pid: str, events: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events[:-1]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        if self.server.kill_at(f"stream {turn}", pid) or self.server.take(self.server.fails, f"stream {turn}"):
            self.close_connection = True
            return
        self.server.paid[turn] += 1
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(events[-1]), events[-1]))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("retry-after-ms", "1")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _make_openai(text: str) -> tuple[dict[str, Any], list[bytes]]:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    base = {"id": "c", "created": 1, "model": "gpt-4o"}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
    parts = [{"index": 0, "delta": {"content": part}} for part in (text[:4], text[4:])]
    chunks = [{**base, "object": "chat.completion.chunk", "choices": [part], "usage": usage} for part in parts]
    return whole, [*(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks), b"data: [DONE]\n\n"]


def _make_anthropic(text: str) -> tuple[dict[str, Any], list[bytes]]:
    usage = {"input_tokens": 10, "output_tokens": 2}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage}
    message |= {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    return {**message, "content": [{"type": "text", "text": text}]}, lines


@contextmanager
def serve(kills: list[str] | None = None, fails: list[str] | None = None) -> Iterator[Provider]:
    """Run a provider."""
    with Provider(kills or [], fails or []) as provider:
        thread = Thread(target=provider.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield provider
        finally:
            provider.shutdown()
            thread.join()
