"""A client's hold on a run: open it, find it again with each request, renew its lease, close it.

Everything that must survive is in the store: the lease names the client, the journal has the calls. A session in memory
only saves reading the journal again. A server that does not have it builds it from the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import InDoubt, InputChanged, LeaseLost, RunBusy, RunNotFound, RunStopped, RunWaiting, WrongValue
from perdure.journal.leases import LEASE_MS, LeaseKeeper, lease_of
from perdure.journal.lineage import events_of
from perdure.journal.takeover import RunLease
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.kernel.scope import FRAME
from perdure.platform.process import Holder, identify_client
from perdure.run.clients.messages import NOTHING, ReportedError
from perdure.run.core import RunCore
from perdure.run.finish import end_run
from perdure.run.history import effective
from perdure.run.ledger import Ledger
from perdure.run.lifecycle import ClaimedRun, ClaimRun, input_changed, load
from perdure.run.order_delivery import give_order
from perdure.run.order_handling import read_orders, stop
from perdure.run.writes import set_result
from perdure.store.base import Script, Statement, Store
from perdure.store.rows import RunRow, read_run
from perdure.values.limits import CLIENT_LEASE_SECONDS_MIN, CLIENT_NAME_CHARACTERS_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_NAME = re.compile(rf"[A-Za-z0-9._:@-]{{8,{CLIENT_NAME_CHARACTERS_MAX}}}")


class ClientIdentity(msgspec.Struct, frozen=True):
    """Who drives a run: the id that the client gave itself, the length of its lease, and the fencing token."""

    client: str
    lease_ms: int = LEASE_MS
    fence: int = 0
    """0 for a finished run, which needs no holder."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.client):
            raise WrongValue(
                f"client={self.client!r}: must be 8 to {CLIENT_NAME_CHARACTERS_MAX} letters, digits or . _ : @ -",
                hint="use a random id for each process, for example a UUID",
            )
        if not CLIENT_LEASE_SECONDS_MIN * 1000 <= self.lease_ms <= LEASE_MS:
            raise WrongValue(
                f"lease_ms={self.lease_ms}: must be from {CLIENT_LEASE_SECONDS_MIN * 1000:.0f} to {LEASE_MS}"
            )

    def __str__(self) -> str:
        return f"{self.fence}.{self.lease_ms}.{self.client}"

    @classmethod
    def parse(cls, session: str) -> ClientIdentity:
        """Read the `session` that a client was given when it opened the run."""
        fence, _, rest = session.partition(".")
        lease_ms, _, client = rest.partition(".")
        if not (fence.isascii() and fence.isdigit() and len(fence) < 16 and lease_ms.isascii() and lease_ms.isdigit()):
            raise WrongValue("session: not a session of `:open`", hint="send it as `:open` has returned it")
        return cls(client, int(lease_ms[:9]), int(fence))


class ClientLeaseKeeper(LeaseKeeper):
    """A client as a holder of leases. It renews by requests; the server has no heartbeat for it."""

    def __init__(
        self, store: Store, identity: ClientIdentity, *, claims: bool = False, process: Holder | None = None
    ) -> None:
        super().__init__(store)
        self.process = process or identify_client(identity.client, identity.client)
        self.holder_id = int.from_bytes(blake2b(identity.client.encode(), digest_size=8).digest(), "big") >> 1
        self.open_streams = set()
        self.tidied = True
        self.lease_ms = identity.lease_ms
        # Without a claim nothing is known about the lease: it must be confirmed before an effect.
        self._deadline = store.clock.boot_ms() + identity.lease_ms if claims else 0

    def _start_heartbeats(self) -> None:
        pass

    @property
    def left_ms(self) -> int:
        """How long the lease lasts unless it is renewed."""
        return max(0, self._deadline - self._store.clock.boot_ms())


class ClientRun(RunCore):
    """A run that a client drives."""

    def __init__(
        self, engine: Engine, run_id: str, ledger: Ledger, claimed: ClaimedRun, head: Any, keeper: ClientLeaseKeeper
    ) -> None:
        super().__init__(engine, run_id, ledger, head, resumed=claimed.resumed)
        self.root.trail = self.root.units = None
        self._keeper = keeper
        self.wait = 0.0
        self.lapses = keeper.lapses
        self.asked_at = 0
        """When the client was told to check an effect in doubt, by the boot clock of this host."""
        for recorded in sorted(_list_writers(ledger), key=lambda one: one.seq):
            self.view.apply(recorded.writes)

    @property
    def lease_keeper(self) -> ClientLeaseKeeper:
        return self._keeper

    def make_key(self) -> str:
        """Return the key of a new effect: the same for a repeated request, so that it can be recognised."""
        return self.key_of(self.request)

    def key_of(self, request: str) -> str:
        """Return the key of the effect that a request starts."""
        place = f"{self.head.stream}:{self.head.fence}:{request}".encode()
        return blake2b(place, key=self.store.content_key, digest_size=16).hexdigest()

    def check_asked_at(self) -> int:
        return self.asked_at

    def unregister(self) -> None:
        self.root.alive = False


def _list_writers(ledger: Ledger) -> list[Any]:
    return [recorded for calls in ledger.calls.values() for recorded in calls if recorded.writes]


class ClientSession:
    """A client's hold on a run, as far as this process remembers it."""

    def __init__(self, engine: Engine, run_id: str, identity: ClientIdentity, process: Holder | None = None) -> None:
        self.engine = engine
        self.run_id = run_id
        self.identity = identity
        self.passed: set[int] = set()
        """Intents that the client has reached since it opened the run. Requests to other servers are missing."""
        self.run: ClientRun | None = None
        self.keeper = ClientLeaseKeeper(engine.store, identity, process=process)

    def forget(self) -> None:
        """Read the journal again before the next request."""
        self.run = None

    def mark_passed(self, intents: Iterable[int]) -> None:
        """Mark recorded effects as reached by the client."""
        new = set(intents) - self.passed
        self.passed |= new
        if self.run is not None:
            _mark(self.run, new)


class ClaimClientRun(ClaimRun):
    """Claims a run for a client. A repeated request finds the lease that it was given, and takes nothing."""

    def _find_own(self, seen: RunLease) -> Script[ClaimedRun | None]:
        if not seen.ours or not seen.lease.is_alive():
            return None
        [[(seq, _)]] = yield [Statement("head_of", (seen.run.stream,))]
        [[(_, kind, _, body, _, _)]] = yield [Statement("journal_entry", (seen.run.stream, seq))]
        opened = r.decode(kind, body) if body is not None else None
        if not isinstance(opened, r.RunStarted | r.RunResumed) or opened.fence != seen.lease.fence:
            raise RunBusy(f"run {seen.run.id!r} is already open in this client", hint="use the open session")
        yield [self._presence()]
        return ClaimedRun(seen.run.stream, seen.lease.fence, isinstance(opened, r.RunResumed), seen.run.is_fork)


def open_session(
    engine: Engine,
    run_id: str,
    given: Any,
    identity: ClientIdentity,
    on_change: str = "error",
    process: Holder | None = None,
) -> Protocol[ClientSession]:
    """Claim a run for a client, or take it over from a holder that is gone.

    A client that ends with a process of this host names it: its death is then known at once.
    """
    yield Read(engine.ensure_agent)
    keeper = ClientLeaseKeeper(engine.store, identity, claims=True, process=process)
    claim = ClaimClientRun(engine, run_id, given, 0, lease_keeper=keeper)
    try:
        claimed: ClaimedRun = yield Submit(claim)
    except InputChanged:
        raise (yield Read(input_changed, (engine, run_id, given))) from None
    except RunStopped:
        if claim.unobeyed is not None:
            yield from give_order(engine, engine.name, run_id, claim.unobeyed)
        raise
    session = ClientSession(engine, run_id, msgspec.structs.replace(identity, fence=claimed.fence))
    session.keeper = keeper
    session.run = yield from _load(session, claimed)
    session.run.on_change = on_change
    return session


def current_run(session: ClientSession) -> Protocol[ClientRun]:
    """Return the run of a session, as it is in the store."""
    run = session.run
    if run is not None:
        [(seq, _)] = yield Read(run.store.read, ("head_of", (run.head.stream,)))
        if seq == run.head.seq:
            return run
    row = yield from find_lease(session)
    claimed = ClaimedRun(row.stream, session.identity.fence, True, row.is_fork)
    before = session.run
    session.run = yield from _load(session, claimed)
    session.run.on_change = before.on_change if before is not None else "error"
    return session.run


def find_lease(session: ClientSession) -> Protocol[RunRow]:
    """Return the run's row. Raises if the client does not hold the run."""
    engine, identity = session.engine, session.identity
    row: RunRow | None = yield Read(read_run, (engine.store, engine.name, session.run_id))
    if row is None:
        raise RunNotFound(f"agent {engine.name!r} has no run {session.run_id!r}")
    if not identity.fence:
        if row.status != r.RunStatus.FINISHED:
            raise LeaseLost(f"run {session.run_id!r} is not finished, and this session does not hold it")
        return row
    now = engine.store.clock.boot_ms()
    [found] = yield Read(engine.store.read, ("read_lease", (row.stream, now)))
    lease = lease_of(found, engine.store.one_host)
    if lease.fence != identity.fence or lease.holder_id != session.keeper.holder_id:
        raise LeaseLost(f"run {session.run_id!r} is no longer held by client {identity.client}")
    return row


def _load(session: ClientSession, claimed: ClaimedRun) -> Protocol[ClientRun]:
    engine = session.engine
    ledger, head = yield Read(load, (engine, claimed))
    if ledger.after is not None:  # the run has undone steps: what still applies is all that a client can reach
        events = yield Read(lambda: events_of(engine.store, claimed.stream, fork=claimed.fork))
        ledger = Ledger(effective(events))
    claimed = msgspec.structs.replace(claimed, resumed=ledger.openings > 1 or not claimed.fence)
    run = ClientRun(engine, session.run_id, ledger, claimed, head, session.keeper)
    for recorded in ledger.by_intent.values():
        if recorded.in_doubt and recorded.fence == claimed.fence:
            recorded.consumed, recorded.running = True, not recorded.doubted
    _mark(run, session.passed)
    if claimed.fence:
        yield from read_orders(run)
    return run


def _mark(run: ClientRun, intents: Iterable[int]) -> None:
    for intent in intents:
        recorded = run.ledger.by_intent.get(intent)
        if recorded is not None:
            recorded.consumed = True
            if recorded.done:
                run.ledger.close(recorded)


def renew(session: ClientSession) -> Protocol[str]:
    """Renew the lease. Returns the order that the client has to obey, or ""."""
    row = yield from find_lease(session)
    if not session.identity.fence:
        return ""
    yield Submit(session.keeper.renewal(row.stream, session.identity.fence))
    orders = yield Read(session.engine.store.read, ("standing_orders", (f"[{row.stream}]",)))
    return next((str(r.Order(what).value) for _, _, what, _, _ in orders if what != r.Order.RESUME), "")


class RunEnding(msgspec.Struct, frozen=True):
    """How a client leaves a run."""

    how: str
    """`finished`, `failed`, `interrupted`, `waiting`, or `stopped` after an order to cancel or pause."""
    result: Any = NOTHING
    error: ReportedError | None = None
    cause: int = 0
    """The entry of the recorded failure behind the error."""


class ClientLeft(BaseException):
    """Says that a client left its run in the middle."""


def close_session(session: ClientSession, ending: RunEnding) -> Protocol[str]:
    """Record how the run ended, and release it. Returns its status."""
    try:
        run = yield from current_run(session)
    except LeaseLost:
        if (status := (yield from _find_status_after_close(session))) is None:
            raise
        return status
    if ending.how == "finished":
        _refuse_running(run)
    elif ending.how == "stopped":
        yield from read_orders(run)
    token = FRAME.set(run.root)
    try:
        if ending.result is not NOTHING:
            set_result(run, ending.result)
        yield from end_run(run, _error_of(run, ending))
    except RunStopped:
        pass  # the run has ended as it was ordered to
    finally:
        FRAME.reset(token)
        session.forget()
    row = yield Read(read_run, (run.store, run.engine.name, run.id))
    return str(row.status)


def _find_status_after_close(session: ClientSession) -> Protocol[str | None]:
    """Return the status of a run that this session has already closed; None if somebody has opened it since."""
    engine = session.engine
    row: RunRow | None = yield Read(read_run, (engine.store, engine.name, session.run_id))
    if row is None:
        return None
    [found] = yield Read(engine.store.read, ("read_lease", (row.stream, 0)))
    lease = lease_of(found)
    if lease.fence != session.identity.fence or lease.holder_id is not None:
        return None
    ledger = Ledger((yield Read(lambda: events_of(engine.store, row.stream, fork=row.is_fork))))
    holder = ledger.holders.get(session.identity.fence)
    return str(row.status) if holder is not None and holder.namespace == session.identity.client else None


def _refuse_running(run: ClientRun) -> None:
    """Refuse to finish a run while effects have no outcome: a finished run could never settle them."""
    names = sorted({one.name for one in run.ledger.by_intent.values() if one.running and not one.done})
    if names:
        raise InDoubt(
            f"run {run.id!r} cannot finish: {', '.join(names)} has started and has no outcome. Nothing was changed",
            hint="report the outcome first, or close the run with an error: the next opening settles the effect",
        )


def _error_of(run: ClientRun, ending: RunEnding) -> BaseException | None:
    if ending.how == "finished":
        return None
    if ending.how == "failed":
        error = (ending.error or ReportedError("the client gave no reason")).make()
        error.__dict__["_perdure_failure"] = (run.head.stream, ending.cause)
        return error
    if ending.how == "stopped" and run.order is not None:
        return stop(run, run.order)
    if ending.how == "waiting":
        return RunWaiting(f"run {run.id!r} waits")
    if ending.how in ("interrupted", "stopped"):
        return ClientLeft(ending.error.message if ending.error is not None else "the client left the run")
    raise WrongValue(f"how={ending.how!r}: must be one of 'finished', 'failed', 'interrupted', 'waiting', 'stopped'")
