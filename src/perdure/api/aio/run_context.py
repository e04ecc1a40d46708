"""The public API of `run.context` and `run.compact`. The logic is in `perdure.presence.context`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from perdure.errors import WrongType
from perdure.run.conversation import SUMMED_UP
from perdure.run.core import RunCore
from perdure.run.function import CallOptions
from perdure.values.attributes import KnownAttributes

if TYPE_CHECKING:
    from perdure.presence.context.compact import Compaction
    from perdure.presence.context.context import Context
    from perdure.presence.context.layout import ContextLayout
    from perdure.values.tokens import TokenCounter


class AsyncRunContext(KnownAttributes):
    """The methods of a run that build the context for a model. Their modules are imported on first use."""

    __slots__ = ()

    # unasync: async-only
    def __enter__(self) -> NoReturn:
        raise WrongType(f"{type(self).__name__} needs `async with`", hint="or take Agent instead of AsyncAgent")

    def __exit__(self, *error: object) -> None:
        """Never called: Python looks it up before it enters the block."""

    # unasync: end
    # unasync: sync-only
    #: def __aenter__(self) -> NoReturn:
    #:     raise WrongType(f"{type(self).__name__} needs `with`", hint="or take AsyncAgent, for `async with`")
    #:
    #: def __aexit__(self, *error: object) -> None:
    #:     """Never called: Python looks it up before it enters the block."""
    #:
    # unasync: end

    async def context(
        self,
        query: str | None = None,
        budget: int = 8000,
        layout: ContextLayout | None = None,
        *,
        tokens: TokenCounter | None = None,
        memories: int = 8,
        user: str | None = None,
        min_trust: float | str = 0.0,
    ) -> Context:
        """Return the context to send to a model next, within a budget of tokens.

        >>> context = await run.context("Which flight?", budget=8000)
        >>> answer = await client.chat.completions.create(model="...", messages=context.messages)

        It has identity, user, long-term memory, the logs of today and yesterday, active tasks and progress, memories
        that match the query, and the conversation. Pinned and recent turns are complete, older observations masked, the
        oldest turns summarised. `.explain()` draws the budget. `.dropped` lists what was left out and why;
        `agent.open(ref)` reads it. The default query is the last user message. `layout` chooses sections:
        `{"identity": "You book trips.", "conversation": 0.8}`. `tokens` is a function that counts tokens; by default an
        installed tokeniser counts, else they are estimated. At most `memories` memories are included, only those of
        `user` if given, and none below `min_trust`. Raises `ContextTooSmall`.
        """
        from perdure.presence.context.run_context import context, make_query

        request = make_query(query, budget, layout, tokens, memories=memories, user=user, min_trust=min_trust)
        shown: Context = await self._do(context(self._core, request))
        return shown

    async def compact(self, *, keep: int = 10, summarise: Callable[..., Any] | None = None) -> Compaction:
        """Replace all but the last `keep` messages by a summary, in `run.messages` and in contexts.

        >>> await run.compact(keep=10)
        <Compaction of 120 messages: 48,000 -> 3,100 tokens>

        Nothing is lost: `run.messages.raw` has every message, `agent.open(ref)` reads them, and `run.uncompact()`
        restores them. Pinned messages stay, and a tool call is never separated from its result. `summarise(messages)`
        returns a text and is called as a step. Without it, the summary consists of the first words of each message. A
        resumed run does not repeat the compaction.
        """
        from perdure.presence.context.compact import plan, record

        planned = await self._do(plan(self._core, keep, raw=summarise is not None))
        told = None
        if summarise is not None and planned.old:
            options = CallOptions(id=f"{SUMMED_UP}{planned.upto}")
            told = await self._call(summarise, False, "compact", (), options, (list(planned.raw),), {})
        done: Compaction = await self._do(record(self._core, planned, told))
        return done

    async def uncompact(self) -> None:
        """Undo the last compaction: its messages are shown again. Raises `NothingCompacted`."""
        from perdure.presence.context.compact import uncompact

        await self._do(uncompact(self._core))

    if TYPE_CHECKING:

        @property
        def _core(self) -> RunCore: ...

        async def _do(self, protocol: Any) -> Any: ...

        async def _call(
            self,
            function: Callable[..., Any],
            effect: bool,
            name: str | None,
            ignore: Iterable[str],
            options: CallOptions,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
        ) -> Any: ...
