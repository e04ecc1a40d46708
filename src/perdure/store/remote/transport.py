"""Keep-alive connections to a server: one request, one answer, nothing guessed.

A broken connection raises ConnectionCut, and `sent` tells whether the server may have received the request. An answer
that is no answer of Perdure, such as the 502 or 504 of a proxy, counts as a broken connection: the server may have
committed before.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import threading
import time
from typing import Any

from perdure.errors import PerdureError, StoreReadOnly, StoreUnavailable, ValueTooLarge
from perdure.store.outage import ConnectionCut, ServerRefusal
from perdure.store.remote.address import RemoteAddress
from perdure.store.remote.wire import MEDIA_TYPE, PROTOCOL
from perdure.store.semaphore import Gate

_BROKEN = (OSError, http.client.HTTPException)


class RequestCut(ConnectionCut):
    """A request without an answer."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent
        """Whether the server may have received it."""


class HttpRefusal(ServerRefusal):
    """The server refused a request before it did anything."""

    def __init__(self, status: int, title: str, hint: str, wait_seconds: float) -> None:
        super().__init__(title)
        self.status = status
        self.hint = hint
        self.wait_seconds = wait_seconds

    @property
    def gone(self) -> bool:
        return False

    @property
    def is_retryable(self) -> bool:
        """Whether a later request may be accepted."""
        return self.status in (408, 425, 429)

    def translate(self, shown: str) -> PerdureError:
        text = f"{shown}: {self} (HTTP {self.status})"
        if "nothing was" not in text:
            text += "; nothing was written"
        if self.status == 401:
            return StoreUnavailable(text, hint="pass a valid api_key=..., or set PERDURE_API_KEY")
        if self.status == 403:
            return StoreReadOnly(text, hint=self.hint or "use a key with the role that this needs")
        if self.status == 413:
            return ValueTooLarge(text, hint=self.hint)
        return StoreUnavailable(text, hint=self.hint or "check the address and the version of the server")


class HttpLinks:
    """The connections of a store. Several threads may use it."""

    def __init__(self, place: RemoteAddress, key: str) -> None:
        self.place = place
        self._gate = Gate(place.pool_size)
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._closed = False
        self._tls = ssl.create_default_context() if place.secure else None
        self._headers = {
            "Content-Type": MEDIA_TYPE,
            "Accept": f"{MEDIA_TYPE}, application/problem+json",
            "User-Agent": f"perdure-store/{PROTOCOL}",
        }
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        if place.tenant:
            self._headers["Perdure-Tenant"] = place.tenant

    def exchange(self, path: str, body: bytes, until: float, seconds: float | None = None) -> bytes:
        """Send a request and return the body of its answer; wait `seconds` for it, and until `until` to connect."""
        if not self._gate.enter(max(until, time.monotonic() + self.place.connect_seconds)):
            raise RequestCut("all connections are in use", sent=False)
        try:
            return self._exchange(path, body, until, self.place.statement_seconds if seconds is None else seconds)
        finally:
            self._gate.leave()

    def long_exchange(self, path: str, body: bytes, seconds: float) -> bytes:
        """Send a request whose answer takes its time, on a connection of its own."""
        return self._exchange(path, body, time.monotonic() + self.place.connect_seconds, seconds)

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they return."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def abandon(self) -> None:
        """Forget the connections: in a forked child they belong to the parent."""
        self._lock, self._idle, self._gate = threading.Lock(), [], Gate(self.place.pool_size)

    # -- inside -----------------------------------------------------------------------------------------------

    def _exchange(self, path: str, body: bytes, until: float, seconds: float) -> bytes:
        link = self._take_idle() or self._connect(until)
        good = False
        try:
            assert link.sock is not None
            link.sock.settimeout(seconds)
            try:
                link.request("POST", self.place.path + path, body, self._headers)
                answer = link.getresponse()
                data = answer.read()
            except _BROKEN as error:
                raise RequestCut(_describe(error, seconds), sent=True) from error
            good = not answer.will_close
        finally:
            self._give_back(link, good)
        if answer.status != 200 or answer.getheader("Content-Type", "") != MEDIA_TYPE:
            raise _refusal(answer.status, answer.getheader("Content-Type", ""), data, answer.getheader("Retry-After"))
        return data

    def _take_idle(self) -> http.client.HTTPConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                link = self._idle.pop()
            # A readable idle connection was closed by the server: a commit sent there would have to be looked up.
            if link.sock is not None and not _is_readable(link.sock):
                return link
            link.close()

    def _connect(self, until: float) -> http.client.HTTPConnection:
        place = self.place
        seconds = max(0.1, min(place.connect_seconds, until - time.monotonic()))
        link: http.client.HTTPConnection
        if self._tls is not None:
            link = http.client.HTTPSConnection(place.host, place.port, timeout=seconds, context=self._tls)
        else:
            link = http.client.HTTPConnection(place.host, place.port, timeout=seconds)
        try:
            link.connect()
            link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except ssl.SSLCertVerificationError as error:
            link.close()
            raise StoreUnavailable(
                f"{place.shown} has a certificate that cannot be verified: {error.verify_message}",
                hint="set SSL_CERT_FILE to the certificate of your authority",
            ) from error
        except _BROKEN as error:
            link.close()
            raise RequestCut(_describe(error, seconds), sent=False) from error
        return link

    def _give_back(self, link: http.client.HTTPConnection, good: bool) -> None:
        if good:
            with self._lock:
                if not self._closed:
                    self._idle.append(link)
                    return
        link.close()


def _refusal(status: int, kind: str, data: bytes, retry_after: str | None) -> Exception:
    """Return the error for an answer that is not what was asked for."""
    problem = _read_problem(kind, data)
    title = str(problem.get("detail") or problem.get("title") or "")
    if status >= 500 or status < 300:
        # Also a 200 of something else: a proxy's page tells nothing about the commit.
        return RequestCut(f"HTTP {status}{': ' + title if title else ''}", sent=True)
    hint = str(problem.get("hint") or "")
    wait = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
    return HttpRefusal(status, title or "the server refused the request", hint, wait)


def _is_readable(line: socket.socket) -> bool:
    poll = select.poll()  # `select.select` refuses numbers over 1023
    poll.register(line, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(0))


def _read_problem(kind: str, data: bytes) -> dict[str, Any]:
    if not kind.startswith("application/problem+json"):
        return {}
    try:
        problem = json.loads(data)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _describe(error: Exception, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    return str(error) or type(error).__name__
