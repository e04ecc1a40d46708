"""The requests that a protocol can yield, and the blocking and async drivers that execute them.

A protocol is a generator that yields requests and returns its result. It is written once; sync and async differ
only here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

import msgspec

from perdure.errors import RunStopped, StepTimeout
from perdure.kernel.awaitables import NEVER_RAN, is_async, is_awaitable, require_settled
from perdure.kernel.bodies import TRACE
from perdure.kernel.scope import FRAME, Frame
from perdure.store.base import Store, UnitOfWork

T = TypeVar("T")


# All of these are tracked by the garbage collector: the traceback of an error refers to the request, which refers to
# the user's objects, which may refer to the error.


class Submit(msgspec.Struct, frozen=True):
    """Commit a unit. Answered with its result once it is durable."""

    unit: UnitOfWork[Any]


class Invoke(msgspec.Struct, frozen=True):
    """Call a user function within a frame. Answered with its result; its exception is thrown into the protocol."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    frame: Frame
    timeout: float | None = None
    stops: bool = False
    """Whether an order to stop the run cancels the coroutine. Set for steps: repeating one is safe."""


class Pause(msgspec.Struct, frozen=True):
    """Sleep."""

    seconds: float


class Read(msgspec.Struct, frozen=True):
    """Make a short blocking call, such as a read from the store. Answered with its result."""

    call: Callable[..., Any]
    args: tuple[Any, ...] = ()


class ProtocolOutcome(msgspec.Struct, frozen=True):
    """The result or error of one of several protocols, or of a body in a thread. Empty if it was not started."""

    value: Any = None
    error: BaseException | None = None

    def get(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class Together(msgspec.Struct, frozen=True):
    """Execute several protocols concurrently. Answered with their outcomes, in order.

    With `stops`, none is started after one has failed; those that are running continue.
    """

    jobs: Sequence[Callable[[], Generator[Any, Any, Any]]]
    at_once: int
    stops: bool


Request = Submit | Invoke | Pause | Read | Together
Protocol = Generator[Request, Any, T]


def read_protocol(call: Callable[..., T], *args: Any) -> Protocol[T]:
    """A protocol that only reads."""
    result: T = yield Read(call, args)
    return result


def sleep_protocol(seconds: float) -> Protocol[None]:
    """A protocol that only sleeps."""
    yield Pause(seconds)


def drive_sync(store: Store, protocol: Protocol[T]) -> T:
    """Execute a protocol in this thread."""
    send = protocol.send
    try:
        request = next(protocol)
        while True:
            try:
                if isinstance(request, Submit):
                    answer = store.submit(request.unit)
                elif isinstance(request, Invoke):
                    answer = _call(request)
                else:
                    answer = _perform(store, request)
            except BaseException as error:
                request = protocol.throw(error)
            else:
                request = send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _perform(store: Store, request: Read | Together | Pause) -> Any:
    if isinstance(request, Read):
        return request.call(*request.args)
    if isinstance(request, Together):
        return _perform_in_threads(store, request)
    return store.clock.sleep(request.seconds)


def _perform_in_threads(store: Store, request: Together) -> list[ProtocolOutcome]:
    outcomes = [ProtocolOutcome()] * len(request.jobs)
    failed = threading.Event()

    def perform(index: int) -> None:
        if failed.is_set():
            return
        outcome = outcomes[index] = _outcome_of(lambda: drive_sync(store, request.jobs[index]()))
        if outcome.error is not None and (request.stops or not isinstance(outcome.error, Exception)):
            failed.set()

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(request.at_once, len(request.jobs)) or 1, "perdure-map") as pool:
        try:
            for index in range(len(request.jobs)):
                pool.submit(copy_context().run, perform, index)
        finally:
            if sys.exc_info()[0] is not None:
                failed.set()  # interrupted: start no more jobs
    return _unless_interrupted(outcomes)


def _outcome_of(call: Callable[[], Any]) -> ProtocolOutcome:
    """Call a function in a thread, and keep its result or exception for the waiting caller."""
    try:
        return ProtocolOutcome(call())
    except BaseException as error:
        return ProtocolOutcome(error=error)


def _unless_interrupted(outcomes: list[ProtocolOutcome]) -> list[ProtocolOutcome]:
    """Raise the first outcome that is not an `Exception`: an interrupt ends the whole request."""
    for outcome in outcomes:
        if outcome.error is not None and not isinstance(outcome.error, Exception):
            raise outcome.error
    return outcomes


def _call(request: Invoke) -> Any:
    if request.timeout is not None:
        return require_settled(_call_in_time(request, request.timeout), request.call)
    frame = request.frame
    token = FRAME.set(frame)
    try:
        result = _call_effect(request) if frame.intent else request.call(*request.args, **request.kwargs)
    finally:
        FRAME.reset(token)
    return require_settled(result, request.call) if type(result) in NEVER_RAN else result


def _call_effect(request: Invoke) -> Any:
    """Call the body of an effect in this thread, tracked while it runs."""
    bodies = request.frame.run.bodies
    work = bodies.begin(request.frame)
    try:
        return bodies.call(request.frame, request.call, request.args, request.kwargs)
    finally:
        work.end()


def _call_in_time(request: Invoke, timeout: float) -> Any:
    """Wait for a body in its own thread. It cannot be stopped, so after the timeout it can no longer write."""
    done = threading.Event()
    outcome = _start_body(request, done.set)
    if not done.wait(timeout):
        request.frame.alive = False
        raise _timeout_error(request)
    return outcome[0].get()


def _start_body(request: Invoke, tell: Callable[[], object]) -> list[ProtocolOutcome]:
    """Start a body in its own thread: in a pool, slow bodies of one run would delay those of another.

    The outcome is in the list when `tell` is called.
    """
    outcome, frame = list[ProtocolOutcome](), request.frame
    bodies = frame.run.bodies
    work = bodies.begin(frame) if frame.intent else None

    def call() -> Any:
        return request.call(*request.args, **request.kwargs)

    def body() -> None:
        FRAME.set(frame)
        outcome.append(_outcome_of(call if work is None else lambda: bodies.call(frame, call, (), {})))
        if work is not None:
            work.end()
        tell()

    try:
        threading.Thread(target=copy_context().run, args=(body,), name="perdure-body", daemon=True).start()
    except BaseException:  # the thread could not be started, so the body did not run
        if work is not None:
            work.end()
        raise
    return outcome


async def drive_async(store: Store, protocol: Protocol[T]) -> T:
    """Execute a protocol in the running event loop."""
    try:
        request = next(protocol)
        while True:
            try:
                if isinstance(request, Submit):
                    answer = await store.submit_async(request.unit)
                elif isinstance(request, Invoke):
                    answer = await _invoke(request)
                else:
                    answer = await _perform_async(store, request)
            except BaseException as error:
                request = protocol.throw(error)
            else:
                request = protocol.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _perform_async(store: Store, request: Read | Together | Pause) -> Any:
    import asyncio

    if isinstance(request, Read):
        return await asyncio.to_thread(request.call, *request.args)
    if isinstance(request, Together):
        return await _perform_in_tasks(store, request)
    return await asyncio.sleep(request.seconds)


async def _invoke(request: Invoke) -> Any:
    """Call a body: a coroutine in this task, a plain function in its own thread."""
    frame = request.frame
    body = frame.awaited = InterruptibleTask(stops=request.stops and not frame.run.cleans_up)
    token = FRAME.set(frame)
    try:
        return await (_await_effect(request, body) if frame.intent else _await_or_stop(request, body))
    finally:
        FRAME.reset(token)


async def _await_effect(request: Invoke, body: InterruptibleTask) -> Any:
    """Await the body of an effect, tracked while it runs."""
    bodies = request.frame.run.bodies
    work = bodies.begin_in_loop(request.frame, body.loop)
    mark, token = bodies.start_trace(request.frame)
    try:
        return await _await_or_stop(request, body)
    finally:
        TRACE.reset(token)
        if mark() is not None:
            bodies.keep_trace(mark)
        work.end()


class InterruptibleTask:
    """A running coroutine that another thread can cancel."""

    __slots__ = ("interrupted", "loop", "stops", "task", "under_way")

    def __init__(self, *, stops: bool) -> None:
        import asyncio

        self.loop = asyncio.get_running_loop()
        self.task = asyncio.current_task()
        self.stops = stops
        """Whether an order to the run cancels it."""
        self.under_way = True
        self.interrupted = False

    def interrupt(self) -> None:
        """Cancel the coroutine, from any thread; once."""
        with suppress(RuntimeError):  # its loop is closed, so it has ended
            self.loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # Runs in the body's own loop, so the body cannot end between the check and the cancellation.
        if self.under_way and not self.interrupted and self.task is not None:
            self.interrupted = True
            self.task.cancel()


async def _await_or_stop(request: Invoke, body: InterruptibleTask) -> Any:
    """Await a body that can be interrupted. If it ignores the cancellation, wait until it ends."""
    import asyncio

    try:
        return await _await_in_time(request)
    except asyncio.CancelledError as error:
        stopped = request.frame.run.stop_error() if body.interrupted and body.stops else None
        # If somebody else cancelled the task too, keep their cancellation.
        if stopped is None or (body.task is not None and body.task.cancelling() > 1):
            raise
        raise stopped from error
    finally:
        body.under_way = False
        if body.interrupted and body.task is not None:
            body.task.uncancel()


async def _perform_in_tasks(store: Store, request: Together) -> list[ProtocolOutcome]:
    import asyncio

    outcomes = [ProtocolOutcome()] * len(request.jobs)
    turn, failed = asyncio.Semaphore(request.at_once), False

    async def perform(index: int) -> None:
        nonlocal failed
        async with turn:
            if failed:
                return
            try:
                outcomes[index] = ProtocolOutcome(await drive_async(store, request.jobs[index]()))
            except (Exception, RunStopped) as error:  # user code may raise anything: all of it is an outcome
                outcomes[index] = ProtocolOutcome(error=error)
                failed = request.stops or isinstance(error, RunStopped)

    async with asyncio.TaskGroup() as tasks:
        for index in range(len(request.jobs)):
            tasks.create_task(perform(index))
    return _unless_interrupted(outcomes)


async def _await_in_time(request: Invoke) -> Any:
    if request.timeout is None:
        return await _await_body(request)
    import asyncio

    scope = asyncio.timeout(request.timeout)
    try:
        async with scope:
            return await _await_body(request)
    except TimeoutError as error:
        if not scope.expired():
            raise  # raised by the body itself
        request.frame.alive = False
        raise _timeout_error(request) from error


async def _await_body(request: Invoke) -> Any:
    """Call a body and await its result, within the body's frame and timeout."""
    if is_async(request.call):
        result = await request.call(*request.args, **request.kwargs)
    else:
        result = await _await_thread(request)
    while is_awaitable(result):
        result = await result
    return result


async def _await_thread(request: Invoke) -> Any:
    """Run a plain function in its own thread, so that the event loop continues."""
    import asyncio

    loop, done = asyncio.get_running_loop(), asyncio.Event()
    outcome = _start_body(request, lambda: loop.is_closed() or loop.call_soon_threadsafe(done.set))
    try:
        await done.wait()
    except BaseException:
        request.frame.alive = False
        raise
    return outcome[0].get()


def _timeout_error(request: Invoke) -> StepTimeout:
    return StepTimeout(f"the body took longer than {request.timeout:g} s; it can no longer write")
