"""The public face of an agent under asyncio. `sync.py` is generated from this file by tools/unasync.py.

Only arguments and documentation live here: everything that decides anything is a protocol in `perdure.run`.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from . import codec, interrupts, runs
from .engine import Engine
from .errors import NotDurable
from .keys import KeySource
from .limits import NAME_CHARACTERS_MAX, RETRY_BACKOFF_SECONDS
from .records import Op
from .run.core import RunCore
from .run.durable import Durable, make_durable
from .run.functions import Options
from .run.items import END, ItemKey, Loop, finish_current_item
from .run.lifecycle import end_run, open_run
from .run.requests import drive_async, reading
from .run.requests import drive_sync as block
from .run.scope import FRAME, current
from .run.writes import MessageReader, StateReader, get_result, set_result, write

P = ParamSpec("P")
R = TypeVar("R")
Exceptions = tuple[type[BaseException], ...]

# Whether a step made of a plain function is awaited.
# unasync: async-only
_ASYNC = True
# unasync: end
# unasync: sync-only
#: _ASYNC = False
# unasync: end


class AsyncAgent:
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
    ) -> None:
        self._engine = Engine(name, store=store, durability=durability, strict=strict, key=key, single_home=single_home)
        self.runs = AsyncRuns(self._engine)

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._engine.name

    @overload
    def step(self, function: Callable[P, R], /) -> Durable[P, R]: ...

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
    ) -> Any:
        """Make a function a step: safe to repeat, done once, then remembered.

        `retries` repetitions after an exception, the first after `backoff` seconds; `timeout` in seconds; a new
        `version` forgets old results; `ignore` names parameters that do not identify the call; `raises` lists
        your own exception types, so that a recorded one comes back as itself.
        """
        codec.register_exception(*raises)
        options = Options(retries=retries, backoff=backoff, timeout=timeout, version=version)
        return self._decorate(function, False, name, ignore, options)

    @overload
    def effect(self, function: Callable[..., R], /) -> Durable[..., R]: ...

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
    ) -> Any:
        """Make a function an effect: it changes the world, and is never silently repeated.

        A keyword-only parameter `key` gets the idempotency key. `check(*args, key=...)` says afterwards whether it
        happened: `Done(result)`, `NotDone` or `Unknown`. `in_doubt` says what to do when nobody knows: "ask" a
        person, "retry" with the same key, or "fail". `not_done` lists exceptions after which nothing happened.
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
        )
        return self._decorate(function, True, name, ignore, options)

    def run(
        self,
        id: str,
        *,
        input: Any = None,
        wait: float | None = None,
        on_change: str = "error",
        parallel: bool = False,
    ) -> AsyncRun:
        """Start a run, or resume the one with this id: it is the same call.

        Waiting for a person blocks, or raises `RunWaiting` after `wait` seconds. `on_change="rerun"` lets effects
        run that differ from the recorded ones. `parallel` allows several child runs of one run at a time.
        """
        if not id or len(id) > NAME_CHARACTERS_MAX:
            raise ValueError(f"a run needs an id of 1 to {NAME_CHARACTERS_MAX} characters, not {id!r}")
        if on_change not in ("error", "rerun"):
            raise ValueError(f'on_change={on_change!r}: choose "error" or "rerun"')
        return AsyncRun(self._engine, id, input, wait=wait, on_change=on_change, parallel=parallel)

    async def close(self) -> None:
        """Give the store back. Needed only before the process goes on without this agent."""
        self._engine.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, store={self._engine.url!r})"

    def _decorate(
        self,
        function: Callable[..., Any] | None,
        effect: bool,
        name: str | None,
        ignore: Iterable[str],
        options: Options,
    ) -> Any:
        def decorate(call: Callable[..., Any]) -> Durable[..., Any]:
            return make_durable(
                self._engine, call, effect=effect, name=name, ignore=ignore, options=options, always_async=_ASYNC
            )

        return decorate if function is None else decorate(function)


class AsyncRun:
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
        # unasync: end
        try:
            protocol = open_run(self._engine, self.id, self._given, **self._options)
            self._open = await drive_async(self._engine.store, protocol)
        except BaseException:
            self._unwatch()
            raise
        FRAME.set(self._open.root)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        core = self._core
        FRAME.set(core.root)
        try:
            await drive_async(self._engine.store, end_run(core, error))
        finally:
            FRAME.set(core.root.parent)
            self._unwatch()

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

    async def event(self, kind: str, payload: Any = None) -> None:
        """Note something in the journal.

        >>> await run.event("DECISION_MADE", {"why": "cheapest"})
        """
        await self._do(write(self._core, Op.EVENT, kind, payload, f"event {kind}"))

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
        **kwargs: Any,
    ) -> Any:
        """Call any function as a step, without declaring it.

        >>> page = await run.step(fetch, "https://example.com", retries=3)
        """
        options = Options(id=id, retries=retries, backoff=backoff, timeout=timeout)
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
        )
        return await self._call(function, True, name, ignore, options, args, kwargs)

    def each(self, items: Iterable[R], key: ItemKey = None, *, name: str = "") -> AsyncEach[R]:
        """Loop over items, continuing at the first one not done; what the body writes lands with its item.

        An item is done when the loop asks for the next one. Items are told apart by `key` (an attribute, an entry
        or a callable), else by their content. Give loops a `name` when you may add or remove loops later.
        """
        return AsyncEach(Loop(self._core, items, key, name))

    async def item_done(self) -> None:
        """The current item is done now, even if the loop is left before it asks for the next."""
        await self._do(finish_current_item(self._core))

    def bind(self, function: Callable[P, R]) -> Callable[P, R]:
        """A function that belongs to this run in whatever thread it is called."""
        here = copy_context()

        @wraps(function)
        def bound(*args: P.args, **kwargs: P.kwargs) -> R:
            return here.copy().run(function, *args, **kwargs)

        return bound

    def executor(self, max_workers: int | None = None) -> RunExecutor:
        """A thread pool whose work belongs to this run."""
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
        durable = make_durable(
            self._engine, function, effect=effect, name=name, ignore=ignore, options=options, always_async=_ASYNC
        )
        _refuse_other_run(self._core)
        return await durable(*args, **kwargs)

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


class RunExecutor(ThreadPoolExecutor):
    """Threads that know which run they work for."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Like that of any executor; the run's context goes along."""
        here = copy_context()
        return super().submit(lambda: here.run(fn, *args, **kwargs))


class AsyncEach(Generic[R]):
    """The iterator of `run.each`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __aiter__(self) -> AsyncEach[R]:
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


class AsyncState(StateReader):
    """`run.state`: a mapping. Reading gives copies; setting is durable when it returns.

    >>> run.state["seen"] = run.state.get("seen", 0) + 1
    """

    async def set(self, key: str, value: Any) -> None:
        """Set one key."""
        await drive_async(self._run.store, write(self._run, Op.SET, key, value, f"state[{key!r}]"))

    async def delete(self, key: str) -> None:
        """Remove one key; KeyError when it is not there."""
        if key not in self:
            raise KeyError(key)
        await drive_async(self._run.store, write(self._run, Op.DELETE, key, None, f"state[{key!r}]"))

    async def incr(self, key: str, by: float = 1) -> Any:
        """Add to a number, from 0, and return it."""
        value = self.get(key, 0) + by
        await self.set(key, value)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        # An assignment cannot be awaited: in the open it blocks for one commit.
        block(self._run.store, write(self._run, Op.SET, key, value, f"state[{key!r}]"))

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        block(self._run.store, write(self._run, Op.DELETE, key, None, f"state[{key!r}]"))


class AsyncMessages(MessageReader):
    """`run.messages`: a sequence that only grows."""

    async def append(self, message: Any) -> None:
        """Add one message."""
        await drive_async(self._run.store, write(self._run, Op.MESSAGE, "", message, "message"))

    async def extend(self, messages: Iterable[Any]) -> None:
        """Add several, one after the other."""
        for message in messages:
            await self.append(message)


class AsyncRuns:
    """`agent.runs`: the runs of this agent, seen from outside."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def get(self, id: str) -> runs.RunInfo:
        """A run in full: status, input, result, state, messages, what is in doubt."""
        return await self._read(lambda: runs.get_run(self._engine.store, self._engine.name, id))

    async def list(self, status: str | None = None) -> builtins.list[runs.RunSummary]:
        """The runs of this agent, the one that changed last first."""
        return await self._read(lambda: runs.list_runs(self._engine.store, self._engine.name, status))

    async def result(self, id: str) -> Any:
        """The result of a finished run, without replaying it."""
        return await self._read(lambda: runs.result_of(self._engine.store, self._engine.name, id))

    async def answer(
        self,
        id: str,
        answer: Any = None,
        *,
        done: Any = ...,
        retry: bool = False,
        fail: bool = False,
        key: str | None = None,
        by: str | None = None,
    ) -> None:
        """Say what became of an effect in doubt: `done=RESULT`, `retry=True` or `fail=True`.

        >>> await agent.runs.answer("trip-42", done="booking AB12")
        """
        given = runs.read_answer(answer, done, retry, fail)
        await self._read(lambda: runs.give_answer(self._engine, id, given, key=key, by=by))

    async def _read(self, call: Callable[[], R]) -> R:
        return await drive_async(self._engine.store, reading(call))
