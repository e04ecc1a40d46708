"""The public API of a run: arguments and documentation. The logic is in `perdure.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from datetime import datetime
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from perdure.api.aio.run_context import AsyncRunContext
from perdure.api.aio.run_data import AsyncMessages, AsyncState
from perdure.api.aio.run_loops import AsyncEach
from perdure.api.aio.run_values import AsyncRunValues
from perdure.data.checkpoints import CheckpointRequest, create_in_run
from perdure.errors import NotDurable
from perdure.kernel.bodies import bind_context
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, drive_async
from perdure.kernel.scope import FRAME, current_frame
from perdure.platform import interrupts
from perdure.presence.workspace.open_folder import home_of, item_done
from perdure.run import usage, wait
from perdure.run.core import RunCore
from perdure.run.durable import Durable, make_durable
from perdure.run.finish import end_run
from perdure.run.function import CallOptions, check_earlier_names, check_exceptions
from perdure.run.item import EarlierLoopNames, ItemKey, ItemLoop, check_earlier_loops
from perdure.run.lifecycle import open_run
from perdure.run.order_handling import CleanupScope
from perdure.run.parallel import AT_ONCE, map_items
from perdure.run.wait import NO_DEFAULT
from perdure.run.writes import get_result, set_result
from perdure.values.durations import Duration
from perdure.values.limits import RETRY_BACKOFF_SECONDS

if TYPE_CHECKING:
    from perdure.run.executor import RunExecutor
    from perdure.run.undo import Undo

P = ParamSpec("P")
R = TypeVar("R")
ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]

# Whether a step made of a plain function is awaited.
# unasync: async-only
ASYNC = True
# unasync: end
# unasync: sync-only
#: ASYNC = False
# unasync: end


class AsyncRun(AsyncRunContext, AsyncRunValues):
    """A unit of work with an id. After a crash, opening the same id resumes the run."""

    __slots__ = ("__weakref__", "_engine", "_given", "_open", "_options", "id")

    def __init__(self, engine: Engine, id: str, given: Any, **options: Any) -> None:
        self._engine = engine
        self._given = given
        self._options = options
        self._open: RunCore | None = None
        self.id = id

    async def __aenter__(self) -> AsyncRun:
        # unasync: async-only
        interrupts.install_in_loop()
        # unasync: end
        # unasync: sync-only
        #: interrupts.install()
        #: held = interrupts.hold()
        # unasync: end
        try:
            self._open = await drive_async(self._engine.store, self._open_core())
        except BaseException:
            self._unwatch()
            # unasync: sync-only
            #: if held:
            #:     interrupts.release()
            # unasync: end
            raise
        FRAME.set(self._open.root)
        # unasync: sync-only
        #: try:
        #:     if held:
        #:         interrupts.release()
        #: except BaseException as error:
        #:     self.__exit__(type(error), error, error.__traceback__)
        #:     raise
        # unasync: end
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # unasync: sync-only
        #: held = interrupts.hold()  # a signal here must not keep the end from being recorded
        # unasync: end
        core = self._core
        FRAME.set(core.root)
        try:
            await drive_async(self._engine.store, end_run(core, error))
            if home_of(self._engine) is not None:
                from perdure.presence.workspace.workspace import update_after_run

                await self._do(update_after_run(core, error))
        finally:
            FRAME.set(core.root.parent)
            self._unwatch()
            # unasync: sync-only
            #: if held:
            #:     interrupts.release()
            # unasync: end

    def _open_core(self) -> Protocol[RunCore]:
        return open_run(self._engine, self.id, self._given, **self._options)

    @property
    def input(self) -> Any:
        """The input that the run was started with."""
        started = self._core.ledger.started
        assert started is not None
        return self._core.unpack(started.input)

    @property
    def result(self) -> Any:
        """The result of the run. Set inside a step or an item, it lands with it; otherwise at the end of the run."""
        return get_result(self._core)

    @result.setter
    def result(self, value: Any) -> None:
        set_result(self._core, value)

    @property
    def finished(self) -> bool:
        """Whether the run had already finished: then it is replayed and does nothing new."""
        return self._core.finished

    @property
    def resumed(self) -> bool:
        """Whether the run had been started before."""
        return self._core.resumed

    @property
    def state(self) -> AsyncState:
        """Key-value data of the run. Inside a step or an item, a write lands with it."""
        return AsyncState(self._core)

    @property
    def messages(self) -> AsyncMessages:
        """The conversation of the run."""
        return AsyncMessages(self._core)

    async def checkpoint(
        self,
        name: str,
        data: Any,
        *,
        labels: Iterable[str] = (),
        meta: Any = None,
        keep_last: int | None = None,
        keep_for: Duration | None = None,
    ) -> None:
        """Save a checkpoint for `agent.checkpoint.restore`. A resumed run does not save it again.

        >>> await run.checkpoint("booked", {"progress": 0.8})
        """
        wanted = CheckpointRequest.read(name, data, labels, meta, keep_last, keep_for)
        await self._do(create_in_run(self._core, wanted))

    async def ask(
        self,
        question: str,
        *,
        choices: Sequence[Any] | None = None,
        schema: Any = None,
        timeout: Duration | None = None,
        default: Any = NO_DEFAULT,
        id: str | None = None,
    ) -> Any:
        """Ask a person and wait for the answer. The question survives crashes.

        >>> seat = await run.ask("Window or aisle?", choices=["window", "aisle"])

        Answer with `agent.runs.answer(id, value)` or `perdure answer RUN VALUE`. `schema` is the type that the answer
        must have. After `timeout` it returns `default` or raises `WaitTimeout`. A question is identified by its text;
        with an `id`, the text may change and an answer still counts.
        """
        return await self._do(wait.ask(self._core, question, choices, schema, timeout, default, id))

    async def approve(
        self, question: str, *, timeout: Duration | None = None, default: bool = NO_DEFAULT, id: str | None = None
    ) -> bool:
        """Wait for a person's yes or no.

        >>> if await run.approve("Book the 9am?"):
        ...     await book(flight)
        """
        approved: bool = await self._do(wait.approve(self._core, question, timeout, default, id))
        return approved

    async def sleep(self, until: Duration | datetime, *, id: str | None = None) -> None:
        """Wait durably until a time, or for "2h", a timedelta or seconds. A resume does not restart the duration.

        >>> await run.sleep("2h")
        """
        await self._do(wait.sleep(self._core, until, id))

    async def wait_event(self, name: str, *, timeout: Duration | None = None, default: Any = NO_DEFAULT) -> Any:
        """Wait for an event and return its payload. `agent.send_event(run, name, payload)` may have sent it before.

        >>> paid = await run.wait_event("paid", timeout="3d", default=None)

        Events of one name are received in order, each once.
        """
        return await self._do(wait.wait_event(self._core, name, timeout, default))

    async def event(self, kind: Any, payload: Any = None) -> None:
        """Append an event to `agent.events`. A resumed run does not append it again.

        >>> await run.event("DECISION_MADE", {"why": "cheapest"})
        >>> await run.event(kinds.Decision("take the 9am", why="cheapest"))
        """
        from perdure.data.events.append import note

        await self._do(note(self._core, kind, payload))

    async def progress(
        self,
        *,
        goal: str | None = None,
        done: str | Iterable[str] | None = None,
        blockers: str | Iterable[str] | None = None,
        next_action: str | None = None,
        context: str | None = None,
    ) -> None:
        """Report progress, for PROGRESS.md and handoffs. A resumed run does not report it again.

        >>> await run.progress(goal="Book a trip", done="chose the flight", next_action="book it")

        Arguments that are not given stay as they were; `done` is appended. Steps are listed automatically.
        """
        from perdure.presence.handoff import progress
        from perdure.presence.workspace.workspace import report

        what = progress.validate_report(goal, done, blockers, next_action, context)
        await self._do(report(self._core, what))

    async def usage(
        self,
        *,
        model: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_input_tokens: int = 0,
        cache_write_tokens: int = 0,
        cost_usd: float | Decimal | None = None,
        provider: str = "",
    ) -> None:
        """Record the tokens and cost of one model call, as its provider reported them.

        >>> await run.usage(model="gpt-4o", input_tokens=1200, output_tokens=300)

        Call it in the step that calls the model. It lands with the step, and counts even if the step fails.
        `input_tokens` includes cache reads and writes. Without `cost_usd` the price is taken from the current list in
        `perdure[cost]`. Without either, the cost is unknown, not 0.
        """
        tokens = (input_tokens, output_tokens, cached_input_tokens, cache_write_tokens)
        made = usage.check_report(model, provider, *tokens)
        cost = None if cost_usd is None else usage.dollars("cost_usd", cost_usd)
        await self._do(usage.record(self._core, made, cost))

    async def step(
        self,
        function: Callable[..., Any],
        *args: Any,
        id: str | None = None,
        name: str | None = None,
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        ignore: Iterable[str] = (),
        was: str | Iterable[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call any function as a step, without declaring it.

        >>> page = await run.step(fetch, "https://example.com", retries=3)
        """
        options = CallOptions(id=id, retries=retries, backoff=backoff, timeout=timeout, was=check_earlier_names(was))
        return await self._call(function, False, name, ignore, options, args, kwargs)

    async def effect(
        self,
        function: Callable[..., Any],
        *args: Any,
        id: str | None = None,
        name: str | None = None,
        check: Callable[..., Any] | None = None,
        in_doubt: str = "ask",
        not_done: ExceptionTypes = (),
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        ignore: Iterable[str] = (),
        on_change: str | None = None,
        was: str | Iterable[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call any function as an effect, without declaring it."""
        options = CallOptions(
            id=id,
            retries=retries,
            backoff=backoff,
            timeout=timeout,
            check=check,
            in_doubt=in_doubt,
            not_done=check_exceptions("not_done", not_done),
            on_change=on_change,
            was=check_earlier_names(was),
        )
        return await self._call(function, True, name, ignore, options, args, kwargs)

    @overload
    def each(
        self,
        items: Iterable[R],
        key: ItemKey = None,
        *,
        name: str = "",
        was: EarlierLoopNames = (),
        index: Literal[False] = False,
    ) -> AsyncEach[R]: ...

    @overload
    def each(
        self,
        items: Iterable[R],
        key: ItemKey = None,
        *,
        name: str = "",
        was: EarlierLoopNames = (),
        index: Literal[True],
    ) -> AsyncEach[tuple[int, R]]: ...

    def each(
        self,
        items: Iterable[R],
        key: ItemKey = None,
        *,
        name: str = "",
        was: EarlierLoopNames = (),
        index: bool = False,
    ) -> AsyncEach[Any]:
        """Loop over items; a resumed run continues at the first unfinished item. Writes of the body land with its item.

        >>> async for page in run.each(pages, key="url"):
        ...     await store(page)

        An item is finished when the loop asks for the next one. `key` (an attribute, an entry or a callable) identifies
        items, else their content does. Give loops a `name` if you may add or remove loops later. `was` is the old name,
        or the number of the loop among those without a name, from 1.
        `index=True` yields pairs of position and item. `enumerate` would count wrong after a resume, and is refused.
        """
        return AsyncEach(ItemLoop(self._core, items, key, name, check_earlier_loops(was), index))

    async def map(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        *,
        key: ItemKey = None,
        max_concurrency: int = AT_ONCE,
        errors: str = "raise",
        name: str = "",
        was: EarlierLoopNames = (),
    ) -> list[Any]:
        """Call a step or an effect for each item, several at a time, and return the results in the order of the items.

        >>> pages = await run.map(fetch, urls, max_concurrency=8)

        After a crash only unfinished items run. `key` identifies items, as in `each`. When a call fails, no more calls
        start, those in progress finish, and its exception is raised. With `errors="return"` all items run, and
        exceptions take the place of results. `name` and `was` work as in `each`; the default name is that of the step.
        """
        step = self._durable(function, False, None, (), CallOptions())
        before = check_earlier_loops(was)
        return list(await self._do(map_items(self._core, step, items, key, max_concurrency, errors, name, before)))

    async def undo(self, steps: int = 1, *, effects: str = "keep") -> Undo:
        """Undo the last steps, effects and loops: results, state and messages are restored.

        >>> draft = await write(topic)
        >>> if not good(draft):
        ...     await run.undo()
        ...     draft = await write(topic)

        The undo is recorded, so a resumed run takes the same path. Effects have happened: when called again they return
        the recorded result. With `effects="again"` they execute again; use it if you have reversed them yourself.
        Writes to the agent stay and are listed in the returned `Undo`.
        """
        from perdure.run.undo import undo

        undone: Undo = await self._do(undo(self._core, steps, effects))
        return undone

    async def item_done(self) -> None:
        """Finish the current item now, even if the loop is left before it asks for the next one."""
        await self._do(item_done(self._core))

    def cleanup(self) -> AsyncCleanup:
        """Return a block in which a cancelled run may still call steps and effects, to release what it holds.

        >>> try:
        ...     await work()
        ... finally:
        ...     async with run.cleanup():
        ...         await release()

        In a run that finishes or fails, it is an ordinary block. In a paused run nothing in it starts, because the run
        continues later.
        """
        return AsyncCleanup(self._core)

    def bind(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a wrapper of a function that runs it inside this run, in any thread.

        Bound inside the body of an effect, its calls are part of that body, which is in progress until they end.
        """
        bound: Callable[P, R] = bind_context(copy_context(), function)
        return bound

    def executor(self, max_workers: int | None = None) -> RunExecutor:
        """Return a thread pool whose calls belong to this run."""
        from perdure.run.executor import RunExecutor

        return RunExecutor(max_workers)

    @property
    def _core(self) -> RunCore:
        if self._open is None:
            raise NotDurable(f"run {self.id!r} is not open", hint="use it inside its with block")
        return self._open

    async def _do(self, protocol: Any) -> Any:
        return await drive_async(self._engine.store, protocol)

    async def _call(
        self,
        function: Callable[..., Any],
        effect: bool,
        name: str | None,
        ignore: Iterable[str],
        options: CallOptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return await self._durable(function, effect, name, ignore, options)(*args, **kwargs)

    def _durable(
        self, function: Callable[..., Any], effect: bool, name: str | None, ignore: Iterable[str], options: CallOptions
    ) -> Durable[..., Any]:
        _refuse_other_run(self._core)
        return make_durable(
            self._engine, function, effect=effect, name=name, ignore=ignore, options=options, always_async=ASYNC
        )

    def _unwatch(self) -> None:
        # unasync: async-only
        interrupts.uninstall_in_loop()
        # unasync: end
        # unasync: sync-only
        #: interrupts.uninstall()
        # unasync: end

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} of {self._engine.name!r}>"


def _refuse_other_run(run: RunCore) -> None:
    frame = current_frame()
    if frame is not None and frame.run is not run:
        raise NotDurable(f"run {run.id!r} is not the innermost run here", hint="call it on the innermost one")


class AsyncCleanup:
    """What `run.cleanup` returns."""

    def __init__(self, run: RunCore) -> None:
        self._store = run.store
        self._cleaning = CleanupScope(run)

    async def __aenter__(self) -> None:
        await drive_async(self._store, self._cleaning.begin())

    async def __aexit__(self, *_: object) -> None:
        self._cleaning.end()
