"""How a run is opened and how it ends. Start, resume and takeover are one transaction: whose is it?"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import codec, objects
from .. import records as r
from ..errors import (
    EffectInsideStep,
    InputChanged,
    JournalDamaged,
    LeaseLost,
    RunBusy,
    RunCancelled,
    RunStopped,
    RunWaiting,
    StoreProblem,
    ValueProblem,
    WorkflowProblem,
)
from ..failpoints import Site
from ..house_records import Lost
from ..journal.append import Append, Head
from ..journal.departures import departure, refuse_departed
from ..journal.lineage import events_of, walk_run
from ..journal.starts import lock_of
from ..leases import read_lease
from ..store.base import LOST, Overtaken, Row, Rows, Script, Statement, Store, Unit
from .account import Budget, write_credit
from .core import RunCore
from .items import finished_with
from .leaving import wind_up
from .ledger import Ledger
from .lines import at_line, shown
from .obeying import Told, entry_of, heed, is_of, listen, refusal, stopped_in
from .ordering import give_order, read_told, resumes, unobeyed
from .parking import Parked, Parking
from .requests import Protocol, Read, Submit
from .scope import Frame, current
from .steps import describe
from .waits import withdrawn

if TYPE_CHECKING:
    from ..engine import Engine


class Claimed(msgspec.Struct, frozen=True):
    """A run that is now ours, or a finished one that needs no owner (`fence` 0)."""

    stream: int
    fence: int
    resumed: bool
    fork: bool = False


class Claim(Unit[Claimed]):
    """Create a run, or take over one whose holder is gone."""

    site = Site.RUN_CLAIM

    def __init__(self, engine: Engine, run_id: str, given: Any, parent: int, task: str = "") -> None:
        self._engine = engine
        # Read and registered before the transaction: in it, everybody would wait for a second connection.
        self._tenancy = engine.tenancy
        self._owner = engine.stream
        self.lapses = engine.tenancy.lapses
        self._id = run_id
        self._given = given is not None
        self._digest = codec.digest(given, "input")
        self._input, self._objects = objects.pack(engine.store, given, "input")
        self._parent = parent
        self.task = task
        # Claims of one run in one process come one after the other, and each sees what the one before has opened.
        self.lane = ~abs(hash((engine.name, run_id)))
        self._tried: set[tuple[int, int]] = set()
        """Streams and fences that this claim has asked for."""
        self.head: Head | None = None
        """Where the run's stream ends now, once it is ours."""
        self.started: r.Event | None = None
        """All that is recorded of it, when this has created it."""
        self.unobeyed: Told | None = None
        """What its last holder was told, and did not live to obey."""

    def script(self) -> Script[Claimed]:
        [rows] = yield [Statement("get_run", (self._engine.name, self._id))]
        if not rows:
            return (yield from self._create())
        stream, status, digest = rows[0][0], rows[0][3], rows[0][4]
        if self._given and digest != self._digest:
            raise InputChanged(f"run {self._id!r} was started with another input")
        if status == r.Status.FINISHED:
            return Claimed(stream, 0, True, bool(rows[0][11]))
        if status == r.Status.CANCELLED:
            raise refusal(self._id, (yield from read_told(stream, rows[0][9])))
        return (yield from self._take_over(stream))

    def _create(self) -> Script[Claimed]:
        engine = self._engine
        name, at = f"{engine.name}/{self._id}", engine.store.clock.wall_ms()
        # One that was queued for workers has its input from there. Asked under the lock of who queues it.
        queued = (lock_of(self._owner, self._id), Statement("get_task", (self._owner, self._id)))
        add = Statement("add_stream", ("run", name, at))
        [_, rows, [(stream,)], left] = yield [*queued, add, departure(engine.name)]
        refuse_departed(engine.name, left)
        for _, self.task, *_, packed, digest, parent, _ in rows:
            if self._given and self._digest != digest:
                raise InputChanged
            self._input, self._objects, self._digest, self._parent = packed, (), digest, parent
        given = (self._input, self._digest, self._parent)
        lost, also = self._lost()
        started = r.RunStarted(engine.name, self._id, *given, 1, self._tenancy.process, self.task, lost)
        first = [self._presence(), Statement("add_lease", (stream, self._tenancy.holder)), *self._objects]
        head = Head(engine.store.identity, stream, 1)
        self._tried.add((stream, 1))
        yield from Append(self.site, head, [started], engine.store.clock, objects=first, also=also).script()
        self.head, self.started = head, r.Event(1, at, started)
        self._tenancy.open_streams.add(stream)
        return Claimed(stream, 1, False)

    def _take_over(self, stream: int) -> Script[Claimed]:
        engine = self._engine
        now = engine.store.clock.boot_ms()
        lease = yield from read_lease(stream, now, engine.store.one_host)
        if stream in self._tenancy.open_streams:
            raise RunBusy(f"run {self._id!r} is already open in this process", hint="use the one that is open")
        if lease.process == self._tenancy.process and (stream, lease.fence) in self._tried:
            raise Overtaken  # by ourselves: an earlier try, whose answer was lost, has come to the server only now
        # One that this process holds and has not open is left from a store that it had to close after an error.
        if lease.process != self._tenancy.process and lease.alive() and not self._tenancy.outlasts(lease):
            raise lease.busy(self._id)
        take = Statement("take_lease", (stream, lease.fence, self._tenancy.holder), Overtaken)
        # Asked once more behind the take, which locks the lease: what we have decided on may have changed meanwhile.
        look = [Statement("time_left", (lease.holder, now)), Statement("get_run", (engine.name, self._id))]
        orders = [departure(engine.name), Statement("orders_under", (stream, lease.fence))]
        head_of = Statement("head_of", (stream,))
        [_, [(seq, chain)], left, [run], gone, told, _] = yield [take, head_of, *look, *orders, self._presence()]
        refuse_departed(engine.name, gone)
        if run[3] in (r.Status.FINISHED, r.Status.CANCELLED):
            raise Overtaken
        if left and left[0][0] > lease.left_ms and lease.holder != self._tenancy.holder:
            raise Overtaken  # it has renewed since we looked, and relies on it: what it is now decides
        fence = lease.fence + 1
        head = Head(engine.store.identity, stream, fence, seq, chain)
        self._tried.add((stream, fence))
        yield from self._refuse_stopped(run, told)
        lost, also = self._lost()
        resumed = r.RunResumed(fence, self._tenancy.process, engine.store.clock.boot_ms(), lost)
        yield from Append(self.site, head, [resumed], engine.store.clock, also=also).script()
        self.head = head
        # Here and not when the caller goes on: the next claim of the same batch must see it.
        self._tenancy.open_streams.add(stream)
        return Claimed(stream, fence, True, bool(run[11]))

    def _refuse_stopped(self, run: tuple[Any, ...], orders: Rows) -> Script[None]:
        stream, status = run[0], run[3]
        self.unobeyed = unobeyed(status, orders)
        if self.unobeyed is not None:
            raise refusal(self._id, self.unobeyed)
        if status == r.Status.PAUSED and not resumes(orders):
            raise refusal(self._id, (yield from read_told(stream, run[9])))

    def _lost(self) -> tuple[Lost | None, tuple[Statement, ...]]:
        """What the store has lost of this run: from now on, the run itself says so."""
        name = f"{self._engine.name}/{self._id}"
        known = self._engine.store.doubts.get(name)
        if known is None:
            return None, ()
        return msgspec.msgpack.decode(known, type=Lost), (Statement("drop_meta", (LOST + name,)),)

    def _presence(self) -> Statement:
        return self._tenancy.presence(self._engine.store.clock.boot_ms())

    def settle(self, committed: bool) -> None:
        if not committed and self.head is not None:
            self._tenancy.open_streams.discard(self.head.stream)
            self.head = None


class Taken(msgspec.Struct, frozen=True):
    """A run that a worker has taken."""

    claim: Claim
    claimed: Claimed
    parking: Parking
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
    taken: Taken | None = None,
    task: str = "",
) -> Protocol[RunCore]:
    """Claim a run, unless a worker has taken it already, and read what is recorded of it."""
    outer = current() if taken is None else None
    _refuse_bad_nesting(outer, run_id, parallel)
    if engine.rehearsal is not None:
        return (yield from engine.rehearsal.open(engine, run_id, given, outer, on_change))
    linked = outer is not None and outer.run.store is engine.store
    parent = outer.run.head.stream if linked and outer is not None else 0
    yield Read(engine.ensure_agent)
    if outer is not None and outer.run.is_told:
        yield from heed(outer.run)
    claim = Claim(engine, run_id, given, parent, task) if taken is None else taken.claim
    try:
        claimed = (yield from _claimed(engine, claim, run_id, given)) if taken is None else taken.claimed
        ledger, head = _created(claim, claimed) or (yield Read(load, (engine, claimed)))
        if claim.head is not None:
            head.ordered = claim.head.ordered
        if claimed.fence and outer is not None:
            yield from write_credit(outer.run)  # the child is new work of its parent
        spent = (yield Read(_spent, (engine.store, head.stream))) if budget is not None else None
    except BaseException as error:
        # Cancelled while it became ours, or it cannot be read: there is no block whose end would give it back.
        if claim.head is not None:
            yield from _give_back(engine, claim.head, error)
        raise
    run = RunCore(engine, run_id, ledger, head, resumed=claimed.resumed)
    run.wait, run.on_change, run.lapses = wait, on_change, claim.lapses
    run.root.parent = outer
    if linked and outer is not None:
        run.account.budgets = outer.run.account.budgets
    if budget is not None and spent is not None:
        run.account.budgets += (Budget(run_id, budget, *spent),)
    if outer is not None:
        outer.run.child = run
        run.parking = outer.run.parking
    if taken is not None:
        run.parking, run.retry = taken.parking, taken.retry
    engine.opened(run)
    return run


def _claimed(engine: Engine, claim: Claim, run_id: str, given: Any) -> Protocol[Claimed]:
    try:
        claimed: Claimed = yield Submit(claim)
    except InputChanged:
        raise (yield Read(input_changed, (engine, run_id, given))) from None
    except RunStopped:
        if claim.unobeyed is not None:
            yield from give_order(engine, engine.name, run_id, claim.unobeyed)
        raise
    return claimed


def input_changed(engine: Engine, run_id: str, given: Any) -> InputChanged:
    """Says what the run was started with, as far as it can be read."""
    store = engine.store
    try:
        recorded = shown(objects.unpack(store, _first_input(engine, run_id)))
    except ValueProblem as error:
        recorded = f"<{error.message}>"
    return InputChanged(f"run {run_id!r} was started with {recorded}, and not with {shown(given)}{at_line()}")


def _first_input(engine: Engine, run_id: str) -> bytes:
    """Of the run, or of what is queued under its id."""
    for row in engine.store.read("get_run", (engine.name, run_id)):
        started = Ledger(events_of(engine.store, row[0], fork=row[11] > 0)).started
        assert started is not None
        return started.input
    [task] = engine.store.read("get_task", (engine.stream, run_id))
    packed: bytes = task[10]
    return packed


def _spent(store: Store, stream: int) -> tuple[int, set[str]]:
    """What the run and those that are part of it have spent, and on which models nobody knows how much."""
    rows = store.read("spent_by", (stream,))
    return sum(cost for _, cost, _ in rows), {model for model, _, unpriced in rows if unpriced}


def _give_back(engine: Engine, head: Head, error: BaseException) -> Protocol[None]:
    """Leave a run that was claimed and never opened as one that was interrupted."""
    entry = r.RunInterrupted(describe(error))
    release = Statement("release_lease", (head.stream, head.fence))
    try:
        clock, signer = engine.store.clock, engine.signer
        yield Submit(Append(Site.RUN_END, head, [entry], clock, also=[release], signer=signer, seal=True))
    except (LeaseLost, StoreProblem):
        pass  # what made the claim useless is raised; the lease ends with this process
    finally:
        engine.tenancy.open_streams.discard(head.stream)


def _created(claim: Claim, claimed: Claimed) -> tuple[Ledger, Head] | None:
    """What is recorded of a run that was made just now: there is nothing to read."""
    if claim.head is None or claim.started is None or claimed.resumed:
        return None
    return Ledger((claim.started,)), claim.head


def load(engine: Engine, claimed: Claimed) -> tuple[Ledger, Head]:
    """What is recorded of a run, and where its stream ends."""
    head = Head(engine.store.identity, claimed.stream, claimed.fence)
    collecting = gc.isenabled()
    gc.disable()  # all that is made here stays: collecting in the middle would find nothing, and look at everything
    try:
        return _recorded(engine, head, claimed), head
    finally:
        if collecting:
            gc.enable()


def _recorded(engine: Engine, head: Head, claimed: Claimed, folded: Sequence[Row] = ()) -> Ledger:
    """What the journal says; of a finished run, some of it may have been folded, and may be just now."""
    ledger = Ledger(())
    try:
        walk_run(engine.store, head, ledger.read, fork=claimed.fork, folded=folded)
    except JournalDamaged:
        # Most runs are not folded: only one that does not seem to be whole is asked about.
        known = engine.store.read("last_folded", (head.stream,))
        if claimed.fence or known == list(folded):
            raise
        return _recorded(engine, head, claimed, known)
    if ledger.undos:
        from .undoing import open_chapters

        return open_chapters(events_of(engine.store, head.stream, fork=claimed.fork))
    return ledger


def _refuse_bad_nesting(outer: Frame | None, run_id: str, parallel: bool) -> None:
    if outer is None:
        return
    if outer.inside:
        raise EffectInsideStep(f"run {run_id!r} cannot be opened inside a step or an effect")
    child = outer.run.child
    if child is not None and child.root.alive and not parallel:
        raise RunBusy(
            f"run {outer.run.id!r} has the child {child.id!r} open",
            hint="open children one after the other, or with parallel=True",
        )


def end_run(run: RunCore, error: BaseException | None) -> Protocol[None]:
    """Record how the block was left, and give the lease back in the same commit."""
    run.end(error)
    instead: BaseException | None = None
    try:
        if not run.finished and run.root.alive:
            instead = yield from wind_up(run, error)
        parking, run.parking = run.parking, None
        if parking is not None and parking.left is not None:
            error = parking.left  # whatever became of it in the hands of the program
        error = instead or error
        if not run.finished and run.root.alive:
            yield from _hear_at_last(run, error)
            try:
                yield from _commit_end(run, error)
            except WorkflowProblem as lost:  # what was to land with it is refused: then the run has failed by that
                yield from _commit_end(run, lost)
                raise
            yield from _resume_after_all(run)
            _leave_stopped(run, error)
    except (LeaseLost, StoreProblem):
        if error is None:
            raise  # the work was done, and is not recorded as done: that must be heard
    finally:
        run.engine.closed(run)
    if instead is not None:
        raise instead


def _commit_end(run: RunCore, error: BaseException | None) -> Protocol[None]:
    entries, objects = _last_entry(run, error)
    release = Statement("release_lease", (run.head.stream, run.head.fence))
    whole, asks, made = finished_with(run.whole) if error is None else ((), (), ())
    objects = (*objects, *made)
    yield from run.commit(Site.RUN_END, *whole, *entries, objects=objects, also=[release], seal=True, asks=asks)


def _hear_at_last(run: RunCore, error: BaseException | None) -> Protocol[None]:
    """Whoever leaves because a run around this one is stopped may have been told the same, and not have heard it."""
    if stopped_in(error) is not None and run.order is None:
        yield from listen(run)


def _resume_after_all(run: RunCore) -> Protocol[None]:
    """Whoever said so while the pause was written told somebody who is gone now: it must not be said again."""
    if run.order is not None and run.order.order == r.Order.PAUSE and run.head.ordered != run.heard:
        orders = yield Read(run.store.read, ("orders_under", (run.head.stream, run.head.fence)))
        if resumes(orders):
            _, _, reason, by = orders[0]
            yield from give_order(run.engine, run.engine.name, run.id, Told(r.Order.RESUME, reason, by))


def _obeyed(run: RunCore, error: BaseException | None) -> Told | None:
    """What the run obeys by ending now: its own order, or that of a run around it."""
    stopped = stopped_in(error)
    if run.order is not None and (run.stopped or stopped is not None):
        return run.order
    if stopped is None or stopped.run == run.id or isinstance(stopped, Exception):
        return None
    order = r.Order.CANCEL if isinstance(stopped, RunCancelled) else r.Order.PAUSE
    return Told(order, f"part of {stopped.message}", stopped.by)


def _leave_stopped(run: RunCore, error: BaseException | None) -> None:
    """The block of a run that was stopped is never left as if it had ended well; outside of it that is an Exception."""
    stopped, order = stopped_in(error), run.order
    ours = stopped is not None and is_of(stopped, run)
    if order is None or not run.stopped or (error is not None and not ours):
        return
    told = refusal(run.id, order)
    raise told.with_traceback(error.__traceback__ if error is not None else None) from None


def _last_entry(run: RunCore, error: BaseException | None) -> tuple[list[r.Record], Sequence[Statement]]:
    told = _obeyed(run, error)
    if told is not None:
        return _last_of_stopped(run, told, error)
    if error is None:
        result = run.view.result or run.pack(None, "result")[0]
        return [*withdrawn(run.ledger.unasked_waits()), r.RunFinished(result)], run.result_objects
    if isinstance(error, RunWaiting):
        return [], ()
    if isinstance(error, Parked) and run.retry is not None:
        return [r.TaskParked(error.until, error.wants)], ()
    if isinstance(error, Parked) and run.head.stream in error.streams:
        return [], ()  # a run inside the one that the worker has taken, which is woken for both
    # In a worker, who takes it next would only be told to exit once more.
    exits = run.retry is not None and isinstance(error, SystemExit)
    if not isinstance(error, Exception) and not exits:
        return [r.RunInterrupted(describe(error))], ()
    packed, made = run.pack(error, "error")
    again = run.retry(error) if run.retry is not None else (0, 0)
    return [r.RunFailed(packed, describe(error), _cause(run, error), *again)], made


def _last_of_stopped(
    run: RunCore, told: Told, error: BaseException | None
) -> tuple[list[r.Record], Sequence[Statement]]:
    entry = entry_of(told)
    if error is None or stopped_in(error) is not None:
        return [entry], ()
    if not isinstance(error, Exception):  # interrupted as it cleaned up: that is gone on with when it is opened again
        return ([entry] if run.cleanup is None else []), ()
    packed, made = run.pack(error, "error")
    return [r.RunFailed(packed, describe(error), _cause(run, error)), entry], made


def _cause(run: RunCore, error: BaseException) -> int:
    """The recorded failure behind an exception: itself, what it was raised from, or one of a group."""
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
