"""Patches the connection pools of `urllib3`, on which `requests` stands too."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from perdure.adapters.recorded_answers import ABOUT_TRANSPORT, STREAM, StreamTee
from perdure.http_capture.calls import CapturedCall
from perdure.http_capture.recorder import HttpRequest, begin_call
from perdure.kernel.protocol import drive_sync

_INSIDE: ContextVar[bool] = ContextVar("perdure_urllib3", default=False)
"""Set while a recorded request is sent: retries of the pool are part of it."""


def patch(library: Any) -> None:
    """Record what the pools of this library send."""
    pool_class = library.connectionpool.HTTPConnectionPool
    send, respond = pool_class.urlopen, _make_response_class(library)

    def urlopen(pool: Any, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> Any:
        call = None if _INSIDE.get() else begin_call(_describe(pool, method, url, body, headers))
        if call is None:
            return send(pool, method, url, body, headers, **options)
        preload, decode = options.pop("preload_content", True), options.get("decode_content", True)
        make = _ResponseMaker(respond, preload, decode)
        if call.recorded is not None:
            stored = drive_sync(call.run.store, call.read())
            return make(stored["status"], {"content-type": stored["type"]}, io.BytesIO(stored["body"]))
        token = _INSIDE.set(True)
        try:
            with call.attempt():
                live = send(pool, method, url, body, headers, preload_content=False, **options)
                return _pass_on(call, live, make)
        finally:
            _INSIDE.reset(token)

    pool_class.urlopen = urlopen


class _ResponseMaker:
    def __init__(self, kind: Any, preload: bool, decode: bool) -> None:
        self._kind, self._preload, self._decode = kind, preload, decode

    def __call__(self, status: int, headers: Any, body: Any) -> Any:
        options = {"preload_content": self._preload, "decode_content": self._decode}
        return self._kind(body, headers, status, version=11, **options)


def _pass_on(call: CapturedCall, live: Any, make: _ResponseMaker) -> Any:
    kind = live.headers.get("content-type", "")
    headers = {name: value for name, value in live.headers.items() if name.lower() not in ABOUT_TRANSPORT}
    if 200 <= live.status < 300 and kind.startswith(STREAM):
        call.hand_over()
        return make(live.status, headers, io.BufferedReader(PassingFile(call, live)))
    body = live.read(decode_content=True)
    live.release_conn()
    if 200 <= live.status < 300:
        drive_sync(call.run.store, call.keep(live.status, kind, body))
    return make(live.status, headers, io.BytesIO(body))


class PassingFile(io.RawIOBase):
    """The body of a stream: each chunk passes when it arrives, the last one when the stream is recorded."""

    def __init__(self, call: CapturedCall, live: Any) -> None:
        self._call, self._live = call, live
        self._chunks, self._rest = self._pass(), b""

    def _pass(self) -> Iterator[bytes]:
        tee = StreamTee()
        for chunk in self._live.stream(1 << 16, decode_content=True):
            if passed := tee.take(chunk):
                yield passed
        if tee.whole:
            drive_sync(self._call.run.store, self._call.keep(self._live.status, STREAM, bytes(tee.body)))
            yield bytes(tee.held)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._chunks, b"")
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        if not self.closed:
            self._call.release()
            self._live.close()
        super().close()


def _make_response_class(library: Any) -> Any:
    class CapturedResponse(library.HTTPResponse):  # type: ignore[misc] # the class is known at run time only
        """An answer whose stream gives what has arrived, and does not wait for a full buffer."""

        def stream(self, amt: int | None = 1 << 16, decode_content: bool | None = None) -> Iterator[bytes]:
            while chunk := self._fp.read1(amt or -1):
                yield chunk
            self.close()

    return CapturedResponse


def _describe(pool: Any, method: str, url: str, body: Any, headers: Any) -> HttpRequest:
    kind = next((str(value) for name, value in (headers or {}).items() if _text(name).lower() == "content-type"), "")
    content = body.encode() if isinstance(body, str) else body
    if not isinstance(content, bytes):
        kind = ""  # a body that is read while it is sent cannot be compared
    return HttpRequest(method.upper(), pool.host, pool.port, urlsplit(url).path, kind, content or b"")


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
