"""How a run ends: the last entry and the release of the lease, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import records as r
from perdure.errors import (
    LeaseLost,
    RunCancelled,
    RunWaiting,
    StoreProblem,
    WorkflowProblem,
)
from perdure.kernel.protocol import Protocol, Read
from perdure.platform.failpoints import Site
from perdure.run.block_exit import drain_bodies
from perdure.run.core import RunCore
from perdure.run.item import collect_final_writes
from perdure.run.order_delivery import give_order, resumes
from perdure.run.order_handling import (
    PendingOrder,
    entry_of,
    find_stop_in,
    is_of,
    read_orders,
    refusal,
)
from perdure.run.parking import Parked
from perdure.run.recorded_waits import withdrawn
from perdure.run.state_copies import StateCopies
from perdure.run.step import describe
from perdure.run.writes import check_result
from perdure.store.base import Statement

if TYPE_CHECKING:
    pass


def end_run(run: RunCore, error: BaseException | None) -> Protocol[None]:
    """Record how the block ended, and release the lease in the same commit."""
    instead: BaseException | None = None
    try:
        if error is None:
            yield from check_result(run)
        run.end(error)
        if not run.finished and run.root.alive:
            instead = yield from drain_bodies(run, error)
        parking, run.parking = run.parking, None
        if parking is not None and parking.left is not None:
            error = parking.left  # counts, whatever the program made of it
        error = instead or error
        if not run.finished and run.root.alive:
            yield from _read_last_orders(run, error)
            try:
                yield from _commit_end(run, error)
            except WorkflowProblem as lost:  # a write that should land with the end was refused, so the run failed
                yield from _commit_end(run, lost)
                raise
            yield from _resume_if_ordered(run)
            _leave_stopped(run, error)
    except (LeaseLost, StoreProblem):
        if error is None:
            raise  # the work is done but not recorded as done: the caller must know
    finally:
        run.unregister()
    if instead is not None:
        raise instead
    if error is None and (copies := run.parts.get(StateCopies)):
        yield Read(copies.check)


def _commit_end(run: RunCore, error: BaseException | None) -> Protocol[None]:
    entries, objects = _make_last_entry(run, error)
    release = Statement("release_lease", (run.head.stream, run.head.fence))
    whole, asks, made = collect_final_writes(run.whole) if error is None else ((), (), ())
    objects = (*objects, *made)
    yield from run.commit(Site.RUN_END, *whole, *entries, objects=objects, also=[release], seal=True, asks=asks)


def _read_last_orders(run: RunCore, error: BaseException | None) -> Protocol[None]:
    """Read the run's own orders if it ends because an enclosing run was stopped."""
    if find_stop_in(error) is not None and run.order is None:
        yield from read_orders(run)


def _resume_if_ordered(run: RunCore) -> Protocol[None]:
    """Repeat a resume order that arrived while the pause was being committed: its receiver is gone."""
    if run.order is not None and run.order.order == r.Order.PAUSE and run.head.ordered != run.heard:
        orders = yield Read(run.store.read, ("last_order_under", (run.head.stream, run.head.fence)))
        if resumes(orders):
            _, _, reason, by = orders[0]
            yield from give_order(run.engine, run.engine.name, run.id, PendingOrder(r.Order.RESUME, reason, by))


def _find_obeyed_order(run: RunCore, error: BaseException | None) -> PendingOrder | None:
    """Return the order that the run obeys by ending now: its own, or that of an enclosing run."""
    stopped = find_stop_in(error)
    if run.order is not None and (run.stopped or stopped is not None):
        return run.order
    if stopped is None or stopped.run == run.id or isinstance(stopped, Exception):
        return None
    order = r.Order.CANCEL if isinstance(stopped, RunCancelled) else r.Order.PAUSE
    return PendingOrder(order, f"part of {stopped.message}", stopped.by)


def _leave_stopped(run: RunCore, error: BaseException | None) -> None:
    """Raise when the block of a stopped run ends, even if the code swallowed the stop."""
    stopped, order = find_stop_in(error), run.order
    ours = stopped is not None and is_of(stopped, run)
    if order is None or not run.stopped or (error is not None and not ours):
        return
    refused = refusal(run.id, order)
    raise refused.with_traceback(error.__traceback__ if error is not None else None) from None


def _make_last_entry(run: RunCore, error: BaseException | None) -> tuple[list[r.Record], Sequence[Statement]]:
    obeyed = _find_obeyed_order(run, error)
    if obeyed is not None:
        return _make_last_entry_of_stopped(run, obeyed, error)
    if error is None:
        result = run.view.result or run.pack(None, "result")[0]
        return [*withdrawn(run.ledger.find_unreached_waits()), r.RunFinishedEntry(result)], run.result_objects
    if isinstance(error, RunWaiting):
        return [], ()
    if isinstance(error, Parked) and run.retry is not None:
        return [r.TaskParked(error.until, error.wants)], ()
    if isinstance(error, Parked) and run.head.stream in error.streams:
        return [], ()  # a run inside the one that the worker has taken; waking that one wakes both
    # In a worker a SystemExit is a failure: the next worker would only exit again.
    exits = run.retry is not None and isinstance(error, SystemExit)
    if not isinstance(error, Exception) and not exits:
        return [r.RunInterrupted(describe(error))], ()
    packed, made = run.pack(error, "error")
    again = run.retry(error) if run.retry is not None else (0, 0)
    return [r.RunFailed(packed, describe(error), _cause(run, error), *again)], made


def _make_last_entry_of_stopped(
    run: RunCore, obeyed: PendingOrder, error: BaseException | None
) -> tuple[list[r.Record], Sequence[Statement]]:
    entry = entry_of(obeyed)
    if error is None or find_stop_in(error) is not None:
        return [entry], ()
    if not isinstance(error, Exception):  # interrupted during cleanup, which continues when the run is opened again
        return ([entry] if run.cleanup is None else []), ()
    packed, made = run.pack(error, "error")
    return [r.RunFailed(packed, describe(error), _cause(run, error)), entry], made


def _cause(run: RunCore, error: BaseException) -> int:
    """Return the entry of the recorded failure behind an exception: its own, its cause's, or one of a group's."""
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        stream, seq = getattr(one, "_perdure_failure", (0, 0))
        if stream == run.head.stream:
            return int(seq)
        waiting += [inner for inner in (one.__cause__, one.__context__) if inner is not None]
        waiting += getattr(one, "exceptions", ())
    return 0
