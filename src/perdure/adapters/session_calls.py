"""The durable calls of a session: each turn is a run `<session>#<n>`, its model calls steps, its tool calls effects.

A run that is already open in the calling code records the calls instead. The turn's run is opened at the first call and
left when the turn ends, when a call raises, or when the session is dropped; then any process may resume it.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from perdure.adapters.call_policy import AdapterCall, CallBody, is_recorded, make_body, perform_call
from perdure.errors import EffectInsideStep, PerdureError, RunFinished
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Invoke, Protocol, Read, drive_async, drive_sync
from perdure.kernel.scope import FRAME, Frame, current_frame
from perdure.records import RunStatus
from perdure.run.core import RunCore, core_of
from perdure.run.cost import check_budgets
from perdure.run.finish import end_run
from perdure.run.lifecycle import open_run
from perdure.store.rows import read_run
from perdure.values import locks


class StreamFormat(msgspec.Struct, frozen=True):
    """How the events of a model's stream are recorded."""

    is_last: Callable[[Any], bool]
    """Whether an event tells that the answer is whole. It is held back until all events are on disk."""
    report: Callable[[list[Any]], None]
    """Records what the answer has cost."""
    dump: Callable[[list[Any]], Any]
    load: Callable[[Any], list[Any]]


class OpenTurn:
    """The run of the current turn while this process holds it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lock = locks.rlock()
        self.run: RunCore | None = None
        self.users = 0
        self.error: BaseException | None = None

    def enter(self, run_id: str) -> RunCore:
        """Return the run, opened if it is not, and count the caller."""
        with self.lock:
            if self.run is not None and self.run.id != run_id:
                self.leave_run(None)
            if self.run is None:
                protocol = open_run(self.engine, run_id, None, wait=0.0, on_change="error", parallel=True)
                self.run, self.error = _outside_frames(self.engine, protocol), None
            self.users += 1
            return self.run

    def leave(self, error: BaseException | None) -> None:
        """End one call. After an error, the last call leaves the run, so that another process can resume it."""
        with self.lock:
            self.users -= 1
            self.error = self.error or error
            if not self.users and self.error is not None and self.run is not None:
                self.leave_run(self.error)

    def leave_run(self, error: BaseException | None) -> None:
        """Release the run. Without an error it is interrupted, and resumable."""
        with self.lock:
            run, self.run, self.users = self.run, None, 0
            if run is not None:
                with suppress(PerdureError):  # the lease ends by itself
                    _outside_frames(self.engine, end_run(run, error or KeyboardInterrupt("the session was left")))

    def finish(self, result: Any) -> None:
        """End the run as finished, with a result."""
        with self.lock:
            run, self.run, self.users = self.run, None, 0
            if run is None:
                return
            if not run.finished:
                run.view.result, run.result_objects = run.pack(result, "result")
            _outside_frames(self.engine, end_run(run, None))


def _outside_frames(engine: Engine, protocol: Protocol[Any]) -> Any:
    token = FRAME.set(None)
    try:
        return drive_sync(engine.store, protocol)
    finally:
        FRAME.reset(token)


class SessionCalls:
    """Executes the model and tool calls of a session once each.

    `locate` returns the id of the current turn's run. It may read the store.
    """

    def __init__(self, engine: Engine, locate: Callable[[], str]) -> None:
        self._engine, self._locate = engine, locate
        self._open = OpenTurn(engine)
        self._part = 0
        """How many runs of this turn were finished before it went on."""
        self._left = weakref.finalize(self, self._open.leave_run, None)

    def execute(self, call: AdapterCall, body: CallBody) -> Any:
        """Execute a call once, and wait for its result."""
        return drive_sync(self._engine.store, self._perform(call, body))

    async def execute_async(self, call: AdapterCall, body: CallBody) -> Any:
        """Execute a call once under asyncio."""
        return await drive_async(self._engine.store, self._perform(call, body))

    async def stream(
        self,
        call: AdapterCall,
        start: Callable[[], AsyncIterator[Any]],
        form: StreamFormat,
    ) -> AsyncIterator[Any]:
        """Yield the events of a model, live or recorded. The last one comes when all of them are on disk.

        A stream that is cut, by a crash or by the consumer, has no last event and is not recorded.
        """
        if await drive_async(self._engine.store, self._is_recorded(call)):
            for event in form.load(await self.execute_async(call, _refuse)):
                yield event
            return
        events, held = list[Any](), list[Any]()
        async for event in start():
            events.append(event)
            if held or form.is_last(event):
                held.append(event)
            else:
                yield event

        async def recorded(_: dict[str, Any], key: str) -> Any:
            form.report(events)
            return form.dump(events)

        if held:
            await self.execute_async(call, recorded)
        for event in held:
            yield event

    def stream_sync(
        self,
        call: AdapterCall,
        start: Callable[[], Iterator[Any]],
        form: StreamFormat,
    ) -> Iterator[Any]:
        """Yield the events of a model, live or recorded, without asyncio."""
        if drive_sync(self._engine.store, self._is_recorded(call)):
            yield from form.load(self.execute(call, _refuse))
            return
        events, held = list[Any](), list[Any]()
        for event in start():
            events.append(event)
            if held or form.is_last(event):
                held.append(event)
            else:
                yield event

        def recorded(_: dict[str, Any], key: str) -> Any:
            form.report(events)
            return form.dump(events)

        if held:
            self.execute(call, recorded)
        yield from held

    def leave(self, error: BaseException | None = None) -> None:
        """Leave the current turn, so that another process can resume it."""
        self._open.leave_run(error)

    def next_turn(self) -> None:
        """Leave the current turn: the next call belongs to another one."""
        self._open.leave_run(None)
        self._part = 0

    def finish(self, result: Any) -> None:
        """End the current turn with a result, also if this process has only read what it recorded."""
        if self._open.run is None:
            name = self._name()
            started = read_run(self._engine.store, self._engine.name, name)
            if started is None or RunStatus(started.status).over:
                return
            self._open.enter(name)
        self._open.finish(result)

    # -- where a call is recorded -------------------------------------------------------------------------------------

    def _perform(self, call: AdapterCall, body: CallBody) -> Protocol[Any]:
        frame, made = current_frame(), make_body(body)
        if frame is not None:
            return (yield from _perform_in_frame(frame, call, made))
        while True:
            run = yield Read(self._enter)
            try:
                result = yield from perform_call(run, run.root, call, made)
            except RunFinished:
                yield Read(self._pass_finished)
                continue
            except Exception as error:
                yield Read(self._open.leave, (error,))
                raise
            except BaseException as error:
                self._open.leave(error)
                raise
            yield Read(self._open.leave, (None,))
            return result

    def _is_recorded(self, call: AdapterCall) -> Protocol[bool]:
        frame = current_frame()
        if frame is not None:
            if frame.inside:
                return False
            check_budgets(core_of(frame))
            return is_recorded(core_of(frame), frame, call)
        while True:
            run = yield Read(self._enter)
            try:
                check_budgets(run)
                return is_recorded(run, run.root, call)
            except RunFinished:
                yield Read(self._pass_finished)
            finally:
                self._open.leave(None)

    def _name(self) -> str:
        name = self._locate()
        return f"{name}.{self._part}" if self._part else name

    def _enter(self) -> RunCore:
        return self._open.enter(self._name())

    def _pass_finished(self) -> None:
        """Go on in another run: the turn was finished, and now the code makes a call that it had not made."""
        self._open.leave_run(None)
        self._part += 1


def _perform_in_frame(frame: Frame, call: AdapterCall, body: Callable[..., Any]) -> Protocol[Any]:
    """Execute a call in the run that the caller has open. Inside of a step, a step is a plain call."""
    if not frame.inside:
        return (yield from perform_call(core_of(frame), frame, call, body))
    if call.policy.effect:
        raise EffectInsideStep(f"{call.name} was called inside a {frame.inside}")
    return (yield Invoke(body, (), {**call.arguments, "perdure_key": ""}, frame))


def _refuse(arguments: dict[str, Any], key: str) -> Any:
    raise AssertionError("the stream is recorded")
