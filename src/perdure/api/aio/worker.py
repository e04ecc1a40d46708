"""The public API of workers, which execute queued runs, several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from perdure.kernel.engine import Engine
from perdure.run.lifecycle import TakenRun
from perdure.work.tasks.definition import tasks_of
from perdure.work.tasks.dispatch import Dispatcher, outcome_text, run_id_of, task_of

WorkerReporter = Callable[[str, str, str], None]
"""Called with the run, its task, and `taken` or the outcome."""


class AsyncWorker:
    """Executes queued runs until drained. `perdure worker module:agent` runs one.

    >>> worker = agent.worker(queues=["mail"], concurrency=4)
    >>> await worker.run()
    """

    def __init__(
        self, engine: Engine, queues: Sequence[str] | None, concurrency: int, report: WorkerReporter | None = None
    ) -> None:
        # unasync: async-only
        self._dispatch = Dispatcher(engine, queues, concurrency, loop=True)
        # unasync: end
        # unasync: sync-only
        #: self._dispatch = Dispatcher(engine, queues, concurrency, loop=False)
        # unasync: end
        self._concurrency = concurrency
        self._report = report or (lambda run, task, what: None)
        self._probation = asyncio.Lock()

    @property
    def under_way(self) -> int:
        """How many runs this worker is executing."""
        return self._dispatch.under_way

    def drain(self) -> None:
        """Take no new runs. Runs in progress stop at their next step and are left to other workers. Thread-safe."""
        self._dispatch.drain()

    async def run(self) -> None:
        """Claim and execute runs until `drain()` is called and the last run has been released."""
        # unasync: async-only
        loop = asyncio.get_running_loop()

        def begin(taken: TakenRun) -> None:
            asyncio.run_coroutine_threadsafe(self._work(taken), loop)

        with ThreadPoolExecutor(1, "perdure-worker") as pool:
            try:
                await loop.run_in_executor(pool, self._dispatch.serve, begin)
            finally:
                self._dispatch.drain()
        # unasync: end
        # unasync: sync-only
        #: with ThreadPoolExecutor(self._concurrency, "perdure-task") as pool:
        #:     try:
        #:         self._dispatch.serve(lambda taken: pool.submit(self._work, taken))
        #:     finally:
        #:         self._dispatch.drain()
        # unasync: end

    async def _work(self, taken: TakenRun | None) -> None:
        """Execute one run after another while there are any."""
        while taken is not None:
            await self._perform(taken)
            # unasync: async-only
            taken = await asyncio.to_thread(self._dispatch.take_next_run)
            # unasync: end
            # unasync: sync-only
            #: taken = self._dispatch.take_next_run()
            # unasync: end

    async def _perform(self, taken: TakenRun) -> None:
        run, task = run_id_of(taken), task_of(taken)
        self._report(run, task, "taken")
        error: BaseException | None = None
        try:
            await tasks_of(self._dispatch.engine)[task].perform(taken, self._probation)
        except BaseException as raised:  # recorded with the run, for the caller of `result`; the worker continues
            error = raised
        self._report(run, task, outcome_text(taken, error))
