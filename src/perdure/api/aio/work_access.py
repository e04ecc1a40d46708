"""The part of an agent for work over many runs: threads, workflows, playbooks. Each is imported when first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from perdure.api.aio.base import AsyncFacade

if TYPE_CHECKING:
    from perdure.api.aio.conversation import AsyncThread, AsyncTurnFunction
    from perdure.api.aio.playbooks import AsyncPlaybooks
    from perdure.api.aio.threads import AsyncThreads
    from perdure.api.aio.workflows import AsyncWorkflows


class AsyncWorkAccess(AsyncFacade):
    """The part of an agent for threads, workflows and playbooks."""

    __slots__ = ()

    def thread(self, id: str) -> AsyncThread:
        """Return a conversation over many requests: the same id is the same one, in any process.

        >>> async with agent.thread("user-123").turn("Book a flight to NYC") as turn:
        ...     await turn.reply("Which day?")
        """
        from perdure.api.aio.conversation import AsyncThread

        return AsyncThread(self._engine, id)

    @overload
    def turn(self, function: Callable[..., Any], /) -> AsyncTurnFunction: ...
    @overload
    def turn(self, /) -> Callable[[Callable[..., Any]], AsyncTurnFunction]: ...
    def turn(self, function: Callable[..., Any] | None = None, /) -> Any:
        """Make a function do the turns of threads: called once for each turn, resumed after a crash.

        >>> @agent.turn
        ... async def chat(turn):
        ...     await turn.reply(await ask((await turn.context(budget=8000)).messages))
        >>> reply = await chat("user-123", "Book a flight to NYC")

        `@agent.turn()` does the same.
        """
        from perdure.api.aio.conversation import make_turn

        return self.turn if function is None else make_turn(self._engine, function)

    @property
    def threads(self) -> AsyncThreads:
        """All conversations of this agent: its own, and those that a framework has saved with it."""
        from perdure.api.aio.threads import AsyncThreads

        return AsyncThreads(self._engine)

    @property
    def workflows(self) -> AsyncWorkflows:
        """Plans with a status for every step."""
        from perdure.api.aio.workflows import AsyncWorkflows

        return AsyncWorkflows(self._engine)

    @property
    def playbooks(self) -> AsyncPlaybooks:
        """What strong models worked out, kept so that cheap ones can follow it."""
        from perdure.api.aio.playbooks import AsyncPlaybooks

        return AsyncPlaybooks(self._engine)
