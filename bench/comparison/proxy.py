"""A proxy before PostgreSQL that counts what a client really does: round trips and statements.

A *round trip* begins when a client sends something while it has no question open, and ends when every question it
has asked is answered: a pipeline of ten statements is one. A *statement* is what the server says is complete,
BEGIN and COMMIT included.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from pathlib import Path

READ_BYTES = 65536
HEADER_BYTES = 5
START_HEADER_BYTES = 4
# Messages that are answered by "ready": the first one of a connection, a simple query, a sync.
ASKING = frozenset(b"\0QS")
FLUSH = ord("H")
READY = ord("Z")
COMPLETE = ord("C")


class Messages:
    """Splits one direction of a connection into messages; the first one of a client has no type."""

    def __init__(self, *, starts: bool) -> None:
        self._buffer = bytearray()
        self._starts = starts

    def types_in(self, data: bytes) -> list[int]:
        """The types of the messages that end in this data; 0 for the first."""
        self._buffer += data
        found: list[int] = []
        while True:
            header = START_HEADER_BYTES if self._starts else HEADER_BYTES
            if len(self._buffer) < header:
                return found
            length = int.from_bytes(self._buffer[header - 4 : header], "big") + header - 4
            if len(self._buffer) < length:
                return found
            found.append(0 if self._starts else self._buffer[0])
            del self._buffer[:length]
            self._starts = False


class Connection:
    """One client and its backend."""

    def __init__(self, proxy: Proxy, client: socket.socket, backend: socket.socket) -> None:
        self._proxy, self._client, self._backend = proxy, client, backend
        self._asked, self._flushed, self._under_way = 0, False, False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Both directions, each in a thread."""
        for relay in (self._questions, self._answers):
            threading.Thread(target=relay, daemon=True).start()

    def _questions(self) -> None:
        messages = Messages(starts=True)
        while data := _receive(self._client):
            with self._lock:
                types = messages.types_in(data)
                if types and not self._under_way:
                    self._proxy.trips += 1
                    self._under_way = True
                self._asked += sum(kind in ASKING for kind in types)
                self._flushed = self._flushed or FLUSH in types
            self._backend.sendall(data)
        _close(self._backend)

    def _answers(self) -> None:
        messages = Messages(starts=False)
        while data := _receive(self._backend):
            with self._lock:
                types = messages.types_in(data)
                self._proxy.statements += types.count(COMPLETE)
                self._asked -= types.count(READY)
                if self._flushed or (READY in types and not self._asked):
                    self._under_way = self._flushed = False
            try:
                self._client.sendall(data)
            except OSError:
                break
        _close(self._client)


class Proxy:
    """Listens in a folder of its own and passes everything on to the server's socket."""

    def __init__(self, server: Path, port: str) -> None:
        self.trips = 0
        self.statements = 0
        self._target = str(server / f".s.PGSQL.{port}")
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-proxy-"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / f".s.PGSQL.{port}"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            backend = socket.socket(socket.AF_UNIX)
            backend.connect(self._target)
            Connection(self, client, backend).start()

    def close(self) -> None:
        """Listen no more; connections end with their clients."""
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _receive(side: socket.socket) -> bytes:
    try:
        return side.recv(READ_BYTES)
    except OSError:
        return b""


def _close(side: socket.socket) -> None:
    try:
        side.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
    finally:
        side.close()
