"""Finds and claims runs for a worker, and waits when there are none.

It does not scan the queue. A change of the store or a server notification signals new work. The time of the next
delayed run is known. Runs of dead workers are found among the runs in progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from perdure.errors import (
    PerdureError,
    RunBusy,
    RunPoisoned,
    RunStopped,
    StepFailed,
    StepTimeout,
    StorageFull,
    StoreBusy,
    StoreClosed,
    StoreFenced,
    StoreForked,
    StoreProblem,
    StoreUnavailable,
    TaskNotFound,
    WrongValue,
)
from perdure.journal.leases import Lease, counts_as_alive, lease_of
from perdure.kernel.protocol import Protocol, drive_sync
from perdure.platform.failpoints import Site
from perdure.platform.process import Holder
from perdure.records.tasks import TaskTried
from perdure.run.core import RunCore
from perdure.run.lifecycle import ClaimedRun, TakenRun
from perdure.run.order_delivery import give_order
from perdure.run.parking import RunParking
from perdure.store.base import Overtaken
from perdure.store.rows import ReadyTaskRow, first_number
from perdure.values import limits
from perdure.work.tasks.claim import CANDIDATES, TakeOverRun, TakeRun, names_of
from perdure.work.tasks.definition import TaskOptions, tasks_of

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

AFTER_TROUBLE_SECONDS = 1.0
"""How long to wait when the store stays unavailable or busy beyond its own retries."""

PASSING = (StorageFull, StoreBusy, StoreUnavailable)
"""Store problems that do not count as failures of a task: the task is retried until they are over."""

KNOWN_SECONDS = 0.05
"""How long a worker that finished a run reuses the list of non-empty queues."""


class Dispatcher:
    """Claims runs of an agent, up to a concurrency limit, until drained."""

    def __init__(self, engine: Engine, queues: Sequence[str] | None, at_once: int, *, loop: bool) -> None:
        if type(at_once) is not int or at_once < 1:
            raise WrongValue(f"concurrency={at_once!r}: must be an int from 1")
        self._engine = engine
        self._queues = None if queues is None else list(dict.fromkeys(queues))
        self._loop = loop
        self._at_once = at_once
        self._slots = threading.Semaphore(at_once)
        self._kick = threading.Event()
        self._draining = threading.Event()
        self._dead_at = self._look_at = 0.0
        self._known: tuple[float, list[str]] = (0.0, [])
        self._due = 0
        self.under_way = 0
        """How many runs this worker is executing."""
        self._lock = threading.Lock()

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def draining(self) -> bool:
        """Whether the worker takes no new runs."""
        return self._draining.is_set()

    def drain(self) -> None:
        """Take no new runs. Runs in progress stop at their next step and are left to other workers."""
        self._draining.set()
        self._kick.set()

    def take_next_run(self) -> TakenRun | None:
        """Return the next run for a task slot that just became free, or None if the slot should end.

        Several slots claim at the same time, so that they share commits.
        """
        taken = None
        try:
            taken = None if self.draining else self._take_of(self._read_cached_ready())
        except StoreProblem:
            pass  # the dispatch loop will meet the same problem and handles it
        finally:
            if taken is None:
                self._leave()
        return taken

    def _leave(self) -> None:
        """Release the slot of a run that is no longer executed here."""
        with self._lock:
            self.under_way -= 1
        self._slots.release()
        self._kick.set()

    def serve(self, begin: Callable[[TakenRun], object]) -> None:
        """Claim runs and hand them over until drained. Returns when the last one has ended."""
        engine = self._engine
        engine.ensure_agent()
        if not tasks_of(engine):
            raise TaskNotFound(
                f"agent {engine.name!r} declares no task, so a worker has nothing to do",
                hint="declare one with @agent.task, in a module that is imported before the worker starts",
            )
        may_have_come = engine.store.watch(engine.stream)
        while not self.draining:
            if not self._slots.acquire(timeout=limits.WORKER_LOOK_SECONDS):
                continue
            taken = None
            try:
                taken = self._wait_for_next(may_have_come)
            finally:
                if taken is None:
                    self._slots.release()
            if taken is not None:
                with self._lock:
                    self.under_way += 1
                begin(taken)
        while self.under_way:
            self._kick.wait(limits.WORKER_POLL_SECONDS)
            self._kick.clear()

    # -- finding ------------------------------------------------------------------------------------------------------

    def _wait_for_next(self, may_have_come: Callable[[], bool]) -> TakenRun | None:
        """Wait for the next run; None once the worker is drained."""
        while not self.draining:
            try:
                found = self._find_run(may_have_come)
            except (StoreFenced, StoreClosed, StoreForked):
                raise
            except StoreProblem:
                self._kick.wait(AFTER_TROUBLE_SECONDS)  # the store has already retried for a while
                continue
            if found is not None:
                return found
            self._kick.wait(limits.WORKER_POLL_SECONDS)
            self._kick.clear()
        return None

    def _find_run(self, may_have_come: Callable[[], bool]) -> TakenRun | None:
        now, wall = time.monotonic(), self._engine.store.clock.wall_ms()
        if may_have_come() or now >= self._look_at or (self._due and wall >= self._due):
            taken = self._take_of(self._read_ready())
            if taken is not None:
                self._look_at = 0.0  # there may be more
                return taken
            self._due = first_number(self._engine.store.read("next_due", (self._engine.stream,)))
            self._look_at = now + limits.WORKER_LOOK_SECONDS
        if now >= self._dead_at:
            self._dead_at = now + limits.TAKEOVER_POLL_SECONDS
            return self._claim_abandoned()
        return None

    def _take_of(self, queues: Sequence[str]) -> TakenRun | None:
        for queue in queues:
            taken = self._submit(TakeRun(self._engine, queue, list(tasks_of(self._engine))))
            if taken is not None:
                return taken
        return None

    def _read_cached_ready(self) -> list[str]:
        """Return the ready queues, cached for a moment."""
        at, queues = self._known
        if time.monotonic() - at > KNOWN_SECONDS:
            queues = self._read_ready()
            self._known = (time.monotonic(), queues)
        return queues

    def _read_ready(self) -> list[str]:
        """Return the queues that have work for this worker, most urgent first."""
        store, owner = self._engine.store, self._engine.stream
        now, names = store.clock.wall_ms(), names_of(list(tasks_of(self._engine)))
        queues = self._queues
        if queues is None:
            ready, due = store.read("queue_names", (owner,)), store.read("due_queues", (owner, now))
            queues = list(dict.fromkeys(queue for (queue,) in (*ready, *due)))
        if len(queues) < 2:
            return queues
        found = {queue: store.read("next_tasks", (owner, queue, now, names, 0, CANDIDATES)) for queue in queues}
        first = {queue: ReadyTaskRow(*rows[0]) for queue, rows in found.items() if rows}
        return sorted(first, key=lambda queue: (-first[queue].priority, first[queue].at))

    def _claim_abandoned(self) -> TakenRun | None:
        """Claim a run whose worker is proven dead, or whose lease has expired."""
        for run_id in self._orphans():
            taken = self._submit(TakeOverRun(self._engine, run_id))
            if taken is not None:
                self._dead_at = 0.0  # the dead worker may have left more runs
                return taken
        return None

    def _orphans(self) -> Iterator[str]:
        store, lease_keeper = self._engine.store, self._engine.lease_keeper
        rows = store.read("held_tasks", (self._engine.stream, store.clock.boot_ms()))
        alive: dict[Holder | None, bool] = {lease_keeper.process: True}
        for run_id, task, queue, *row in rows:
            if task not in tasks_of(self._engine) or (self._queues is not None and queue not in self._queues):
                continue
            lease: Lease = lease_of(tuple(row), store.one_host)
            if lease.process not in alive:
                alive[lease.process] = counts_as_alive(lease, lease_keeper)
            if not alive[lease.process]:
                yield run_id

    def _stop(self, take: TakeRun) -> None:
        """Carry out a cancel or pause that the last worker received but did not live to apply."""
        if take.unobeyed is not None:
            drive_sync(self._engine.store, give_order(self._engine, self._engine.name, take.run_id, take.unobeyed))

    def _submit(self, take: TakeRun) -> TakenRun | None:
        try:
            claimed: ClaimedRun | None = self._engine.store.submit(take)
        except (RunBusy, Overtaken):
            return None  # another worker was faster, or the run is just being released
        except RunStopped:
            self._stop(take)
            return None
        if claimed is None:
            return None
        clock = self._engine.store.clock
        parking = RunParking(clock.wall_ms, self._draining.is_set, loop=self._loop)
        options: TaskOptions = tasks_of(self._engine)[take.task].definition.options
        return TakenRun(take, claimed, parking, _retry(self._engine, options, take.attempts + 1))


def _retry(engine: Engine, options: TaskOptions, attempt: int) -> Callable[[BaseException], tuple[int, int]]:
    """Return the function that decides when a failed run is retried after this attempt."""

    def plan_retry(error: BaseException) -> tuple[int, int]:
        if isinstance(error, PASSING):
            return engine.store.clock.wall_ms() + int(AFTER_TROUBLE_SECONDS * 1000), attempt - 1
        # Misuse of Perdure or a human decision gives the same error on every retry.
        settled = isinstance(error, PerdureError) and not isinstance(error, StepTimeout | StepFailed)
        if attempt > options.retries or settled:
            return (0, 0)
        delay = min(options.backoff * 2 ** (attempt - 1), limits.RETRY_BACKOFF_SECONDS_MAX)
        return engine.store.clock.wall_ms() + max(1, int(delay * 1000)), attempt

    return plan_retry


def task_of(taken: TakenRun) -> str:
    """Return the task name of a claimed run."""
    assert isinstance(taken.claim, TakeRun)
    return taken.claim.task


def run_id_of(taken: TakenRun) -> str:
    """Return the id of a claimed run."""
    assert isinstance(taken.claim, TakeRun)
    return taken.claim.run_id


def is_suspect(run: RunCore) -> bool:
    """Return whether workers seem to die of this run. Raises `RunPoisoned` when that is certain enough."""
    deaths = run.ledger.deaths_alone()
    if deaths >= limits.DEATHS_MAX:
        told = f"{deaths} workers in a row died while running {run.id!r}, {run.ledger.describe_last_done()}"
        raise RunPoisoned(told, hint=run.hint_of(RunPoisoned))
    return run.ledger.deaths() >= limits.DEATHS_SUSPECT


def begin_trial(run: RunCore) -> Protocol[None]:
    """Record that this run now executes alone: a worker death from here on counts against it."""
    yield from run.commit(Site.TASK, TaskTried())


def outcome_text(taken: TakenRun, error: BaseException | None) -> str:
    """Return the outcome of a run in this worker as a short text."""
    left: Any = taken.parking.left
    if left is not None:
        return type(left).__name__.lower()
    if error is None:
        return "finished"
    return f"failed: {type(error).__name__}: {error}" if str(error) else f"failed: {type(error).__name__}"
