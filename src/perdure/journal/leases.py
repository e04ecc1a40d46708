"""Leases: which process may write to which stream.

A process is a *holder*: one row, inserted by the commit of its first lease and renewed by a heartbeat. A lease names
its holder. The process table tells whether a holder on this host is alive; for others the deadline decides.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from perdure.errors import LeaseLost, PerdureError, RunBusy
from perdure.platform.failpoints import Site
from perdure.platform.process import Holder, identify_this_process, proven_dead
from perdure.store.base import FinalBatch, Script, Statement, Store, UnitOfWork
from perdure.values.limits import HEARTBEAT_SECONDS, LEASE_SECONDS, LEAVE_SECONDS_MAX, ORDER_LOOK_SECONDS
from perdure.values.locks import call_after_fork

LEASE_MS = int(LEASE_SECONDS * 1000)


class Lease(msgspec.Struct, frozen=True):
    """The lease of a stream as stored."""

    fence: int
    holder_id: int | None
    process: Holder | None
    since: int
    left_ms: int
    one_host: bool = True

    def is_alive(self) -> bool:
        """False only if the lease was released or expired, or its holder is proven dead."""
        if self.process is None or proven_dead(self.process, self.one_host):
            return False
        return self.left_ms > 0

    def describe_end(self) -> str:
        """Return how a lease that is free has ended: "released", "dead" or "expired"."""
        if self.holder_id is None:
            return "released"
        return "dead" if self.process is None or proven_dead(self.process, self.one_host) else "expired"

    def busy_error(self, run: str) -> RunBusy:
        """The error for a caller who wants to open the run now."""
        since = datetime.fromtimestamp(self.since / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
        text = f"run {run!r} is open in {self.process}, a holder since {since}"
        here = identify_this_process()
        if self.process is None or (self.process.boot, self.process.namespace) == (here.boot, here.namespace):
            return RunBusy(text)
        seconds = max(1, round(self.left_ms / 1000))
        return RunBusy(
            f"{text}, which cannot be checked from here; its lease lasts {seconds} s more unless it is renewed",
            hint="wait for it to end; if that process is gone, the run can be taken over when the lease has run out",
        )


def read_lease(stream: int, now: int, one_host: bool = True) -> Script[Lease]:
    """Part of a script: read the lease of a stream."""
    [[row]] = yield [Statement("read_lease", (stream, now))]
    return lease_of(row, one_host)


def lease_of(row: tuple[Any, ...], one_host: bool = True) -> Lease:
    """Decode a row of the query `read_lease`."""
    fence, holder, boot, namespace, pid, started, host, at, left = row
    process = Holder(boot, namespace, pid, started, host) if boot is not None else None
    return Lease(fence, holder, process, at or 0, left or 0, one_host)


def counts_as_alive(lease: Lease, lease_keeper: LeaseKeeper | None) -> bool:
    """Whether the holder is alive: its runs cannot be taken over. `lease_keeper` is that of this process."""
    return lease.is_alive() and not (lease_keeper is not None and lease_keeper.outlasts(lease))


_open_streams: dict[str, set[int]] = {}
"""Open streams by store, for the whole process: a reopened store is still the same store."""
call_after_fork(_open_streams.clear)


class LeaseKeeper:
    """This process as a holder of leases in one store, with the heartbeat that renews them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.process = identify_this_process()
        self.lease_ms = LEASE_MS
        self._deadline = store.clock.boot_ms() + LEASE_MS
        self.holder_id = int.from_bytes(store.clock.salt()[:8], "big") >> 1
        """Chosen here, not by the store: registering would cost a commit of its own."""
        self.open_streams = _open_streams.setdefault(store.identity, set())
        """Streams that this process writes to: detects a second open without a query."""
        self.lapses = 0
        """How often the lease expired: a run claimed before the last time may have been taken over."""
        self._strange: dict[tuple[int, int], int] = {}
        """Holders with impossible deadlines, and when this process first saw each (boot clock)."""
        self.between_beats: Callable[[], None] = lambda: None
        """Called often by the heartbeat thread; must be short."""
        self.tidied = False
        """Whether this process has cleaned up after dead ones."""
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None
        self._start_heartbeats()

    def _start_heartbeats(self) -> None:
        """Start the heartbeat thread; a simulation overrides this."""
        heart = threading.Thread(target=_heartbeat_loop, args=(weakref.ref(self), self._stop), daemon=True)
        heart.name = "perdure-heartbeat"
        heart.start()
        self._heart = heart

    def has_expired(self) -> bool:
        """Whether the lease has expired, so that another process may have taken over."""
        return self._store.clock.boot_ms() >= self._deadline

    def renew(self) -> None:
        """Renew the lease from now."""
        self._store.submit(self.heartbeat())

    def heartbeat(self) -> UnitOfWork[None]:
        """The unit that renews this holder."""
        return _RenewLeases(self, self._store.clock.boot_ms())

    def extend(self, now: int) -> int:
        """Move the deadline after the renewal sent at `now` has committed; return the number of lapses so far.

        Expiry is checked here and not when the renewal was sent, because a server may answer late.
        """
        if self.has_expired():
            self.require_confirmation()  # a renewal after a long sleep must not hide the lapse
        lapses = self.lapses
        self._deadline = now + self.lease_ms  # from before the commit: late is safe, early is not
        return lapses

    def outlasts(self, lease: Lease) -> bool:
        """Whether a holder is dead although its deadline lies ahead.

        More time left than a renewal grants means that the server's clock was set back. A live holder renews within
        one lease time by any clock; a holder that has not renewed by our clock is dead.
        """
        if lease.holder_id is None:
            return False
        tenure = (lease.holder_id, lease.fence)
        if lease.left_ms <= 2 * LEASE_MS:
            self._strange.pop(tenure, None)  # it has renewed
            return False
        now = self._store.clock.boot_ms()
        return now - self._strange.setdefault(tenure, now) > LEASE_MS

    def require_confirmation(self) -> None:
        """Make every open run confirm its lease before its next effect."""
        self.lapses += 1

    def holder_statement(self, now: int) -> Statement:
        """The statement that registers this holder, for a transaction that gives it a lease."""
        return Statement("ensure_holder", self.row(now))

    def row(self, now: int) -> tuple[Any, ...]:
        """The parameters of the statements that write this holder."""
        process, at = self.process, self._store.clock.wall_ms()
        return (
            self.holder_id,
            process.boot,
            process.namespace,
            process.pid,
            process.started,
            process.host,
            at,
            now,
            self.lease_ms,
        )

    def renewal(self, stream: int, fence: int) -> ConfirmLease:
        """The unit that renews, and raises LeaseLost if another process has taken over the stream."""
        return ConfirmLease(self, self._store.clock.boot_ms(), stream, fence)

    def stop_heartbeats(self) -> None:
        """Stop the heartbeat, and wait for a beat in progress: the connection that it uses cannot be closed.

        A server that does not answer can hold up a beat, so the wait is bounded.
        """
        self._stop.set()
        if self._heart is not None and self._heart is not threading.current_thread():
            self._heart.join(LEAVE_SECONDS_MAX)

    def close(self) -> None:
        """Stop the heartbeat and release all leases."""
        self.stop_heartbeats()
        self._store.submit(self.release_all())

    def release_all(self) -> UnitOfWork[None]:
        """The unit that releases all leases."""
        return _ReleaseLeases(self)

    def delete_dead_holders(self) -> Statement:
        """Delete expired holders; if one is alive after all, its next heartbeat registers it again."""
        return Statement("drop_dead_holders", (self.process.boot, self._store.clock.boot_ms()))


def _heartbeat_loop(lease_keeper: weakref.ref[LeaseKeeper], stop: threading.Event) -> None:
    """Renew until stopped, or until the keeper is garbage-collected."""
    beat_at = time.monotonic() + HEARTBEAT_SECONDS
    while not stop.wait(min(HEARTBEAT_SECONDS, ORDER_LOOK_SECONDS)):
        keeper = lease_keeper()
        if keeper is None:
            return
        try:
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + HEARTBEAT_SECONDS
                keeper.renew()
            keeper.between_beats()
        except PerdureError:
            # The store is full, fenced or busy. The deadline stays, and the runs check `has_expired`.
            continue
        finally:
            del keeper


class _RenewLeases(UnitOfWork[None]):
    site = Site.HEARTBEAT

    def __init__(self, lease_keeper: LeaseKeeper, now: int) -> None:
        self._lease_keeper = lease_keeper
        self._now = now
        self.lapses = 0
        """The keeper's lapses when this renewal committed."""

    def script(self) -> Script[None]:
        # A retry only extends the deadline, which we count from before the first attempt. Dead holders are cleaned up
        # once, at the first heartbeat: at the start somebody would wait for it.
        dead = [] if self._lease_keeper.tidied else [self._lease_keeper.delete_dead_holders()]
        yield FinalBatch([*dead, Statement("renew_holder", self._lease_keeper.row(self._now))])

    def settle(self, committed: bool) -> None:
        if committed:
            self._lease_keeper.tidied = True
            self.lapses = self._lease_keeper.extend(self._now)


class ConfirmLease(_RenewLeases):
    """Renews this holder, and raises LeaseLost if it no longer holds the stream."""

    def __init__(self, lease_keeper: LeaseKeeper, now: int, stream: int, fence: int) -> None:
        super().__init__(lease_keeper, now)
        self._lease = (stream, fence)

    def script(self) -> Script[None]:
        [_, held] = yield [
            Statement("renew_holder", self._lease_keeper.row(self._now)),
            Statement("check_lease", self._lease),
        ]
        if not held:
            raise LeaseLost


class _ReleaseLeases(UnitOfWork[None]):
    site = Site.HEARTBEAT
    seconds = LEAVE_SECONDS_MAX

    def __init__(self, lease_keeper: LeaseKeeper) -> None:
        self._lease_keeper = lease_keeper

    def script(self) -> Script[None]:
        holder = (self._lease_keeper.holder_id,)
        yield FinalBatch(
            [
                Statement("release_all", holder),
                Statement("drop_holder", holder),
                self._lease_keeper.delete_dead_holders(),
            ]
        )
