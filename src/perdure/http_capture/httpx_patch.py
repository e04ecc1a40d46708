"""Patches the transports of `httpx` and `httpx2`, which have the same names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from perdure.adapters.recorded_answers import ABOUT_TRANSPORT, RECORDED_ABOVE, STREAM, StreamTee
from perdure.http_capture.calls import CapturedCall
from perdure.http_capture.recorder import HttpRequest, begin_call
from perdure.kernel.protocol import drive_async, drive_sync


def patch(library: Any) -> None:
    """Record what the clients of this library send through their standard transports."""
    _patch_sync(library, library.HTTPTransport.handle_request)
    _patch_async(library, library.AsyncHTTPTransport.handle_async_request)


def _patch_sync(library: Any, send: Any) -> None:
    class PassingStream(library.SyncByteStream):  # type: ignore[misc] # the class is known at run time only
        def __init__(self, call: CapturedCall, response: Any) -> None:
            self._call, self._response = call, response

        def __iter__(self) -> Iterator[bytes]:
            tee = StreamTee()
            for chunk in self._response.iter_bytes():
                if passed := tee.take(chunk):
                    yield passed
            if tee.whole:
                drive_sync(self._call.run.store, self._call.keep(self._response.status_code, STREAM, bytes(tee.body)))
                yield bytes(tee.held)

        def close(self) -> None:
            self._call.release()
            self._response.close()

    def handle_request(transport: Any, request: Any) -> Any:
        if RECORDED_ABOVE in request.extensions or (call := begin_call(_describe(request, request.read()))) is None:
            return send(transport, request)
        if call.recorded is not None:
            return _replay(library, drive_sync(call.run.store, call.read()))
        with call.attempt():
            response = send(transport, request)
            if not response.is_success:
                return response
            kind = response.headers.get("content-type", "")
            if kind.startswith(STREAM):
                call.hand_over()
                return _rebuild(library, response, stream=PassingStream(call, response))
            body = response.read()
            response.close()
            drive_sync(call.run.store, call.keep(response.status_code, kind, body))
            return _rebuild(library, response, content=body)

    library.HTTPTransport.handle_request = handle_request


def _patch_async(library: Any, send: Any) -> None:
    class AsyncPassingStream(library.AsyncByteStream):  # type: ignore[misc] # the class is known at run time only
        def __init__(self, call: CapturedCall, response: Any) -> None:
            self._call, self._response = call, response

        async def __aiter__(self) -> AsyncIterator[bytes]:
            tee = StreamTee()
            async for chunk in self._response.aiter_bytes():
                if passed := tee.take(chunk):
                    yield passed
            if tee.whole:
                kept = self._call.keep(self._response.status_code, STREAM, bytes(tee.body))
                await drive_async(self._call.run.store, kept)
                yield bytes(tee.held)

        async def aclose(self) -> None:
            self._call.release()
            await self._response.aclose()

    async def handle_async_request(transport: Any, request: Any) -> Any:
        above = RECORDED_ABOVE in request.extensions
        if above or (call := begin_call(_describe(request, await request.aread()))) is None:
            return await send(transport, request)
        if call.recorded is not None:
            return _replay(library, await drive_async(call.run.store, call.read()))
        with call.attempt():
            response = await send(transport, request)
            if not response.is_success:
                return response
            kind = response.headers.get("content-type", "")
            if kind.startswith(STREAM):
                call.hand_over()
                return _rebuild(library, response, stream=AsyncPassingStream(call, response))
            body = await response.aread()
            await response.aclose()
            await drive_async(call.run.store, call.keep(response.status_code, kind, body))
            return _rebuild(library, response, content=body)

    library.AsyncHTTPTransport.handle_async_request = handle_async_request


def _describe(request: Any, body: bytes) -> HttpRequest:
    url, kind = request.url, request.headers.get("content-type", "")
    return HttpRequest(request.method, url.host, url.port, url.path, kind, body)


def _replay(library: Any, stored: dict[str, Any]) -> Any:
    return library.Response(stored["status"], headers={"content-type": stored["type"]}, content=stored["body"])


def _rebuild(library: Any, response: Any, **body: Any) -> Any:
    headers = [(name, value) for name, value in response.headers.items() if name not in ABOUT_TRANSPORT]
    extensions = response.extensions if "stream" in body else {}
    return library.Response(response.status_code, headers=headers, extensions=extensions, **body)
