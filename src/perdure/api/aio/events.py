"""The public API of `agent.events`: arguments and documentation. The logic is in `perdure.data.events`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar, overload

from perdure.api.aio.base import AsyncFacade
from perdure.data.events.append import append
from perdure.data.events.follow import Follower
from perdure.data.events.read import Event, EventPages, EventQuery, EventTime, book_of, make_query
from perdure.data.events.replay import Reduction, forget, replay
from perdure.data.events.schemas import kinds_of
from perdure.values.durations import Duration, seconds_of
from perdure.values.limits import REPLAY_EVENTS

R = TypeVar("R")
AnyType = TypeVar("AnyType", bound=type)
EventKind = str | type
"""The name of a kind, or the class registered for it."""


class AsyncEvents(AsyncFacade):
    """`agent.events`: an ordered log of what the agent notes, for itself and for others.

    >>> await agent.events.append("ORDER_PLACED", {"order": 17})
    >>> async for event in agent.events.read(kind="ORDER_PLACED"):
    ...     print(event.at, event.payload)

    Inside a step, an effect or an item, an event lands with it exactly once, or not at all. Outside of them it is on
    disk when the call returns. In run code that is replayed, use `run.event`: a resumed run does not repeat it.
    """

    __slots__ = ()

    @overload
    def kind(self, name: AnyType, /) -> AnyType: ...

    @overload
    def kind(self, name: str | None = None, /, *, schema: AnyType, version: int = 1) -> AnyType: ...

    @overload
    def kind(self, name: str | None = None, /, *, version: int = 1) -> Callable[[AnyType], AnyType]: ...

    def kind(self, name: Any = None, /, *, schema: Any = None, version: int = 1) -> Any:
        """Give a kind of events a schema: a dataclass, an attrs class, a msgspec Struct or a pydantic model.

        >>> @agent.events.kind("ORDER_PLACED")
        ... @dataclass
        ... class OrderPlaced:
        ...     order: int
        ...     total: Decimal
        >>> await agent.events.append(OrderPlaced(17, Decimal("9.90")))

        Payloads are checked when they are appended (`EventInvalid`) and come back as instances of the class. Unknown
        fields are kept in `event.extra`. When fields change their meaning, raise `version` and register a conversion
        with `perdure.upcaster(name, from_version=...)`. Without a name, the kind is named after the class:
        `OrderPlaced` becomes `ORDER_PLACED`.
        """
        if isinstance(name, type):
            name, schema = None, name

        def register(cls: Any) -> Any:
            kinds_of(self._engine).add(name, cls, version)
            return cls

        return register if schema is None else register(schema)

    async def append(self, kind: Any, payload: Any = None) -> None:
        """Append one event: a kind and a payload, or an object whose class is registered for a kind.

        >>> await agent.events.append("DEPLOYED", {"version": "1.4"})
        >>> await agent.events.append(kinds.Decision("roll back", why="errors rise"))
        """
        await self._do(append(self._engine, [kinds_of(self._engine).convert_event(kind, payload)]))

    async def append_many(self, events: Iterable[Any]) -> None:
        """Append several events in one commit, all or none: objects, or tuples of a kind and an optional payload.

        >>> await agent.events.append_many([("SEEN", {"page": n}) for n in range(1000)])
        """
        await self._do(append(self._engine, [kinds_of(self._engine).convert_element(one) for one in events]))

    def read(
        self,
        kind: EventKind | Iterable[EventKind] | None = None,
        *,
        run: str | None = None,
        since: EventTime | None = None,
        until: EventTime | None = None,
        limit: int | None = None,
        last: int | None = None,
        typed: bool = True,
    ) -> AsyncIterator[Event]:
        """Iterate over the events of this agent, oldest first, filtered by kinds, run and time.

        `since` and `until` are positions (`event.position`), events or datetimes. A position given as `since` is
        excluded, as `until` included. `limit` takes the first events, `last` the newest. `typed=False` returns payloads
        as stored.

        >>> [event.payload async for event in agent.events.read(kind="SEEN", last=10)]
        """
        wanted = make_query(kinds_of(self._engine), kind, run, since, until, limit=limit, last=last, typed=typed)
        return self._pages(wanted)

    async def _pages(self, wanted: EventQuery) -> AsyncIterator[Event]:
        pages = EventPages(lambda: book_of(self._engine), wanted)
        while found := await self._read(pages.read_next_page):
            # unasync: async-only
            for event in found:
                yield event
            # unasync: end
            # unasync: sync-only
            #: yield from found
            # unasync: end

    def follow(
        self,
        kind: EventKind | Iterable[EventKind] | None = None,
        *,
        run: str | None = None,
        since: EventTime | None = None,
        timeout: Duration | None = None,
        stop: Callable[[], bool] | None = None,
        typed: bool = True,
    ) -> AsyncIterator[Event]:
        """Iterate over events as any process appends them, from now on or from `since`.

        Each event comes once and in order, and none appears later before a position that was delivered. Store
        `event.position` and follow from there after a restart. An empty `since` starts before the first event. Ends
        when no event comes for `timeout` (0: when all existing events were delivered), or when `stop()` returns true.

        >>> async for event in agent.events.follow(kind="ORDER_PLACED", since=position):
        ...     await ship(event.payload)
        """
        wanted = make_query(kinds_of(self._engine), kind, run, since, typed=typed)
        seconds = None if timeout is None else 0.0 if timeout == 0 else seconds_of(timeout, "timeout")
        follower = Follower(self._engine.store, lambda: book_of(self._engine), wanted, seconds, stop)
        # unasync: sync-only
        #: follower.begin()  # include events appended between this call and the first read
        # unasync: end
        return self._follow(follower)

    async def _follow(self, follower: Follower) -> AsyncIterator[Event]:
        while found := await self._do(follower.fetch_more()):
            # unasync: async-only
            for event in found:
                yield event
            # unasync: end
            # unasync: sync-only
            #: yield from found
            # unasync: end

    async def replay(
        self,
        reducer: Callable[[Any, Event], Any],
        initial: Any = None,
        *,
        until: EventTime | None = None,
        kind: EventKind | Iterable[EventKind] | None = None,
        run: str | None = None,
        snapshot: str | None = None,
        version: str | int | None = None,
        every: int = REPLAY_EVENTS,
    ) -> Any:
        """Reduce events in order with `state = reducer(state, event)`, starting from `initial`. Returns the last state.

        >>> await agent.events.replay(lambda total, event: total + event.payload.total, 0, kind=OrderPlaced)

        With a `snapshot` name and a `version`, the state is saved after every `every` events, and the next replay
        starts there. A saved state belongs to the name, the version and the initial value. Raise the version whenever
        the reducer, or code that it calls, changes. Without a version nothing is saved.
        """
        wanted = make_query(kinds_of(self._engine), kind, run, None, until)
        return await self._do(replay(self._engine, Reduction(reducer, initial, wanted, snapshot, every, version)))

    async def forget(self, snapshot: str) -> None:
        """Delete the saved states of a snapshot name: the next replay starts again.

        Call it when a reducer is changed or no longer used: `gc(events_before=...)` keeps the events that a saved
        replay has not passed. A replay whose events were compacted cannot start again.

        >>> await agent.events.forget("revenue")
        """
        await self._do(forget(self._engine, snapshot))
