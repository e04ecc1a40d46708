"""Who may write to which stream.

A process is a *holder*: one row, which the commit that gives it its first lease writes, and a heartbeat renews; a lease
names its holder. Whether a holder is alive is asked of the process table where that is possible, and of its deadline
otherwise.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from .errors import LeaseLost, PerdureError, RunBusy
from .failpoints import Site
from .limits import HEARTBEAT_SECONDS, LEASE_SECONDS, LEAVE_SECONDS_MAX, ORDER_LOOK_SECONDS
from .process import Holder, proven_dead, this_process
from .store.base import Last, Script, Statement, Store, Unit

LEASE_MS = int(LEASE_SECONDS * 1000)


class Lease(msgspec.Struct, frozen=True):
    """What the store says about a stream's writer."""

    fence: int
    holder: int | None
    process: Holder | None
    since: int
    left_ms: int
    one_host: bool = True

    def alive(self) -> bool:
        """False only when the holder has released it, is proven dead, or has run out of time."""
        if self.process is None or proven_dead(self.process, self.one_host):
            return False
        return self.left_ms > 0

    def busy(self, run: str) -> RunBusy:
        """The error for somebody who wants it now."""
        since = datetime.fromtimestamp(self.since / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
        text = f"run {run!r} is open in {self.process}, a holder since {since}"
        here = this_process()
        if self.process is None or (self.process.boot, self.process.namespace) == (here.boot, here.namespace):
            return RunBusy(text)
        seconds = max(1, round(self.left_ms / 1000))
        return RunBusy(
            f"{text}, which cannot be looked at from here; its lease lasts {seconds} s more unless it is renewed",
            hint="wait for it to end; if that process is gone, the run can be taken over when the lease has run out",
        )


def read_lease(stream: int, now: int, one_host: bool = True) -> Script[Lease]:
    """The lease of a stream."""
    [[row]] = yield [Statement("read_lease", (stream, now))]
    return lease_of(row, one_host)


def lease_of(row: tuple[Any, ...], one_host: bool = True) -> Lease:
    """A row of the query `read_lease`."""
    fence, holder, boot, namespace, pid, started, host, at, left = row
    process = Holder(boot, namespace, pid, started, host) if boot is not None else None
    return Lease(fence, holder, process, at or 0, left or 0, one_host)


_open_streams: dict[str, set[int]] = {}
"""By store, for the whole process: a store that was fenced and opened again is still the same one."""
os.register_at_fork(after_in_child=_open_streams.clear)


class Tenancy:
    """This process as a holder of leases in one store, with the heart that keeps them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.process = this_process()
        self._deadline = store.clock.boot_ms() + LEASE_MS
        self.holder = int.from_bytes(store.clock.salt()[:8], "big") >> 1
        """Chosen here and not by the store: registering would be a commit, and a wait, of its own."""
        self.open_streams = _open_streams.setdefault(store.identity, set())
        """Streams that this process writes to: opening one twice is noticed without asking the store."""
        self.lapses = 0
        """How often the deadline has passed: a run that was claimed before the last time may be another's by now."""
        self._strange: dict[tuple[int, int], int] = {}
        """Holders with impossible deadlines, and when each was first seen, by our boot clock."""
        self.between_beats: Callable[[], None] = lambda: None
        """What the heart's thread does meanwhile, often and shortly."""
        self.tidied = False
        """Whether this process has cleared away what dead ones have left."""
        self._stop = threading.Event()
        self._start_heart()

    def _start_heart(self) -> None:
        """A simulation, which owns time and threads, does it its own way."""
        self._heart = threading.Thread(target=_beat, args=(weakref.ref(self), self._stop), daemon=True)
        self._heart.name = "perdure-heartbeat"
        self._heart.start()

    def expired(self) -> bool:
        """Whether the deadline has passed, so that somebody else may have taken over."""
        return self._store.clock.boot_ms() >= self._deadline

    def renew(self) -> None:
        """Another lease time from now."""
        self._store.submit(self.heartbeat())

    def heartbeat(self) -> Unit[None]:
        """The unit that renews this holder."""
        return _Renew(self, self._store.clock.boot_ms())

    def extend(self, now: int) -> int:
        """A renewal is durable that was sent at `now`; returns how many lapses there have been up to here.

        Whether the deadline had passed is asked here and not when it was sent: a server may take its time.
        """
        if self.expired():
            self.lapse()  # a heart that beats again after a long sleep must not hide that it slept
        lapses = self.lapses
        self._deadline = now + LEASE_MS  # from before the commit: late is safe, early is not
        return lapses

    def outlasts(self, lease: Lease) -> bool:
        """Whether a holder is gone although its deadline says otherwise.

        More time left than a renewal gives means that the server's clock was set back. Whoever is alive renews
        within a lease time, by any clock; who has not done so by ours is dead.
        """
        if lease.holder is None:
            return False
        tenure = (lease.holder, lease.fence)
        if lease.left_ms <= 2 * LEASE_MS:
            self._strange.pop(tenure, None)  # it has renewed: whatever comes later is another case
            return False
        now = self._store.clock.boot_ms()
        return now - self._strange.setdefault(tenure, now) > LEASE_MS

    def lapse(self) -> None:
        """Every run that is open here has to confirm its lease before its next effect."""
        self.lapses += 1

    def presence(self, now: int) -> Statement:
        """For a transaction that gives this holder a lease: a lease must name somebody, who has time left."""
        return Statement("keep_holder", self.row(now))

    def row(self, now: int) -> tuple[Any, ...]:
        """This holder, as its statements want it."""
        it, at = self.process, self._store.clock.wall_ms()
        return (self.holder, it.boot, it.namespace, it.pid, it.started, it.host, at, now, LEASE_MS)

    def renewal(self, stream: int, fence: int) -> Confirm:
        """A unit that renews, and raises LeaseLost when the stream has another writer by now."""
        return Confirm(self, self._store.clock.boot_ms(), stream, fence)

    def close(self) -> None:
        """Stop the heart and leave."""
        self._stop.set()
        self._store.submit(self.farewell())

    def farewell(self) -> Unit[None]:
        """The unit that gives everything back."""
        return _Leave(self)

    def burial(self) -> Statement:
        """What dead processes have left goes; one of a process that lives comes back with its next beat."""
        return Statement("drop_dead_holders", (self.process.boot, self._store.clock.boot_ms()))


def _beat(tenancy: weakref.ref[Tenancy], stop: threading.Event) -> None:
    """Renew until told to stop, or until nobody uses the tenancy any more."""
    beat_at = time.monotonic() + HEARTBEAT_SECONDS
    while not stop.wait(min(HEARTBEAT_SECONDS, ORDER_LOOK_SECONDS)):
        it = tenancy()
        if it is None:
            return
        try:
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + HEARTBEAT_SECONDS
                it.renew()
            it.between_beats()
        except PerdureError:
            # The store is full, fenced or busy. The deadline stays where it was, and `expired` tells the runs.
            continue
        finally:
            del it


class _Renew(Unit[None]):
    site = Site.HEARTBEAT

    def __init__(self, tenancy: Tenancy, now: int) -> None:
        self._tenancy = tenancy
        self._now = now
        self.lapses = 0
        """Of the tenancy, when this became durable."""

    def script(self) -> Script[None]:
        # Twice is later, and we count from before the first time. Dead ones are looked for once, at the first beat: not
        # at the start, which is when somebody waits for it.
        dead = [] if self._tenancy.tidied else [self._tenancy.burial()]
        yield Last([*dead, Statement("renew_holder", self._tenancy.row(self._now))])

    def settle(self, committed: bool) -> None:
        if committed:
            self._tenancy.tidied = True
            self.lapses = self._tenancy.extend(self._now)


class Confirm(_Renew):
    """Renews this holder, and asks whether a stream is still its own."""

    def __init__(self, tenancy: Tenancy, now: int, stream: int, fence: int) -> None:
        super().__init__(tenancy, now)
        self._lease = (stream, fence)

    def script(self) -> Script[None]:
        [_, held] = yield [
            Statement("renew_holder", self._tenancy.row(self._now)),
            Statement("check_lease", self._lease),
        ]
        if not held:
            raise LeaseLost


class _Leave(Unit[None]):
    site = Site.HEARTBEAT
    seconds = LEAVE_SECONDS_MAX

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy

    def script(self) -> Script[None]:
        holder = (self._tenancy.holder,)
        yield Last([Statement("release_all", holder), Statement("drop_holder", holder), self._tenancy.burial()])
