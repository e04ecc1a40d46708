"""A limit on the connections that all pools of a process have open to one server."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakSet

from perdure.errors import StoreBusy
from perdure.values.limits import LOCK_SECONDS_MAX
from perdure.values.locks import call_after_fork

if TYPE_CHECKING:
    from perdure.store.postgres.pool import ConnectionPool
    from perdure.store.postgres.url import ServerAddress

LOOK_SECONDS = 0.05
"""How often a waiting thread looks for connections that have become idle."""


class ConnectionBudget:
    """The pools of a process that use one server. A pool that needs a connection closes an idle one of another pool."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._waiting = 0
        self._changed = threading.Condition()
        self._pools: WeakSet[ConnectionPool] = WeakSet()

    @property
    def is_short(self) -> bool:
        """Whether somebody waits: connections that become idle are then closed."""
        return self._waiting > 0

    def join(self, pool: ConnectionPool) -> None:
        """Make the idle connections of a pool available to the others."""
        with self._changed:
            self._pools.add(pool)

    def take(self, *, lasting: bool = False) -> None:
        """Count a connection that is about to be opened, and wait while there are too many.

        One that lasts is refused at once when half of them are in use: such connections only save polling.
        """
        until = time.monotonic() + (0 if lasting else LOCK_SECONDS_MAX)
        most = self._most // 2 if lasting else self._most
        with self._changed:
            self._waiting += 1
            try:
                while self._open >= most and not self._close_idle():
                    if time.monotonic() >= until:
                        raise StoreBusy(
                            f"all {self._most} connections of this process were in use for {LOCK_SECONDS_MAX:g} s",
                            hint="increase process_connections= in the store URL",
                        )
                    self._changed.wait(LOOK_SECONDS)
            finally:
                self._waiting -= 1
            self._open += 1

    def leave(self) -> None:
        """Count a connection that was closed."""
        with self._changed:
            self._open -= 1
            self._changed.notify()

    def _close_idle(self) -> bool:
        return any(pool.close_one() for pool in list(self._pools))


_BUDGETS: dict[str, ConnectionBudget] = {}
"""By server."""


def budget_of(place: ServerAddress) -> ConnectionBudget | None:
    """Return the budget that the pools of this process share; None if the URL sets no limit."""
    if not place.process_connections:
        return None
    return _BUDGETS.setdefault(place.target, ConnectionBudget(place.process_connections))


call_after_fork(_BUDGETS.clear)
