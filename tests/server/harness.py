"""A real `perdure serve` in its own process, and a small HTTP client."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE_SECONDS = 60.0


def run_cli(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command of the command line in a process of its own."""
    command = [sys.executable, "-m", "perdure.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})


@dataclass(frozen=True)
class Reply:
    """An answer that was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as data."""
        return json.loads(self.body)


@dataclass
class Client:
    """Sends requests with one key over one connection, which is opened again when it was cut."""

    origin: str
    key: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    authority: str = ""
    """The file of the certificate that an https server must prove itself with."""

    def __post_init__(self) -> None:
        address = urlsplit(self.origin)
        host, port = address.hostname or "", address.port
        self._connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
        if address.scheme == "https":
            trusted = ssl.create_default_context(cafile=self.authority)
            self._connection = http.client.HTTPSConnection(host, port, timeout=PATIENCE_SECONDS, context=trusted)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request. A body that is not bytes is sent as JSON."""
        sent = {"authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None and not isinstance(body, bytes):
            body, sent["content-type"] = json.dumps(body).encode(), "application/json"
        sent |= self.headers | dict(headers or {})
        try:
            self._connection.request(method, path, body, sent)
            answer = self._connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self.request("GET", path, headers=headers)

    def put(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
        return self.request("PUT", path, body, headers)

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        return self.request("POST", path, {} if body is None else body, headers)

    def delete(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self.request("DELETE", path, headers=headers)

    def close(self) -> None:
        self._connection.close()


class Server:
    """A server process on a store. `start` waits until it is ready."""

    def __init__(self, store: str, folder: Path, *options: str, authority: str = "") -> None:
        self.store = store
        self._authority = authority
        self._options = options
        self._log = folder / "server.log"
        self._process: subprocess.Popen[str] | None = None
        self._clients: list[Client] = []
        self.origin = ""

    def start(self, port: int = 0, env: Mapping[str, str] | None = None) -> Server:
        """Start it; with a port, on that one, as after a crash."""
        command = [sys.executable, "-m", "perdure.cli", "serve", "--store", self.store, "--json"]
        command += ["--port", str(port), *self._options]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **(env or {})}
            )
        assert self._process.stdout is not None
        told = ""
        while not told.rstrip().endswith("}"):
            line = self._process.stdout.readline()
            if not line:
                self.kill()
                raise AssertionError(f"the server ended at its start:\n{self.log}")
            told += line
        self.origin = json.loads(told)["url"].replace("//0.0.0.0:", "//127.0.0.1:")
        assert self.client().get("/readyz").status == 200
        return self

    @property
    def port(self) -> int:
        return urlsplit(self.origin).port or 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def died(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    @property
    def log(self) -> str:
        """Everything that it has written to standard error."""
        return self._log.read_text("utf-8", "replace")

    def make_key(self, name: str = "test", *options: str) -> str:
        """Create a key with the command line, in this process; the default is a writer of the default tenant."""
        from perdure.cli.main import main

        create = ["keys", "create", name, "--store", self.store, "--json", *options]
        with contextlib.redirect_stdout(io.StringIO()) as out, ThreadPoolExecutor(1) as thread:
            code = thread.submit(main, create).result()  # a thread of its own: the test may run in an event loop
        assert code == 0
        key: str = json.loads(out.getvalue())["key"]
        return key

    def client(self, key: str = "") -> Client:
        client = Client(self.origin, key, authority=self._authority)
        self._clients.append(client)
        return client

    def writer(self, *options: str) -> Client:
        """A client with a new key."""
        return self.client(self.make_key("test", *options))

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        for client in self._clients:
            client.close()
        self._clients.clear()
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        code = process.wait(PATIENCE_SECONDS)
        assert process.stdout is not None
        process.stdout.close()
        return code


class Stream:
    """A stream of server-sent events."""

    def __init__(self, server: Server, key: str, path: str, last: str = "") -> None:
        address = urlsplit(server.origin)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        headers = {"authorization": f"Bearer {key}"} | ({"last-event-id": last} if last else {})
        self._connection.request("GET", path, headers=headers)
        self.answer = self._connection.getresponse()

    def events(self) -> Iterator[tuple[str, str, str]]:
        """Yield (kind, id, data) until the stream ends."""
        fields: dict[str, str] = {}
        while line := self.answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            else:
                if "data" in fields:
                    yield fields.get("event", ""), fields.get("id", ""), fields["data"]
                fields = {}

    def close(self) -> None:
        self.answer.close()
        self._connection.close()
