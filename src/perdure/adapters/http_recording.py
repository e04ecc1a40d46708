"""Records model calls of an SDK at its HTTP client: in a run, each paid answer is a step, streams included.

The recorded answer is the body as the provider sent it, so that the SDK parses the same bytes after a crash. Errors and
streams that were cut are not recorded. Headers of the request, and so its secrets, are never stored.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from perdure.adapters.call_policy import STEP, AdapterCall, is_recorded, make_body, perform_call
from perdure.adapters.recorded_answers import (
    ABOUT_TRANSPORT,
    RECORDED_ABOVE,
    STREAM,
    StreamTee,
    digest_request,
    report_answer,
)
from perdure.errors import NotDurableWarning
from perdure.kernel.protocol import Protocol, drive_async, drive_sync
from perdure.kernel.scope import Frame, current_frame
from perdure.run.core import RunCore, core_of
from perdure.run.cost import check_budgets

C = TypeVar("C")


def record_client(client: C, provider: str) -> C:
    """Return a copy of an SDK's client that records its answers. It shares connections with the original."""
    inner: Any = getattr(client, "_client", None)
    made = copy.copy(inner)
    asynchronous = hasattr(inner, "aclose")
    made._transport = (AsyncRecordingTransport if asynchronous else RecordingTransport)(inner, provider)
    made._mounts = {}
    wrapped: Any = client
    copied: C = wrapped.copy(http_client=made)
    return copied


class OpenCall(msgspec.Struct, frozen=True):
    """A model call of an open run that is about to be made or read."""

    run: RunCore
    frame: Frame
    call: AdapterCall
    provider: str

    @property
    def recorded(self) -> bool:
        """Whether the run has the answer."""
        check_budgets(self.run)
        return is_recorded(self.run, self.frame, self.call)

    def read(self) -> Protocol[dict[str, Any]]:
        """Return the recorded answer."""
        return perform_call(self.run, self.frame, self.call, make_body(_refuse))

    def keep(self, status: int, kind: str, body: bytes) -> Protocol[dict[str, Any]]:
        """Record an answer durably."""

        def answer(_: dict[str, Any], key: str) -> dict[str, Any]:
            report_answer(self.provider, kind, body)
            return {"status": status, "type": kind, "body": body}

        return perform_call(self.run, self.frame, self.call, make_body(answer))


def _refuse(arguments: dict[str, Any], key: str) -> Any:
    raise AssertionError("the answer is recorded")


def _library_of(request: Any) -> Any:
    """Return `httpx2`, or `httpx`, which older SDKs use. Their classes have the same names and different identities."""
    return sys.modules[type(request).__module__.partition(".")[0]]


@cache
def _stream_class(kind: type[Any], base: type[Any]) -> type[Any]:
    """Return a stream class that the client's library accepts as its own."""
    return type(kind.__name__, (kind, base), {})


def find_call(request: Any, provider: str) -> OpenCall | None:
    """Return the call to record, or None for a request that is no model call or belongs to no run."""
    if request.method != "POST" or "json" not in request.headers.get("content-type", ""):
        return None
    frame = current_frame()
    if frame is None:
        warnings.warn(f"a call of {provider} outside of a run: nothing is remembered", NotDurableWarning, stacklevel=2)
        return None
    if frame.inside:
        return None  # the step around it records the answer
    path = request.url.path
    request.extensions[RECORDED_ABOVE] = True
    call = AdapterCall(f"{provider} {path}", {"request": digest_request(path, request.content)}, STEP)
    return OpenCall(core_of(frame), frame, call, provider)


def _make_response(stored: Mapping[str, Any], request: Any) -> Any:
    headers = {"content-type": stored["type"]}
    return _library_of(request).Response(stored["status"], headers=headers, content=stored["body"], request=request)


def _keep_headers(response: Any) -> list[tuple[str, str]]:
    return [(name, value) for name, value in response.headers.items() if name not in ABOUT_TRANSPORT]


class RecordingTransport:
    """Sends requests through another client's transport, and records the answers."""

    def __init__(self, inner: Any, provider: str) -> None:
        self._inner, self._provider = inner, provider

    def handle_request(self, request: Any) -> Any:
        request.read()
        call = find_call(request, self._provider)
        transport = self._inner._transport_for_url(request.url)
        if call is None:
            return transport.handle_request(request)
        if call.recorded:
            return _make_response(drive_sync(call.run.store, call.read()), request)
        response = transport.handle_request(request)
        kind = response.headers.get("content-type", "")
        if not response.is_success:
            return response
        http = _library_of(request)
        if kind.startswith(STREAM):
            passed = _stream_class(_RecordingStream, http.SyncByteStream)(call, response)
            return http.Response(
                response.status_code, headers=_keep_headers(response), stream=passed, extensions=response.extensions
            )
        body = response.read()
        response.close()
        drive_sync(call.run.store, call.keep(response.status_code, kind, body))
        return http.Response(response.status_code, headers=_keep_headers(response), content=body)

    def close(self) -> None:
        self._inner._transport.close()


class _RecordingStream:
    def __init__(self, call: OpenCall, response: Any) -> None:
        self._call, self._response = call, response

    def __iter__(self) -> Iterator[bytes]:
        tee = StreamTee()
        for chunk in self._response.iter_bytes():
            if passed := tee.take(chunk):
                yield passed
        if tee.whole:
            kept = self._call.keep(self._response.status_code, STREAM, bytes(tee.body))
            drive_sync(self._call.run.store, kept)
            yield bytes(tee.held)

    def close(self) -> None:
        self._response.close()


class AsyncRecordingTransport:
    """Does the same as `RecordingTransport` for an asynchronous client."""

    def __init__(self, inner: Any, provider: str) -> None:
        self._inner, self._provider = inner, provider

    async def handle_async_request(self, request: Any) -> Any:
        await request.aread()
        call = find_call(request, self._provider)
        transport = self._inner._transport_for_url(request.url)
        if call is None:
            return await transport.handle_async_request(request)
        if call.recorded:
            return _make_response(await drive_async(call.run.store, call.read()), request)
        response = await transport.handle_async_request(request)
        kind = response.headers.get("content-type", "")
        if not response.is_success:
            return response
        http = _library_of(request)
        if kind.startswith(STREAM):
            passed = _stream_class(_AsyncRecordingStream, http.AsyncByteStream)(call, response)
            return http.Response(
                response.status_code, headers=_keep_headers(response), stream=passed, extensions=response.extensions
            )
        body = await response.aread()
        await response.aclose()
        await drive_async(call.run.store, call.keep(response.status_code, kind, body))
        return http.Response(response.status_code, headers=_keep_headers(response), content=body)

    async def aclose(self) -> None:
        await self._inner._transport.aclose()


class _AsyncRecordingStream:
    def __init__(self, call: OpenCall, response: Any) -> None:
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
        await self._response.aclose()
