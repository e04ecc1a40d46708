"""A proxy before a server: it counts requests to the store, and can keep, cut or replace their answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

Toll = Callable[[bytes], bool]
"""Given a request: whether the server gets it. Otherwise the line is cut."""
Fate = Callable[[bytes, bytes], bytes | None]
"""Given a request and its answer: what the client receives. None cuts the line; b"" leaves it half open."""


class CuttingProxy:
    """Forwards one request after the other on each connection. Every answer of the server has a length."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.fate: Fate = lambda request, answer: answer
        self.toll: Toll = lambda request: True
        self.paths: list[str] = []
        """The paths of all requests, in order."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.origin = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def count(self, path: str) -> int:
        return sum(path in one for one in self.paths)

    def close(self) -> None:
        for line in [self._listener, *self._open]:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, ConnectionError), client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while True:
                request = _receive(client)
                self.paths.append(request.split(b" ", 2)[1].decode())
                if not self.toll(request):
                    return
                server.sendall(request)
                answer = self.fate(request, _receive(server))
                if answer is None:
                    return
                client.sendall(answer)


def _receive(line: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(line)
    head, _, body = data.partition(b"\r\n\r\n")
    fields = [one.split(b":", 1) for one in head.split(b"\r\n")[1:]]
    length = next((int(value) for name, value in fields if name.lower() == b"content-length"), 0)
    while len(body) < length:
        body += _more(line)
    return head + b"\r\n\r\n" + body


def _more(line: socket.socket) -> bytes:
    data = line.recv(1 << 16)
    if not data:
        raise ConnectionError("the line was closed")
    return data
