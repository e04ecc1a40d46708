"""The public face of `agent.state`. Only arguments and documentation: `perdure.state` decides."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, TypeVar

from .. import rewinding, state
from ..durations import Duration, seconds_of
from ..engine import Engine
from ..errors import NotDurable
from ..journal.landing import Ask, Place, Unchanged
from ..limits import WAIT_POLL_SECONDS, WAIT_POLL_SECONDS_MAX
from ..rewinding import When
from ..run.requests import pausing
from ..state import Seen, StateVersion
from .face import AsyncFace

R = TypeVar("R")


class AsyncAgentState(AsyncFace):
    """`agent.state`: namespaced keys, always live, each with versions and a history.

    >>> page = await agent.state.get("crawl", "page", 0)
    >>> await agent.state.set("crawl", "page", page + 1)

    Inside a step, an effect or an item a change lands with it, or not at all; in the open it is on disk when the call
    returns.
    """

    async def set(
        self, ns: str, key: str, value: Any, ttl: Duration | None = None, if_version: int | None = None
    ) -> int:
        """Set a key, and return its version: 1, then 2, and so on.

        After `ttl` (seconds, a timedelta or "2h") it is gone. `if_version` refuses with `VersionConflict` when the
        key has another version by now; 0 is a key that is not there.
        """
        ask = state.ask_set(self._engine, await self._place(ns, key), value, ttl, if_version)
        return (await self._do(state.write_one(self._engine, ask))).version

    async def get(self, ns: str, key: str, default: Any = None) -> Any:
        """The value of a key, as a copy that nobody else has."""
        return await self._do(state.get(self._engine, ns, key, default))

    async def version(self, ns: str, key: str) -> int:
        """The version of a key, for `if_version`; 0 when it is not there."""
        return await self._do(state.version(self._engine, ns, key))

    async def delete(self, ns: str, key: str, if_version: int | None = None) -> bool:
        """Remove a key; whether it was there. Its history stays."""
        return await self._do(state.delete(self._engine, await self._place(ns, key), if_version))

    async def items(
        self, ns: str, *, after: str | None = None, limit: int | None = None
    ) -> builtins.list[tuple[str, Any]]:
        """Every key of a namespace with its value, in the order of the keys.

        Of a large one, page by page: `limit` keys at most, those that come `after` the last key that you have.
        """
        return await self._do(state.items(self._engine, ns, after, limit))

    async def update(self, ns: str, key: str, fn: Callable[[Any], Any], ttl: Duration | None = None) -> Any:
        """Set a key to what `fn` makes of its value (None when it is not there), and return that.

        Atomic: `fn` is called inside the commit. It should be quick, and may be called again. It cannot write.
        Without `ttl` the key lives as long as it would have lived; with it, that long from now.

        >>> await agent.state.update("crawl", "seen", lambda seen: [*(seen or []), url])
        """
        ask = state.ask_update(self._engine, await self._place(ns, key), fn, ttl)
        return (await self._do(state.write_one(self._engine, ask))).value

    async def incr(self, ns: str, key: str, by: float = 1, ttl: Duration | None = None) -> Any:
        """Add to a number, from 0, and return it. Atomic; `ttl` as of `update`."""
        return await self.update(ns, key, state.adding(by, ns, key), ttl)

    async def history(self, ns: str, key: str) -> builtins.list[StateVersion]:
        """Every value that a key has had, oldest first."""
        return await self._read(lambda: state.history(self._engine, ns, key))

    def at(self, when: When) -> AsyncStateAt:
        """The state as it was: at a time (a datetime), or after that many changes of the namespace that is asked.

        What has a `ttl` is shown if it had time left at that time; after a number of changes, if it has some now.

        >>> await agent.state.at(yesterday).get("crawl", "page")
        """
        return AsyncStateAt(self._engine, when)

    async def revision(self, ns: str) -> int:
        """How often a namespace has changed: the number for `at` and `revert`."""
        return await self._read(lambda: state.revision(self._engine, ns))

    async def revert(self, to: When, ns: str | None = None) -> int:
        """Make a namespace what it was, as a new change; without `ns` all of them. Returns how many keys changed.

        A key with a `ttl` ends when it would have ended; what has run out by now does not come back.
        """
        return await self._do(rewinding.revert(self._engine, to, ns))

    async def watch(self, ns: str, key: str, timeout: Duration | None = None) -> AsyncIterator[StateVersion]:
        """Yield the newest version of a key whenever it has changed, whoever did; ends when none comes for `timeout`.

        That it was deleted, or that its `ttl` has run out, is a change too: `change.deleted`.

        >>> async for change in agent.state.watch("deploy", "approved"):
        ...     print(change.version, change.value)
        """
        seconds = None if timeout is None else seconds_of(timeout, "timeout")
        place = await self._place(ns, key)
        seen, waited, pause = await self._read(lambda: state.latest(self._engine, place)), 0.0, 0.0
        while seconds is None or waited < seconds:
            found = await self._read(lambda: state.latest(self._engine, place))
            if state.is_news(found, seen):
                seen, waited, pause = found, 0.0, 0.0
                yield found
                continue
            seen = found
            # A look at a file costs next to nothing; a server is asked less and less often.
            most = WAIT_POLL_SECONDS if self._engine.store.one_host else WAIT_POLL_SECONDS_MAX / 5
            pause = min(max(pause * 1.5, WAIT_POLL_SECONDS), most)
            await self._do(pausing(pause))
            waited += pause

    def transaction(self) -> AsyncStateTransaction:
        """Several keys, all or none; what was read must still be so when it ends, or it is a `VersionConflict`.

        >>> async with agent.state.transaction() as t:
        ...     await t.set("bank", "alice", await t.get("bank", "alice") - 10)
        ...     await t.set("bank", "bob", await t.get("bank", "bob") + 10)
        """
        return AsyncStateTransaction(self._engine)

    async def _place(self, ns: str, key: str) -> Place:
        return await self._read(lambda: state.place(self._engine, ns, key))


class AsyncStateAt(AsyncFace):
    """What `agent.state.at` returns."""

    def __init__(self, engine: Engine, when: When) -> None:
        super().__init__(engine)
        self._when = when

    async def get(self, ns: str, key: str, default: Any = None) -> Any:
        """The value that a key had."""
        return await self._read(lambda: rewinding.value_at(self._engine, ns, key, self._when, default))

    async def items(self, ns: str) -> builtins.list[tuple[str, Any]]:
        """Every key that a namespace had, with its value."""
        return list((await self._read(lambda: rewinding.items_at(self._engine, ns, self._when))).items())


class AsyncStateTransaction(AsyncFace):
    """What `agent.state.transaction` returns."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._asks: builtins.list[Ask] = []
        self._seen: dict[Place, Seen] = {}
        self._whole: dict[str, Unchanged] = {}
        self._open = False

    async def __aenter__(self) -> AsyncStateTransaction:
        if self._open:
            raise NotDurable("the transaction is open already", hint="agent.state.transaction() makes another one")
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
        """Set a key when the transaction ends; `if_version` is asked then, and refuses all of it."""
        self._asks.append(state.ask_set(self._engine, await self._place(ns, key), value, ttl, if_version))

    async def get(self, ns: str, key: str, default: Any = None) -> Any:
        """The value of a key, with what this transaction has done to it."""
        seen = await self._look(ns, key)
        return seen.value if seen.there else default

    async def version(self, ns: str, key: str) -> int:
        """The version of a key, as this transaction will make it; 0 when it is not there."""
        return (await self._look(ns, key)).version

    async def items(
        self, ns: str, *, after: str | None = None, limit: int | None = None
    ) -> builtins.list[tuple[str, Any]]:
        """Every key of a namespace with its value, with what this transaction has done to them; or a page of them.

        No key of the namespace may change then before the transaction ends.
        """
        self._must_be_open()
        if ns not in self._whole:
            self._whole[ns] = await self._read(lambda: state.as_it_is(self._engine, ns))
        return await self._do(state.items(self._engine, ns, after, limit, self._asks))

    async def delete(self, ns: str, key: str, if_version: int | None = None) -> None:
        """Remove a key when the transaction ends."""
        self._asks.append(Ask(await self._place(ns, key), if_version=if_version))

    async def update(self, ns: str, key: str, fn: Callable[[Any], Any], ttl: Duration | None = None) -> None:
        """Set a key to what `fn` makes of it when the transaction ends."""
        self._asks.append(state.ask_update(self._engine, await self._place(ns, key), fn, ttl))

    async def incr(self, ns: str, key: str, by: float = 1, ttl: Duration | None = None) -> None:
        """Add to a number when the transaction ends."""
        await self.update(ns, key, state.adding(by, ns, key), ttl)

    async def _look(self, ns: str, key: str) -> Seen:
        place = await self._place(ns, key)
        if place not in self._seen:
            self._seen[place] = seen = await self._do(state.peek(self._engine, place))
            self._asks.insert(0, Ask(place, if_version=seen.version, writes=False))
        wanted = [ask for ask in self._asks if ask.place == place and ask.writes]
        return state.within(self._engine, self._seen[place], wanted)

    async def _place(self, ns: str, key: str) -> Place:
        self._must_be_open()
        return await self._read(lambda: state.place(self._engine, ns, key))

    def _must_be_open(self) -> None:
        if not self._open:  # nobody would ever write it
            raise NotDurable(
                "the transaction is not open: what it is told would be lost",
                hint="use it inside `with agent.state.transaction() as t:`, and agent.state outside of it",
            )
