"""Tracks the effect bodies that still run in this process, across every opening of their run.

A check that says "it did not happen" proves nothing while the body can still act. Closing and reopening a run makes a
new `RunCore`, so the process tracks bodies by store and stream.

Tracked: the function or coroutine itself, asyncio tasks that carry its context, `loop.run_in_executor` (and so
`asyncio.to_thread`), `run.bind`, `run.executor`, and threads of other libraries that run in a copy of its context
(`anyio.to_thread`). Threads without that context are not tracked.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, Token
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.errors import Abandoned
from perdure.kernel.awaitables import is_async
from perdure.kernel.scope import FRAME, Frame
from perdure.values import locks
from perdure.values.log import warn

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor, Future


R = TypeVar("R")


class BodyWork:
    """A running part of a body: the body itself, or a call that it handed to a thread."""

    __slots__ = ("_bodies", "intent", "loop")

    def __init__(self, bodies: EffectBodies, intent: int, loop: asyncio.AbstractEventLoop | None) -> None:
        self._bodies = bodies
        self.intent = intent
        self.loop = loop
        """The event loop of a coroutine. If the loop is closed, the coroutine never continues."""
        bodies.work.add(self)

    def end(self) -> None:
        """Remove this part. Takes no lock, because a finalizer may call it at any moment."""
        self._bodies.work.discard(self)


class BodyTrace:
    """Marker in the context of a body. It is collected when no copy of that context is left."""

    __slots__ = ("__weakref__", "intent")

    def __init__(self, intent: int) -> None:
        self.intent = intent


TRACE: ContextVar[BodyTrace | None] = ContextVar("perdure_trace", default=None)


class EffectBodies:
    """The bodies of one run's effects in this process."""

    __slots__ = ("__weakref__", "_given_up", "_loops", "_traces", "attempts", "lock", "work")

    def __init__(self) -> None:
        self.work: set[BodyWork] = set()
        self.attempts = 0
        """Incremented when an attempt is found to be over. A frame remembers the count at its start."""
        self.lock = locks.lock()
        self._given_up: dict[int, int] = {}
        """By intent: the last attempt that is over. No part of it or of earlier attempts may start."""
        self._traces: list[weakref.ref[BodyTrace]] = []
        """Traces of bodies whose context was copied."""
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    def begin(self, frame: Frame) -> BodyWork:
        """Track a body in this thread, or in the thread that is about to start."""
        return BodyWork(self, frame.intent, None)

    def begin_in_loop(self, frame: Frame, loop: asyncio.AbstractEventLoop) -> BodyWork:
        """Track a body in an event loop."""
        if loop not in self._loops:
            self._loops.add(loop)
            watch_executors(loop)
        return BodyWork(self, frame.intent, loop)

    def call(self, frame: Frame, call: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Call a body in this thread, and record whether its context was copied."""
        mark, token = self.start_trace(frame)
        try:
            return call(*args, **kwargs)
        finally:
            TRACE.reset(token)
            if mark() is not None:
                self.keep_trace(mark)

    def start_trace(self, frame: Frame) -> tuple[weakref.ref[BodyTrace], Token[BodyTrace | None]]:
        """Mark the current context as the body's. While a copy of it is left, the mark lives on."""
        trace = BodyTrace(frame.intent)
        return weakref.ref(trace), TRACE.set(trace)

    def keep_trace(self, mark: weakref.ref[BodyTrace]) -> None:
        """Remember the mark of a body whose context was copied. Call it before the work ends."""
        with self.lock:
            self._traces = [one for one in (*self._traces, mark) if one() is not None]

    def join(self, frame: Frame) -> BodyWork:
        """Track a thread that continues a body, possibly after the body returned. Refused once the attempt is over."""
        with self.lock:
            if frame.attempt <= self._given_up.get(frame.intent, -1):
                raise Abandoned("the attempt that made this call is over; the effect may have been started again")
            return self.begin(frame)

    def is_running(self, intent: int) -> bool:
        """Whether any part of the body may still act. If not, no part of it can start from now on."""
        with self.lock:
            if any(one.intent == intent and _is_running(one) for one in self.work.copy()):
                return True
            copied = any(trace.intent == intent for trace in (mark() for mark in self._traces) if trace is not None)
            if any(self._carries(task, intent) for task in self._tasks(copied)):
                return True
            # Finding contexts walks through every object of the process, so only for bodies whose context was copied.
            if copied and any(self._is_of(one, intent) and _is_entered(one) for one in _contexts()):
                return True
            self._given_up[intent] = self.attempts
            self.attempts += 1
            return False

    def _tasks(self, copied: bool) -> Iterable[Any]:
        """Yield the tasks that may carry the context of the body: those of any loop, if its context was copied."""
        if (module := sys.modules.get("asyncio")) is None:
            return
        for loop in list(self._loops):
            if not loop.is_closed():
                yield from module.all_tasks(loop)
        if copied:
            yield from (one for one in gc.get_objects() if issubclass(type(one), module.Task))

    def _carries(self, task: Any, intent: int) -> bool:
        if task.done() or task.get_loop().is_closed():
            return False
        return self._is_of(_context_of(task), intent)

    def _is_of(self, context: Context, intent: int) -> bool:
        frame = context.get(FRAME)
        return frame is not None and frame.intent == intent and frame.run.bodies is self


def _contexts() -> Iterator[Context]:
    return (one for one in gc.get_objects() if type(one) is Context)


def _is_entered(context: Context) -> bool:
    """Whether some thread is running in this context. Nothing else tells which threads a library has started."""
    try:
        context.run(bool)  # calls no Python code, so no other thread sees the context entered
    except RuntimeError:
        return True
    return False


def _is_running(work: BodyWork) -> bool:
    return work.loop is None or not work.loop.is_closed()


def _context_of(task: Any) -> Context:
    if sys.version_info >= (3, 12):
        found: Context = task.get_context()
        return found
    # Python 3.11 has no public call for this. The first context that a task refers to is its own.
    mine: Context | None = getattr(task, "_context", None)  # set on tasks implemented in Python
    if mine is not None:
        return mine
    return next((one for one in gc.get_referents(task) if isinstance(one, Context)), Context())


_KNOWN: weakref.WeakValueDictionary[tuple[str, int], EffectBodies] = weakref.WeakValueDictionary()
_LOCK = locks.lock()


def bodies_of(store: str, stream: int) -> EffectBodies:
    """Return the bodies of a run. Every opening of the same stream gets the same object."""
    with _LOCK:
        found = _KNOWN.get((store, stream))
        if found is None:
            found = _KNOWN[store, stream] = EffectBodies()
        return found


locks.call_after_fork(_KNOWN.clear)


def join_body(frame: Frame | None) -> BodyWork | None:
    """Track a call in a thread, if it belongs to the body of an effect."""
    return frame.run.bodies.join(frame) if frame is not None and frame.intent else None


def bind_context(here: Context, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs in a copy of a context. With a body's context it counts as part of the body."""

    @wraps(function)
    def run_bound(*args: Any, **kwargs: Any) -> Any:
        with _track_work(here):
            return here.copy().run(function, *args, **kwargs)

    @wraps(function)
    async def run_bound_async(*args: Any, **kwargs: Any) -> Any:
        import asyncio

        with _track_work(here):
            return await asyncio.get_running_loop().create_task(function(*args, **kwargs), context=here.copy())

    return run_bound_async if is_async(function) else run_bound


@contextmanager
def _track_work(here: Context) -> Iterator[None]:
    work = join_body(here.get(FRAME))
    try:
        yield
    finally:
        if work is not None:
            work.end()


# -- loop.run_in_executor, and so asyncio.to_thread ------------------------------------------------------------------


def watch_executors(loop: asyncio.AbstractEventLoop) -> None:
    """Count calls to `loop.run_in_executor` as part of the body: a thread can outlive the task that awaits it."""
    plain = loop.run_in_executor
    if getattr(plain, "watches", False):
        return

    def run_in_executor(executor: Executor | None, func: Callable[..., Any], *args: Any) -> Any:
        work = join_body(FRAME.get())
        if work is None:
            return plain(executor, func, *args)
        if executor is None:
            return plain(None, _CountedCall(work, func), *args)
        return plain(_CountingExecutor(work, executor), func, *args)  # type: ignore[arg-type]

    run_in_executor.watches = True  # type: ignore[attr-defined]
    try:
        loop.run_in_executor = run_in_executor  # type: ignore[method-assign, assignment]
    except AttributeError:
        warn("cannot track executor calls of %r: threads that outlive an effect stay unnoticed", loop)


class _CountedCall:
    """A function for a thread. Its work ends when it returns, or when it is dropped without having been called."""

    def __init__(self, work: BodyWork, function: Callable[..., Any]) -> None:
        self._work = work
        self._function = function

    def __call__(self, *args: Any) -> Any:
        try:
            return self._function(*args)
        finally:
            self._work.end()

    def __del__(self) -> None:
        self._work.end()


class _CountingExecutor:
    """Wraps the user's executor: the work ends when its future is done, in any thread or process."""

    def __init__(self, work: BodyWork, executor: Executor) -> None:
        self._work = work
        self._executor = executor

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        try:
            future = self._executor.submit(function, *args)
        except BaseException:
            self._work.end()
            raise
        future.add_done_callback(lambda _: self._work.end())
        return future
