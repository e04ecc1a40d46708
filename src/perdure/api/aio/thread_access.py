"""How an agent gives its conversations: `agent.thread`, `agent.turn`, `agent.threads`. Loaded when first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure.api.aio.base import AsyncFacade

if TYPE_CHECKING:
    from perdure.api.aio.conversation import AsyncThread, AsyncTurnFunction
    from perdure.api.aio.threads import AsyncThreads


class AsyncThreadAccess(AsyncFacade):
    """The part of an agent that has to do with conversations."""

    __slots__ = ()

    def thread(self, id: str) -> AsyncThread:
        """Return a conversation over many requests: the same id is the same one, in any process.

        >>> async with agent.thread("user-123").turn("Book a flight to NYC") as turn:
        ...     await turn.reply("Which day?")
        """
        from perdure.api.aio.conversation import AsyncThread

        return AsyncThread(self._engine, id)

    def turn(self, function: Callable[..., Any], /) -> AsyncTurnFunction:
        """Make a function do the turns of threads: called once for each turn, resumed after a crash.

        >>> @agent.turn
        ... async def chat(turn):
        ...     await turn.reply(await ask((await turn.context(budget=8000)).messages))
        >>> reply = await chat("user-123", "Book a flight to NYC")
        """
        from perdure.api.aio.conversation import make_turn

        return make_turn(self._engine, function)

    @property
    def threads(self) -> AsyncThreads:
        """All conversations of this agent: its own, and those that a framework has saved with it."""
        from perdure.api.aio.threads import AsyncThreads

        return AsyncThreads(self._engine)
