"""The public API of tasks and queues: arguments and documentation. The logic is in `perdure.work.tasks`."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from perdure.api.aio.base import AsyncFacade
from perdure.api.aio.run import ASYNC, AsyncRun
from perdure.errors import NotDurable, WrongType
from perdure.journal.agent_writes import AgentWrite
from perdure.kernel.engine import Engine
from perdure.kernel.names import check_identifier
from perdure.kernel.protocol import drive_async
from perdure.kernel.scope import current_frame
from perdure.run.lifecycle import TakenRun
from perdure.values.durations import Duration
from perdure.work.tasks import queues, submission
from perdure.work.tasks.definition import TaskDefinition, TaskOptions, tasks_of
from perdure.work.tasks.dispatch import begin_trial, is_suspect, run_id_of

P = ParamSpec("P")
R = TypeVar("R")


class AsyncTaskHandle(Generic[R]):
    """A run that was queued for workers."""

    def __init__(self, task: AsyncTask[..., R], id: str) -> None:
        self._task = task
        self.id = id

    async def result(self, *, timeout: Duration | None = None) -> R:
        """Wait for the run and return its result, as `task.result(id)` does."""
        return await self._task.result(self.id, timeout=timeout)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} of task {self._task.name}>"


class AsyncTask(Generic[P, R]):
    """A function whose runs are queued durably and executed by any worker.

    >>> @agent.task
    ... async def report(topic: str) -> str:
    ...     return await write(await search(topic))
    >>> await report.start("q3", topic="rain")
    >>> await report.result("q3", timeout="1h")

    A parameter `run` without a default receives the open run: `run.ask(...)`, `run.state`, `run.sleep(...)`.
    """

    def __init__(self, engine: Engine, definition: TaskDefinition, options: TaskOptions) -> None:
        self._engine = engine
        self.definition = definition
        self._options = options
        self.__doc__ = definition.call.__doc__
        self.__name__ = definition.name
        self.__wrapped__ = definition.call

    @property
    def name(self) -> str:
        """The name under which runs are queued."""
        return self.definition.name

    def options(self, **changes: Any) -> AsyncTask[P, R]:
        """Return a copy with other options:

        `report.options(priority=5, queue="urgent", delay="10m").start("q3", "rain")`.

        The options are `queue`, `priority` (higher runs first), `delay`, and `key`, by which runs are limited together.
        """
        if unknown := changes.keys() - {"queue", "priority", "delay", "key"}:
            raise WrongType(f"options() has no {', '.join(sorted(unknown))}: use queue, priority, delay or key")
        return AsyncTask(self._engine, self.definition, msgspec.structs.replace(self._options, **changes))

    async def start(self, id: str, /, *args: P.args, **kwargs: P.kwargs) -> AsyncTaskHandle[R]:
        """Queue a run durably. Any worker executes it: `perdure worker module:agent`.

        Starting the same id with the same arguments again is a no-op; other arguments raise `InputChanged`. Inside a
        step the run is queued with the step. Inside a run, the start is a step of its own and the new run is a child.
        """
        wanted = check_identifier(
            id, "a run's id"
        )  # first: whoever forgets it learns that, and not what is missing then
        return await self.start_with(wanted, self.definition.arguments(args, kwargs))

    async def start_with(
        self, id: str, given: dict[str, Any], also: Callable[[], Sequence[AgentWrite]] = tuple
    ) -> AsyncTaskHandle[R]:
        """Queue a run with its input, and with writes that land in the same commit."""
        options = self._options
        protocol = submission.start(self._engine, self.definition, options, id, given, awaits=ASYNC, also=also)
        await drive_async(self._engine.store, protocol)
        return AsyncTaskHandle(self, id)

    async def run(self, id: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Execute a run here and return its result. After a crash the same call continues it. Waits block."""
        run_id, task = check_identifier(id, "a run's id"), self.definition.name
        given = self.definition.arguments(args, kwargs)
        run = AsyncRun(self._engine, run_id, given, wait=None, on_change="error", parallel=False, task=task)
        async with run:
            if run.finished:
                run._core.account.credit_whole()
            else:
                await self._call(run)
            result: R = run.result
        return result

    async def result(self, id: str, /, *, timeout: Duration | None = None) -> R:
        """Wait until a run has ended, in any process, and return its result.

        Raises `TaskFailed`, caused by the recorded error, if the run failed for good, and `WaitTimeout` after
        `timeout`. The run continues after a timeout, so the call can be repeated. Inside a run this is a durable wait
        of that run.
        """
        protocol = submission.result(self._engine, check_identifier(id, "a run's id"), timeout)
        result: R = await drive_async(self._engine.store, protocol)
        return result

    async def perform(self, taken: TakenRun, probation: asyncio.Lock) -> None:
        """Execute a run that a worker has claimed."""
        run = AsyncRun(self._engine, run_id_of(taken), None, wait=None, on_change="error", parallel=False, taken=taken)
        async with run:
            if is_suspect(run._core):
                # A worker died with this run or one next to it. Suspects execute one at a time, to tell which one it
                # was.
                async with probation:
                    await drive_async(self._engine.store, begin_trial(run._core))
                    await self._call(run)
            else:
                await self._call(run)

    async def _call(self, run: AsyncRun) -> None:
        args, kwargs = self.definition.bind_input(run.input, run)
        # unasync: async-only
        from perdure.work.tasks.call import call_task

        result = await call_task(self.definition.call, args, kwargs)
        # unasync: end
        # unasync: sync-only
        #: from perdure.kernel.awaitables import require_settled
        #:
        #: result = require_settled(self.definition.call(*args, **kwargs), self.definition.call)
        # unasync: end
        if result is not None:
            run.result = result

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function directly, inside a run: its steps become steps of that run. Refused outside a run."""
        if current_frame() is None:
            raise NotDurable(
                f"task {self.name} was called outside a run",
                hint=f"{self.name}.start(id, ...) queues it for workers, {self.name}.run(id, ...) runs it here",
            )
        if self.definition.wants_run and "run" not in kwargs:
            raise WrongType(f"{self.name}() called as a function needs run=")
        return self.definition.call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} of {self._engine.name}, queue {self._options.queue!r}>"


class AsyncQueues(AsyncFacade):
    """`agent.queues`: queues for workers, and their limits.

    >>> await agent.queues.set("mail", concurrency=4, per_key=1, rate="10/s")
    >>> await agent.queues.pause("mail")
    """

    __slots__ = ()

    async def set(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        per_key: int | None = None,
        rate: str | tuple[int, Duration] | None = None,
    ) -> None:
        """Set the limits of a queue, for all workers together. A limit that is not given is removed.

        At most `concurrency` runs execute at a time, `per_key` of one key, and `rate` start per time: "10/s", "100/m".
        """
        await self._do(queues.change_rules(self._engine, name, **queues.check_limits(concurrency, per_key, rate)))

    async def pause(self, name: str) -> None:
        """Start no more runs of this queue. Runs in progress continue."""
        await self._do(queues.change_rules(self._engine, name, paused=True))

    async def resume(self, name: str) -> None:
        """Start runs of a paused queue again."""
        await self._do(queues.change_rules(self._engine, name, paused=False))

    async def list(self) -> builtins.list[queues.QueueInfo]:
        """Return every queue that has runs or limits."""
        return await self._read(self._list)

    def _list(self) -> builtins.list[queues.QueueInfo]:
        engine = self._engine
        return queues.list_queues(engine.store, engine.stream) if engine.is_known() else []


def make_task(
    engine: Engine, call: Callable[..., Any], name: str | None, options: TaskOptions, was: tuple[str, ...] = ()
) -> AsyncTask[..., Any]:
    """Declare a function as a task. Runs queued under its earlier names belong to it too."""
    task = AsyncTask[..., Any](engine, TaskDefinition(call, name, options, awaits=ASYNC), options)
    for old in was:
        tasks_of(engine).setdefault(old, task)
    tasks_of(engine)[task.name] = task
    return task
