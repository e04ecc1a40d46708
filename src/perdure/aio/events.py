"""The public face of `agent.events`. Only arguments and documentation: `perdure.events` decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar, overload

from ..durations import Duration, seconds_of
from ..events.following import Follower
from ..events.reading import Asked, Event, Pages, When, asked, book_of
from ..events.replaying import Fold, forget, replay
from ..events.writing import append
from ..limits import REPLAY_EVENTS
from .face import AsyncFace

R = TypeVar("R")
AnyType = TypeVar("AnyType", bound=type)
Kind = str | type
"""Its name, or the class that is registered for it."""


class AsyncEvents(AsyncFace):
    """`agent.events`: what the agent notes, in order, for itself and for others.

    >>> await agent.events.append("ORDER_PLACED", {"order": 17})
    >>> async for event in agent.events.read(kind="ORDER_PLACED"):
    ...     print(event.at, event.payload)

    Inside a step, an effect or an item an event lands with it, once, or not at all; in the open it is on disk when the
    call returns. `run.event` is the same for code that is replayed: it is not done again when the run is resumed.
    """

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

        Payloads are checked when they are appended (`EventInvalid`) and come back as objects of the class. Fields that
        the class does not have are kept in `event.extra`. When fields change their meaning, raise the `version` and
        say with `perdure.upcaster(name, from_version=...)` how older ones become the new. Without a name, the kind is
        called like the class: `OrderPlaced` is `ORDER_PLACED`.
        """
        if isinstance(name, type):
            name, schema = None, name

        def register(cls: Any) -> Any:
            self._engine.kinds.add(name, cls, version)
            return cls

        return register if schema is None else register(schema)

    async def append(self, kind: Any, payload: Any = None) -> None:
        """Append one event: a kind and a payload, or an object whose class is registered for a kind.

        >>> await agent.events.append("DEPLOYED", {"version": "1.4"})
        >>> await agent.events.append(kinds.Decision("roll back", why="errors rise"))
        """
        await self._do(append(self._engine, [self._engine.kinds.noted(kind, payload)]))

    async def append_many(self, events: Iterable[Any]) -> None:
        """Append several in one commit, all or none: objects, or pairs of a kind and a payload; `("SEEN",)` has none.

        >>> await agent.events.append_many([("SEEN", {"page": n}) for n in range(1000)])
        """
        await self._do(append(self._engine, [self._engine.kinds.given(one) for one in events]))

    def read(
        self,
        kind: Kind | Iterable[Kind] | None = None,
        *,
        run: str | None = None,
        since: When | None = None,
        until: When | None = None,
        limit: int | None = None,
        last: int | None = None,
        typed: bool = True,
    ) -> AsyncIterator[Event]:
        """The events of this agent, oldest first, read as you go: of a kind or several, of a run, of a time.

        `since` and `until` are positions (`event.position`), events or datetimes. What comes after a position begins
        behind it; `until` includes it. `limit` takes the first ones, `last` the newest. `typed=False` gives payloads as
        they are stored.

        >>> [event.payload async for event in agent.events.read(kind="SEEN", last=10)]
        """
        wanted = asked(self._engine.kinds, kind, run, since, until, limit=limit, last=last, typed=typed)
        return self._pages(wanted)

    async def _pages(self, wanted: Asked) -> AsyncIterator[Event]:
        pages = Pages(lambda: book_of(self._engine), wanted)
        while found := await self._read(pages.turn):
            # unasync: async-only
            for event in found:
                yield event
            # unasync: end
            # unasync: sync-only
            #: yield from found
            # unasync: end

    def follow(
        self,
        kind: Kind | Iterable[Kind] | None = None,
        *,
        run: str | None = None,
        since: When | None = None,
        timeout: Duration | None = None,
        stop: Callable[[], bool] | None = None,
        typed: bool = True,
    ) -> AsyncIterator[Event]:
        """Events as they come, from now on or from `since` on, whichever process appends them.

        Each comes once and in order, and nothing appears later below a position that was given: keep
        `event.position`, and follow from there after a restart. An empty `since` is before the first event. It ends
        when none comes for `timeout` (0: when all that is there was given), or when `stop()` is true.

        >>> async for event in agent.events.follow(kind="ORDER_PLACED", since=position):
        ...     await ship(event.payload)
        """
        wanted = asked(self._engine.kinds, kind, run, since, typed=typed)
        seconds = None if timeout is None else 0.0 if timeout == 0 else seconds_of(timeout, "timeout")
        follower = Follower(self._engine.store, lambda: book_of(self._engine), wanted, seconds, stop)
        # unasync: sync-only
        #: follower.begin()  # what is appended between this call and the first look is new
        # unasync: end
        return self._follow(follower)

    async def _follow(self, follower: Follower) -> AsyncIterator[Event]:
        while found := await self._do(follower.more()):
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
        until: When | None = None,
        kind: Kind | Iterable[Kind] | None = None,
        run: str | None = None,
        snapshot: str | None = None,
        every: int = REPLAY_EVENTS,
    ) -> Any:
        """Fold events in order: `state = reducer(state, event)` for each, from `initial` on; returns the last state.

        >>> await agent.events.replay(lambda total, event: total + event.payload.total, 0, kind=OrderPlaced)

        With a name as `snapshot`, the state is kept after `every` so many events, and the next replay begins there.
        What is kept belongs to the name, the initial value, and the reducer with what it uses; change the name when
        something has changed that it calls in another module. When it uses what cannot be told from another (a lock,
        an agent), nothing is kept.
        """
        wanted = asked(self._engine.kinds, kind, run, None, until)
        return await self._do(replay(self._engine, Fold(reducer, initial, wanted, snapshot, every)))

    async def forget(self, snapshot: str) -> None:
        """Forget what replays with this snapshot have kept: the next one begins anew.

        Say so when a reducer is not used any more, or was changed: `gc(events_before=...)` leaves the events that a
        kept replay has not passed. One whose events were folded cannot begin anew.

        >>> await agent.events.forget("revenue")
        """
        await self._do(forget(self._engine, snapshot))
