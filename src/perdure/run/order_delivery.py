"""Delivers orders to stop or continue: they apply at once to a run that is not open, else its holder obeys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure import records as r
from perdure.errors import RunBusy, RunDeleted, RunFinished, RunNotFound, RunNotPaused
from perdure.journal.append import Append, Signer, StreamHead
from perdure.journal.departures import departure, refuse_departed
from perdure.journal.leases import Lease
from perdure.journal.takeover import RunLease, read_run_lease
from perdure.journal.task_starts import lock_of
from perdure.kernel.open_stream import commit_to_process_stream
from perdure.kernel.protocol import Protocol, Read
from perdure.platform.failpoints import Site
from perdure.platform.process import identify_this_process
from perdure.run.order_handling import PendingOrder, entry_of, refusal
from perdure.store.base import Overtaken, Rows, Script, Statement, UnitOfWork
from perdure.store.rows import RunRow, first_number, task_in

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class OrderResult(msgspec.Struct, frozen=True):
    """The result of an order."""

    stream: int
    obeyed: bool
    """Whether the order has taken effect, because nobody had the run open. Otherwise its holder obeys soon."""


def find_pending_order(status: str, orders: Rows) -> PendingOrder | None:
    """Return the order that a run has not obeyed, by its status and the last order to its holder."""
    pending = _find_last_order(orders)
    if pending is None or pending.order == r.Order.RESUME:
        return None
    obeyed = r.RunStatus.PAUSED if pending.order == r.Order.PAUSE else r.RunStatus.CANCELLING
    return pending if status not in (obeyed, r.RunStatus.CANCELLED) else None


def resumes(orders: Rows) -> bool:
    """Whether a run that had already stopped was ordered to continue."""
    pending = _find_last_order(orders)
    return pending is not None and pending.order == r.Order.RESUME


def _find_last_order(orders: Rows) -> PendingOrder | None:
    return next((PendingOrder(r.Order(what), reason, by, number) for number, what, reason, by in orders), None)


def read_order(stream: int, seq: int) -> Script[PendingOrder]:
    """Return who stopped a run and why, from the entry that recorded it."""
    [[(_, kind, _, body, _, _)]] = yield [Statement("journal_entry", (stream, seq))]
    record = r.decode(kind, body)
    assert isinstance(record, r.RunCancelledEntry | r.RunPausedEntry), "the entry that has stopped the run"
    order = r.Order.CANCEL if isinstance(record, r.RunCancelledEntry) else r.Order.PAUSE
    return PendingOrder(order, record.reason, record.by, record.order)


def give_order(engine: Engine, agent: str, run_id: str, pending: PendingOrder) -> Protocol[OrderResult]:
    """Give an order to a run of an agent."""
    signer = yield Read(lambda: engine.signer)  # an order is signed at once
    unit = yield from commit_to_process_stream(
        engine, lambda head, _: _GiveOrder(engine, (agent, run_id), pending, head, signer)
    )
    assert unit.given is not None
    return unit.given


class _GiveOrder(UnitOfWork[OrderResult]):
    """Decides inside the transaction whether the run has a holder."""

    site = Site.ORDER

    def __init__(
        self, engine: Engine, which: tuple[str, str], pending: PendingOrder, head: StreamHead, signer: Signer | None
    ) -> None:
        self.lane = head.stream
        self.given: OrderResult | None = None
        self._engine = engine
        self._which = which
        self._told = pending
        self._head = head
        self._signer = signer

    def script(self) -> Script[OrderResult]:
        [rows] = yield [Statement("get_run", self._which)]
        if not rows:
            return (yield from self._begin_stopped())
        run = RunRow(*rows[0])
        if run.status == r.RunStatus.ERASED:
            raise RunDeleted(f"run {self._which[1]!r} was deleted with its conversation")
        seen = yield from read_run_lease(self._engine.store, self._engine.place.lease_keeper_if_any, run)
        [orders] = yield [Statement("last_order_under", (run.stream, seen.lease.fence))]
        held, before, status = seen.held, _find_last_order(orders), r.RunStatus(run.status)
        if status == r.RunStatus.CANCELLED:
            before = yield from read_order(run.stream, run.outcome)
        if self._changes_anything(status, before, held):
            yield from self._tell(run.stream, seen.lease) if held else self._obey(seen)
        self.given = OrderResult(run.stream, not held)
        return self.given

    def _changes_anything(self, status: r.RunStatus, before: PendingOrder | None, held: bool) -> bool:
        """Whether the order changes anything. Raises if it cannot be given."""
        run_id, wanted, last = self._which[1], self._told.order, before.order if before is not None else None
        if status == r.RunStatus.FINISHED:
            what = "there is nothing to resume" if wanted == r.Order.RESUME else f"it is too late to {wanted} it"
            raise RunFinished(f"run {run_id!r} is finished: {what}")
        cancelled = status == r.RunStatus.CANCELLING or last == r.Order.CANCEL
        if wanted == r.Order.CANCEL:
            # A second cancel ends a run at once that was left during cleanup or before it could obey.
            return status != r.RunStatus.CANCELLED and not (held and cancelled)
        if cancelled:
            raise refusal(run_id, before or PendingOrder(r.Order.CANCEL, "it cleans up", "somebody"))
        if wanted == r.Order.RETRY:
            if held:
                raise RunBusy(f"run {run_id!r} is open", hint="retry it when its process has left it")
            return True
        if wanted == r.Order.PAUSE:
            return last != r.Order.PAUSE if held else status != r.RunStatus.PAUSED
        if status != r.RunStatus.PAUSED and last != r.Order.PAUSE:
            raise RunNotPaused(f"run {run_id!r} is {status}, not paused")
        return True

    def _tell(self, stream: int, lease: Lease) -> Script[None]:
        """Append the order to this process's stream, and flag it on the lease for the holder's next commit."""
        [rows] = yield [Statement("lock_lease", (stream, lease.fence))]
        if not rows:
            raise Overtaken
        number, pending = first_number(rows) + 1, self._told
        given = r.OrderGiven(stream, number, lease.fence, pending.order, pending.reason, pending.by)
        ring = Statement("notify_holder", (stream, number))
        yield from self._append(self._head, [r.Landed((given,))], also=[ring])

    def _obey(self, seen: RunLease) -> Script[None]:
        """Take the run over, record the order, and release the run at once."""
        taken = yield from seen.take()
        yield from self._append(taken.head, [entry_of(self._told)])

    def _begin_stopped(self) -> Script[OrderResult]:
        """Create the stream of a queued run that no worker has started, with the order as its second entry."""
        store, (agent, run_id) = self._engine.store, self._which
        [found] = yield [Statement("get_agent", (agent,))]
        owner = first_number(found)
        queued = [lock_of(owner, run_id), Statement("get_task", (owner, run_id)), Statement("get_run", self._which)]
        [_, tasks, run] = yield queued
        if run:
            raise Overtaken  # a worker was faster
        task = task_in(tasks)
        if task is None:
            raise RunNotFound(f"agent {agent!r} has no run {run_id!r}")
        if self._told.order == r.Order.RESUME:
            raise RunNotPaused(
                f"run {run_id!r} is {r.RunStatus.QUEUED}, not paused", hint="a worker takes it when it can"
            )
        add = Statement("add_stream", ("run", f"{agent}/{run_id}", store.clock.wall_ms()))
        [[(stream,)], gone] = yield [add, departure(agent)]
        refuse_departed(agent, gone)
        started = r.RunStarted(agent, run_id, task.input, task.digest, task.parent, 1, identify_this_process())
        lease = [Statement("add_lease", (stream, None))]
        yield from self._append(StreamHead(store.identity, stream, 1), [started, entry_of(self._told)], lease)
        self.given = OrderResult(stream, obeyed=True)
        return self.given

    def _append(
        self,
        head: StreamHead,
        entries: Sequence[r.Record],
        first: Sequence[Statement] = (),
        also: Sequence[Statement] = (),
    ) -> Script[None]:
        clock, signs = self._engine.store.clock, self._signer if self._which[0] == self._engine.name else None
        unit = Append(self.site, head, entries, clock, objects=first, also=also, signer=signs, seal=True)
        yield from unit.script()
