"""`agent.runs`: inspect and control the runs of an agent. Only arguments and documentation live here."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.api.aio.base import AsyncFacade
from perdure.kernel.names import check_identifier
from perdure.presence.workspace.open_folder import home_of
from perdure.records import Order
from perdure.run import answers, listing

if TYPE_CHECKING:
    from perdure.presence.context.context import Context
    from perdure.presence.handoff import HandoffBrief
    from perdure.presence.handoff.progress import Progress
    from perdure.run.branches.compare import RunDiff
    from perdure.run.branches.fork import Fork
    from perdure.run.orders import RunOrder
    from perdure.run.undo import Undo


class AsyncRuns(AsyncFacade):
    """`agent.runs`: inspect and control the runs of this agent."""

    __slots__ = ()

    async def get(self, id: str, *, at: int | str | None = None) -> listing.RunInfo:
        """Return a run in full: status, input, result, state, messages, effects in doubt.

        With `at`, return it as it was right after an entry, a step or a checkpoint:

        >>> (await agent.runs.get("trip-42", at="search")).state
        """
        if at is not None:
            from perdure.run.branches.past import read_run_at

            return await self._read(partial(read_run_at, self._engine.store, self._engine.name, id, at))
        return await self._read(lambda: listing.get_run(self._engine.store, self._engine.name, id))

    async def list(self, status: str | None = None, *, limit: int | None = None) -> builtins.list[listing.RunSummary]:
        """Return the runs of this agent, or those with one status, most recently active first; at most `limit`."""
        return await self._read(lambda: listing.list_runs(self._engine.store, self._engine.name, status, limit=limit))

    async def result(self, id: str) -> Any:
        """Return the result of a finished run, without replaying it."""
        return await self._read(lambda: listing.result_of(self._engine.store, self._engine.name, id))

    async def handoff(self, id: str) -> HandoffBrief:
        """Return a brief for whoever continues a run: another process, a person, a model. `str()` is Markdown.

        >>> print(await agent.runs.handoff("trip-42"))
        """
        from perdure.presence.handoff import handoff_of  # many programs never hand over

        return await self._read(lambda: handoff_of(self._engine.store, self._engine.name, id))

    async def context(self, id: str, query: str | None = None, budget: int = 8000, **options: Any) -> Context:
        """Return the context that a model would be shown of a run now, open or not. Takes the options of `run.context`.

        >>> print((await agent.runs.context("trip-42")).explain())
        """
        from perdure.presence.context.run_context import context_of, make_query

        return await self._do(context_of(self._engine, id, make_query(query, budget, **options)))

    async def progress(self, id: str) -> Progress:
        """Return the progress of a run: its `run.progress` reports and its steps. `str()` is Markdown.

        >>> (await agent.runs.progress("trip-42")).next_action
        """
        from perdure.presence.handoff.gather import progress_of
        from perdure.presence.workspace.layout import PROGRESS
        from perdure.presence.workspace.workspace import update_files

        await self._do(update_files(self._engine, home_of(self._engine), under=PROGRESS))
        return await self._read(lambda: progress_of(self._engine, id))

    async def retry(self, id: str, *, by: str | None = None) -> None:
        """Queue a run that failed for good again. Finished steps are kept.

        Steps whose results could not be stored run again when the run is opened next, by a worker or its program.

        >>> await agent.runs.retry("q3")
        """
        from perdure.work.tasks.submission import retry_run

        await self._do(retry_run(self._engine, id, by))

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
        """Answer a question of a run, or resolve an effect in doubt with `done=RESULT`, `retry=True` or `fail=True`.

        >>> await agent.runs.answer("trip-42", "9am")
        >>> await agent.runs.answer("trip-43", done="booking AB12")
        """
        given = answers.make_answer(answer, done, retry, fail)
        give = partial(answers.give_answer, self._engine, id, given, key=key, question=question, by=by)
        await self._read(give)

    async def cancel(self, id: str, reason: str = "", *, by: str | None = None) -> RunOrder:
        """Cancel a run and its child runs for good.

        >>> await agent.runs.cancel("trip-42", reason="not needed any more")

        A run that no process has open is cancelled at once. An open run stops at its next step: work in progress is
        recorded first, except that an async step is cancelled and a wait ends. Its block raises `RunCancelled`.
        """
        return await self._order(id, Order.CANCEL, reason, by)

    async def pause(self, id: str, reason: str = "", *, by: str | None = None) -> RunOrder:
        """Pause a run until `resume`. The block of an open run raises `RunPaused`, as with `cancel`.

        >>> await agent.runs.pause("trip-42")
        """
        return await self._order(id, Order.PAUSE, reason, by)

    async def resume(self, id: str, reason: str = "", *, by: str | None = None) -> RunOrder:
        """Allow a paused run to be opened again. It continues when its program is started.

        >>> await agent.runs.resume("trip-42")
        """
        return await self._order(id, Order.RESUME, reason, by)

    async def _order(self, id: str, order: Order, reason: str, by: str | None) -> RunOrder:
        from perdure.run.orders import order_run

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
        """Create a run that shares the beginning of another one. Nothing is copied and nothing executes yet.

        >>> fork = await agent.runs.fork("trip-42", at="search", override={"search": ["AA1"]})
        >>> async with agent.run(fork.id) as run:
        ...     ...

        `at` is the number of the last shared entry (see `perdure show`), the name of a step (right after it last
        ended), or a checkpoint of the run. By default the fork starts after the last overridden step, else at the end.
        `override` maps steps to results; "search#2" is the second step of that name. `to` is the id of the fork, by
        default "trip-42-fork". Later changes to the outside world and to the agent are not undone: see `fork.stays`.
        """
        from perdure.run.branches import fork as forks

        new = None if to is None else check_identifier(to, "a run's id")
        given = forks.NO_INPUT if input is ... else input
        made = forks.fork(self._engine, id, at=at, to=new, override=override, given=given)
        return await self._do(made)

    async def undo(self, id: str, steps: int = 1, *, effects: str = "keep", by: str | None = None) -> Undo:
        """Undo the last steps of a run that is not open. It repeats them when opened again. See `run.undo`."""
        from perdure.run.branches.undo_closed import undo

        return await self._do(undo(self._engine, id, steps, effects, by))

    async def diff(self, a: str, b: str) -> RunDiff:
        """Compare two runs: steps and their results, state, messages, outcome.

        >>> print(await agent.runs.diff("trip-42", "trip-43"))
        """
        from perdure.run.branches.compare import compare

        return await self._read(partial(compare, self._engine.store, self._engine.name, a, b))
