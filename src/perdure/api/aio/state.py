"""The public API of `agent.state`: arguments and documentation. The logic is in `perdure.data.state`."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.api.aio.base import AsyncFacade
from perdure.data import state, state_history
from perdure.data.state import StateVersion, VisibleKey
from perdure.data.state_history import StateTime
from perdure.errors import NotDurable
from perdure.journal.agent_writes import RequireRevision, SetKey, StateKey
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import sleep_protocol
from perdure.values.durations import Duration, seconds_of
from perdure.values.limits import WAIT_POLL_SECONDS, WAIT_POLL_SECONDS_MAX

R = TypeVar("R")


class AsyncAgentState(AsyncFacade):
    """`agent.state`: namespaced keys, each with versions and a history.

    >>> page = await agent.state.get("crawl", "page", 0)
    >>> await agent.state.set("crawl", "page", page + 1)

    Inside a step, an effect or an item, a change lands with it or not at all. Outside of them it is on disk when the
    call returns.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers refuse these by themselves

        def __getitem__(self, key: Any) -> Any:
            raise state.needs_namespace(key)

        def __setitem__(self, key: Any, value: Any) -> None:
            raise state.needs_namespace(key)

    async def set(
        self, ns: str, key: str, value: Any, ttl: Duration | None = None, if_version: int | None = None
    ) -> int:
        """Set a key and return its new version: 1, then 2, and so on.

        The key expires after `ttl` (seconds, a timedelta or "2h"). With `if_version`, the call raises `VersionConflict`
        unless the key has that version; 0 stands for a key that does not exist.
        """
        ask = state.ask_set(self._engine, await self._place(ns, key), value, ttl, if_version)
        return (await self._do(state.write_one(self._engine, ask))).version

    async def get(self, ns: str, key: str, default: Any = None) -> Any:
        """Return the value of a key as a private copy, or `default` if the key does not exist."""
        return await self._do(state.get(self._engine, ns, key, default))

    async def version(self, ns: str, key: str) -> int:
        """Return the version of a key, for `if_version`; 0 if it does not exist."""
        return await self._do(state.version(self._engine, ns, key))

    async def delete(self, ns: str, key: str, if_version: int | None = None) -> bool:
        """Delete a key and return whether it existed. Its history stays."""
        return await self._do(state.delete(self._engine, await self._place(ns, key), if_version))

    async def items(
        self, ns: str, *, after: str | None = None, limit: int | None = None
    ) -> builtins.list[tuple[str, Any]]:
        """Return every key of a namespace with its value, sorted by key.

        Read a large namespace page by page: at most `limit` keys, starting `after` the last key of the previous page.
        """
        return await self._do(state.items(self._engine, ns, after, limit))

    async def update(self, ns: str, key: str, fn: Callable[[Any], Any], ttl: Duration | None = None) -> Any:
        """Set a key to `fn(value)` and return the new value. `fn` gets None if the key does not exist.

        The update is atomic: `fn` runs inside the commit. It should be quick, must not write, and may be called again.
        Without `ttl` the key keeps its expiry; with `ttl` it expires that long from now.

        >>> await agent.state.update("crawl", "seen", lambda seen: [*(seen or []), url])
        """
        ask = state.ask_update(self._engine, await self._place(ns, key), fn, ttl)
        return (await self._do(state.write_one(self._engine, ask))).value

    async def incr(self, ns: str, key: str, by: float = 1, ttl: Duration | None = None) -> Any:
        """Add `by` to a number atomically, starting from 0, and return the sum. `ttl` works as in `update`."""
        return await self.update(ns, key, state.make_adder(by, ns, key), ttl)

    async def history(self, ns: str, key: str) -> builtins.list[StateVersion]:
        """Return every value that a key has had, oldest first."""
        return await self._read(lambda: state.history(self._engine, ns, key))

    def at(self, when: StateTime) -> AsyncStateAt:
        """Return the state as it was at a datetime, or after a number of changes of the namespace.

        At a datetime, a key with a `ttl` is shown if it had not expired then. After a number of changes, it is shown if
        it has not expired now.

        >>> await agent.state.at(yesterday).get("crawl", "page")
        """
        return AsyncStateAt(self._engine, when)

    async def revision(self, ns: str) -> int:
        """Return how often a namespace has changed: the number for `at` and `revert`."""
        return await self._read(lambda: state.revision(self._engine, ns))

    async def revert(self, to: StateTime, ns: str | None = None) -> int:
        """Restore a namespace, or all of them, to an earlier state, and return how many keys changed.

        The revert is a new change; history stays. A key with a `ttl` keeps its original expiry, and a key that has
        expired by now is not restored.
        """
        return await self._do(state_history.revert(self._engine, to, ns))

    async def watch(self, ns: str, key: str, timeout: Duration | None = None) -> AsyncIterator[StateVersion]:
        """Yield the newest version of a key whenever any process changes it, until nothing changes for `timeout`.

        A deletion and an expired `ttl` count as changes too: `change.deleted`.

        >>> async for change in agent.state.watch("deploy", "approved"):
        ...     print(change.version, change.value)
        """
        seconds = None if timeout is None else seconds_of(timeout, "timeout")
        place = await self._place(ns, key)
        seen, waited, pause = await self._read(lambda: state.read_latest(self._engine, place)), 0.0, 0.0
        while seconds is None or waited < seconds:
            found = await self._read(lambda: state.read_latest(self._engine, place))
            if state.has_changed(found, seen):
                seen, waited, pause = found, 0.0, 0.0
                yield found
                continue
            seen = found
            # Polling a file is nearly free; a server is polled less and less often.
            most = WAIT_POLL_SECONDS if self._engine.store.one_host else WAIT_POLL_SECONDS_MAX / 5
            pause = min(max(pause * 1.5, WAIT_POLL_SECONDS), most)
            await self._do(sleep_protocol(pause))
            waited += pause

    def transaction(self) -> AsyncStateTransaction:
        """Change several keys, all or none. Raises `VersionConflict` if a key that was read has changed by the end.

        >>> async with agent.state.transaction() as t:
        ...     await t.set("bank", "alice", await t.get("bank", "alice") - 10)
        ...     await t.set("bank", "bob", await t.get("bank", "bob") + 10)
        """
        return AsyncStateTransaction(self._engine)

    async def _place(self, ns: str, key: str) -> StateKey:
        return await self._read(lambda: state.place(self._engine, ns, key))


class AsyncStateAt(AsyncFacade):
    """The state as it was, returned by `agent.state.at`."""

    __slots__ = ("_when",)

    def __init__(self, engine: Engine, when: StateTime) -> None:
        super().__init__(engine)
        self._when = state_history.check_state_time(when, "at")

    async def get(self, ns: str, key: str, default: Any = None) -> Any:
        """Return the value that a key had, or `default` if it did not exist."""
        return await self._read(lambda: state_history.value_at(self._engine, ns, key, self._when, default))

    async def items(self, ns: str) -> builtins.list[tuple[str, Any]]:
        """Return every key that a namespace had, with its value."""
        return list((await self._read(lambda: state_history.items_at(self._engine, ns, self._when))).items())


class AsyncStateTransaction(AsyncFacade):
    """A transaction over several keys, returned by `agent.state.transaction`."""

    __slots__ = ("_asks", "_open", "_seen", "_whole")

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._asks: builtins.list[SetKey] = []
        self._seen: dict[StateKey, VisibleKey] = {}
        self._whole: dict[str, RequireRevision] = {}
        self._open = False

    async def __aenter__(self) -> AsyncStateTransaction:
        if self._open:
            raise NotDurable("the transaction is already open", hint="agent.state.transaction() opens another one")
        self._asks, self._seen, self._whole, self._open = [], {}, {}, True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asks, self._asks, self._open = self._asks, [], False
        if error is None and any(ask.writes for ask in asks):
            await self._do(state.change(self._engine, asks, list(self._whole.values())))

    async def set(
        self, ns: str, key: str, value: Any, ttl: Duration | None = None, if_version: int | None = None
    ) -> None:
        """Set a key when the transaction ends. A failed `if_version` check refuses the whole transaction."""
        self._asks.append(state.ask_set(self._engine, await self._place(ns, key), value, ttl, if_version))

    async def get(self, ns: str, key: str, default: Any = None) -> Any:
        """Return the value of a key, including the changes of this transaction."""
        seen = await self._look(ns, key)
        return seen.value if seen.there else default

    async def version(self, ns: str, key: str) -> int:
        """Return the version that a key will have after this transaction; 0 if it does not exist."""
        return (await self._look(ns, key)).version

    async def items(
        self, ns: str, *, after: str | None = None, limit: int | None = None
    ) -> builtins.list[tuple[str, Any]]:
        """Return every key of a namespace with its value, or a page of them, including the changes of this transaction.

        The transaction is then refused if any key of the namespace changes before it ends.
        """
        self._must_be_open()
        if ns not in self._whole:
            self._whole[ns] = await self._read(lambda: state.make_unchanged_guard(self._engine, ns))
        return await self._do(state.items(self._engine, ns, after, limit, self._asks))

    async def delete(self, ns: str, key: str, if_version: int | None = None) -> None:
        """Delete a key when the transaction ends."""
        self._asks.append(state.ask_delete(await self._place(ns, key), if_version))

    async def update(self, ns: str, key: str, fn: Callable[[Any], Any], ttl: Duration | None = None) -> None:
        """Set a key to `fn(value)` when the transaction ends."""
        self._asks.append(state.ask_update(self._engine, await self._place(ns, key), fn, ttl))

    async def incr(self, ns: str, key: str, by: float = 1, ttl: Duration | None = None) -> None:
        """Add to a number when the transaction ends."""
        await self.update(ns, key, state.make_adder(by, ns, key), ttl)

    async def _look(self, ns: str, key: str) -> VisibleKey:
        place = await self._place(ns, key)
        if place not in self._seen:
            self._seen[place] = seen = await self._do(state.read_current(self._engine, place))
            self._asks.insert(0, SetKey(place, if_version=seen.version, writes=False))
        wanted = [ask for ask in self._asks if ask.place == place and ask.writes]
        return state.apply_changes(self._engine, self._seen[place], wanted)

    async def _place(self, ns: str, key: str) -> StateKey:
        self._must_be_open()
        return await self._read(lambda: state.place(self._engine, ns, key))

    def _must_be_open(self) -> None:
        if not self._open:  # outside the block nothing would ever commit the write
            raise NotDurable(
                "the transaction is not open, so its writes would be lost",
                hint="use it inside `with agent.state.transaction() as t:`; outside the block use agent.state",
            )
