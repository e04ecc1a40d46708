"""What is recorded of a provider's answer: its bytes, when a stream is whole, and what it has cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perdure.adapters.call_policy import digest_of
from perdure.adapters.model_usage import report_usage

STREAM = "text/event-stream"
_ENDS = (b"[DONE]", b"response.completed", b"response.incomplete", b"message_stop", b'"finishReason":')
"""What providers send at the end of a whole stream."""
_END_MAX = max(map(len, _ENDS))
_CHANGING = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "service_tier", "user"})
"""Fields of a request that do not change what is asked."""
ABOUT_TRANSPORT = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})
"""Headers of an answer that no longer hold for its decoded body."""
RECORDED_ABOVE = "perdure_recorded"
"""Marks a request that a wrapped client records, so that a capture of the process leaves it alone."""


def digest_request(path: str, body: bytes) -> str:
    """Return the identity of a request: its path and what it asks."""
    asked = json.loads(body or b"{}")
    if isinstance(asked, dict):
        asked = {name: value for name, value in asked.items() if name not in _CHANGING}
    return digest_of((path, asked))


class StreamTee:
    """Collects a stream while it passes. The end is held back until the whole stream is recorded."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.held = bytearray()

    def take(self, chunk: bytes) -> bytes:
        """Add a chunk, and return what may pass."""
        tail = bytes(self.body[-_END_MAX:]) + chunk
        self.body += chunk
        if self.held or any(end in tail for end in _ENDS):
            self.held += chunk
            return b""
        return chunk

    @property
    def whole(self) -> bool:
        """Whether the provider has said that this is all."""
        return bool(self.held)


def report_answer(provider: str, kind: str, body: bytes) -> None:
    """Record the usage that the answer tells; of a stream, the last numbers that its events tell."""
    model, used = "", dict[str, Any]()
    for event in _events(kind, body):
        inner = event.get("response") or event.get("message") or event
        model = str(inner.get("model") or model)
        used |= {name: value for name, value in (inner.get("usage") or event.get("usage") or {}).items() if value}
    if not used:
        return
    details = used.get("prompt_tokens_details") or used.get("input_tokens_details") or {}
    read, written = used.get("cache_read_input_tokens", 0), used.get("cache_creation_input_tokens", 0)
    asked = used.get("prompt_tokens", used.get("input_tokens", 0))
    answered = used.get("completion_tokens", used.get("output_tokens", 0))
    cached = details.get("cached_tokens", 0) or read
    # Anthropic counts cached tokens beside the others, OpenAI among them.
    report_usage(model, asked + read + written, answered, provider=provider, cached=cached, cache_write=written)


def _events(kind: str, body: bytes) -> Iterator[dict[str, Any]]:
    texts = [body]
    if kind.startswith(STREAM):
        texts = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
    for text in texts:
        try:
            event = json.loads(text)
        except ValueError:
            continue  # `[DONE]`, or an answer that is no JSON: it costs what the provider says elsewhere
        if isinstance(event, dict):
            yield event
