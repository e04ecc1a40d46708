"""The public face of an agent. What differs between the two sides is only how a protocol is driven.

Only arguments and documentation live here: everything that decides anything is a protocol in `perdure.run`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from .. import answers, codec, runs
from ..checkpoints import Every, Pace, read_keep
from ..durations import Duration
from ..engine import Engine, checked_name
from ..keys import KeySource
from ..limits import RETRY_BACKOFF_SECONDS, TASKS_AT_ONCE
from ..run.durable import Durable, make_durable
from ..run.functions import Options, earlier_names
from ..run.requests import drive_async, reading
from ..store.base import Store
from ..usage import Savings, Usage, budget_of, savings_lines, savings_of, usage_lines, usage_of
from .at_home import AsyncAtHome
from .checkpoints import AsyncAutosave, AsyncCheckpoints
from .moving import AsyncMoves
from .run import ASYNC, AsyncRun, Exceptions
from .runs import AsyncRuns
from .state import AsyncAgentState

if TYPE_CHECKING:
    from ..retention import GcReport
    from .artifacts import AsyncArtifacts
    from .events import AsyncEvents
    from .memory import AsyncMemories
    from .tasks import AsyncQueues, AsyncTask
    from .threads import AsyncThreads
    from .worker import AsyncWorker
    from .workflows import AsyncWorkflows

P = ParamSpec("P")
R = TypeVar("R")


class AsyncAgent(AsyncAtHome, AsyncMoves):
    """A durable identity: a name and a key in a store.

    >>> agent = AsyncAgent("travel", store="sqlite:///travel.db")
    >>> @agent.step
    ... async def search(city: str) -> list[str]:
    ...     return [f"{city} 9:00", f"{city} 11:00"]
    >>> async with agent.run("trip-42") as run:
    ...     flights = await search("NYC")

    The store is the argument, else `PERDURE_URL`, else the nearest `.perdure/` above the working folder, else
    `~/.perdure/perdure.db`. `durability="process"` survives a killed process, but not a power cut. `strict=True`
    refuses steps outside of runs. `single_home=True` refuses a store that was moved or copied.
    """

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
    ) -> None:
        super().__init__(
            Engine(
                name,
                store=store,
                durability=durability,
                strict=strict,
                key=key,
                single_home=single_home,
                embedder=embedder,
            )
        )
        self.runs = AsyncRuns(self._engine)
        self.state = AsyncAgentState(self._engine)
        self.checkpoint = AsyncCheckpoints(self._engine)

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._engine.name

    # What only some programs use is loaded when it is first asked for: `import perdure` must stay quick.

    @property
    def artifacts(self) -> AsyncArtifacts:
        """Files, bytes and arrays, in versions that share what they have in common."""
        from .artifacts import AsyncArtifacts

        return AsyncArtifacts(self._engine)

    @property
    def events(self) -> AsyncEvents:
        """What this agent notes, in one order for everybody who reads."""
        from .events import AsyncEvents

        return AsyncEvents(self._engine)

    @property
    def memory(self) -> AsyncMemories:
        """What this agent knows beyond a run."""
        from .memory import AsyncMemories

        return AsyncMemories(self._engine)

    @property
    def threads(self) -> AsyncThreads:
        """Conversations that a framework has saved with this agent."""
        from .threads import AsyncThreads

        return AsyncThreads(self._engine)

    @property
    def workflows(self) -> AsyncWorkflows:
        """Plans with a status for every step."""
        from .workflows import AsyncWorkflows

        return AsyncWorkflows(self._engine)

    @property
    def queues(self) -> AsyncQueues:
        """What waits for workers, and how much of it may be at work."""
        from .tasks import AsyncQueues

        return AsyncQueues(self._engine)

    def worker(self, *, queues: Sequence[str] | None = None, concurrency: int = TASKS_AT_ONCE) -> AsyncWorker:
        """A worker in this process: `await agent.worker().run()` does what is queued until `drain()` is called.

        `queues` are the ones that it looks at; all of them when none is named. `perdure worker` starts one.
        """
        from .worker import AsyncWorker

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
        raises: Exceptions = (),
        was: str | Iterable[str] | None = None,
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
        raises: Exceptions = (),
        was: str | Iterable[str] | None = None,
    ) -> Any:
        """Make a function a step: safe to repeat, done once, then remembered.

        `retries` repetitions after an exception, the first after `backoff` seconds; `timeout` in seconds; a new
        `version` forgets old results; `ignore` names parameters that do not identify the call; `raises` lists
        your own exception types, so that a recorded one comes back as itself. When you rename it, `was="old_name"`
        finds what is recorded under that name; several names are a list.
        """
        codec.register_exception(*raises)
        options = Options(retries=retries, backoff=backoff, timeout=timeout, version=version, was=earlier_names(was))
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
        not_done: Exceptions = (),
        name: str | None = None,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        ignore: Iterable[str] = (),
        outside: str = "refuse",
        on_change: str | None = None,
        raises: Exceptions = (),
        was: str | Iterable[str] | None = None,
    ) -> Callable[[Callable[..., R]], Durable[..., R]]: ...

    def effect(
        self,
        function: Callable[..., R] | None = None,
        /,
        *,
        check: Callable[..., Any] | None = None,
        in_doubt: str = "ask",
        not_done: Exceptions = (),
        name: str | None = None,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        ignore: Iterable[str] = (),
        outside: str = "refuse",
        on_change: str | None = None,
        raises: Exceptions = (),
        was: str | Iterable[str] | None = None,
    ) -> Any:
        """Make a function an effect: it changes the world, and is never silently repeated.

        A keyword-only parameter `key` gets the idempotency key. `check(*args, key=...)` says afterwards whether it
        happened: `Done(result)`, `NotDone` or `Unknown`. `in_doubt` says what to do when nobody knows: "ask" a
        person, "retry" with the same key, or "fail". `not_done` lists exceptions after which nothing happened. When you
        rename it, `was="old_name"` keeps it from happening once more in runs that have begun; `was=()` says it is new.
        """
        codec.register_exception(*raises, *not_done)
        options = Options(
            retries=retries,
            backoff=backoff,
            timeout=timeout,
            check=check,
            in_doubt=in_doubt,
            not_done=not_done,
            outside=outside,
            on_change=on_change,
            was=earlier_names(was),
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
        """Make a function a task: its runs are queued durably, and done by any worker.

        >>> @agent.task(queue="mail", retries=3, key="user")
        ... async def welcome(user: str) -> None: ...
        >>> await welcome.start("welcome-ann", "ann")

        After an exception a run is tried again `retries` times, first after `backoff` seconds; then it is dead. The
        highest `priority` is first. Runs of one `key`, a parameter or a function, can be limited together. When you
        rename it, `was="old_name"` lets it do the runs that were queued under that name.
        """
        from ..tasks.defining import TaskOptions
        from .tasks import make_task

        options = TaskOptions(queue=queue, priority=priority, retries=retries, backoff=backoff, key=key)
        decorate = partial(make_task, self._engine, name=name, options=options, was=earlier_names(was) or ())
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
        """Start a run, or resume the one with this id: it is the same call.

        Waiting for a person blocks, or raises `RunWaiting` after `wait` seconds. `on_change="rerun"` lets effects
        run that differ from the recorded ones. `parallel` allows several child runs of one run at a time. Once it has
        spent `budget_usd`, over all of its openings, nothing new begins in it: `BudgetExceeded`.
        """
        if on_change not in ("error", "rerun"):
            raise ValueError(f'on_change={on_change!r}: choose "error" or "rerun"')
        return AsyncRun(
            self._engine,
            checked_name(id, "a run's id"),
            input,
            wait=wait,
            on_change=on_change,
            parallel=parallel,
            budget=budget_of(budget_usd),
        )

    async def usage(self, *, run: str | None = None) -> Usage:
        """What the models have cost: totals, and the same by run, model, day and step; of all runs, or of one.

        >>> print(await agent.usage())
        >>> (await agent.usage()).by_model["gpt-4o"].cost_usd
        """
        return await self._read(lambda: usage_of(usage_lines(*self._whose(run))))

    async def savings(self, *, run: str | None = None) -> Savings:
        """What resuming has saved, of all runs or of one: steps, calls, tokens, money and seconds.

        Counted are the finished steps and effects that a restart from zero would have run again: each once for each
        time that the run was opened again and came past it. Reading a finished run saves nothing.

        >>> print(await agent.savings())
        """
        return await self._read(lambda: savings_of(savings_lines(*self._whose(run))))

    def _whose(self, run: str | None) -> tuple[Store, str, str]:
        if run is not None:
            runs.must_exist(self._engine.store, self._engine.name, run)
        return self._engine.store, self._engine.name, run or ""

    def autosave(
        self,
        state: Callable[[], Any],
        *,
        every: Every = 10,
        name: str = "autosave",
        keep_last: int | None = None,
        keep_for: Duration | None = None,
    ) -> AsyncAutosave:
        """For a program with a state object of its own: a checkpoint every 10 ticks, or every "5m".

        >>> async with agent.autosave(lambda: vars(crawler), every=10) as saver:
        ...     for page in crawler.pages():
        ...         await saver.tick()

        A whole number counts ticks, a text or a timedelta is a time. When the block ends well, the last state is saved
        too. `keep_last` and `keep_for` are as in `checkpoint.create`.
        """
        pace = Pace(every, self._engine.clock)
        read_keep(keep_last, keep_for)  # a mistake is told here, and not at the tenth tick
        return AsyncAutosave(self.checkpoint, state, pace, name, keep_last=keep_last, keep_for=keep_for)

    async def gc(
        self,
        *,
        dry_run: bool = False,
        fold_before: Duration | None = None,
        events_before: Duration | None = None,
        archive: str | os.PathLike[str] | None = None,
        vacuum: bool = False,
    ) -> GcReport:
        """Free what is not needed any more; with `dry_run`, only say what that is.

        >>> print(await agent.gc(dry_run=True))
        would free 3 expired keys of state, 12 old checkpoints, 40 unreferenced objects

        This agent's keys whose time has run out, its checkpoints that no rule keeps, and whatever nobody in the store
        refers to. A SQLite file becomes smaller. Others may be at work; it can be interrupted anywhere.
        `vacuum=True` makes a SQLite file smaller however large it is; nobody else can write to it meanwhile.

        `fold_before="90d"` also takes the entries of older finished runs, and old changes of state, out of the journal:
        they are archived first, in the folder `archive`, which is beside the store unless you say. Events that were
        noted stay, unless you say `events_before="1y"`, which folds entries of that age too.
        """
        from .. import retention

        engine, folder = self._engine, None if archive is None else os.fspath(archive)

        def free() -> GcReport:
            return retention.gc(
                engine.store,
                [engine],
                dry_run=dry_run,
                fold_before=fold_before,
                events_before=events_before,
                archive_folder=folder,
                vacuum=vacuum,
            )

        return await drive_async(engine.store, reading(free))

    async def send_event(self, run: str, name: str, payload: Any = None, *, by: str | None = None) -> None:
        """Send something to a run of this agent, which takes it with `run.wait_event(name)`, now or later.

        >>> await agent.send_event("order-7", "paid", {"amount": 12})

        It is kept when the run does not wait yet, is not open, or does not exist. In a step it is sent with the step.
        """
        protocol = answers.send_event(self._engine, run, name, payload, by)
        await drive_async(self._engine.store, protocol)

    async def open(self, ref: str, *, lines: tuple[int, int] | None = None, find: str | None = None) -> str:
        """Read what a context or a compaction does not show: the pointer stands where it was shortened.

        >>> await agent.open("perdure:trip-42#17", lines=(200, 260))

        `lines` are the first and the last one, from 1; `find` gives the lines with this text, and their numbers.
        """
        from ..context.opening import reopened

        return await drive_async(self._engine.store, reopened(self._engine, ref, lines, find))

    async def close(self) -> None:
        """Give the store back. Needed only before the process goes on without this agent; `async with` does it too."""
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
        options: Options,
    ) -> Any:
        def decorate(call: Callable[..., Any]) -> Durable[..., Any]:
            durable = make_durable(
                self._engine, call, effect=effect, name=name, ignore=ignore, options=options, always_async=ASYNC
            )
            self._engine.functions[durable.definition.name] = durable
            return durable

        return decorate if function is None else decorate(function)
