"""Opens runs. One transaction starts, resumes or takes over a run, and decides who holds it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import (
    EffectInsideStep,
    InputChanged,
    JournalDamaged,
    LeaseLost,
    RunBusy,
    RunDeleted,
    RunStopped,
    StoreProblem,
    ValueProblem,
)
from perdure.journal import objects
from perdure.journal.append import Append, StreamHead
from perdure.journal.departures import departure, refuse_departed
from perdure.journal.lineage import events_of, walk_run
from perdure.journal.takeover import RunLease, read_run_lease
from perdure.journal.task_starts import lock_of
from perdure.kernel.program_line import format_calling_line, format_value
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.kernel.scope import Frame, current_frame
from perdure.platform.failpoints import Site
from perdure.records.stores import EntriesLost
from perdure.run.core import RunCore, core_of
from perdure.run.cost import RunBudget, write_credit
from perdure.run.ledger import Ledger
from perdure.run.order_delivery import find_pending_order, give_order, read_order, resumes
from perdure.run.order_handling import (
    PendingOrder,
    refusal,
    register,
    stop_if_ordered,
)
from perdure.run.parking import RunParking
from perdure.run.step import describe
from perdure.run.turn_start import TurnStart, TurnTaken, consume_start
from perdure.store.base import LOST, Overtaken, Row, Rows, Script, Statement, Store, UnitOfWork
from perdure.store.rows import RunRow, TaskRow, read_run, task_in
from perdure.values import codec

if TYPE_CHECKING:
    from perdure.journal.leases import LeaseKeeper
    from perdure.kernel.engine import Engine


class ClaimedRun(msgspec.Struct, frozen=True):
    """A run that this process now holds, or a finished one that needs no holder (`fence` 0)."""

    stream: int
    fence: int
    resumed: bool
    fork: bool = False


class ClaimRun(UnitOfWork[ClaimedRun]):
    """Create a run, or take over one whose holder is dead."""

    site = Site.RUN_CLAIM

    def __init__(
        self,
        engine: Engine,
        run_id: str,
        given: Any,
        parent: int,
        task: str = "",
        turn: TurnStart | None = None,
        lease_keeper: LeaseKeeper | None = None,
    ) -> None:
        self._engine = engine
        # Read before the transaction: inside of it, a second connection would block everybody.
        self._lease_keeper = lease_keeper or engine.lease_keeper
        self._owner = engine.stream
        self.lapses = self._lease_keeper.lapses
        self._id = run_id
        self._given = given is not None
        self._digest = codec.digest(given, "input")
        self._input, self._objects = objects.pack(engine.store, given, "input")
        self._parent = parent
        self.task = task
        self._turn = turn
        # Claims of one run in one process are serialized, so that each sees the runs that earlier ones opened.
        self.lane = ~abs(hash((engine.name, run_id)))
        self._tried: set[tuple[int, int]] = set()
        """Streams and fencing tokens that this claim has tried to take."""
        self.head: StreamHead | None = None
        """The end of the run's stream, once this process holds it."""
        self.started: tuple[r.JournalEntry, ...] = ()
        """The entries of the run, if this claim created it."""
        self.unobeyed: PendingOrder | None = None
        """An order that the last holder received but did not live to obey."""

    def script(self) -> Script[ClaimedRun]:
        [rows] = yield [Statement("get_run", (self._engine.name, self._id))]
        if not rows:
            return (yield from self._create())
        if self._turn is not None:
            raise TurnTaken
        run = RunRow(*rows[0])
        if run.status == r.RunStatus.ERASED:
            raise RunDeleted(f"run {self._id!r} was deleted with its conversation")
        if self._given and run.input_digest != self._digest:
            raise InputChanged(f"run {self._id!r} was started with another input")
        if run.status == r.RunStatus.FINISHED:
            return ClaimedRun(run.stream, 0, True, run.is_fork)
        if run.status == r.RunStatus.CANCELLED:
            raise refusal(self._id, (yield from read_order(run.stream, run.outcome)))
        return (yield from self._take_over(run))

    def _create(self) -> Script[ClaimedRun]:
        engine = self._engine
        name, at = f"{engine.name}/{self._id}", engine.store.clock.wall_ms()
        # A queued run has its input from the queue. Read under the lock that queueing takes.
        queued = (lock_of(self._owner, self._id), Statement("get_task", (self._owner, self._id)))
        add = Statement("add_stream", ("run", name, at))
        [_, rows, [(stream,)], left] = yield [*queued, add, departure(engine.name)]
        refuse_departed(engine.name, left)
        task = task_in(rows)
        if task is not None:
            if self._given and self._digest != task.digest:
                raise InputChanged
            self.task, self._input, self._objects = task.task, task.input, ()
            self._digest, self._parent = task.digest, task.parent
        given = (self._input, self._digest, self._parent)
        lost, also = self._take_lost_entries()
        started = r.RunStarted(engine.name, self._id, *given, 1, self._lease_keeper.process, self.task, lost)
        first = [self._presence(), Statement("add_lease", (stream, self._lease_keeper.holder_id)), *self._objects]
        head = StreamHead(engine.store.identity, stream, 1)
        self._tried.add((stream, 1))
        more, made = (yield from self._turn.entries(engine.store)) if self._turn is not None else ([], [])
        entries = [started, *more]
        unit = Append(self.site, head, entries, engine.store.clock, objects=[*first, *made], also=also)
        yield from unit.script()
        self.head = head
        self.started = tuple(r.JournalEntry(seq, at, entry) for seq, entry in enumerate(entries, 1))
        self._lease_keeper.open_streams.add(stream)
        return ClaimedRun(stream, 1, False)

    def _take_over(self, run: RunRow) -> Script[ClaimedRun]:
        engine, stream = self._engine, run.stream
        seen = yield from read_run_lease(engine.store, self._lease_keeper, run)
        if (mine := (yield from self._find_own(seen))) is not None:
            return mine
        if seen.ours and (stream, seen.lease.fence) in self._tried:
            raise Overtaken  # by ourselves: the server has only now processed an earlier try whose answer was lost
        if seen.held:
            raise seen.lease.busy_error(self._id)
        taken = yield from seen.take(self._lease_keeper.holder_id, [self._presence()])
        head = taken.head
        self._tried.add((stream, head.fence))
        yield from self._refuse_stopped(taken.run, taken.orders)
        lost, also = self._take_lost_entries()
        ended = seen.lease.describe_end()
        resumed = r.RunResumed(head.fence, self._lease_keeper.process, engine.store.clock.boot_ms(), lost, ended)
        yield from Append(self.site, head, [resumed], engine.store.clock, also=also).script()
        self.head = head
        # Here, not in the caller: the next claim in the same batch must see it.
        self._lease_keeper.open_streams.add(stream)
        return ClaimedRun(stream, head.fence, True, run.is_fork)

    def _find_own(self, seen: RunLease) -> Script[ClaimedRun | None]:
        """Refuse a run that this process has open."""
        yield from ()
        if seen.open_here:
            raise RunBusy(f"run {self._id!r} is already open in this process", hint="use the open one")
        return None

    def _refuse_stopped(self, run: RunRow, orders: Rows) -> Script[None]:
        self.unobeyed = find_pending_order(run.status, orders)
        if self.unobeyed is not None:
            raise refusal(self._id, self.unobeyed)
        if run.status == r.RunStatus.PAUSED and not resumes(orders):
            raise refusal(self._id, (yield from read_order(run.stream, run.outcome)))

    def _take_lost_entries(self) -> tuple[EntriesLost | None, tuple[Statement, ...]]:
        """Move what is known about the run's lost entries from the store into the run."""
        name = f"{self._engine.name}/{self._id}"
        known = self._engine.store.doubts.get(name)
        if known is None:
            return None, ()
        return msgspec.msgpack.decode(known, type=EntriesLost), (Statement("drop_meta", (LOST + name,)),)

    def _presence(self) -> Statement:
        return self._lease_keeper.holder_statement(self._engine.store.clock.boot_ms())

    def settle(self, committed: bool) -> None:
        if not committed and self.head is not None:
            self._lease_keeper.open_streams.discard(self.head.stream)
            self.head = None


class TakenRun(msgspec.Struct, frozen=True):
    """A run that a worker has taken."""

    claim: ClaimRun
    claimed: ClaimedRun
    parking: RunParking
    retry: Callable[[BaseException], tuple[int, int]]


def open_run(
    engine: Engine,
    run_id: str,
    given: Any,
    *,
    wait: float | None,
    on_change: str,
    parallel: bool,
    budget: int | None = None,
    taken: TakenRun | None = None,
    task: str = "",
    turn: TurnStart | None = None,
) -> Protocol[RunCore]:
    """Claim a run, unless a worker already holds it, and read its entries."""
    outer = current_frame() if taken is None else None
    _refuse_bad_nesting(outer, run_id, parallel)
    if engine.rehearsal is not None:
        opened: RunCore = yield from engine.rehearsal.open(engine, run_id, given, outer, on_change)
        return opened
    linked = outer is not None and outer.run.store is engine.store
    parent = outer.run.head.stream if linked and outer is not None else 0
    yield Read(engine.ensure_agent)
    enclosing = core_of(outer) if outer is not None else None
    if enclosing is not None and enclosing.has_orders:
        yield from stop_if_ordered(enclosing)
    claim = ClaimRun(engine, run_id, given, parent, task, turn) if taken is None else taken.claim
    try:
        claimed = (yield from _claim_run(engine, claim, run_id, given)) if taken is None else taken.claimed
        ledger, head = _build_new_ledger(claim, claimed) or (yield Read(load, (engine, claimed)))
        if claim.head is not None:
            head.ordered = claim.head.ordered
        if claimed.fence and enclosing is not None:
            yield from write_credit(enclosing)  # the child run is new work of its parent
        spent = (yield Read(_read_cost, (engine.store, head.stream))) if budget is not None else None
    except BaseException as error:
        # Cancelled during the claim, or unreadable: no block exists whose end would release the run.
        if claim.head is not None:
            yield from _release_unopened(engine, claim.head, error)
        raise
    run = RunCore(engine, run_id, ledger, head, resumed=claimed.resumed)
    run.wait, run.on_change, run.lapses = wait, on_change, claim.lapses
    run.root.parent = outer
    if linked and enclosing is not None:
        run.account.budgets = enclosing.account.budgets
        _link_accounts(enclosing, run, works=bool(claimed.fence))
    if budget is not None and spent is not None:
        run.account.budgets += (RunBudget(run_id, budget, *spent),)
    if enclosing is not None:
        enclosing.child = run
        run.parking = enclosing.parking
    if taken is not None:
        run.parking, run.retry = taken.parking, taken.retry
    consume_start(run)
    register(run)
    return run


def _link_accounts(outer: RunCore, run: RunCore, *, works: bool) -> None:
    """Let a finished child save something for the run that resumes past it."""
    started = run.ledger.started
    if works:
        outer.account.worked.add(run.head.stream)
    elif started is not None and started.parent == outer.head.stream:
        run.account.outer = outer.account if run.head.stream not in outer.account.worked else None


def _claim_run(engine: Engine, claim: ClaimRun, run_id: str, given: Any) -> Protocol[ClaimedRun]:
    try:
        claimed: ClaimedRun = yield Submit(claim)
    except InputChanged:
        raise (yield Read(input_changed, (engine, run_id, given))) from None
    except RunStopped:
        if claim.unobeyed is not None:
            yield from give_order(engine, engine.name, run_id, claim.unobeyed)
        raise
    return claimed


def input_changed(engine: Engine, run_id: str, given: Any) -> InputChanged:
    """Return an error that names the recorded input, as far as it can be read."""
    store = engine.store
    try:
        recorded = format_value(objects.unpack(store, _read_first_input(engine, run_id)))
    except ValueProblem as error:
        recorded = f"<{error.message}>"
    return InputChanged(
        f"run {run_id!r} was started with {recorded}, not with {format_value(given)}{format_calling_line()}"
    )


def _read_first_input(engine: Engine, run_id: str) -> bytes:
    """Return the input of the run, or of the task queued under its id."""
    run = read_run(engine.store, engine.name, run_id)
    if run is None:
        [task] = engine.store.read("get_task", (engine.stream, run_id))
        return TaskRow(*task).input
    started = Ledger(events_of(engine.store, run.stream, fork=run.is_fork)).started
    assert started is not None
    return started.input


def _read_cost(store: Store, stream: int) -> tuple[int, set[str]]:
    """Return the cost of the run and its child runs, and the models whose cost is unknown."""
    rows = store.read("spent_by", (stream,))
    return sum(cost for _, cost, _ in rows), {model for model, _, unpriced in rows if unpriced}


def _release_unopened(engine: Engine, head: StreamHead, error: BaseException) -> Protocol[None]:
    """Release a run that was claimed but never opened, recorded as interrupted."""
    entry = r.RunInterrupted(describe(error))
    release = Statement("release_lease", (head.stream, head.fence))
    try:
        clock, signer = engine.store.clock, engine.signer
        yield Submit(Append(Site.RUN_END, head, [entry], clock, also=[release], signer=signer, seal=True))
    except (LeaseLost, StoreProblem):
        pass  # the original error is raised; the lease ends with this process
    finally:
        engine.lease_keeper.open_streams.discard(head.stream)


def _build_new_ledger(claim: ClaimRun, claimed: ClaimedRun) -> tuple[Ledger, StreamHead] | None:
    """Return the ledger and head of a run that was just created, without reading the store."""
    if claim.head is None or not claim.started or claimed.resumed:
        return None
    return Ledger(claim.started), claim.head


def load(engine: Engine, claimed: ClaimedRun) -> tuple[Ledger, StreamHead]:
    """Read a run's ledger and the end of its stream."""
    head = StreamHead(engine.store.identity, claimed.stream, claimed.fence)
    collecting = gc.isenabled()
    gc.disable()  # everything allocated here survives, so a collection would only cost time
    try:
        return _read_ledger(engine, head, claimed), head
    finally:
        if collecting:
            gc.enable()


def _read_ledger(engine: Engine, head: StreamHead, claimed: ClaimedRun, compaction: Sequence[Row] = ()) -> Ledger:
    """Read a run's entries. Those of a finished run may have been compacted, even at this moment."""
    ledger = Ledger(())
    try:
        walk_run(engine.store, head, ledger.add_entries, fork=claimed.fork, compaction=compaction)
    except JournalDamaged:
        # Most runs are not compacted, so this is only asked about a stream that looks incomplete.
        known = engine.store.read("last_compaction", (head.stream,))
        if claimed.fence or known == list(compaction):
            raise
        return _read_ledger(engine, head, claimed, known)
    if ledger.undos:
        from perdure.run.undo import build_chapters

        return build_chapters(events_of(engine.store, head.stream, fork=claimed.fork))
    return ledger


def _refuse_bad_nesting(outer: Frame | None, run_id: str, parallel: bool) -> None:
    if outer is None:
        return
    if outer.inside:
        raise EffectInsideStep(f"run {run_id!r} cannot be opened inside a step or an effect")
    child = core_of(outer).child
    if child is not None and child.root.alive and not parallel:
        raise RunBusy(
            f"run {outer.run.id!r} has the child {child.id!r} open",
            hint="open children one after the other, or with parallel=True",
        )
