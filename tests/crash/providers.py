"""A local server that answers like the APIs of OpenAI and Anthropic, with recorded responses, and counts paid calls."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RECORDED = json.loads((Path(__file__).parent / "recorded_answers.json").read_text("utf-8"))
"""For each path of the two APIs: the response to a conversation with that many tool results."""


class Provider:
    """Answers by the number of tool results in the conversation: the same question gets the same answer."""

    def __init__(self) -> None:
        self.paid: Counter[int] = Counter()
        self.problems: list[str] = []
        self.address = ""

    def answer(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        """Count a call as paid and return its response."""
        texts = json.dumps(request["messages"])
        results = texts.count('"tool_call_id"') + texts.count('"tool_use_id"')
        answers = RECORDED[path]
        if results >= len(answers):
            self.problems.append(texts)
        self.paid[results] += 1
        return answers[min(results, len(answers) - 1)]


@contextmanager
def provider() -> Iterator[Provider]:
    """Serve on a free port of this machine while the block lasts."""
    served = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(served.answer(self.path, request)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        served.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
