"""The public face of tasks and queues. Only arguments and documentation: `perdure.tasks` decides."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from ..durations import Duration
from ..engine import Engine, checked_name
from ..errors import NotDurable
from ..run.lifecycle import Taken
from ..run.requests import drive_async
from ..run.scope import current
from ..tasks import queues, starting
from ..tasks.defining import Definition, TaskOptions
from ..tasks.dispatch import begin_trial, is_suspect, run_of
from .face import AsyncFace
from .run import ASYNC, AsyncRun

P = ParamSpec("P")
R = TypeVar("R")


class AsyncStarted(Generic[R]):
    """A run that was handed to workers."""

    def __init__(self, task: AsyncTask[..., R], id: str) -> None:
        self._task = task
        self.id = id

    async def result(self, *, timeout: Duration | None = None) -> R:
        """Wait for it, and return its result; as `task.result(id)`."""
        return await self._task.result(self.id, timeout=timeout)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} of task {self._task.name}>"


class AsyncTask(Generic[P, R]):
    """A function whose runs are queued durably, and done by any worker.

    >>> @agent.task
    ... async def report(topic: str) -> str:
    ...     return await write(await search(topic))
    >>> await report.start("q3", topic="rain")
    >>> await report.result("q3", timeout="1h")

    A parameter `run` without a default gets the open run: `run.ask(...)`, `run.state`, `run.sleep(...)`.
    """

    def __init__(self, engine: Engine, definition: Definition, options: TaskOptions) -> None:
        self._engine = engine
        self.definition = definition
        self._options = options
        self.__doc__ = definition.call.__doc__
        self.__name__ = definition.name
        self.__wrapped__ = definition.call

    @property
    def name(self) -> str:
        """What it is queued as."""
        return self.definition.name

    def options(self, **changes: Any) -> AsyncTask[P, R]:
        """The same with other options: `report.options(priority=5, queue="urgent", delay="10m").start("q3", "rain")`.

        `queue`, `priority` (the highest is first), `delay`, and `key`, by which runs are limited together.
        """
        if unknown := changes.keys() - {"queue", "priority", "delay", "key"}:
            raise TypeError(f"options() does not know {', '.join(sorted(unknown))}: choose queue, priority, delay, key")
        return AsyncTask(self._engine, self.definition, msgspec.structs.replace(self._options, **changes))

    async def start(self, id: str, /, *args: P.args, **kwargs: P.kwargs) -> AsyncStarted[R]:
        """Queue a run, durably: any worker does it, `perdure worker module:agent`.

        The same id with the same arguments is the same run, however often it is started; with others, it is
        `InputChanged`. In a step it is queued with the step; in a run it is a step of its own, and a child of the run.
        """
        given = self.definition.arguments(args, kwargs)
        wanted = checked_name(id, "a run's id")
        protocol = starting.start(self._engine, self.definition, self._options, wanted, given, awaits=ASYNC)
        await drive_async(self._engine.store, protocol)
        return AsyncStarted(self, wanted)

    async def run(self, id: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it here, and return its result; after a crash the same call continues it. Waits block."""
        given = self.definition.arguments(args, kwargs)
        run_id, task = checked_name(id, "a run's id"), self.definition.name
        run = AsyncRun(self._engine, run_id, given, wait=None, on_change="error", parallel=False, task=task)
        async with run:
            if not run.finished:
                await self._call(run)
            result: R = run.result
        return result

    async def result(self, id: str, /, *, timeout: Duration | None = None) -> R:
        """Wait until the run has ended, here or anywhere, and return its result.

        `TaskFailed` with the recorded error as its cause when it has failed for good, `WaitTimeout` after `timeout`:
        then it goes on, and can be asked for again. In a run it is a durable wait of that run.
        """
        protocol = starting.result(self._engine, checked_name(id, "a run's id"), timeout)
        result: R = await drive_async(self._engine.store, protocol)
        return result

    async def perform(self, taken: Taken, probation: asyncio.Lock) -> None:
        """What a worker does with a run that it has taken."""
        run = AsyncRun(self._engine, run_of(taken), None, wait=None, on_change="error", parallel=False, taken=taken)
        async with run:
            if is_suspect(run._core):
                # Workers have died of it, or of one beside it: so that it shows which, one of them at a time.
                async with probation:
                    await drive_async(self._engine.store, begin_trial(run._core))
                    await self._call(run)
            else:
                await self._call(run)

    async def _call(self, run: AsyncRun) -> None:
        args, kwargs = self.definition.bound(run.input, run)
        # unasync: async-only
        from ..tasks.calling import called

        result = await called(self.definition.call, args, kwargs)
        # unasync: end
        # unasync: sync-only
        #: from ..run.awaitables import settled
        #:
        #: result = settled(self.definition.call(*args, **kwargs), self.definition.call)
        # unasync: end
        if result is not None:
            run.result = result

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """In a run, a plain call: its steps are steps of that run. Elsewhere nothing would be remembered."""
        if current() is None:
            raise NotDurable(
                f"task {self.name} is called outside of a run",
                hint=f"{self.name}.start(id, ...) queues it for workers, {self.name}.run(id, ...) runs it here",
            )
        if self.definition.wants_run and "run" not in kwargs:
            raise TypeError(f"{self.name}() called as a function wants run=")
        return self.definition.call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} of {self._engine.name}, queue {self._options.queue!r}>"


class AsyncQueues(AsyncFace):
    """`agent.queues`: what waits for workers, and how much of it may be at work.

    >>> await agent.queues.set("mail", concurrency=4, per_key=1, rate="10/s")
    >>> await agent.queues.pause("mail")
    """

    async def set(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per_key: int | None = None,
        rate: str | tuple[int, Duration] | None = None,
    ) -> None:
        """Limit a queue, for all workers together and from now on; what is not said is not limited.

        `concurrency` runs at a time, `per_key` of one key at a time, `rate` runs begun in a time: "10/s", "100/m".
        """
        await self._do(queues.change_rules(self._engine, name, **queues.read_limits(concurrency, per_key, rate)))

    async def pause(self, name: str) -> None:
        """Nothing more of this queue is begun; runs at work go on."""
        await self._do(queues.change_rules(self._engine, name, paused=True))

    async def resume(self, name: str) -> None:
        """Go on with it."""
        await self._do(queues.change_rules(self._engine, name, paused=False))

    async def list(self) -> builtins.list[queues.QueueInfo]:
        """Every queue that has something in it, or limits."""
        return await self._read(self._list)

    def _list(self) -> builtins.list[queues.QueueInfo]:
        engine = self._engine
        return queues.list_queues(engine.store, engine.stream) if engine.is_known() else []


def make_task(
    engine: Engine, call: Callable[..., Any], name: str | None, options: TaskOptions, was: tuple[str, ...] = ()
) -> AsyncTask[..., Any]:
    """Declare a function as a task; runs that are queued under an earlier name of it are its too."""
    task = AsyncTask[..., Any](engine, Definition(call, name, options, awaits=ASYNC), options)
    for old in was:
        engine.tasks.setdefault(old, task)
    engine.tasks[task.name] = task
    return task
