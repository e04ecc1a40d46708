"""Receivers of notices: a web server and a mail server in threads of this process."""

from __future__ import annotations

import http.server
import queue
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any


class Received:
    """A request that arrived."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path = path
        self.headers = headers
        self.body = body


class WebReceiver:
    """Takes POST requests. `answer` chooses the status of each, by its number from 1."""

    def __init__(self, answer: Callable[[int], int] = lambda number: 204) -> None:
        self.requests: queue.Queue[Received] = queue.Queue()
        self.answer = answer
        outer, count = self, iter(range(1, 10_000))

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.requests.put(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(outer.answer(next(count)))
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> WebReceiver:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def get(self) -> Received:
        return self.requests.get(timeout=60)


class MailReceiver:
    """A mail server that accepts everything, with the few words that a client says."""

    def __init__(self) -> None:
        self.mails: queue.Queue[str] = queue.Queue()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> MailReceiver:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rw", encoding="utf-8", newline="\r\n") as talk:
                self._talk(talk)

    def _talk(self, talk: Any) -> None:
        def say(text: str) -> None:
            talk.write(f"{text}\r\n")
            talk.flush()

        say("220 test")
        for line in talk:
            word = line.split(maxsplit=1)[0].strip().upper()
            if word == "DATA":
                say("354 go on")
                lines = []
                while (text := talk.readline().rstrip("\r\n")) != ".":
                    lines.append(text)
                self.mails.put("\n".join(lines))
            say("221 bye" if word == "QUIT" else "250 ok")
            if word == "QUIT":
                return
