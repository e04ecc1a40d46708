"""`agent.runs`: the runs of an agent seen from outside. Only arguments and documentation live here."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import answers, runs
from ..engine import checked_name
from ..records import Order
from .face import AsyncFace

if TYPE_CHECKING:
    from ..branches.comparing import RunDiff
    from ..branches.forks import Fork
    from ..context.shown import Context
    from ..handoff import Handoff
    from ..handoff.progress import Progress
    from ..orders import RunOrder
    from ..run.undoing import Undo


class AsyncRuns(AsyncFace):
    """`agent.runs`: the runs of this agent, seen from outside."""

    async def get(self, id: str, *, at: int | str | None = None) -> runs.RunInfo:
        """A run in full: status, input, result, state, messages, what is in doubt.

        With `at`, as it was right after an entry, a step or a checkpoint:

        >>> (await agent.runs.get("trip-42", at="search")).state
        """
        if at is not None:
            from ..branches.moments import run_at

            return await self._read(partial(run_at, self._engine.store, self._engine.name, id, at))
        return await self._read(lambda: runs.get_run(self._engine.store, self._engine.name, id))

    async def list(self, status: str | None = None) -> builtins.list[runs.RunSummary]:
        """The runs of this agent, or those in one status; the one that was started, resumed or ended last first."""
        return await self._read(lambda: runs.list_runs(self._engine.store, self._engine.name, status))

    async def result(self, id: str) -> Any:
        """The result of a finished run, without replaying it."""
        return await self._read(lambda: runs.result_of(self._engine.store, self._engine.name, id))

    async def handoff(self, id: str) -> Handoff:
        """A brief of a run for whoever is to go on with it: another process, a person, a model. `str()` is Markdown.

        >>> print(await agent.runs.handoff("trip-42"))
        """
        from ..handoff import handoff_of  # not every program hands over

        return await self._read(lambda: handoff_of(self._engine.store, self._engine.name, id))

    async def context(self, id: str, query: str | None = None, budget: int = 8000, **options: Any) -> Context:
        """What a model would be shown of a run now, open or not; takes what `run.context` takes.

        >>> print((await agent.runs.context("trip-42")).explain())
        """
        from ..context.running import asked, context_of

        return await self._do(context_of(self._engine, id, asked(query, budget, **options)))

    async def progress(self, id: str) -> Progress:
        """How far a run is: what it has said with `run.progress`, and what its steps tell. `str()` is Markdown.

        >>> (await agent.runs.progress("trip-42")).next_action
        """
        from ..handoff.gathering import progress_of
        from ..workspace.home import shown
        from ..workspace.layout import PROGRESS

        await self._do(shown(self._engine, self._engine.home, under=PROGRESS))
        return await self._read(lambda: progress_of(self._engine, id))

    async def retry(self, id: str, *, by: str | None = None) -> None:
        """Queue a run again that has failed for good; what it had done is kept.

        >>> await agent.runs.retry("q3")
        """
        from ..tasks.starting import again

        await self._do(again(self._engine, id, by))

    async def answer(
        self,
        id: str,
        answer: Any = ...,
        *,
        question: str | None = None,
        done: Any = ...,
        retry: bool = False,
        fail: bool = False,
        key: str | None = None,
        by: str | None = None,
    ) -> None:
        """Answer what a run asks; or say of an effect in doubt `done=RESULT`, `retry=True` or `fail=True`.

        >>> await agent.runs.answer("trip-42", "9am")
        >>> await agent.runs.answer("trip-43", done="booking AB12")
        """
        given = answers.read_answer(answer, done, retry, fail)
        give = partial(answers.give_answer, self._engine, id, given, key=key, question=question, by=by)
        await self._read(give)

    async def cancel(self, id: str, reason: str = "", *, by: str | None = None) -> RunOrder:
        """End a run for good, and all runs that are part of it.

        >>> await agent.runs.cancel("trip-42", reason="not needed any more")

        A run that no process has open is cancelled at once. An open one ends at its next step: what is under way is
        recorded first, but an async step is cancelled, and a wait ends. Its block is left with `RunCancelled`.
        """
        return await self._order(id, Order.CANCEL, reason, by)

    async def pause(self, id: str, reason: str = "", *, by: str | None = None) -> RunOrder:
        """Let a run rest until `resume`; an open one is left with `RunPaused`, in the same way as by `cancel`.

        >>> await agent.runs.pause("trip-42")
        """
        return await self._order(id, Order.PAUSE, reason, by)

    async def resume(self, id: str, reason: str = "", *, by: str | None = None) -> RunOrder:
        """Let a paused run be opened again: it goes on where it was when its program is started.

        >>> await agent.runs.resume("trip-42")
        """
        return await self._order(id, Order.RESUME, reason, by)

    async def _order(self, id: str, order: Order, reason: str, by: str | None) -> RunOrder:
        from ..orders import order_run

        return await self._do(order_run(self._engine, id, order, reason, by))

    async def fork(
        self,
        id: str,
        *,
        at: int | str | None = None,
        to: str | None = None,
        override: Mapping[int | str, Any] | None = None,
        input: Any = ...,
    ) -> Fork:
        """Make a run that begins as another one did, and goes its own way. Nothing is copied, and nothing is run yet.

        >>> fork = await agent.runs.fork("trip-42", at="search", override={"search": ["AA1"]})
        >>> async with agent.run(fork.id) as run:
        ...     ...

        `at` is the number of the last entry that they share (`perdure show` has them), the name of a step (right after
        its last end), or of a checkpoint of the run. Without it, the fork begins after the last step that it overrides,
        else with all that there is. `override` says what steps are to have returned; "search#2" is the second of that
        name. `to` is the id of the fork, "trip-42-fork" if you do not say. What the run did after that to the world and
        to its agent is not taken back: it is in `fork.stays`.
        """
        from ..branches import forks

        new = None if to is None else checked_name(to, "a run's id")
        given = forks.NO_INPUT if input is ... else input
        made = forks.fork(self._engine, id, at=at, to=new, override=override, given=given)
        return await self._do(made)

    async def undo(self, id: str, steps: int = 1, *, effects: str = "keep", by: str | None = None) -> Undo:
        """Take back the last steps of a run that is not open: opened again, it does them anew. See `run.undo`."""
        from ..branches.undoing import undo

        return await self._do(undo(self._engine, id, steps, effects, by))

    async def diff(self, a: str, b: str) -> RunDiff:
        """What differs between two runs: steps and their results, state, messages, what they came to.

        >>> print(await agent.runs.diff("trip-42", "trip-43"))
        """
        from ..branches.comparing import compare

        return await self._read(partial(compare, self._engine.store, self._engine.name, a, b))
