"""`agent.thread(id)` and `@agent.turn`: a conversation over many requests. The logic is in `perdure.work.threads`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.api.aio.base import AsyncFacade
from perdure.api.aio.run import ASYNC, AsyncRun
from perdure.api.aio.tasks import AsyncTaskHandle, make_task
from perdure.errors import InDoubt, NoTurn, RunWaiting, TurnUnfinished, UnknownAttribute, WrongValue
from perdure.kernel.awaitables import is_awaitable
from perdure.kernel.engine import Engine
from perdure.kernel.names import check_identifier, check_storable_name
from perdure.kernel.protocol import Protocol, drive_async, read_protocol
from perdure.kernel.protocol import drive_sync as block
from perdure.run.conversation import SUMMED_UP
from perdure.run.core import RunCore
from perdure.run.function import CallOptions
from perdure.values.attributes import KnownAttributes
from perdure.values.numbers import seconds
from perdure.work.tasks.definition import TaskOptions
from perdure.work.threads import fork as forking
from perdure.work.threads import history, thread_state
from perdure.work.threads.conversations import QueuedInput, check_thread, read_index
from perdure.work.threads.history import TurnInfo
from perdure.work.threads.thread_state import DELETED
from perdure.work.threads.turn import (
    NO_INPUT,
    TurnRequest,
    check_turn_function,
    choose_request_id,
    enqueue,
    list_queue_writes,
    open_turn,
    reply,
    reply_with_returned,
    turn_before,
)

if TYPE_CHECKING:
    from perdure.presence.context.compact import Compaction


class AsyncTurn(AsyncRun):
    """One turn of a thread: a run of its own, which begins with the user's message."""

    __slots__ = ("_request", "thread")

    def __init__(self, engine: Engine, request: TurnRequest) -> None:
        super().__init__(engine, f"{request.thread}#", None)
        self._request = request
        self.thread = AsyncThread(engine, request.thread)
        """The thread that it is a turn of."""

    def _open_core(self) -> Protocol[RunCore]:
        run = yield from open_turn(self._engine, self._request)
        self.id = run.id
        return run

    @property
    def _has_begun(self) -> bool:
        return not self.id.endswith("#")

    @property
    def number(self) -> int:
        """Which turn of the thread this is, from 1."""
        return int(self.id.rpartition("#")[2])

    async def reply(self, value: Any) -> None:
        """Give the assistant's message: a text, or a message of your own. It is the turn's result too.

        Raises `AlreadyReplied` when the turn has a reply. Called in a step, it lands with the step.

        >>> await turn.reply("Booked.")
        """
        await self._do(reply(self._core, value))

    async def compact(self, *, keep: int = 10, summarise: Callable[..., Any] | None = None) -> Compaction:
        """Replace the older turns of the thread by a summary, in the contexts of this turn and of later ones.

        >>> await turn.compact(keep=20, summarise=ask_for_summary)
        <Compaction of 120 messages: 48,000 -> 3,100 tokens>

        Whole turns are replaced, as long as at least `keep` messages stay; of a turn with more messages than that, the
        older ones too. Nothing is lost: `thread.messages` has every message, `agent.open(ref)` reads them, and
        `turn.uncompact()` shows them again. Pinned messages stay. `summarise(messages)` returns a text and is called
        as a step. Without it, the summary consists of the first words of each message.
        """
        from perdure.presence.context import compact_thread

        planned = await self._do(compact_thread.plan(self._core, keep))
        if not planned.upto:
            return await super().compact(keep=keep, summarise=summarise)
        told = None
        if summarise is not None:
            options = CallOptions(id=f"{SUMMED_UP}turn-{planned.upto}")
            old = await self._do(compact_thread.messages(self._core, planned))
            told = await self._call(summarise, False, "compact", (), options, (old,), {})
        done: Compaction = await self._do(compact_thread.record(self._core, planned, told))
        await super().compact(keep=keep, summarise=summarise)
        return done

    async def uncompact(self) -> None:
        """Undo the last compaction: its messages are shown again. Raises `NothingCompacted`."""
        from perdure.presence.context import compact_thread

        if self._core.view.compacted or not await self._do(compact_thread.uncompact(self._core)):
            await super().uncompact()


class AsyncThread(AsyncFacade):
    """`agent.thread(id)`: one conversation. The same id is the same conversation in every process.

    >>> thread = agent.thread("user-123")
    >>> async with thread.turn("Book a flight to NYC") as turn:
    ...     await turn.reply(await ask((await turn.context(budget=8000)).messages))
    """

    __slots__ = ("id",)

    def __init__(self, engine: Engine, id: str) -> None:
        super().__init__(engine)
        self.id = check_thread(id)

    def turn(
        self,
        input: Any = NO_INPUT,
        *,
        id: str | None = None,
        on_unfinished: str = "error",
        wait: float = 0.0,
    ) -> AsyncTurn:
        """Open a turn with the user's message, which lands with its start.

        The same input resumes the last turn while that has not ended. Without input, the unfinished or the queued turn
        is opened, or `NoTurn` raised. The same `id` is always the same turn; another input raises `InputChanged`.
        Another input after a killed turn raises `TurnUnfinished`, or gives that turn up with
        `on_unfinished="abandon"`. A turn that is open elsewhere raises `RunBusy` after `wait` seconds.

        >>> async with thread.turn("Make it LaGuardia", id=request_id) as turn:
        ...     await turn.reply("Done.")
        """
        if on_unfinished not in ("error", "abandon"):
            raise WrongValue(f'on_unfinished={on_unfinished!r}: choose "error" or "abandon"')
        return AsyncTurn(self._engine, _request(self.id, input, id, wait, on_unfinished))

    @property
    def messages(self) -> builtins.list[Any]:
        """The conversation. Of a turn that failed or was given up: the user's message, and what changed the world.

        Of a thread that a framework has saved: the messages in its newest checkpoint.
        """
        return block(self._engine.store, read_protocol(history.messages_of, self._engine, self.id))

    @property
    def raw(self) -> builtins.list[Any]:
        """All messages, also those of turns that were given up."""
        return block(self._engine.store, read_protocol(lambda: history.messages_of(self._engine, self.id, raw=True)))

    @property
    def pending(self) -> builtins.list[QueuedInput]:
        """The messages that wait until the turn before them has ended, in their order."""
        return list(block(self._engine.store, read_protocol(read_index, self._engine, self.id)).queued)

    @property
    def state(self) -> AsyncThreadState:
        """The state that all turns share. A turn sees it as of its start, with its own writes."""
        return AsyncThreadState(self._engine, self.id)

    async def turns(self) -> builtins.list[TurnInfo]:
        """Return the turns, oldest first."""
        return await self._read(lambda: history.turns_of(self._engine, self.id))

    async def fork(self, at: int | None = None, *, to: str) -> AsyncThread:
        """Make another thread that begins with this one's turns up to `at`, and with the state as of then.

        >>> other = await thread.fork(at=3, to="user-123b")
        """
        await self._do(forking.fork(self._engine, self.id, at, check_thread(to)))
        return AsyncThread(self._engine, to)

    async def delete(self, *, memories: bool = False) -> int:
        """Delete the conversation with its state, and return how many turns it had.

        Refused while a turn is open (`RunBusy`) or in doubt (`TurnUnfinished`). The agent's memories stay; with
        `memories=True`, those that were remembered with `thread=` this id are erased.
        """
        if memories:
            from perdure.api.aio.memory import AsyncMemories

            await self._do(history.require_quiet(self._engine, self.id))
            known = AsyncMemories(self._engine)
            own = [memory.id for memory in await known.list(all=True) if memory.thread == self.id]
            if own:
                await known.forget(own, reason=f"thread {self.id} was deleted")
        return await self._do(forking.delete(self._engine, self.id))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} of {self._engine.name!r}>"


class AsyncThreadState(KnownAttributes, Mapping[str, Any]):
    """`thread.state`: a mapping. Setting is durable when it returns; in a turn it is recorded.

    >>> thread.state["city"] = "NYC"
    """

    __slots__ = ("_engine", "_thread")

    def __init__(self, engine: Engine, thread: str) -> None:
        self._engine = engine
        self._thread = thread

    def _unknown(self, name: str) -> UnknownAttribute:
        return UnknownAttribute(
            f"thread.state has no attribute {name!r}", hint=f"set a key: thread.state[{name!r}] = ..."
        )

    def _read_all(self) -> dict[str, Any]:
        return thread_state.read_state(self._engine, self._thread)

    def __getitem__(self, key: str) -> Any:
        return thread_state.read_key(self._engine, self._thread, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._read_all())

    def __len__(self) -> int:
        return len(self._read_all())

    async def set(self, key: str, value: Any) -> None:
        """Set one key. Raises `RunBusy` outside of a turn while one is open."""
        write = thread_state.write_state(self._engine, self._thread, key, value)
        await drive_async(self._engine.store, write)

    async def delete(self, key: str) -> None:
        """Remove one key; KeyError when it is not there."""
        self[key]
        write = thread_state.write_state(self._engine, self._thread, key, DELETED)
        await drive_async(self._engine.store, write)

    def __setitem__(self, key: str, value: Any) -> None:
        # An assignment cannot be awaited: it blocks for one commit.
        block(self._engine.store, thread_state.write_state(self._engine, self._thread, key, value))

    def __delitem__(self, key: str) -> None:
        self[key]
        block(self._engine.store, thread_state.write_state(self._engine, self._thread, key, DELETED))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._read_all()!r})"


class AsyncTurnFunction:
    """What `@agent.turn` makes of a function: called with a thread and a message, it does the turn.

    >>> @agent.turn
    ... async def chat(turn):
    ...     await turn.reply(await ask((await turn.context(budget=8000)).messages))
    >>> reply = await chat("user-123", "Book a flight to NYC")

    A function that returns a value instead of calling `turn.reply` replies with it.
    """

    def __init__(self, engine: Engine, function: Callable[..., Any]) -> None:
        self._engine = engine
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = check_storable_name(
            str(getattr(function, "__name__", type(function).__name__)), "a turn function's name"
        )
        self._task = make_task(engine, self._do_task, name=f"turn {self.__name__}", options=TaskOptions(), was=())

    async def __call__(self, thread: str, input: Any, *, id: str | None = None, wait: float = 0.0) -> Any:
        """Do one turn and return its reply; what is unfinished in the thread is finished first.

        A retried request passes the same `id`, and gets the same reply. When the unfinished turn waits for a person,
        the message is queued durably, and `RunWaiting` is raised; `InDoubt` when an effect with `in_doubt="fail"` has
        ended that turn.
        """
        return await self._do(_request(check_thread(thread), input, id, wait, "error"))

    async def _do(self, request: TurnRequest) -> Any:
        while True:
            await self._finish_earlier(request)
            turn = AsyncTurn(self._engine, request)
            try:
                return await self._perform(turn)
            except TurnUnfinished:  # a turn was killed, or another message queued, since the thread was read
                if turn._has_begun:
                    raise

    async def _finish_earlier(self, request: TurnRequest) -> None:
        while (before := await self._find_earlier(request)) is not None:
            turn = AsyncTurn(self._engine, before)
            try:
                await self._perform(turn)
            except (RunWaiting, InDoubt):
                await drive_async(self._engine.store, enqueue(self._engine, request))
                raise
            except Exception as error:  # recorded as the failure of that turn, which is then not in the way
                taken = isinstance(error, NoTurn | TurnUnfinished) and not turn._has_begun
                if not taken and await self._find_earlier(request) is not None:
                    raise

    async def start(self, thread: str, input: Any, *, id: str | None = None) -> AsyncTaskHandle[Any]:
        """Queue the turn for workers. Returns a handle, whose `result()` is the reply.

        >>> await chat.start("user-123", "Book a flight to NYC", id=request_id)

        The message is in `thread.pending` until its turn begins. Messages of a thread are taken in their order.
        """
        request = _request(check_thread(thread), input, id, 0.0, "error")
        if request.id is None:
            chosen = await drive_async(self._engine.store, choose_request_id(self._engine))
            request = msgspec.structs.replace(request, id=chosen)
        run_id = check_identifier(f"{thread}@{request.id}", "a run's id")
        given = {"thread": thread, "input": input, "id": request.id}
        return await self._task.start_with(run_id, given, partial(list_queue_writes, self._engine, request))

    async def _do_task(self, thread: str, input: Any, id: str) -> Any:
        return await self._do(TurnRequest(thread, input, id, wait=None))

    async def _find_earlier(self, request: TurnRequest) -> TurnRequest | None:
        return await drive_async(self._engine.store, read_protocol(turn_before, self._engine, request))

    async def _perform(self, turn: AsyncTurn) -> Any:
        async with turn:
            if turn.finished:
                return turn.result
            # unasync: async-only
            made = self.__wrapped__(turn)
            made = await made if is_awaitable(made) else made
            # unasync: end
            # unasync: sync-only
            #: made = self.__wrapped__(turn)
            # unasync: end
            await drive_async(self._engine.store, reply_with_returned(turn._core, made))
            return turn.result

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__name__!r} of {self._engine.name!r}>"


def _request(thread: str, given: Any, id: str | None, wait: float, on_unfinished: str) -> TurnRequest:
    seconds("wait", wait)
    if id is not None:
        check_storable_name(id, "id=", empty=False, most=256)
    return TurnRequest(thread, given, id, on_unfinished, wait)


def make_turn(engine: Engine, function: Callable[..., Any]) -> AsyncTurnFunction:
    """Make a function a turn of threads."""
    check_turn_function(function, awaits=ASYNC)
    return AsyncTurnFunction(engine, function)
