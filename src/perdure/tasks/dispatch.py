"""What a worker does besides running tasks: it finds the next run, takes it, and waits when there is none.

Nobody scans what waits: a change of the store, or a notification of a server, says that there may be something; the
next time at which something comes by itself is known; and what dead workers have left is found among what is at work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import limits
from ..errors import (
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
)
from ..failpoints import Site
from ..leases import Lease, lease_of
from ..process import Holder
from ..run.core import RunCore
from ..run.lifecycle import Claimed, Taken
from ..run.ordering import give_order
from ..run.parking import Parking
from ..run.requests import Protocol, drive_sync
from ..store.base import Overtaken
from ..task_records import TaskTried
from .defining import TaskOptions
from .taking import CANDIDATES, Take, TakeOver, names_of

if TYPE_CHECKING:
    from ..engine import Engine

AFTER_TROUBLE_SECONDS = 1.0
"""When the store is away or busy for longer than its own patience."""

PASSING = (StorageFull, StoreBusy, StoreUnavailable)
"""Troubles of the store, which are no failures of a task: it is tried again until they are over."""

KNOWN_SECONDS = 0.05
"""Whoever is done with a run goes on with the queues that had something so short a time ago."""


class Dispatch:
    """Takes runs of an agent, so many at a time, until it is told to stop."""

    def __init__(self, engine: Engine, queues: Sequence[str] | None, at_once: int, *, loop: bool) -> None:
        if type(at_once) is not int or at_once < 1:
            raise ValueError(f"concurrency={at_once!r}: at least one run must be at work")
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
        """How many runs are at work here."""
        self._lock = threading.Lock()

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def draining(self) -> bool:
        """Whether nothing new is taken any more."""
        return self._draining.is_set()

    def drain(self) -> None:
        """Take nothing new; runs at work are left at their next step, and are for others to go on with."""
        self._draining.set()
        self._kick.set()

    def another(self) -> Taken | None:
        """The next run for whoever is done with one: many take at a time, and share commits. None: leave."""
        taken = None
        try:
            taken = None if self.draining else self._take_of(self._known_ready())
        except StoreProblem:
            pass  # who waits for work will meet it too, and knows what to do
        finally:
            if taken is None:
                self._leave()
        return taken

    def _leave(self) -> None:
        """A run is not at work here any more."""
        with self._lock:
            self.under_way -= 1
        self._slots.release()
        self._kick.set()

    def serve(self, begin: Callable[[Taken], object]) -> None:
        """Take runs and hand them over, until drained; returns when the last of them is done."""
        engine = self._engine
        engine.ensure_agent()
        if not engine.tasks:
            raise TaskNotFound(
                f"agent {engine.name!r} declares no task, so there is nothing that a worker could do",
                hint="declare one with @agent.task, in a module that is imported before the worker starts",
            )
        may_have_come = engine.store.watch(engine.stream)
        while not self.draining:
            if not self._slots.acquire(timeout=limits.WORKER_LOOK_SECONDS):
                continue
            taken = None
            try:
                taken = self._next(may_have_come)
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

    def _next(self, may_have_come: Callable[[], bool]) -> Taken | None:
        """The next run, as soon as there is one; None when there will be none."""
        while not self.draining:
            try:
                found = self._found(may_have_come)
            except (StoreFenced, StoreClosed, StoreForked):
                raise
            except StoreProblem:
                self._kick.wait(AFTER_TROUBLE_SECONDS)  # the store has waited for itself already
                continue
            if found is not None:
                return found
            self._kick.wait(limits.WORKER_POLL_SECONDS)
            self._kick.clear()
        return None

    def _found(self, may_have_come: Callable[[], bool]) -> Taken | None:
        now, wall = time.monotonic(), self._engine.store.clock.wall_ms()
        if may_have_come() or now >= self._look_at or (self._due and wall >= self._due):
            taken = self._take_of(self._ready())
            if taken is not None:
                self._look_at = 0.0  # there may be more
                return taken
            rows = self._engine.store.read("next_due", (self._engine.stream,))
            self._due = rows[0][0] if rows else 0
            self._look_at = now + limits.WORKER_LOOK_SECONDS
        if now >= self._dead_at:
            self._dead_at = now + limits.TAKEOVER_POLL_SECONDS
            return self._left_by_dead()
        return None

    def _take_of(self, queues: Sequence[str]) -> Taken | None:
        for queue in queues:
            taken = self._submit(Take(self._engine, queue, list(self._engine.tasks)))
            if taken is not None:
                return taken
        return None

    def _known_ready(self) -> list[str]:
        """The same as it was a moment ago."""
        at, queues = self._known
        if time.monotonic() - at > KNOWN_SECONDS:
            queues = self._ready()
            self._known = (time.monotonic(), queues)
        return queues

    def _ready(self) -> list[str]:
        """The queues that have something for this worker, the most urgent first."""
        store, owner = self._engine.store, self._engine.stream
        now, names = store.clock.wall_ms(), names_of(list(self._engine.tasks))
        queues = self._queues
        if queues is None:
            ready, due = store.read("queue_names", (owner,)), store.read("due_queues", (owner, now))
            queues = list(dict.fromkeys(queue for (queue,) in (*ready, *due)))
        if len(queues) < 2:
            return queues
        first = {queue: store.read("next_tasks", (owner, queue, now, names, 0, CANDIDATES)) for queue in queues}
        return sorted((q for q in queues if first[q]), key=lambda q: (-first[q][0][7], first[q][0][8]))

    def _left_by_dead(self) -> Taken | None:
        """A run whose worker is proven dead, or has not renewed its lease."""
        for run_id in self._orphans():
            taken = self._submit(TakeOver(self._engine, run_id))
            if taken is not None:
                self._dead_at = 0.0  # it had more of them
                return taken
        return None

    def _orphans(self) -> Iterator[str]:
        store, tenancy = self._engine.store, self._engine.tenancy
        rows = store.read("held_tasks", (self._engine.stream, store.clock.boot_ms()))
        alive: dict[Holder | None, bool] = {tenancy.process: True}
        for run_id, task, queue, *row in rows:
            if task not in self._engine.tasks or (self._queues is not None and queue not in self._queues):
                continue
            lease: Lease = lease_of(tuple(row), store.one_host)
            if lease.process not in alive:
                alive[lease.process] = lease.alive() and not tenancy.outlasts(lease)
            if not alive[lease.process]:
                yield run_id

    def _stop(self, take: Take) -> None:
        """Its last worker was told to stop it, and did not live to do so."""
        if take.unobeyed is not None:
            drive_sync(self._engine.store, give_order(self._engine, self._engine.name, take.run_id, take.unobeyed))

    def _submit(self, take: Take) -> Taken | None:
        try:
            claimed: Claimed | None = self._engine.store.submit(take)
        except (RunBusy, Overtaken):
            return None  # somebody else was quicker, or it is just being left
        except RunStopped:
            self._stop(take)
            return None
        if claimed is None:
            return None
        clock = self._engine.store.clock
        parking = Parking(clock.wall_ms, self._draining.is_set, loop=self._loop)
        options: TaskOptions = self._engine.tasks[take.task].definition.options
        return Taken(take, claimed, parking, _retry(self._engine, options, take.attempts + 1))


def _retry(engine: Engine, options: TaskOptions, attempt: int) -> Callable[[BaseException], tuple[int, int]]:
    """When a run is tried again that has failed so many times."""

    def again(error: BaseException) -> tuple[int, int]:
        if isinstance(error, PASSING):
            return engine.store.clock.wall_ms() + int(AFTER_TROUBLE_SECONDS * 1000), attempt - 1
        # A wrong use of Perdure, or somebody's decision, stays what it is when it is repeated.
        settled = isinstance(error, PerdureError) and not isinstance(error, StepTimeout | StepFailed)
        if attempt > options.retries or settled:
            return (0, 0)
        delay = min(options.backoff * 2 ** (attempt - 1), limits.RETRY_BACKOFF_SECONDS_MAX)
        return engine.store.clock.wall_ms() + max(1, int(delay * 1000)), attempt

    return again


def task_of(taken: Taken) -> str:
    """The name of the task of a run that was taken."""
    assert isinstance(taken.claim, Take)
    return taken.claim.task


def run_of(taken: Taken) -> str:
    """Its id."""
    assert isinstance(taken.claim, Take)
    return taken.claim.run_id


def is_suspect(run: RunCore) -> bool:
    """Whether workers die of this run, or seem to; `RunPoisoned` when it is certain enough."""
    deaths = run.ledger.deaths_alone()
    if deaths >= limits.DEATHS_MAX:
        raise RunPoisoned(f"{deaths} workers in a row have died of run {run.id!r}, {run.ledger.last_done()}")
    return run.ledger.deaths() >= limits.DEATHS_SUSPECT


def begin_trial(run: RunCore) -> Protocol[None]:
    """From here on the death of the worker is blamed on this run, and not on one beside it."""
    yield from run.commit(Site.TASK, TaskTried())


def told(taken: Taken, error: BaseException | None) -> str:
    """What became of a run in this worker, in a word or two."""
    left: Any = taken.parking.left
    if left is not None:
        return type(left).__name__.lower()
    if error is None:
        return "finished"
    return f"failed: {type(error).__name__}: {error}" if str(error) else f"failed: {type(error).__name__}"
