"""Sends spans to a collector, in a thread of its own. Whatever the collector does, nobody waits for it."""

from __future__ import annotations

import http.client
import queue
import ssl
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from perdure import __version__
from perdure.errors import WrongValue
from perdure.server.otlp.spans import Span, to_attributes
from perdure.values.log import warn

QUEUED_MAX = 10_000
"""Spans that wait. While more come than the collector takes, they are dropped and counted."""
BATCH_MAX = 500
SEND_SECONDS_MAX = 10.0
TRIES = 3
PAUSE_SECONDS = 1.0
"""Before the second try; twice as long before the third."""
STOP_SECONDS = 2.0
"""How long a stopping server waits for the last spans."""
TRACES_PATH = "/v1/traces"
_RETRYABLE = (429, 502, 503, 504)


class CollectorAddress(msgspec.Struct, frozen=True):
    """Where spans go. The URL and the headers may contain secrets."""

    url: SplitResult
    headers: Mapping[str, str]


def parse_collector(url: str, headers: str = "") -> CollectorAddress:
    """Return the address of a collector. `headers` is a list of `name=value`, as in `OTEL_EXPORTER_OTLP_HEADERS`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongValue("--otlp takes the URL of a collector: http://HOST:4318 or https://...")
    if not parts.path.endswith(TRACES_PATH):
        parts = parts._replace(path=parts.path.rstrip("/") + TRACES_PATH)
    given = {}
    for pair in filter(None, (one.strip() for one in headers.split(","))):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise WrongValue("OTEL_EXPORTER_OTLP_HEADERS takes name=value,name=value")
        given[name.strip()] = unquote(value.strip())
    return CollectorAddress(parts, given)


class _Refused(Exception):
    """The collector did not take a batch."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the collector answered {status}")
        self.final = status not in _RETRYABLE


class SpanSender:
    """A bounded queue of spans and the thread that empties it."""

    def __init__(self, address: CollectorAddress) -> None:
        self._address = address
        self._queue: queue.Queue[Span] = queue.Queue(QUEUED_MAX)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="perdure-otlp", daemon=True)
        self._failing = False
        self.sent = 0
        self.dropped = 0

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def put(self, spans: Sequence[Span]) -> None:
        """Queue spans without waiting; those that find no place are dropped."""
        for place, span in enumerate(spans):
            try:
                self._queue.put_nowait(span)
            except queue.Full:
                self.dropped += len(spans) - place
                return

    def stop(self) -> None:
        """Send what is queued, as far as a moment allows."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)

    def _work(self) -> None:
        while batch := self._take():
            self._send(batch)

    def _take(self) -> list[Span]:
        """Wait for spans; an empty list is the end."""
        batch: list[Span] = []
        while not batch and not (self._stopping.is_set() and self._queue.empty()):
            try:
                batch.append(self._queue.get(timeout=0.2))
            except queue.Empty:
                continue
        while batch and len(batch) < BATCH_MAX and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    def _send(self, batch: Sequence[Span]) -> None:
        body = msgspec.json.encode(_to_request(batch))
        for number in range(TRIES):
            try:
                self._post(body)
            except (OSError, http.client.HTTPException, _Refused) as error:
                if getattr(error, "final", False) or number == TRIES - 1:
                    self._note_drop(len(batch), error)
                    return
                self._stopping.wait(PAUSE_SECONDS * 2**number)
            else:
                self.sent, self._failing = self.sent + len(batch), False
                return

    def _note_drop(self, count: int, error: Exception) -> None:
        self.dropped += count
        if not self._failing:
            warn("spans were dropped: %s: %s", self._address.url.hostname, error)
        self._failing = True

    def _post(self, body: bytes) -> None:
        url = self._address.url
        path = url.path + (f"?{url.query}" if url.query else "")
        connection = _connect(url)
        try:
            connection.request("POST", path, body, {"content-type": "application/json", **self._address.headers})
            status = connection.getresponse().status
            if not 200 <= status < 300:  # a redirect too: spans go where the operator said, or nowhere
                raise _Refused(status)
        finally:
            connection.close()


def _to_request(batch: Sequence[Span]) -> dict[str, object]:
    resource = {"attributes": to_attributes({"service.name": "perdure", "service.version": __version__})}
    scope = {"name": "perdure", "version": __version__}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": list(batch)}]}]}


def _connect(url: SplitResult) -> http.client.HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, url.port, timeout=SEND_SECONDS_MAX, context=context)
    return http.client.HTTPConnection(host, url.port, timeout=SEND_SECONDS_MAX)
