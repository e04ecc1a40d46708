"""The public API of an agent: arguments and documentation. The logic is in protocols, below `perdure.kernel`."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from perdure.api.aio.checkpoints import AsyncAutosave, AsyncCheckpoints
from perdure.api.aio.presence import AsyncAgentFiles
from perdure.api.aio.run import ASYNC, AsyncRun, ExceptionTypes
from perdure.api.aio.runs import AsyncRuns
from perdure.api.aio.state import AsyncAgentState
from perdure.api.aio.transfer import AsyncAgentTransfer
from perdure.api.aio.work_access import AsyncWorkAccess
from perdure.data.checkpoints import AutosaveInterval, AutosavePace, parse_retention
from perdure.errors import WrongValue
from perdure.journal.keys import KeySource
from perdure.kernel.engine import Engine
from perdure.kernel.names import check_identifier
from perdure.kernel.protocol import drive_async, read_protocol
from perdure.run import answers, listing
from perdure.run.declarations import Declarations
from perdure.run.durable import Durable, make_durable
from perdure.run.function import CallOptions, check_earlier_names, check_exceptions
from perdure.run.usage import Savings, Usage, budget_of, savings_lines, savings_of, usage_lines, usage_of
from perdure.store.base import Store
from perdure.values import codec
from perdure.values.codec.registry import declare
from perdure.values.durations import Duration
from perdure.values.limits import RETRY_BACKOFF_SECONDS, TASKS_AT_ONCE
from perdure.values.numbers import seconds

if TYPE_CHECKING:
    from perdure.api.aio.artifacts import AsyncArtifacts
    from perdure.api.aio.events import AsyncEvents
    from perdure.api.aio.memory import AsyncMemories
    from perdure.api.aio.tasks import AsyncQueues, AsyncTask
    from perdure.api.aio.worker import AsyncWorker
    from perdure.maintenance.retention import GcReport

P = ParamSpec("P")
R = TypeVar("R")


class AsyncAgent(AsyncAgentFiles, AsyncAgentTransfer, AsyncWorkAccess):
    """A durable identity: a name and a key in a store.

    >>> agent = AsyncAgent("travel", store="sqlite:///travel.db")
    >>> @agent.step
    ... async def search(city: str) -> list[str]:
    ...     return [f"{city} 9:00", f"{city} 11:00"]
    >>> async with agent.run("trip-42") as run:
    ...     flights = await search("NYC")

    The store is the argument, else `PERDURE_URL`, else the nearest `.perdure/` above the working folder, else
    `~/.perdure/perdure.db`. `durability="process"` survives a killed process, but not a power cut. `strict=True`
    refuses steps outside of runs. `single_home=True` refuses a store that was moved or copied. `types` declares data
    classes that cannot be found by their module and name, such as those defined inside a function. `api_key`, else
    `PERDURE_API_KEY`, opens a store behind a server: `store="https://host:8321"`.
    """

    __slots__ = ("checkpoint", "runs", "state")

    def __init__(
        self,
        name: str,
        *,
        store: str | os.PathLike[str] | None = None,
        durability: str = "full",
        strict: bool = False,
        key: KeySource | None = None,
        single_home: bool = False,
        embedder: Any = None,
        types: Iterable[type] = (),
        api_key: str | None = None,
    ) -> None:
        for cls in types:
            declare(cls)
        super().__init__(
            Engine(
                name,
                store=store,
                durability=durability,
                strict=strict,
                key=key,
                single_home=single_home,
                api_key=api_key,
            )
        )
        if embedder is not None:
            from perdure.memory.recall import embedders

            embedders.choose(self._engine, embedder)
        self.runs = AsyncRuns(self._engine)
        self.state = AsyncAgentState(self._engine)
        self.checkpoint = AsyncCheckpoints(self._engine)

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._engine.name

    # Modules that only some programs use are imported on first access, so that `import perdure` stays fast.

    @property
    def artifacts(self) -> AsyncArtifacts:
        """Versioned files, bytes and arrays. Versions share equal content."""
        from perdure.api.aio.artifacts import AsyncArtifacts

        return AsyncArtifacts(self._engine)

    @property
    def events(self) -> AsyncEvents:
        """The agent's event log, which all readers see in the same order."""
        from perdure.api.aio.events import AsyncEvents

        return AsyncEvents(self._engine)

    @property
    def memory(self) -> AsyncMemories:
        """The agent's long-term memory."""
        from perdure.api.aio.memory import AsyncMemories

        return AsyncMemories(self._engine)

    @property
    def queues(self) -> AsyncQueues:
        """The queues of this agent's tasks, and their limits."""
        from perdure.api.aio.tasks import AsyncQueues

        return AsyncQueues(self._engine)

    def worker(self, *, queues: Sequence[str] | None = None, concurrency: int = TASKS_AT_ONCE) -> AsyncWorker:
        """Return a worker: `await agent.worker().run()` executes queued runs until `drain()` is called.

        It serves the given `queues`, by default all. `perdure worker` starts one from the command line.
        """
        from perdure.api.aio.worker import AsyncWorker

        return AsyncWorker(self._engine, queues, concurrency)

    # unasync: async-only
    @overload
    def step(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Durable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def step(self, function: Callable[P, R], /) -> Durable[P, Coroutine[Any, Any, R]]: ...

    # unasync: end
    # unasync: sync-only
    #: @overload
    #: def step(self, function: Callable[P, R], /) -> Durable[P, R]: ...
    # unasync: end

    @overload
    def step(
        self,
        /,
        *,
        name: str | None = None,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        version: int = 1,
        ignore: Iterable[str] = (),
        raises: ExceptionTypes = (),
        was: str | Iterable[str] | None = None,
        retry_unstorable: bool = False,
    ) -> Callable[[Callable[P, R]], Durable[P, R]]: ...

    def step(
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        version: int = 1,
        ignore: Iterable[str] = (),
        raises: ExceptionTypes = (),
        was: str | Iterable[str] | None = None,
        retry_unstorable: bool = False,
    ) -> Any:
        """Make a function a step: safe to repeat, executed once, then its recorded result is returned.

        After an exception it is retried `retries` times, first after `backoff` seconds. `timeout` is in seconds. A new
        `version` ignores old results. `ignore` names parameters that do not identify the call. `raises` lists your own
        exception types, so that a recorded exception is raised with its original type. After a rename,
        `was="old_name"` (or a list of names) finds results that are recorded under the old name.

        A step whose result cannot be stored stays failed: repeating it would pay for it again. It runs again after
        `perdure retry RUN`, with a new `version`, or on every resume with `retry_unstorable=True`.
        """
        codec.register_exception(*check_exceptions("raises", raises))
        options = CallOptions(
            retries=retries,
            backoff=backoff,
            timeout=timeout,
            version=version,
            was=check_earlier_names(was),
            retry_unstorable=retry_unstorable,
        )
        return self._decorate(function, False, name, ignore, options)

    # unasync: async-only
    @overload
    def effect(self, function: Callable[..., Coroutine[Any, Any, R]], /) -> Durable[..., Coroutine[Any, Any, R]]: ...

    @overload
    def effect(self, function: Callable[..., R], /) -> Durable[..., Coroutine[Any, Any, R]]: ...

    # unasync: end
    # unasync: sync-only
    #: @overload
    #: def effect(self, function: Callable[..., R], /) -> Durable[..., R]: ...
    # unasync: end

    @overload
    def effect(
        self,
        /,
        *,
        check: Callable[..., Any] | None = None,
        in_doubt: str = "ask",
        not_done: ExceptionTypes = (),
        name: str | None = None,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        ignore: Iterable[str] = (),
        outside: str = "refuse",
        on_change: str | None = None,
        raises: ExceptionTypes = (),
        was: str | Iterable[str] | None = None,
    ) -> Callable[[Callable[..., R]], Durable[..., R]]: ...

    def effect(
        self,
        function: Callable[..., R] | None = None,
        /,
        *,
        check: Callable[..., Any] | None = None,
        in_doubt: str = "ask",
        not_done: ExceptionTypes = (),
        name: str | None = None,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        ignore: Iterable[str] = (),
        outside: str = "refuse",
        on_change: str | None = None,
        raises: ExceptionTypes = (),
        was: str | Iterable[str] | None = None,
    ) -> Any:
        """Make a function an effect: it changes the outside world and is never silently repeated.

        A keyword-only parameter `key` receives the idempotency key. After a crash, `check(*args, key=...)` returns
        whether it happened: `Done(result)`, `NotDone` or `Unknown`. If that is unknown, `in_doubt` decides: "ask" a
        person, "retry" with the same key, or "fail". `not_done` lists exceptions that prove that nothing happened.
        After a rename, `was="old_name"` keeps started runs from repeating it; `was=()` declares that it is new.
        """
        proofs = check_exceptions("not_done", not_done)
        codec.register_exception(*check_exceptions("raises", raises), *proofs)
        options = CallOptions(
            retries=retries,
            backoff=backoff,
            timeout=timeout,
            check=check,
            in_doubt=in_doubt,
            not_done=proofs,
            outside=outside,
            on_change=on_change,
            was=check_earlier_names(was),
        )
        return self._decorate(function, True, name, ignore, options)

    @overload
    def task(self, function: Callable[..., Any], /) -> AsyncTask[..., Any]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        key: str | Callable[..., Any] | None = None,
        was: str | Iterable[str] | None = None,
    ) -> Callable[[Callable[..., Any]], AsyncTask[..., Any]]: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        key: str | Callable[..., Any] | None = None,
        was: str | Iterable[str] | None = None,
    ) -> Any:
        """Make a function a task: its runs are queued durably and executed by any worker.

        >>> @agent.task(queue="mail", retries=3, key="user")
        ... async def welcome(user: str) -> None: ...
        >>> await welcome.start("welcome-ann", "ann")

        After an exception a run is retried `retries` times, first after `backoff` seconds; then it is dead. Runs with a
        higher `priority` start first. `key`, a parameter name or a function, groups runs for `per_key` limits. After a
        rename, `was="old_name"` makes it execute runs that were queued under the old name.
        """
        from perdure.api.aio.tasks import make_task
        from perdure.work.tasks.definition import TaskOptions

        options = TaskOptions(queue=queue, priority=priority, retries=retries, backoff=backoff, key=key)
        decorate = partial(make_task, self._engine, name=name, options=options, was=check_earlier_names(was) or ())
        return decorate if function is None else decorate(function)

    def run(
        self,
        id: str,
        *,
        input: Any = None,
        wait: float | None = None,
        on_change: str = "error",
        parallel: bool = False,
        budget_usd: float | Decimal | None = None,
    ) -> AsyncRun:
        """Start a run, or resume the run with this id: it is the same call.

        Waiting for a person blocks, or raises `RunWaiting` after `wait` seconds. `on_change="rerun"` executes effects
        that differ from the recorded ones. `parallel` allows several child runs of one run at a time. When the run has
        spent `budget_usd` in total, it starts nothing new and raises `BudgetExceeded`.
        """
        if wait is not None:
            seconds("wait", wait)
        if on_change not in ("error", "rerun"):
            raise WrongValue(f'on_change={on_change!r}: choose "error" or "rerun"')
        return AsyncRun(
            self._engine,
            check_identifier(id, "a run's id"),
            input,
            wait=wait,
            on_change=on_change,
            parallel=parallel,
            budget=budget_of(budget_usd),
        )

    async def usage(self, *, run: str | None = None) -> Usage:
        """Return what model calls have cost, in total and by run, model, day and step, for all runs or for one.

        >>> print(await agent.usage())
        >>> (await agent.usage()).by_model["gpt-4o"].cost_usd
        """
        return await self._read(lambda: usage_of(usage_lines(*self._locate_run(run))))

    async def savings(self, *, run: str | None = None) -> Savings:
        """Return what resuming has saved, for all runs or for one: steps, calls, tokens, money and seconds.

        A finished step or effect counts once for each resume that skipped it, because a restart from zero would have
        executed it again. Reading a finished run saves nothing.

        >>> print(await agent.savings())
        """
        return await self._read(lambda: savings_of(savings_lines(*self._locate_run(run))))

    def _locate_run(self, run: str | None) -> tuple[Store, str, str]:
        if run is not None:
            listing.require_run(self._engine.store, self._engine.name, run)
        return self._engine.store, self._engine.name, run or ""

    def autosave(
        self,
        state: Callable[[], Any],
        *,
        every: AutosaveInterval = 10,
        name: str = "autosave",
        keep_last: int | None = None,
        keep_for: Duration | None = None,
    ) -> AsyncAutosave:
        """Save the state of a program as a checkpoint periodically: every 10 ticks, or every "5m".

        >>> async with agent.autosave(lambda: vars(crawler), every=10) as saver:
        ...     for page in crawler.pages():
        ...         await saver.tick()

        `every` is a number of ticks, or a duration as text or timedelta. When the block ends without an error, the last
        state is saved too. `keep_last` and `keep_for` work as in `checkpoint.create`.
        """
        pace = AutosavePace(every, self._engine.clock)
        parse_retention(keep_last, keep_for)  # fail here, and not at the tenth tick
        return AsyncAutosave(self.checkpoint, state, pace, name, keep_last=keep_last, keep_for=keep_for)

    async def gc(
        self,
        *,
        dry_run: bool = False,
        compact_before: Duration | None = None,
        events_before: Duration | None = None,
        archive: str | os.PathLike[str] | None = None,
        vacuum: bool = False,
    ) -> GcReport:
        """Delete data that is no longer needed. With `dry_run`, only report it.

        >>> print(await agent.gc(dry_run=True))
        would free 3 expired keys of state, 12 old checkpoints, 40 unreferenced objects

        Deletes expired state keys, checkpoints that no rule retains, and unreferenced objects. Other processes may
        keep working, and an interrupt at any point is safe. A SQLite file shrinks. `vacuum=True` shrinks a file of any
        size, but blocks all other writers.

        `compact_before="90d"` also moves entries of older finished runs and old state changes from the journal to
        archives, in the folder `archive`, by default next to the store. Events stay in the journal unless
        `events_before="1y"` compacts those too.
        """
        from perdure.maintenance import retention

        engine, folder = self._engine, None if archive is None else os.fspath(archive)

        def free() -> GcReport:
            return retention.gc(
                engine.store,
                [engine],
                dry_run=dry_run,
                compact_before=compact_before,
                events_before=events_before,
                archive_folder=folder,
                vacuum=vacuum,
            )

        return await drive_async(engine.store, read_protocol(free))

    async def send_event(self, run: str, name: str, payload: Any = None, *, by: str | None = None) -> None:
        """Send an event to a run of this agent, which receives it with `run.wait_event(name)`.

        >>> await agent.send_event("order-7", "paid", {"amount": 12})

        The event is stored until the run waits for it, even if the run does not exist yet. Inside a step it is sent
        when the step commits.
        """
        protocol = answers.send_event(self._engine, run, name, payload, by)
        await drive_async(self._engine.store, protocol)

    async def open(self, ref: str, *, lines: tuple[int, int] | None = None, find: str | None = None) -> str:
        """Return the full text behind a pointer that a context or a compaction shows in place of it.

        >>> await agent.open("perdure:trip-42#17", lines=(200, 260))

        `lines` is the first and last line, counted from 1. `find` returns the lines that contain a text, numbered.
        """
        from perdure.presence.context.open_ref import open_pointer

        return await drive_async(self._engine.store, open_pointer(self._engine, ref, lines, find))

    async def close(self) -> None:
        """Close the store. Needed only if the process continues without this agent; `async with` does it too."""
        self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, store={self._engine.shown_url!r})"

    def _decorate(
        self,
        function: Callable[..., Any] | None,
        effect: bool,
        name: str | None,
        ignore: Iterable[str],
        options: CallOptions,
    ) -> Any:
        def decorate(call: Callable[..., Any]) -> Durable[..., Any]:
            durable = make_durable(
                self._engine, call, effect=effect, name=name, ignore=ignore, options=options, always_async=ASYNC
            )
            self._engine.parts.get(Declarations)[durable.definition.name] = durable
            return durable

        return decorate if function is None else decorate(function)
