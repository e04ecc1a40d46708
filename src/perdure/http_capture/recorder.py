"""The recorder of a process: it decides which requests are model calls, and opens the run that records them."""

from __future__ import annotations

import os
from itertools import count

import msgspec

from perdure.adapters.recorded_answers import digest_request
from perdure.adapters.session_calls import OpenTurn
from perdure.http_capture.calls import CapturedCall
from perdure.http_capture.hosts import find_provider, format_host
from perdure.kernel.engine import Engine
from perdure.kernel.scope import Frame, current_frame
from perdure.records import RunStatus
from perdure.run.core import core_of
from perdure.store.base import Store
from perdure.store.rows import read_run
from perdure.values import locks

OWNER = "PERDURE_CAPTURE_OWNER"
"""Set for the children of a process that captures: the run is open in that process only."""


class CaptureSettings(msgspec.Struct, frozen=True):
    """What a process records, and where."""

    id: str = ""
    """The run. Empty: the unfinished run of this program, or its next one."""
    program: str = ""
    """What the ids of such runs begin with."""
    store: str | os.PathLike[str] | None = None
    agent: str = "capture"
    hosts: frozenset[str] = frozenset()
    on_mismatch: str = "warn"


class HttpRequest(msgspec.Struct, frozen=True):
    """A request, as far as it identifies a model call. It has no headers, and so no secrets."""

    method: str
    host: str
    port: int | None
    path: str
    kind: str
    body: bytes
    provider: str = ""
    """Known to a proxy. Empty: the host tells."""


class Recorder:
    """Records the model calls of this process. The run is opened at the first one, and may be a run of the program."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings
        self._engine: Engine | None = None
        self._open: OpenTurn | None = None
        self._lock = locks.lock()
        self._pid = os.getpid()

    def begin(self, request: HttpRequest) -> CapturedCall | None:
        """Return the call to make or to read, or None for a request that is left alone."""
        settings = self._settings
        if request.method != "POST" or "json" not in request.kind or os.getpid() != self._pid:
            return None
        known = request.provider or find_provider(request.host, request.port, settings.hosts, request.path)
        if known is None or (frame := self._find_frame()).inside:
            return None  # a step around it records the answer
        name = f"{format_host(request.host)} {request.path}"
        call = CapturedCall(frame, known, name, digest_request(request.path, request.body))
        with call.attempt():
            call.find(settings.on_mismatch)
            call.hand_over()
        return call

    def _find_frame(self) -> Frame:
        frame = current_frame()
        if frame is not None:
            return frame
        with self._lock:
            if self._open is None or self._open.run is None:
                self._engine = self._engine or Engine(self._settings.agent, store=self._settings.store)
                self._open = OpenTurn(self._engine)
                self._open.enter(self._settings.id or find_next_id(self._engine, self._settings.program))
                os.environ[OWNER] = str(self._pid)
            assert self._open.run is not None
            return self._open.run.root

    def open(self) -> str:
        """Open the run before the first call, and return its id. Raises `RunBusy` if another process has it."""
        return core_of(self._find_frame()).id

    def close(self, *, finish: bool) -> None:
        """Close the run: finished, or left for the next start of the program."""
        if self._open is not None and os.getpid() == self._pid:
            if finish:
                self._open.finish(None)
            else:
                self._open.leave_run(None)
            os.environ.pop(OWNER, None)
        if self._engine is not None and os.getpid() == self._pid:
            self._engine.close()
        self._open = self._engine = None


def find_next_id(engine: Engine, program: str) -> str:
    """Return the id of the program's first run that is not over."""
    return next(name for n in count(1) if not _is_over(engine.store, engine.name, name := f"{program}-{n}"))


def _is_over(store: Store, agent: str, name: str) -> bool:
    found = read_run(store, agent, name)
    return found is not None and RunStatus(found.status).over


ACTIVE: list[Recorder] = []
"""The recorders of this process. The last one records."""


def begin_call(request: HttpRequest) -> CapturedCall | None:
    """Return the call that a request makes, or None if it is not recorded."""
    return ACTIVE[-1].begin(request) if ACTIVE else None
