"""What a model is shown of a run: `run.context`, `run.compact`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..run.core import RunCore
from ..run.functions import Options
from ..run.spoken import SUMMED_UP

if TYPE_CHECKING:
    from ..context.compacting import Compaction
    from ..context.layout import Layout
    from ..context.shown import Context
    from ..tokens import Tokens


class AsyncShown:
    """The part of a run that has to do with what a model is shown. It is loaded when it is first used."""

    async def context(
        self,
        query: str | None = None,
        budget: int = 8000,
        layout: Layout | None = None,
        *,
        tokens: Tokens | None = None,
        memories: int = 8,
        user: str | None = None,
        min_trust: float | str = 0.0,
    ) -> Context:
        """What the model is to be shown next, in at most so many tokens.

        >>> context = await run.context("Which flight?", budget=8000)
        >>> answer = await client.chat.completions.create(model="...", messages=context.messages)

        Identity, user, long-term memory, the logs of today and yesterday, active tasks and progress, memories that fit
        the query, and the conversation: pinned and recent turns as they are, older observations masked, the oldest
        turns in a summary. `.explain()` is a picture of the budget, `.dropped` what is not shown and why;
        `agent.open(ref)` reads that again. The query is the last message of the user unless you give one.
        `layout` chooses sections: `{"identity": "You book trips.", "conversation": 0.8}`. Tokens are counted by an
        installed tokeniser, else estimated, unless you give a function `tokens`. At most so many `memories` are shown,
        only those of `user` if you name one, and none that is trusted less than `min_trust`.
        """
        from ..context.running import asked, context

        it = asked(query, budget, layout, tokens, memories=memories, user=user, min_trust=min_trust)
        shown: Context = await self._do(context(self._core, it))
        return shown

    async def compact(self, *, keep: int = 10, summarise: Callable[..., Any] | None = None) -> Compaction:
        """Let a summary stand for all but the last messages, in `run.messages` and in contexts, from now on.

        >>> await run.compact(keep=10)
        <Compaction of 120 messages: 48,000 -> 3,100 tokens>

        Nothing is lost: the journal has every message, `run.messages.raw` too, `agent.open(ref)` reads them, and
        `run.uncompact()` takes it back. Pinned messages stay, and no call is parted from its result.
        `summarise(messages)` returns a text; it is called as a step. Without it the summary is made of the messages'
        own first words. When the run is resumed it is not done again.
        """
        from ..context.compacting import plan, record

        planned = await self._do(plan(self._core, keep, raw=summarise is not None))
        told = None
        if summarise is not None and planned.old:
            options = Options(id=f"{SUMMED_UP}{planned.upto}")
            told = await self._call(summarise, False, "compact", (), options, (list(planned.raw),), {})
        done: Compaction = await self._do(record(self._core, planned, told))
        return done

    async def uncompact(self) -> None:
        """Take the last compaction back: the messages are shown again."""
        from ..context.compacting import uncompact

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
            options: Options,
            args: tuple[Any, ...],
            kwargs: dict[str, Any],
        ) -> Any: ...
