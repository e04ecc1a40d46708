"""Takes a run over from a holder that is gone: decide, take, look again.

Opening a run, an order to a run that nobody has open, an undo and a workflow step settled by hand all take over here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.journal.append import StreamHead
from perdure.journal.departures import departure, refuse_departed
from perdure.journal.leases import Lease, LeaseKeeper, counts_as_alive, read_lease
from perdure.platform.process import identify_this_process
from perdure.store.base import Overtaken, Rows, Script, Statement, Store
from perdure.store.rows import RunRow


class TakenRunLease(msgspec.Struct, frozen=True):
    """A run after the takeover, under the lock of its lease."""

    head: StreamHead
    run: RunRow
    orders: Rows
    """The last order to the holder before: the rows of `last_order_under`."""


class RunLease(msgspec.Struct, frozen=True):
    """A run and its lease as one transaction has read them."""

    store: Store
    lease_keeper: LeaseKeeper | None
    """The leases of this process; None if it has only read so far."""
    run: RunRow
    lease: Lease

    @property
    def open_here(self) -> bool:
        """Whether this process has the run open."""
        return self.lease_keeper is not None and self.run.stream in self.lease_keeper.open_streams

    @property
    def ours(self) -> bool:
        """Whether the lease names this process."""
        return self.lease.process == (
            identify_this_process() if self.lease_keeper is None else self.lease_keeper.process
        )

    @property
    def held(self) -> bool:
        """Whether a process has the run open. Otherwise anybody may take it over."""
        if self.ours:
            return self.open_here  # the lease of a run that is not open is left over from a store closed after an error
        return counts_as_alive(self.lease, self.lease_keeper)

    def take(self, holder: int | None = None, also: Sequence[Statement] = ()) -> Script[TakenRunLease]:
        """Part of a script: raise the fencing token, for a holder or for nobody.

        The take locks the lease. What the decision rests on is read again under this lock. If it has changed, this
        raises Overtaken, and the script runs again.
        """
        stream, fence, agent = self.run.stream, self.lease.fence, self.run.agent
        take = Statement("take_lease", (stream, fence, holder), Overtaken)
        look = [
            Statement("head_of", (stream,)),
            Statement("holder_time_left", (self.lease.holder_id, self.store.clock.boot_ms())),
            Statement("get_run", (agent, self.run.id)),
            departure(agent),
            Statement("last_order_under", (stream, fence)),
        ]
        [_, [(seq, link)], left, [row], gone, orders, *_] = yield [take, *look, *also]
        refuse_departed(agent, gone)
        run = RunRow(*row)
        if run.status != self.run.status or self._has_renewed(left):
            raise Overtaken
        return TakenRunLease(StreamHead(self.store.identity, stream, fence + 1, seq, link), run, orders)

    def _has_renewed(self, left: Rows) -> bool:
        """Whether the holder has more time left than when we read the lease. Our own heartbeat does not count."""
        ours = self.lease_keeper is not None and self.lease.holder_id == self.lease_keeper.holder_id
        return any(left_ms > self.lease.left_ms for (left_ms,) in left) and not ours


def read_run_lease(store: Store, lease_keeper: LeaseKeeper | None, run: RunRow) -> Script[RunLease]:
    """Part of a script: read the lease of a run."""
    lease = yield from read_lease(run.stream, store.clock.boot_ms(), store.one_host)
    return RunLease(store, lease_keeper, run, lease)
