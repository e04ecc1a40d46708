"""Bodies of effects that are at work in this process, whichever opening of the run began them.

A check that says "it did not happen" proves nothing while the body can still act. A run that was left and opened again
is a new `RunCore`, so bodies are known to the whole process, by store and stream.

Tracked: the function or coroutine itself, asyncio tasks that carry its context, `loop.run_in_executor` and so
`asyncio.to_thread`, `run.bind` and `run.executor`. Threads that a body starts by itself are not.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from .. import locks
from ..errors import Abandoned
from .awaitables import is_async
from .scope import FRAME, Frame

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor, Future

logger = logging.getLogger("perdure")

R = TypeVar("R")


class Work:
    """One piece of a body that is at work: the body itself, or a call that it handed to a thread."""

    __slots__ = ("_bodies", "intent", "loop")

    def __init__(self, bodies: Bodies, intent: int, loop: asyncio.AbstractEventLoop | None) -> None:
        self._bodies = bodies
        self.intent = intent
        self.loop = loop
        """The event loop of a coroutine; one whose loop is closed never goes on."""
        bodies.work.add(self)

    def end(self) -> None:
        """Takes no lock: a finalizer may call it at any moment."""
        self._bodies.work.discard(self)


class Trace:
    """Lives in the context of a body in a thread, and in every copy of it: gone when nothing carries it any more."""

    __slots__ = ("__weakref__", "intent")

    def __init__(self, intent: int) -> None:
        self.intent = intent


TRACE: ContextVar[Trace | None] = ContextVar("perdure_trace", default=None)


class Bodies:
    """The bodies of one run's effects in this process."""

    __slots__ = ("__weakref__", "_given_up", "_loops", "_traces", "attempts", "lock", "work")

    def __init__(self) -> None:
        self.work: set[Work] = set()
        self.attempts = 0
        """Counts up when an attempt is found to be over: a frame remembers the count that it began with."""
        self.lock = locks.lock()
        self._given_up: dict[int, int] = {}
        """By intent: attempts up to this one are over, and nothing of them may begin any more."""
        self._traces: list[weakref.ref[Trace]] = []
        """Of bodies whose context something has copied."""
        self._loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    def begin(self, frame: Frame) -> Work:
        """A body begins in this thread, or in the thread that is about to start."""
        return Work(self, frame.intent, None)

    def begin_in_loop(self, frame: Frame, loop: asyncio.AbstractEventLoop) -> Work:
        """A body begins in an event loop."""
        if loop not in self._loops:
            self._loops.add(loop)
            watch_executors(loop)
        return Work(self, frame.intent, loop)

    def call(self, frame: Frame, call: Callable[[], R]) -> R:
        """Call a body in this thread, and notice whether something has copied its context."""
        trace = Trace(frame.intent)
        mark, token = weakref.ref(trace), TRACE.set(trace)
        del trace
        try:
            return call()
        finally:
            TRACE.reset(token)
            if mark() is not None:
                with self.lock:
                    self._traces = [one for one in (*self._traces, mark) if one() is not None]

    def join(self, frame: Frame) -> Work:
        """A thread goes on with a body, perhaps long after that has returned; refused once the attempt was given up."""
        with self.lock:
            if frame.attempt <= self._given_up.get(frame.intent, -1):
                raise Abandoned("the attempt that this call belongs to is over: the effect may have been begun again")
            return self.begin(frame)

    def at_work(self, intent: int) -> bool:
        """Whether anything of the body may still act. If not, nothing of it can begin any more either."""
        with self.lock:
            if any(one.intent == intent and _goes_on(one) for one in self.work.copy()):
                return True
            if any(self._carries(task, intent) for task in self._tasks(intent)):
                return True
            self._given_up[intent] = self.attempts
            self.attempts += 1
            return False

    def _tasks(self, intent: int) -> Iterable[Any]:
        """Tasks that may carry the context of the body."""
        if (module := sys.modules.get("asyncio")) is None:
            return
        for loop in list(self._loops):
            if not loop.is_closed():
                yield from module.all_tasks(loop)
        # A thread may have given work to any event loop; it has only if something has copied its context.
        if any(trace.intent == intent for trace in (mark() for mark in self._traces) if trace is not None):
            yield from (one for one in gc.get_objects() if issubclass(type(one), module.Task))

    def _carries(self, task: Any, intent: int) -> bool:
        if task.done() or task.get_loop().is_closed():
            return False
        frame = _context_of(task).get(FRAME)
        return frame is not None and frame.intent == intent and frame.run.bodies is self


def _goes_on(work: Work) -> bool:
    return work.loop is None or not work.loop.is_closed()


def _context_of(task: Any) -> Context:
    if sys.version_info >= (3, 12):
        found: Context = task.get_context()
        return found
    # Python 3.11 has no call for it. The collector knows what a task refers to: its own context comes first.
    mine: Context | None = getattr(task, "_context", None)  # of a task that is written in Python
    if mine is not None:
        return mine
    return next((one for one in gc.get_referents(task) if isinstance(one, Context)), Context())


_KNOWN: weakref.WeakValueDictionary[tuple[str, int], Bodies] = weakref.WeakValueDictionary()
_LOCK = locks.lock()


def bodies_of(store: str, stream: int) -> Bodies:
    """The bodies of a run, by the identity of its store and its stream: the same for every opening of it."""
    with _LOCK:
        found = _KNOWN.get((store, stream))
        if found is None:
            found = _KNOWN[store, stream] = Bodies()
        return found


os.register_at_fork(after_in_child=_KNOWN.clear)


def joined(frame: Frame | None) -> Work | None:
    """A call in a thread that belongs to the body of an effect, if it does."""
    return frame.run.bodies.join(frame) if frame is not None and frame.intent else None


def bound_to(here: Context, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is called, or awaited, in a copy of a context; in that of a body it is part of the body."""

    @wraps(function)
    def bound(*args: Any, **kwargs: Any) -> Any:
        with _joining(here):
            return here.copy().run(function, *args, **kwargs)

    @wraps(function)
    async def bound_async(*args: Any, **kwargs: Any) -> Any:
        import asyncio

        with _joining(here):
            return await asyncio.get_running_loop().create_task(function(*args, **kwargs), context=here.copy())

    return bound_async if is_async(function) else bound


@contextmanager
def _joining(here: Context) -> Iterator[None]:
    work = joined(here.get(FRAME))
    try:
        yield
    finally:
        if work is not None:
            work.end()


# -- loop.run_in_executor, and so asyncio.to_thread ------------------------------------------------------------------


def watch_executors(loop: asyncio.AbstractEventLoop) -> None:
    """Let calls that a body hands to `loop.run_in_executor` count as the body: a thread outlives its awaiting task."""
    plain = loop.run_in_executor
    if getattr(plain, "watches", False):
        return

    def run_in_executor(executor: Executor | None, func: Callable[..., Any], *args: Any) -> Any:
        work = joined(FRAME.get())
        if work is None:
            return plain(executor, func, *args)
        if executor is None:
            return plain(None, _Counted(work, func), *args)
        return plain(_Counting(work, executor), func, *args)  # type: ignore[arg-type]

    run_in_executor.watches = True  # type: ignore[attr-defined]
    try:
        loop.run_in_executor = run_in_executor  # type: ignore[method-assign, assignment]
    except AttributeError:
        logger.warning("%r cannot be watched: threads of asyncio.to_thread that outlive an effect are not known", loop)


class _Counted:
    """A function for a thread. Its work ends with it, or when it is dropped without having been called."""

    def __init__(self, work: Work, function: Callable[..., Any]) -> None:
        self._work = work
        self._function = function

    def __call__(self, *args: Any) -> Any:
        try:
            return self._function(*args)
        finally:
            self._work.end()

    def __del__(self) -> None:
        self._work.end()


class _Counting:
    """An executor of the user's: what it is given ends when its future is done, in whatever thread or process."""

    def __init__(self, work: Work, executor: Executor) -> None:
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
