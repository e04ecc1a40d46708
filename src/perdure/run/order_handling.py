"""Orders to an open run: it reads them with its next commit or by polling, and obeys at its next boundary.

A boundary is the start or end of a step, an effect or an item, a write outside of bodies, and every wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import RunCancelled, RunPaused, RunStopped, RunWasCancelled, RunWasPaused
from perdure.kernel.protocol import Protocol, Read
from perdure.platform.descendants import mark_descendants
from perdure.platform.failpoints import Site
from perdure.values.hints import insert_run_id
from perdure.values.limits import ORDER_LOOK_AFTER_SECONDS

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.run.core import RunCore
    from perdure.store.base import Store

_CLEANING: ContextVar[tuple[int, ...]] = ContextVar("perdure_cleaning", default=())
"""The streams of the runs whose cleanup code runs in this context."""

_STREAM = "_perdure_stream"


class PendingOrder(msgspec.Struct, frozen=True):
    """An order that a run has not obeyed yet."""

    order: r.Order
    reason: str
    by: str
    number: int = 0


def iterate_enclosing_runs(run: RunCore) -> Iterator[RunCore]:
    """Yield the run and the runs around it, innermost first."""
    at: RunCore | None = run
    while at is not None:
        yield at
        at = at.outer


def stop_if_ordered(run: RunCore, *, cleanup: bool = True) -> Protocol[None]:
    """Stop here if the run or an enclosing one was ordered to. Called only when `run.has_orders`.

    Cleanup code continues, unless `cleanup` is False: a cancelled run does not wait for anybody.
    """
    if any(core.head.ordered != core.heard for core in iterate_enclosing_runs(run)):
        yield from read_orders(run)
    stopped = find_stop_error(run, cleanup=cleanup)
    if stopped is not None:
        raise stopped


def read_orders(run: RunCore) -> Protocol[None]:
    """Read the orders to the run and the enclosing runs."""
    runs = list(iterate_enclosing_runs(run))
    rows = yield Read(run.store.read, ("standing_orders", (_list_runs(runs),)))
    deliver_orders(runs, rows)


def deliver_orders(runs: Iterable[RunCore], rows: Iterable[Sequence[Any]]) -> None:
    """Hand standing orders to runs, and cancel the bodies that can be cancelled."""
    found = {stream: order for stream, *order in rows}
    for run in runs:
        run.heard = run.head.ordered
        if run.head.stream not in found or run.cleanup is not None:
            continue
        number, order, reason, by = found[run.head.stream]
        run.heard = run.head.ordered = number
        pending = PendingOrder(r.Order(order), reason, by, number)
        run.order = None if pending.order == r.Order.RESUME else pending
        run.interrupt()


def _list_runs(runs: Iterable[RunCore]) -> str:
    return f"[{','.join(str(run.head.stream) for run in runs)}]"  # JSON, without the time to import it


def cleans_up(run: RunCore) -> bool:
    """Whether the code here cleans up after this run or one inside it."""
    cleaning = _CLEANING.get()
    return bool(cleaning) and run.head.stream in cleaning


def find_stop_error(run: RunCore, *, cleanup: bool = True) -> RunStopped | None:
    """Return the error that stops the code here. Of several nested runs with orders, the outermost one stops."""
    cleans, stopped = False, None
    for core in iterate_enclosing_runs(run):
        cleans = cleans or (cleanup and cleans_up(core))
        if core.order is not None and not (cleans and core.order.order == r.Order.CANCEL):
            stopped = stop(core, core.order)
    return stopped


def stop(run: RunCore, order: PendingOrder) -> RunStopped:
    """Return the exception that leaves the block of a run."""
    run.stopped = True
    kind = RunCancelled if order.order == r.Order.CANCEL else RunPaused
    error = kind(describe_order(run.id, order), hint=hint(run.id, order), reason=order.reason, by=order.by, run=run.id)
    error.__dict__[_STREAM] = run.head.stream
    return error


def refusal(run_id: str, order: PendingOrder) -> RunStopped:
    """Return the exception for code outside of the block: an attempt to open the run, or code that has left it."""
    kind = RunWasCancelled if order.order == r.Order.CANCEL else RunWasPaused
    return kind(describe_order(run_id, order), hint=hint(run_id, order), reason=order.reason, by=order.by, run=run_id)


def describe_order(run_id: str, order: PendingOrder) -> str:
    """Describe an order: what was done, by whom, and why."""
    what = "was cancelled" if order.order == r.Order.CANCEL else "is paused"
    return f"run {run_id!r} {what} by {order.by}" + (f": {order.reason}" if order.reason else "")


def hint(run_id: str, order: PendingOrder) -> str:
    """Return the hint for a stopped run."""
    if order.order == r.Order.CANCEL:
        return insert_run_id(RunCancelled.hint, run_id)
    return f"continue it with agent.runs.resume({run_id!r})"


def entry_of(order: PendingOrder) -> r.Record:
    """Return the entry that a run records when it obeys."""
    if order.order in (r.Order.RESUME, r.Order.RETRY):
        return r.RunReleased(order.reason, order.by, order.order == r.Order.RETRY)
    kind = r.RunCancelledEntry if order.order == r.Order.CANCEL else r.RunPausedEntry
    return kind(order.reason, order.by, order.number)


def find_stop_in(error: BaseException | None) -> RunStopped | None:
    """Return the stop in an exception or an exception group."""
    if isinstance(error, RunStopped):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(find_stop_in, error.exceptions)), None)
    return None


def is_of(error: RunStopped, run: RunCore) -> bool:
    """Whether this run was ordered to stop, and not an enclosing one."""
    return bool(error.__dict__.get(_STREAM) == run.head.stream)


class CleanupScope:
    """Allows new work inside of it although the run is cancelled."""

    def __init__(self, run: RunCore) -> None:
        self._run = run
        self._token: Token[tuple[int, ...]] | None = None

    def begin(self) -> Protocol[None]:
        """Record that cleanup began, once, so that after a crash another process can continue it."""
        run = self._run
        order = next((core.order for core in iterate_enclosing_runs(run) if core.order is not None), None)
        self._token = _CLEANING.set((*_CLEANING.get(), run.head.stream))
        if order is not None and order.order == r.Order.CANCEL and run.cleanup is None and not run.finished:
            run.cleanup = r.CleanupBegan(order.reason, order.by, order.number)
            yield from run.commit(Site.CLEANUP, run.cleanup)

    def end(self) -> None:
        """End the cleanup: the code stops at the next boundary."""
        if self._token is not None:
            _CLEANING.reset(self._token)
            self._token = None


def register(run: RunCore) -> None:
    """Register an open run: its lease is renewed, and its orders are polled."""
    engine = run.engine
    engine.open_runs += 1
    if run.head.fence:
        mark_descendants(engine.lease_keeper.process)
        engine.lease_keeper.open_streams.add(run.head.stream)
        ear_of(engine).start_polling(run)


def unregister(run: RunCore) -> None:
    """Unregister a closed run."""
    engine = run.engine
    engine.open_runs -= 1
    run.root.alive = False
    if run.head.fence:
        engine.lease_keeper.open_streams.discard(run.head.stream)
        ear_of(engine).stop_polling(run)


def ear_of(engine: Engine) -> OrderListener:
    """Return this process's order listener: one per store, called between heartbeats."""
    place = engine.place

    def make() -> OrderListener:
        ear = OrderListener(place.store)
        place.lease_keeper.between_beats = ear.poll
        return ear

    return place.parts.get_or_make(OrderListener, make)


class OrderListener:
    """Polls for orders to open runs, in the heartbeat thread: a run may not commit for hours."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[int, tuple[RunCore, int]] = {}
        self._after_ms = 0 if store.one_host else int(ORDER_LOOK_AFTER_SECONDS * 1000)
        self._may_be_told: Any = None

    def start_polling(self, run: RunCore) -> None:
        """Start polling for a run."""
        self._runs[run.head.stream] = run, self._store.clock.boot_ms()

    def stop_polling(self, run: RunCore) -> None:
        """Stop polling for a run."""
        self._runs.pop(run.head.stream, None)

    def poll(self) -> None:
        """Poll. On a server, short runs are skipped: they read orders with their commits."""
        since = self._store.clock.boot_ms() - self._after_ms
        runs = [run for run, opened_at in list(self._runs.values()) if opened_at <= since]
        if not runs:
            self._may_be_told = None
            return
        if self._may_be_told is None:
            self._may_be_told = self._store.watch(0)
        if self._may_be_told():
            deliver_orders(runs, self._store.read("standing_orders", (_list_runs(runs),)))
        for run in runs:
            if run.order is not None:
                run.interrupt()  # bodies that started after the order
