"""Telling a run to stop, or to go on: at once when nobody has it open, else its holder is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import records as r
from ..errors import RunFinished, RunNotFound, RunNotPaused
from ..failpoints import Site
from ..journal.append import Append, Head, Signer
from ..journal.departures import departure, refuse_departed
from ..journal.starts import lock_of
from ..leases import Lease, read_lease
from ..process import this_process
from ..store.base import Overtaken, Rows, Script, Statement, Unit
from .obeying import Told, entry_of, refusal
from .open_stream import in_the_open
from .requests import Protocol, Read

if TYPE_CHECKING:
    from ..engine import Engine


class Given(msgspec.Struct, frozen=True):
    """What became of an order."""

    stream: int
    obeyed: bool
    """Nobody had the run open, so it has taken effect; otherwise its holder obeys at the next boundary."""


def unobeyed(status: str, orders: Rows) -> Told | None:
    """What a run still has to do, going by its status and the last order to its holder."""
    told = _told(orders)
    if told is None or told.order == r.Order.RESUME:
        return None
    obeyed = r.Status.PAUSED if told.order == r.Order.PAUSE else r.Status.CANCELLING
    return told if status not in (obeyed, r.Status.CANCELLED) else None


def resumes(orders: Rows) -> bool:
    """Whether a run was told to go on after all, and had stopped already."""
    told = _told(orders)
    return told is not None and told.order == r.Order.RESUME


def _told(orders: Sequence[tuple[Any, ...]]) -> Told | None:
    return Told(r.Order(orders[0][1]), orders[0][2], orders[0][3], orders[0][0]) if orders else None


def read_told(stream: int, seq: int) -> Script[Told]:
    """Who has stopped a run, and why, by the entry that says so."""
    [[(_, kind, _, body, _, _)]] = yield [Statement("event_at", (stream, seq))]
    it = r.decode(kind, body)
    assert isinstance(it, r.RunCancelled | r.RunPaused), "the entry that has stopped the run"
    return Told(r.Order.CANCEL if isinstance(it, r.RunCancelled) else r.Order.PAUSE, it.reason, it.by, it.order)


def give_order(engine: Engine, agent: str, run_id: str, told: Told) -> Protocol[Given]:
    """Tell a run of an agent something."""
    signer = yield Read(lambda: engine.signer)  # an order is signed at once
    unit = yield from in_the_open(engine, lambda head, _: _Give(engine, (agent, run_id), told, head, signer))
    assert unit.given is not None
    return unit.given


class _Give(Unit[Given]):
    """Decides inside the transaction whether there is anybody to be told."""

    site = Site.ORDER

    def __init__(self, engine: Engine, which: tuple[str, str], told: Told, head: Head, signer: Signer | None) -> None:
        self.lane = head.stream
        self.given: Given | None = None
        self._engine = engine
        self._which = which
        self._told = told
        self._head = head
        self._signer = signer

    def script(self) -> Script[Given]:
        store = self._engine.store
        [rows] = yield [Statement("get_run", self._which)]
        if not rows:
            return (yield from self._begin_stopped())
        stream, status = rows[0][0], r.Status(rows[0][3])
        lease = yield from read_lease(stream, store.clock.boot_ms(), store.one_host)
        [orders] = yield [Statement("orders_under", (stream, lease.fence))]
        held, before = self._is_held(stream, lease), _told(orders)
        if status == r.Status.CANCELLED:
            before = yield from read_told(stream, rows[0][9])
        if self._is_news(status, before, held):
            yield from self._tell(stream, lease) if held else self._obey(stream, lease, status)
        self.given = Given(stream, not held)
        return self.given

    def _is_held(self, stream: int, lease: Lease) -> bool:
        """Whether somebody has it open. One that this process holds and has not open is left from a closed store."""
        tenancy = self._engine.place.tenancy_if_any
        if lease.process == this_process() and (tenancy is None or stream not in tenancy.open_streams):
            return False
        return lease.alive()

    def _is_news(self, status: r.Status, before: Told | None, held: bool) -> bool:
        """Whether anything changes; raises when it cannot."""
        run_id, wanted, told = self._which[1], self._told.order, before.order if before is not None else None
        if status == r.Status.FINISHED:
            what = "there is nothing to resume" if wanted == r.Order.RESUME else f"it is too late to {wanted} it"
            raise RunFinished(f"run {run_id!r} is finished: {what}")
        cancelled = status == r.Status.CANCELLING or told == r.Order.CANCEL
        if wanted == r.Order.CANCEL:
            # Once more for one that was left as it cleaned up, or before it could obey: then it ends at once.
            return status != r.Status.CANCELLED and not (held and cancelled)
        if cancelled:
            raise refusal(run_id, before or Told(r.Order.CANCEL, "it cleans up", "somebody"))
        if wanted == r.Order.PAUSE:
            return told != r.Order.PAUSE if held else status != r.Status.PAUSED
        if status != r.Status.PAUSED and told != r.Order.PAUSE:
            raise RunNotPaused(f"run {run_id!r} is {status}, not paused")
        return True

    def _tell(self, stream: int, lease: Lease) -> Script[None]:
        """An entry in the stream of this process, and a mark beside the lease, which the holder's next commit sees."""
        [rows] = yield [Statement("lock_lease", (stream, lease.fence))]
        if not rows:
            raise Overtaken
        number, told = rows[0][0] + 1, self._told
        given = r.OrderGiven(stream, number, lease.fence, told.order, told.reason, told.by)
        ring = Statement("ring_order", (stream, number))
        yield from self._append(self._head, [r.Landed((given,))], also=[ring])

    def _obey(self, stream: int, lease: Lease, status: r.Status) -> Script[None]:
        """As a takeover, that gives the run back at once."""
        store, told = self._engine.store, self._told
        take = Statement("take_lease", (stream, lease.fence, None), Overtaken)
        # Asked once more behind the take, which locks the lease: what we have decided on may have changed meanwhile.
        look = [Statement("time_left", (lease.holder, store.clock.boot_ms())), Statement("get_run", self._which)]
        asked = [take, Statement("head_of", (stream,)), *look, departure(self._which[0])]
        [_, [(seq, chain)], left, [run], gone] = yield asked
        refuse_departed(self._which[0], gone)
        if run[3] != status or (left and left[0][0] > lease.left_ms):
            raise Overtaken
        head = Head(store.identity, stream, lease.fence + 1, seq, chain)
        entry = r.RunReleased(told.reason, told.by) if told.order == r.Order.RESUME else entry_of(told)
        yield from self._append(head, [entry])

    def _begin_stopped(self) -> Script[Given]:
        """A run that is queued, and that no worker has begun: its first entries are that, and what it is told."""
        store, (agent, run_id) = self._engine.store, self._which
        [found] = yield [Statement("get_agent", (agent,))]
        owner = found[0][0] if found else 0
        queued = [lock_of(owner, run_id), Statement("get_task", (owner, run_id)), Statement("get_run", self._which)]
        [_, task, run] = yield queued
        if run:
            raise Overtaken  # a worker was quicker
        if not task:
            raise RunNotFound(f"agent {agent!r} has no run {run_id!r}")
        if self._told.order == r.Order.RESUME:
            raise RunNotPaused(f"run {run_id!r} is {r.Status.QUEUED}, not paused", hint="a worker takes it when it can")
        add = Statement("add_stream", ("run", f"{agent}/{run_id}", store.clock.wall_ms()))
        [[(stream,)], gone] = yield [add, departure(agent)]
        refuse_departed(agent, gone)
        *_, packed, digest, parent, _ = task[0]
        started = r.RunStarted(agent, run_id, packed, digest, parent, 1, this_process())
        lease = [Statement("add_lease", (stream, None))]
        yield from self._append(Head(store.identity, stream, 1), [started, entry_of(self._told)], lease)
        self.given = Given(stream, obeyed=True)
        return self.given

    def _append(
        self, head: Head, entries: Sequence[r.Record], first: Sequence[Statement] = (), also: Sequence[Statement] = ()
    ) -> Script[None]:
        clock, signs = self._engine.store.clock, self._signer if self._which[0] == self._engine.name else None
        unit = Append(self.site, head, entries, clock, objects=first, also=also, signer=signs, seal=True)
        yield from unit.script()
