"""Patches the sessions of `aiohttp`."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.adapters.recorded_answers import STREAM, StreamTee
from perdure.http_capture.calls import CapturedCall
from perdure.http_capture.recorder import HttpRequest, begin_call
from perdure.kernel.protocol import drive_async

_PASSING: set[asyncio.Task[None]] = set()
"""Tasks that pass streams on: an event loop keeps only weak references."""


class NoConnection:
    """Stands for the connection of a reader that is fed here."""

    connected = True
    _reading_paused = False

    def pause_reading(self) -> None:
        """Do nothing: what has arrived is kept in memory, and recorded as a whole."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Do nothing."""


def patch(library: Any) -> None:
    """Record what the sessions of this library send."""
    send = library.ClientSession._request

    async def request(session: Any, method: str, url: Any, **options: Any) -> Any:
        target = session._build_url(url)
        call = begin_call(_describe(session, method, target, options))
        if call is None:
            return await send(session, method, url, **options)
        if call.recorded is not None:
            stored = await drive_async(call.run.store, call.read())
            return _replay(library, session, method, target, stored)
        with call.attempt():
            live = await send(session, method, url, **options)
            kind = live.headers.get("content-type", "")
            if 200 <= live.status < 300 and kind.startswith(STREAM):
                call.hand_over()
                _pass_on(library, call, live)
            elif 200 <= live.status < 300:
                body = await live.read()
                live.content = _make_reader(library, body)
                await drive_async(call.run.store, call.keep(live.status, kind, body))
            return live

    library.ClientSession._request = request


def _describe(session: Any, method: str, url: Any, options: dict[str, Any]) -> HttpRequest:
    given = {str(name).lower(): str(value) for name, value in dict(options.get("headers") or {}).items()}
    kind, body = given.get("content-type", session.headers.get("content-type", "")), options.get("data")
    if options.get("json") is not None:
        kind, body = kind or "application/json", session._json_serialize(options["json"])
    content = body.encode() if isinstance(body, str) else body
    if not isinstance(content, bytes):
        kind = ""  # a body that is read while it is sent cannot be compared
    return HttpRequest(method.upper(), url.host or "", url.port, url.path, kind, content or b"")


def _make_reader(library: Any, body: bytes | None = None) -> Any:
    loop = asyncio.get_running_loop()
    reader = library.StreamReader(NoConnection(), 1 << 16, loop=loop)
    if body is not None:
        reader.feed_data(body)
        reader.feed_eof()
    return reader


def _pass_on(library: Any, call: CapturedCall, live: Any) -> None:
    """Let the program read a copy of the stream, whose end comes when the stream is recorded."""
    source, live.content = live.content, _make_reader(library)
    task = asyncio.ensure_future(_pass_stream(call, live.status, source, live.content))
    _PASSING.add(task)
    task.add_done_callback(_PASSING.discard)


async def _pass_stream(call: CapturedCall, status: int, source: Any, reader: Any) -> None:
    tee = StreamTee()
    try:
        async for chunk in source.iter_any():
            if passed := tee.take(chunk):
                reader.feed_data(passed)
        if tee.whole:
            await drive_async(call.run.store, call.keep(status, STREAM, bytes(tee.body)))
            reader.feed_data(bytes(tee.held))
        reader.feed_eof()
    except Exception as error:
        reader.set_exception(error)
    finally:
        call.release()


def _replay(library: Any, session: Any, method: str, url: Any, stored: dict[str, Any]) -> Any:
    """Return an answer that has no connection. Its constructor differs between versions, so it is not called."""
    response = library.ClientResponse.__new__(library.ClientResponse)
    headers = library.client_reqrep.CIMultiDictProxy(
        library.client_reqrep.CIMultiDict({"Content-Type": stored["type"]})
    )
    response.method, response._real_url, response._url = method, url, url
    response._request_info = library.RequestInfo(url, method, headers, url)
    response._cache, response._traces, response._session = {}, [], session
    response._loop, response._resolve_charset = asyncio.get_running_loop(), session._resolve_charset
    response.version, response.status, response.reason = library.HttpVersion11, stored["status"], "OK"
    response._headers, response._raw_headers = headers, ((b"Content-Type", stored["type"].encode()),)
    response.content = _make_reader(library, stored["body"])
    return response
