"""What a protocol may ask for, and the two drivers that do it: one blocks, one awaits.

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

from ..errors import RunStopped, StepTimeout
from ..store.base import Store, Unit
from .awaitables import is_async, is_awaitable, settled
from .scope import FRAME, Frame

T = TypeVar("T")


# Seen by the collector, all of them: the traceback of an error leads to what was asked for, and that to objects of the
# user's, which may hold the error.


class Submit(msgspec.Struct, frozen=True):
    """Commit a unit; answered with its result when it is durable."""

    unit: Unit[Any]


class Invoke(msgspec.Struct, frozen=True):
    """Call a function of the user's within a frame; answered with what it returns, or its exception is thrown in."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    frame: Frame
    timeout: float | None = None
    stops: bool = False
    """Whether a coroutine is cancelled when the run is told to stop: nobody minds, and it may take long."""


class Pause(msgspec.Struct, frozen=True):
    """Let time pass."""

    seconds: float


class Read(msgspec.Struct, frozen=True):
    """Do something short that blocks, such as reading from the store; answered with what it returns."""

    call: Callable[..., Any]
    args: tuple[Any, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """What one of several protocols came to, or a body in a thread; neither, when it was not begun."""

    value: Any = None
    error: BaseException | None = None

    def get(self) -> Any:
        """The value, or the error is raised."""
        if self.error is not None:
            raise self.error
        return self.value


class Together(msgspec.Struct, frozen=True):
    """Perform several protocols, some at a time; answered with their outcomes, in their order.

    With `stops` none is begun after one has failed; those that are under way go on to their ends.
    """

    jobs: Sequence[Callable[[], Generator[Any, Any, Any]]]
    at_once: int
    stops: bool


Request = Submit | Invoke | Pause | Read | Together
Protocol = Generator[Request, Any, T]


def reading(call: Callable[..., T], *args: Any) -> Protocol[T]:
    """A protocol that only reads."""
    result: T = yield Read(call, args)
    return result


def pausing(seconds: float) -> Protocol[None]:
    """A protocol that only lets time pass."""
    yield Pause(seconds)


def drive_sync(store: Store, protocol: Protocol[T]) -> T:
    """Perform a protocol in this thread."""
    try:
        request = next(protocol)
        while True:
            try:
                answer = _perform(store, request)
            except BaseException as error:
                request = protocol.throw(error)
            else:
                request = protocol.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _perform(store: Store, request: Request) -> Any:
    kind = type(request)
    if kind is Invoke:
        return _call(request)  # type: ignore[arg-type]
    if kind is Submit:
        return store.submit(request.unit)  # type: ignore[union-attr]
    if kind is Read:
        return request.call(*request.args)  # type: ignore[union-attr]
    if kind is Together:
        return _in_threads(store, request)  # type: ignore[arg-type]
    return store.clock.sleep(request.seconds)  # type: ignore[union-attr]


def _in_threads(store: Store, request: Together) -> list[Outcome]:
    outcomes = [Outcome()] * len(request.jobs)
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
                failed.set()  # interrupted: nothing more is begun
    return _unless_interrupted(outcomes)


def _outcome_of(call: Callable[[], Any]) -> Outcome:
    """What a call in a thread came to: whatever it raises is for the caller who waits, and not for the thread."""
    try:
        return Outcome(call())
    except BaseException as error:
        return Outcome(error=error)


def _unless_interrupted(outcomes: list[Outcome]) -> list[Outcome]:
    """What is no Exception is not for the program to handle: it ends the whole."""
    for outcome in outcomes:
        if outcome.error is not None and not isinstance(outcome.error, Exception):
            raise outcome.error
    return outcomes


def _call(request: Invoke) -> Any:
    if request.timeout is not None:
        return settled(_call_in_time(request, request.timeout), request.call)
    frame = request.frame
    token = FRAME.set(frame)
    try:
        if frame.intent:
            return settled(_call_effect(request), request.call)
        return settled(request.call(*request.args, **request.kwargs), request.call)
    finally:
        FRAME.reset(token)


def _call_effect(request: Invoke) -> Any:
    """Call the body of an effect in this thread, known to the process for as long as it is at work."""
    bodies = request.frame.run.bodies
    work = bodies.begin(request.frame)
    try:
        return bodies.call(request.frame, lambda: request.call(*request.args, **request.kwargs))
    finally:
        work.end()


def _call_in_time(request: Invoke, timeout: float) -> Any:
    """Wait for a body in a thread of its own. It cannot be stopped, so on timeout it is cut off from writing."""
    done = threading.Event()
    outcome = _start_body(request, done.set)
    if not done.wait(timeout):
        request.frame.alive = False
        raise _late(request)
    return outcome[0].get()


def _start_body(request: Invoke, tell: Callable[[], object]) -> list[Outcome]:
    """Start a body in its own thread: a pool would let slow bodies of one run stall those of another.

    When it tells, the outcome is in the list.
    """
    outcome, frame = list[Outcome](), request.frame
    bodies = frame.run.bodies
    work = bodies.begin(frame) if frame.intent else None

    def call() -> Any:
        return request.call(*request.args, **request.kwargs)

    def body() -> None:
        FRAME.set(frame)
        outcome.append(_outcome_of(call if work is None else lambda: bodies.call(frame, call)))
        if work is not None:
            work.end()
        tell()

    try:
        threading.Thread(target=copy_context().run, args=(body,), name="perdure-body", daemon=True).start()
    except BaseException:  # no thread could be started, so the body never began
        if work is not None:
            work.end()
        raise
    return outcome


async def drive_async(store: Store, protocol: Protocol[T]) -> T:
    """Perform a protocol in the running event loop."""
    try:
        request = next(protocol)
        while True:
            try:
                answer = await _perform_async(store, request)
            except BaseException as error:
                request = protocol.throw(error)
            else:
                request = protocol.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _perform_async(store: Store, request: Request) -> Any:
    if isinstance(request, Submit):
        return await store.submit_async(request.unit)
    import asyncio

    if isinstance(request, Pause):
        return await asyncio.sleep(request.seconds)
    if isinstance(request, Read):
        return await asyncio.to_thread(request.call, *request.args)
    if isinstance(request, Together):
        return await _in_tasks(store, request)
    return await _invoke(request)


async def _invoke(request: Invoke) -> Any:
    """Call a body: a coroutine in this task, a plain function in a thread of its own."""
    frame = request.frame
    body = frame.awaited = Interruptible(stops=request.stops and not frame.run.cleans_up)
    work = frame.run.bodies.begin_in_loop(frame, body.loop) if frame.intent else None
    token = FRAME.set(frame)
    try:
        return await _await_or_stop(request, body)
    finally:
        if work is not None:
            work.end()
        FRAME.reset(token)


class Interruptible:
    """A coroutine under way in a task, that another thread may end."""

    __slots__ = ("interrupted", "loop", "stops", "task", "under_way")

    def __init__(self, *, stops: bool) -> None:
        import asyncio

        self.loop = asyncio.get_running_loop()
        self.task = asyncio.current_task()
        self.stops = stops
        """Whether an order to the run ends it."""
        self.under_way = True
        self.interrupted = False

    def interrupt(self) -> None:
        """Cancel it, from any thread; once."""
        with suppress(RuntimeError):  # its loop is closed, and it has ended with that
            self.loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # In its own loop, so it cannot end between the look and the cancellation.
        if self.under_way and not self.interrupted and self.task is not None:
            self.interrupted = True
            self.task.cancel()


async def _await_or_stop(request: Invoke, body: Interruptible) -> Any:
    """Await a body that can be interrupted. One that goes on all the same is heard out."""
    import asyncio

    try:
        return await _await_in_time(request)
    except asyncio.CancelledError as error:
        stopped = request.frame.run.stopping() if body.interrupted and body.stops else None
        # Somebody else may have cancelled the task as well: then that is what it was.
        if stopped is None or (body.task is not None and body.task.cancelling() > 1):
            raise
        raise stopped from error
    finally:
        body.under_way = False
        if body.interrupted and body.task is not None:
            body.task.uncancel()


async def _in_tasks(store: Store, request: Together) -> list[Outcome]:
    import asyncio

    outcomes = [Outcome()] * len(request.jobs)
    turn, failed = asyncio.Semaphore(request.at_once), False

    async def perform(index: int) -> None:
        nonlocal failed
        async with turn:
            if failed:
                return
            try:
                outcomes[index] = Outcome(await drive_async(store, request.jobs[index]()))
            except (Exception, RunStopped) as error:  # the user's code may raise anything: all of it is an outcome
                outcomes[index] = Outcome(error=error)
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
            raise  # the body's own
        request.frame.alive = False
        raise _late(request) from error


async def _await_body(request: Invoke) -> Any:
    """Whatever a call gives that can be awaited is awaited here, within the body's frame and its time."""
    if is_async(request.call):
        result = await request.call(*request.args, **request.kwargs)
    else:
        result = await _await_thread(request)
    while is_awaitable(result):
        result = await result
    return result


async def _await_thread(request: Invoke) -> Any:
    """A plain function under asyncio: its own thread, so that the loop goes on."""
    import asyncio

    loop, done = asyncio.get_running_loop(), asyncio.Event()
    outcome = _start_body(request, lambda: loop.is_closed() or loop.call_soon_threadsafe(done.set))
    try:
        await done.wait()
    except BaseException:
        request.frame.alive = False
        raise
    return outcome[0].get()


def _late(request: Invoke) -> StepTimeout:
    return StepTimeout(f"the body took longer than {request.timeout:g} s; it can write nothing any more")
