"""A model on loopback for real coding agents: it does what the prompt says. Speaks the Messages and the Responses API.

A prompt may contain `CALL name {"argument": 1}`: the answer is this tool call. `HANG` in the prompt: no answer comes
after the call. Every other request gets a short text.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

CALL = re.compile(r"CALL (\S+) (\{[^\n]*\})")
SAID = "It is done."


class ModelApi:
    """The server, and the bodies of all requests that it got."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.hangs = threading.Event()
        """Set once a request waits that gets no answer."""
        self.ended = threading.Event()
        api = self

        class Handler(_Handler):
            """Answers for this server."""

            model = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def requests(self, words: str) -> list[str]:
        """The bodies that contain these words, as text."""
        texts = (json.dumps(body, ensure_ascii=False) for body in self.bodies)
        return [text for text in texts if words in text]

    def tools(self) -> set[str]:
        """The names of all tools that were offered to the model."""
        return {str(tool.get("name")) for body in self.bodies for tool in body.get("tools", [])}

    def tools_of(self, space: str) -> list[dict[str, Any]]:
        """The tools of a namespace, as the Responses API has them."""
        offered = (tool for body in self.bodies for tool in body.get("tools", []) if tool.get("name") == space)
        return list(next(offered)["tools"])


class _Handler(BaseHTTPRequestHandler):
    model: ModelApi
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(data or b"{}")
        path = self.path.partition("?")[0]
        if path == "/v1/messages":
            self._answer(body, body.get("messages", []), _messages_events)
        elif path == "/v1/responses":
            self._answer(body, body.get("input", []), _responses_events)
        elif path == "/v1/messages/count_tokens":
            self._send({"input_tokens": 1000})
        else:
            self._send({})

    def do_GET(self) -> None:
        self._send({"data": [], "models": []})

    def do_HEAD(self) -> None:
        self._send({})

    def _answer(self, body: dict[str, Any], turns: list[Any], encode: Any) -> None:
        self.model.bodies.append(body)
        prompt, answered = _read_turns(turns)
        call = CALL.search(prompt)
        if "HANG" in prompt and (answered or call is None):
            self.model.hangs.set()
            self.model.ended.wait()
            return
        if call is not None and not answered:
            events = encode(call[1], json.loads(call[2]))
        else:
            events = encode("", {})
        if body.get("stream"):
            lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
            self._write("".join(lines).encode(), "text/event-stream")
        else:
            self._send(next(iter(events)).get("message", {}))

    def _send(self, answer: Mapping[str, Any]) -> None:
        self._write(json.dumps(answer).encode(), "application/json")

    def _write(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def _read_turns(turns: list[Any] | str) -> tuple[str, bool]:
    """Return the last prompt of the user, and whether a tool has answered since."""
    answered = False
    for turn in reversed(turns if isinstance(turns, list) else [{"role": "user", "content": turns}]):
        parts = turn.get("content") or []
        parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
        if str(turn.get("type", "")).endswith("_call_output") or any(
            part.get("type") == "tool_result" for part in parts
        ):
            answered = True
            continue
        if turn.get("role") == "user":
            return "\n".join(str(part.get("text", "")) for part in parts), answered
    return "", answered


def _messages_events(name: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of the Messages API for a tool call, or for a text if it has no name."""
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}} if name else {"type": "text", "text": ""}
    delta = (
        {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        if name
        else {"type": "text_delta", "text": SAID}
    )
    usage = {"input_tokens": 1000, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage}
    whole = {**message, "content": [{"type": "text", "text": SAID}], "stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "tool_use" if name else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def _responses_events(name: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of the Responses API."""
    item: dict[str, Any]
    if name:
        space, _, short = name.rpartition("/")
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": short}
        item |= {"arguments": json.dumps(arguments), **({"namespace": space} if space else {})}
    else:
        content = [{"type": "output_text", "text": SAID, "annotations": []}]
        item = {"type": "message", "id": "m_1", "role": "assistant", "content": content}
    usage = {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage, "output": [item]}}
