"""Machines with clocks of their own, and processes that register, keep a heart, and work on runs.

All protocol is Perdure's: `open_run`, `call_step`, `call_effect`, `end_run`, `LeaseKeeper` and the units that they
submit. What is simulated is the driver below them: time, threads, connections, the bodies of steps and effects.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.errors import InDoubt, LeaseLost, NotDone, PerdureError, RunBusy, StoreProblem, StoreUnavailable
from perdure.journal.append import Append
from perdure.journal.leases import ConfirmLease, LeaseKeeper
from perdure.kernel.engine import Engine
from perdure.kernel.parts import Parts
from perdure.kernel.protocol import Invoke, Pause, Protocol, Read, Submit
from perdure.platform.failpoints import Site
from perdure.platform.process import Holder
from perdure.run.core import RunCore
from perdure.run.doubt import Done, Unknown, child_at_work
from perdure.run.effect import call_effect
from perdure.run.finish import end_run
from perdure.run.function import CallOptions, function
from perdure.run.lifecycle import ClaimRun, open_run
from perdure.run.order_handling import OrderListener
from perdure.run.outcome import EffectCall
from perdure.run.step import call_step
from perdure.store.base import Store, UnitOfWork
from perdure.values.limits import HEARTBEAT_SECONDS
from tests.simulation.database import Transaction
from tests.simulation.network import Pool
from tests.simulation.statements import STATEMENTS
from tests.simulation.unblocking import PostgresCommit
from tests.simulation.world import Owner, Steps

if TYPE_CHECKING:
    from tests.simulation.history import History

HEARTBEAT_MS = int(HEARTBEAT_SECONDS * 1000)
READ_MS_MAX = 60_000
INTENTS = (Site.EFFECT_INTENT, Site.EFFECT_AGAIN)
EPOCH_MS = 1_800_000_000_000
AGENT = "simulated"


class Killed(BaseException):
    """Thrown into what a dead process was doing, so that nothing of it is left."""


class Broken(Exception):
    """A body's own exception: perhaps it came after the deed."""


class Host:
    """A machine: its clocks, its link to the server, its table of processes."""

    def __init__(self, history: History, number: int, rate: float) -> None:
        world = history.world
        self.name = f"host{number}"
        self.boots = 1
        self.rate = rate
        self.boot_offset = world.between(0, 10_000_000)
        self.wall_offset = world.between(-600_000, 600_000)
        self.down_until = 0
        self.alive: dict[int, int] = {}
        """Start time by pid: what /proc shows."""
        self._last_pid = 100 * number

    @property
    def boot(self) -> str:
        return f"{self.name}/{self.boots}"

    def new_pid(self, now: int) -> int:
        self._last_pid += 1
        self.alive[self._last_pid] = now
        return self._last_pid


class HostClock:
    """What a process on a host sees of time and chance."""

    def __init__(self, history: History, host: Host) -> None:
        self._world = history.world
        self._host = host

    def wall_ms(self) -> int:
        return EPOCH_MS + self._world.now + self._host.wall_offset

    def boot_ms(self) -> int:
        return self._host.boot_offset + int(self._world.now * self._host.rate)

    def salt(self) -> bytes:
        return self._world.random.getrandbits(128).to_bytes(16, "big")

    def key(self) -> str:
        return f"{self._world.random.getrandbits(64):016x}"

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody blocks here")


class SimulatedStore(Store):
    """A store of which only the reading end is used as it is: commits go through the scheduler."""

    url = "postgresql://simulated"
    secret = b"simulated"
    identity = "simulated"
    one_host = False

    def __init__(self, history: History, host: Host) -> None:
        super().__init__()
        self._history = history
        self.clock = HostClock(history, host)

    def read(self, name: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        executing = STATEMENTS[name](Transaction(self._history.database), self._history.server, *args)
        try:
            next(executing)
        except StopIteration as stop:
            rows: list[tuple[Any, ...]] = stop.value[0]
            return rows
        raise AssertionError(f"the query {name} waits")

    def _submit(self, unit: UnitOfWork[Any]) -> Any:
        raise AssertionError("commits go through the scheduler")

    async def _submit_async(self, unit: UnitOfWork[Any]) -> Any:
        raise AssertionError("commits go through the scheduler")

    backup = close = None  # type: ignore[assignment]


class SimulatedTenancy(LeaseKeeper):
    """Its heart beats when the scheduler says so."""

    def _start_heartbeats(self) -> None:
        self.open_streams = set()  # of this process; the module's own is that of the process that runs the tests


class SimulatedPlace:
    """What an engine needs of a place."""

    def __init__(self, store: Store, lease_keeper: LeaseKeeper) -> None:
        self.store = store
        self.lease_keeper = self.lease_keeper_if_any = lease_keeper
        self.parts = Parts()
        self.parts.get_or_make(OrderListener, lambda: OrderListener(store))  # nobody gives orders here


def _search(arg: int) -> int:
    return arg


def _book(arg: int, *, key: str) -> str:
    return key


def is_booked(arg: int, *, key: str) -> Any:
    return key


SEARCH = function(_search, effect=False, name="search", ignore=(), options=CallOptions())
BOOK = function(_book, effect=True, name="book", ignore=(), options=CallOptions())


class Process(Owner):
    """A process of a worker program: it wants every run to be finished, by itself or by others."""

    def __init__(self, history: History, host: Host) -> None:
        self.history = history
        self.world = history.world
        self.host = host
        pid = host.new_pid(self.world.now)
        self.name = f"{host.name}:{pid}"
        self.holder = Holder(host.boot, f"pid:[{host.name}]", pid, self.world.now, host.name)
        self.store = SimulatedStore(history, host)
        self.pool = Pool(self)
        self.lease_keeper: LeaseKeeper
        self.engine = Engine(
            AGENT, store="sqlite:///never-opened", durability="full", strict=False, key=None, single_home=False
        )
        self.engine.__dict__.update(_known=True, _signer=None)
        self.done = False
        """It knows that every run is finished."""
        self._protocols: list[Protocol[Any]] = []

    @property
    def tracing(self) -> bool:
        return self.world.lines is not None

    def note(self, what: str) -> None:
        self.world.note(self.name, what)

    # -- life -----------------------------------------------------------------------------------------------------

    def live(self) -> Steps:
        """Work, with the heart beating beside."""
        self.lease_keeper = SimulatedTenancy(self.store)
        self.engine._place = SimulatedPlace(self.store, self.lease_keeper)  # type: ignore[assignment]
        self.world.spawn(self._beat(), self)
        yield from self._work()
        self.done = True
        with suppress(StoreProblem):
            yield from self.submit(self.lease_keeper.release_all())

    def _beat(self) -> Steps:
        """As `leases._beat` does."""
        while True:
            yield HEARTBEAT_MS
            if self.done:
                return
            try:
                yield from self.submit(self.lease_keeper.heartbeat())
            except PerdureError:
                continue

    def _work(self) -> Steps:
        left = list(self.history.programs)
        self.world.random.shuffle(left)
        while left:
            for run_id in list(left):
                if (yield from self._attend(run_id)):
                    left.remove(run_id)
            yield self.world.between(1000, 6000) if self.world.chance(0.4) else self.world.between(6000, 15_000)

    def _attend(self, run_id: str) -> Steps:
        """Open a run and do what is left of it; True when it is finished."""
        opening = open_run(self.engine, run_id, None, wait=None, on_change="error", parallel=False)
        try:
            run: RunCore = yield from self.drive(opening)
        except (RunBusy, LeaseLost, StoreProblem) as error:
            if self.tracing:
                self.note(f"cannot open {run_id}: {type(error).__name__}")
            return False
        if self.tracing:
            self.note(f"has opened {run_id} with fence {run.head.fence}")
        failure: Exception | None = None
        finished = run.finished
        try:
            if not finished:
                yield from self._perform_program(run)
        except (LeaseLost, StoreProblem, InDoubt, NotDone, Broken) as error:
            failure = error
        try:
            yield from self.drive(end_run(run, failure))
        except (LeaseLost, StoreProblem) as error:
            failure = error
        if self.tracing:
            self.note(f"leaves {run_id}: {type(failure).__name__ if failure else 'finished'}")
        return failure is None

    def _perform_program(self, run: RunCore) -> Steps:
        for number, operation in enumerate(self.history.programs[run.id]):
            if operation.effect:
                call = EffectCall(run, run.root, BOOK, operation.options, (number,), {})
                yield from self.drive(call_effect(call))
            else:
                yield from self.drive(call_step(run.root, SEARCH, operation.options, (number,), {}))

    def bury(self) -> None:
        """Nothing of it goes on."""
        for protocol in self._protocols:
            try:
                while True:
                    protocol.throw(Killed())
            except (Killed, StopIteration):
                continue
        self._protocols.clear()

    # -- driving ----------------------------------------------------------------------------------------------------

    def drive(self, protocol: Protocol[Any]) -> Steps:
        """As `run.requests.drive_sync` does, in virtual time."""
        self._protocols.append(protocol)
        answer: Any = None
        error: Exception | None = None
        last: Any = None
        while True:
            try:
                request = protocol.send(answer) if error is None else protocol.throw(error)
            except BaseException as ended:
                self._protocols.remove(protocol)
                if isinstance(ended, StopIteration):
                    return ended.value
                raise
            answer = error = None
            try:
                answer = yield from self._answer(request, last)
            except (PerdureError, Broken, NotDone) as raised:
                error = raised
            last = request

    def _answer(self, request: Any, last: Any) -> Steps:
        if isinstance(request, Submit):
            return (yield from self.submit(request.unit))
        if isinstance(request, Pause):
            yield max(1, int(request.seconds * 1000))
            return None
        if isinstance(request, Read) and request.call is child_at_work:
            return None  # bodies start no processes here, and the real ones are none of this world's
        if isinstance(request, Read):
            return (yield from self._read(request))
        return (yield from self._invoke(request, last))

    def submit(self, unit: UnitOfWork[Any]) -> Steps:
        """Commit, by the code that does it on PostgreSQL."""
        if self.tracing:
            self.note(f"commits {unit.site}")
        result = yield from PostgresCommit(self.pool, unit).run()
        self.history.rules.note_acknowledged(_head_of(unit))
        if unit.site in INTENTS:
            yield self.history.peril(self)
        yield from self._stumble()
        return result

    def _read(self, request: Read) -> Steps:
        began = self.world.now
        while (fate := self.history.fate_of_a_message(self)).delay is None or not fate.answered:
            yield self.world.between(10, 10_000)
            if self.world.now - began > READ_MS_MAX:
                raise StoreUnavailable
        yield fate.delay
        answer = request.call(*request.args)
        yield self.history.latency()
        return answer

    def _stumble(self) -> Steps:
        """Now and then a process is stopped at the worst moment: right after a commit."""
        length = self.history.stumble()
        if length:
            if self.tracing:
                self.note(f"is stopped for {length} ms")
            self.asleep_until = self.world.now + length
            yield 0

    # -- bodies -----------------------------------------------------------------------------------------------------

    def _invoke(self, request: Invoke, last: Any) -> Steps:
        if request.frame.inside == "step":
            yield self.history.body_ms()
            return request.args[0]
        key = request.kwargs["key"]
        if not request.frame.intent:
            return (yield from self._check(key))
        confirmed = isinstance(last, Submit) and isinstance(last.unit, ConfirmLease)
        self.history.rules.body_starts(self, request.frame.run, key, confirmed=confirmed)
        return (yield from self._do(key))

    def _do(self, key: str) -> Steps:
        """The deed in the middle of it: before and after it a body may fail, or its process die."""
        world, history = self.world, self.history
        if self.tracing:
            self.note(f"does {key}")
        yield from self._stumble()
        yield history.body_ms()
        if history.fails():
            raise NotDone if world.chance(0.5) else Broken
        history.outside.append(key)
        yield history.body_ms()
        if history.fails():
            raise Broken
        return key

    def _check(self, key: str) -> Steps:
        yield self.world.between(1, 100)
        if self.world.chance(0.2):
            return Unknown
        return Done(key) if key in self.history.outside else NotDone


def _head_of(unit: UnitOfWork[Any]) -> Any:
    """Where a stream ends after a unit, if it has written to one."""
    return unit.head if isinstance(unit, Append | ClaimRun) else None
