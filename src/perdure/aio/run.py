"""The public face of a run: what can be called on it, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from datetime import datetime
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from .. import interrupts, usage
from ..checkpoints import Wanted, create_in_run
from ..durations import Duration
from ..engine import Engine
from ..errors import NotDurable
from ..limits import RETRY_BACKOFF_SECONDS
from ..run import waiting
from ..run.bodies import bound_to
from ..run.core import RunCore
from ..run.durable import Durable, make_durable
from ..run.functions import Options, earlier_names
from ..run.items import END, ItemKey, Loop, Loops, earlier_loops, finish_current_item
from ..run.lifecycle import end_run, open_run
from ..run.obeying import Cleaning
from ..run.parallel import AT_ONCE, map_items
from ..run.requests import drive_async
from ..run.scope import FRAME, current
from ..run.waiting import NO_DEFAULT
from ..run.writes import get_result, set_result
from .run_data import AsyncMessages, AsyncState
from .run_view import AsyncShown

if TYPE_CHECKING:
    from ..run.executor import RunExecutor
    from ..run.undoing import Undo

P = ParamSpec("P")
R = TypeVar("R")
Exceptions = tuple[type[BaseException], ...]

# Whether a step made of a plain function is awaited.
# unasync: async-only
ASYNC = True
# unasync: end
# unasync: sync-only
#: ASYNC = False
# unasync: end


class AsyncRun(AsyncShown):
    """One piece of work with an id. After a crash, the same id is the same run, resumed."""

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
            protocol = open_run(self._engine, self.id, self._given, **self._options)
            self._open = await drive_async(self._engine.store, protocol)
        except BaseException:
            self._unwatch()
            # unasync: sync-only
            #: if held:
            #:     interrupts.let_go()
            # unasync: end
            raise
        FRAME.set(self._open.root)
        # unasync: sync-only
        #: try:
        #:     if held:
        #:         interrupts.let_go()
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
            if self._engine.home is not None:
                from ..workspace.home import run_ended

                await self._do(run_ended(core, error))
        finally:
            FRAME.set(core.root.parent)
            self._unwatch()
            # unasync: sync-only
            #: if held:
            #:     interrupts.let_go()
            # unasync: end

    @property
    def input(self) -> Any:
        """What the run was started with."""
        started = self._core.ledger.started
        assert started is not None
        return self._core.unpack(started.input)

    @property
    def result(self) -> Any:
        """What the run comes to. Set inside a step or an item it lands with it, else it is recorded at the end."""
        return get_result(self._core)

    @result.setter
    def result(self, value: Any) -> None:
        set_result(self._core, value)

    @property
    def finished(self) -> bool:
        """Whether the run had finished before: then it is replayed, and does nothing new."""
        return self._core.finished

    @property
    def resumed(self) -> bool:
        """Whether it had been started before."""
        return self._core.resumed

    @property
    def state(self) -> AsyncState:
        """Data of the run, by name. Written inside a step or an item it lands with it."""
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
        """Keep a value under a name, for `agent.checkpoint.restore`; when the run is resumed it is not made again.

        >>> await run.checkpoint("booked", {"progress": 0.8})
        """
        wanted = Wanted.read(name, data, labels, meta, keep_last, keep_for)
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
        """Wait for a person's answer, for as long as it takes; the question survives every crash.

        >>> seat = await run.ask("Window or aisle?", choices=["window", "aisle"])

        Answered with `agent.runs.answer(id, value)` or `perdure answer RUN VALUE`. `schema` is a type that the answer
        must fit. After `timeout` comes the `default`, or `WaitTimeout`. With an `id` the text may change in later
        versions of the program, and the answer still counts; without one it is another question then.
        """
        return await self._do(waiting.ask(self._core, question, choices, schema, timeout, default, id))

    async def approve(
        self, question: str, *, timeout: Duration | None = None, default: bool = NO_DEFAULT, id: str | None = None
    ) -> bool:
        """Wait for a person's yes or no.

        >>> if await run.approve("Book the 9am?"):
        ...     await book(flight)
        """
        approved: bool = await self._do(waiting.approve(self._core, question, timeout, default, id))
        return approved

    async def sleep(self, until: Duration | datetime, *, id: str | None = None) -> None:
        """Wait durably: for "2h", a timedelta or seconds, counted from when the run first came here, or until a time.

        >>> await run.sleep("2h")
        """
        await self._do(waiting.sleep(self._core, until, id))

    async def wait_event(self, name: str, *, timeout: Duration | None = None, default: Any = NO_DEFAULT) -> Any:
        """Wait for what `agent.send_event(run, name, payload)` sends, before or after the run comes here.

        >>> paid = await run.wait_event("paid", timeout="3d", default=None)

        Events of one name are taken in their order, each once.
        """
        return await self._do(waiting.wait_event(self._core, name, timeout, default))

    async def event(self, kind: Any, payload: Any = None) -> None:
        """Note something, for `agent.events.read`; when the run is resumed it is not noted again.

        >>> await run.event("DECISION_MADE", {"why": "cheapest"})
        >>> await run.event(kinds.Decision("take the 9am", why="cheapest"))
        """
        from ..events.writing import note

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
        """Say how far the run is, for PROGRESS.md and whoever goes on; when it is resumed it is not said again.

        >>> await run.progress(goal="Book a trip", done="chose the flight", next_action="book it")

        What is not named stays as it was; `done` is added to what was done. Steps are listed by themselves.
        """
        from ..handoff import progress
        from ..workspace.home import reported

        what = progress.said(goal, done, blockers, next_action, context)
        await self._do(progress.report(self._core, what))
        await self._do(reported(self._engine, what, self.id))

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
        """Record what one call of a model came to, with the figures that its provider reported.

        >>> await run.usage(model="gpt-4o", input_tokens=1200, output_tokens=300)

        Call it in the step that makes the call: it lands with it, and when that fails it is counted all the same.
        `input_tokens` counts all of them, those from and to the cache too. The price is that of today's list in
        `perdure[cost]`, unless you give `cost_usd`. Without either the cost is unknown, which is not 0.
        """
        tokens = (input_tokens, output_tokens, cached_input_tokens, cache_write_tokens)
        made = usage.reported(model, provider, *tokens)
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
        options = Options(id=id, retries=retries, backoff=backoff, timeout=timeout, was=earlier_names(was))
        return await self._call(function, False, name, ignore, options, args, kwargs)

    async def effect(
        self,
        function: Callable[..., Any],
        *args: Any,
        id: str | None = None,
        name: str | None = None,
        check: Callable[..., Any] | None = None,
        in_doubt: str = "ask",
        not_done: Exceptions = (),
        retries: int = 0,
        backoff: float = RETRY_BACKOFF_SECONDS,
        timeout: float | None = None,
        ignore: Iterable[str] = (),
        on_change: str | None = None,
        was: str | Iterable[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call any function as an effect, without declaring it."""
        options = Options(
            id=id,
            retries=retries,
            backoff=backoff,
            timeout=timeout,
            check=check,
            in_doubt=in_doubt,
            not_done=not_done,
            on_change=on_change,
            was=earlier_names(was),
        )
        return await self._call(function, True, name, ignore, options, args, kwargs)

    def each(self, items: Iterable[R], key: ItemKey = None, *, name: str = "", was: Loops = ()) -> AsyncEach[R]:
        """Loop over items, continuing at the first one not done; what the body writes lands with its item.

        An item is done when the loop asks for the next one. Items are told apart by `key` (an attribute, an entry
        or a callable), else by their content. Give loops a `name` when you may add or remove loops later; `was` is the
        name that it had, or its number among the loops without a name, from 1.
        """
        return AsyncEach(Loop(self._core, items, key, name, earlier_loops(was)))

    async def map(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        *,
        key: ItemKey = None,
        max_concurrency: int = AT_ONCE,
        errors: str = "raise",
        name: str = "",
        was: Loops = (),
    ) -> list[Any]:
        """Call a step or an effect for each item, several at a time; returns the results in the order of the items.

        >>> pages = await run.map(fetch, urls, max_concurrency=8)

        Each item is remembered by itself: after a crash only those run that were not done. `key` tells them apart,
        as in `each`. When one fails no other is begun, those under way go on to their ends, and its exception is
        raised; with `errors="return"` all run, and exceptions stand in the places of results. `name` and `was` are
        those of `each`; without a name it has that of the step.
        """
        step = self._durable(function, False, None, (), Options())
        before = earlier_loops(was)
        return list(await self._do(map_items(self._core, step, items, key, max_concurrency, errors, name, before)))

    async def undo(self, steps: int = 1, *, effects: str = "keep") -> Undo:
        """Go back over the last steps, effects and loops: results, state and messages are as they were before them.

        >>> draft = await write(topic)
        >>> if not good(draft):
        ...     await run.undo()
        ...     draft = await write(topic)

        It is recorded: on resume the code goes the same way. Effects have happened: called again they return what they
        did. With `effects="again"` they are forgotten, and done again when they are called: say so when you have taken
        back what they did. What was written to the agent stays; it is in what this returns.
        """
        from ..run.undoing import undo

        undone: Undo = await self._do(undo(self._core, steps, effects))
        return undone

    async def item_done(self) -> None:
        """The current item is done now, even if the loop is left before it asks for the next."""
        await self._do(finish_current_item(self._core))

    def cleanup(self) -> AsyncCleanup:
        """A block that a cancelled run may still do things in: steps and effects that undo what was begun.

        >>> try:
        ...     await work()
        ... finally:
        ...     async with run.cleanup():
        ...         await release()

        In a run that ends well or fails it is a block like any other. When the run is paused nothing in it is begun,
        because the run goes on later.
        """
        return AsyncCleanup(self._core)

    def bind(self, function: Callable[P, R]) -> Callable[P, R]:
        """A function that belongs to this run in whatever thread it is called.

        Made in the body of an effect, its calls are part of that body: the body is at work for as long as they are.
        """
        bound: Callable[P, R] = bound_to(copy_context(), function)
        return bound

    def executor(self, max_workers: int | None = None) -> RunExecutor:
        """A thread pool whose work belongs to this run."""
        from ..run.executor import RunExecutor

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
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return await self._durable(function, effect, name, ignore, options)(*args, **kwargs)

    def _durable(
        self, function: Callable[..., Any], effect: bool, name: str | None, ignore: Iterable[str], options: Options
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
    frame = current()
    if frame is not None and frame.run is not run:
        raise NotDurable(f"run {run.id!r} is not the innermost run here", hint="call it on the innermost one")


class AsyncCleanup:
    """What `run.cleanup` returns."""

    def __init__(self, run: RunCore) -> None:
        self._store = run.store
        self._cleaning = Cleaning(run)

    async def __aenter__(self) -> None:
        await drive_async(self._store, self._cleaning.begin())

    async def __aexit__(self, *_: object) -> None:
        self._cleaning.end()


class AsyncEach(Generic[R]):
    """What `run.each` returns."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __aiter__(self) -> _AsyncItems[R]:
        # An object of its own, which only the loop statement holds: a name or a traceback may keep this one.
        return _AsyncItems(self._loop)


class _AsyncItems(Generic[R]):
    """The iterator of one loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __aiter__(self) -> _AsyncItems[R]:
        return self

    async def __anext__(self) -> R:
        value = await drive_async(self._loop.run.store, self._loop.advance())
        if value is END:
            raise StopAsyncIteration
        item: R = value
        return item

    def __del__(self) -> None:
        # `break`, `return` and exceptions drop the iterator at once: the code is outside of the item again.
        self._loop.close()
