"""An HTTP server on loopback that passes model calls on to their provider, and records them as capture does.

It is made of the standard library: a proxy needs a server and a client, and `perdure[server]` has no client. A thread
per call is enough, since a model takes seconds to answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from perdure.adapters.recorded_answers import ABOUT_TRANSPORT, STREAM, StreamTee
from perdure.errors import PerdureError
from perdure.http_capture.calls import CapturedCall
from perdure.http_capture.program_starts import ProgramStarts
from perdure.http_capture.recorder import HttpRequest, Recorder
from perdure.http_capture.upstreams import Target, Upstreams
from perdure.kernel.protocol import drive_sync

BODY_BYTES_MAX = 256 << 20
ANSWER_SECONDS_MAX = 900.0
CHUNK_BYTES = 1 << 16
_OF_CONNECTION = frozenset(
    "host accept-encoding connection content-length expect keep-alive proxy-authorization proxy-connection te "
    "trailer transfer-encoding upgrade".split()
)
"""Headers of a request that hold for one connection only."""
_OWN_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class ProxyServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1, and answers each request in a thread."""

    daemon_threads = True  # connections that are kept alive do not hold up the end; `ProgramStarts` waits for calls
    request_queue_size = 128

    def __init__(self, port: int, recorder: Recorder, starts: ProgramStarts, upstreams: Upstreams) -> None:
        super().__init__(("127.0.0.1", port), ProxiedRequest)
        self.recorder, self.starts, self.upstreams = recorder, starts, upstreams

    @property
    def origin(self) -> str:
        """The address of this proxy."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error that is no disconnected client."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve in a thread, until the block ends."""
        thread = Thread(target=self.serve_forever, args=(0.1,), name="perdure-proxy", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class ProxiedRequest(BaseHTTPRequestHandler):
    """Passes one request on."""

    protocol_version = "HTTP/1.1"
    server: ProxyServer

    def _answer(self) -> None:
        self._begun = self._gone = False
        if self.headers.get("host", "").rpartition(":")[0].lower() not in _OWN_HOSTS:
            return self._refuse(421, "wrong_host", "this proxy answers requests to 127.0.0.1 only")
        if "upgrade" in self.headers:
            return self._refuse(501, "no_websockets", "this proxy passes on HTTP requests, not WebSockets")
        body = self._read_body()
        if body is None:
            return None
        target = self.server.upstreams.locate(self.path, {name.lower(): value for name, value in self.headers.items()})
        kind = self.headers.get("content-type", "")
        request = HttpRequest(self.command, target.host, target.port, target.path, kind, body, target.provider)
        with self.server.starts.call(self.client_address[1]):
            try:
                call = self.server.recorder.begin(request)
                self._pass_on(call, target, body)
            except (PerdureError, ValueError) as error:
                code = getattr(error, "code", "invalid_request")
                self._refuse(400, str(code), str(error))
            except (OSError, HTTPException) as error:
                self._refuse(502, "provider_unreachable", f"{target.host}: {type(error).__name__}: {error}")
        return None

    def __getattr__(self, name: str) -> Any:
        """Return the handler of every HTTP method, which the standard library asks for as `do_METHOD`."""
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _pass_on(self, call: CapturedCall | None, target: Target, body: bytes) -> None:
        if call is None:
            with _send(self, target, body) as live:
                return self._copy(live)
        if call.recorded is not None:
            stored = drive_sync(call.run.store, call.read())
            return self._send_whole(stored["status"], [("content-type", stored["type"])], stored["body"])
        with call.attempt(), _send(self, target, body) as live:
            kind = live.headers.get("content-type", "")
            if not 200 <= live.status < 300:
                return self._copy(live)
            if kind.startswith(STREAM):
                return self._record_stream(call, live)
            whole = live.read()
            drive_sync(call.run.store, call.keep(live.status, kind, whole))
            return self._send_whole(live.status, _keep_headers(live), whole)

    def _record_stream(self, call: CapturedCall, live: HTTPResponse) -> None:
        """Pass a stream on. It is read to its end even if the client is gone: it is paid."""
        tee = StreamTee()
        self._begin_chunks(live)
        for chunk in _chunks(live):
            self._send_chunk(tee.take(chunk))
        if tee.whole:
            drive_sync(call.run.store, call.keep(live.status, STREAM, bytes(tee.body)))
            self._send_chunk(bytes(tee.held))
        self._end_chunks()

    def _copy(self, live: HTTPResponse) -> None:
        """Pass an answer on that is not recorded."""
        if self.command == "HEAD" or live.status in (204, 304):
            return self._send_whole(live.status, _keep_headers(live), b"")
        self._begin_chunks(live)
        for chunk in _chunks(live):
            self._send_chunk(chunk)
        return self._end_chunks()

    # -- to the client: a client that is gone does not matter, its answer is recorded --------------------------------

    def _send_whole(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self._begun = True
        try:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True

    def _begin_chunks(self, live: HTTPResponse) -> None:
        self._begun = True
        try:
            self.send_response(live.status)
            for name, value in _keep_headers(live):
                self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
        except ConnectionError:
            self._gone = self.close_connection = True

    def _send_chunk(self, chunk: bytes) -> None:
        if not chunk or self._gone:
            return
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        except ConnectionError:
            self._gone = self.close_connection = True

    def _end_chunks(self) -> None:
        if not self._gone:
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error of the proxy. An answer that has begun is cut, as the provider has cut it."""
        self.close_connection = True
        if self._begun:
            return
        body = json.dumps({"error": {"type": "perdure_proxy", "code": code, "message": message}}).encode()
        retry = "true" if status == 502 else "false"
        self._send_whole(status, [("content-type", "application/json"), ("x-should-retry", retry)], body)

    # -- from the client ---------------------------------------------------------------------------------------------

    def _read_body(self) -> bytes | None:
        """Return the body of the request; None if it was refused."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            parts, total = [], 0
            while size := int(self.rfile.readline(99).split(b";")[0].strip() or b"0", 16):
                if (total := total + size) > BODY_BYTES_MAX:
                    break
                parts.append(self.rfile.read(size))
                self.rfile.readline(9)
            else:
                self.rfile.readline(9)
                return b"".join(parts)
        elif (length := int(self.headers.get("content-length") or 0)) <= BODY_BYTES_MAX:
            return self.rfile.read(length)
        self._refuse(413, "too_large", f"the request is larger than {BODY_BYTES_MAX >> 20} MB")
        return None

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a path may hold a key."""


@contextmanager
def _send(request: ProxiedRequest, target: Target, body: bytes) -> Iterator[HTTPResponse]:
    """Send a request to its provider. The answer comes unpacked, since its bytes are recorded."""
    connect = HTTPSConnection if target.secure else HTTPConnection
    connection = connect(target.host, target.port, timeout=ANSWER_SECONDS_MAX)
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_CONNECTION}
    headers["accept-encoding"] = "identity"
    if body or request.command in ("POST", "PUT", "PATCH"):
        headers["content-length"] = str(len(body))
    try:
        url = f"{target.path}?{target.query}" if target.query else target.path
        connection.request(request.command, url, body=body or None, headers=headers)
        yield connection.getresponse()
    finally:
        connection.close()


def _chunks(live: HTTPResponse) -> Iterator[bytes]:
    """Yield what has arrived. Raises if the provider said that there is more."""
    while chunk := live.read1(CHUNK_BYTES):
        yield chunk
    if live.length:
        raise HTTPException(f"the answer ended {live.length} bytes early")


def _keep_headers(live: HTTPResponse) -> list[tuple[str, str]]:
    return [(name, value) for name, value in live.getheaders() if name.lower() not in {*ABOUT_TRANSPORT, "date"}]
