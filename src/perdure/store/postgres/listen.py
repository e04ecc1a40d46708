"""Waits for answers with LISTEN instead of frequent polling.

The transaction of an answer notifies the channel `perdure` (`add_answer` in queries.sql). While a run waits, one
connection of its process listens. Notifications are only a hint: waiters also poll now and then, and behind a pooler,
which cannot LISTEN, they only poll.
"""

from __future__ import annotations

import select
import threading
import time
import weakref

from psycopg import OperationalError

from perdure.errors import PerdureError
from perdure.store.answer_watch import AnswerWatch
from perdure.store.outage import ConnectionCut
from perdure.store.postgres.connection import PipelineConnection, RawStatement, wait_ready
from perdure.store.postgres.errors import ServerError
from perdure.store.postgres.pool import ConnectionPool

LOOK_UP_SECONDS = 0.5
"""How often the listener checks whether it is still needed."""

RETRY_SECONDS = 2.0

_LISTEN = RawStatement(b"LISTEN perdure")


class Listener:
    """The listening thread of a store; it runs only while a run waits."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.listening = False
        self._pool = pool
        self._watches: weakref.WeakSet[AnswerWatch] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._deaf = pool.place.pool_size == 1  # a listener would take the only connection
        self._closed = False

    def join(self, watch: AnswerWatch) -> None:
        """Notify this watch too."""
        with self._lock:
            self._watches.add(watch)
            if self._thread is None and not self._deaf and not self._closed:
                self._thread = threading.Thread(target=self._serve, name="perdure-listen", daemon=True)
                self._thread.start()

    def hears(self, watch: AnswerWatch) -> bool:
        """Whether the connection listens: one channel is for all streams."""
        return self.listening

    def close(self) -> None:
        """Ask the thread to stop."""
        self._closed = True

    def _serve(self) -> None:
        while self._is_wanted():
            try:
                until = time.monotonic() + self._pool.place.connect_seconds
                with self._pool.lasting_link(until, self._target()) as link:
                    self._listen(link)
            except (ConnectionCut, ServerError, OperationalError, PerdureError):
                pass  # waiters poll meanwhile
            self.listening = False
            if self._is_wanted():
                time.sleep(RETRY_SECONDS)

    def _target(self) -> str:
        return self._pool.place.listen_url or self._pool.place.target

    def _listen(self, link: PipelineConnection) -> None:
        if link.pooled:
            self._deaf = True  # a pooler does not forward notifications
            return
        link.send_batch([_LISTEN], time.monotonic() + self._pool.place.connect_seconds)
        self.listening = True
        self._notify_waiters(None)  # an answer may have come before
        while self._is_wanted():
            if wait_ready(link.connection.socket, select.POLLIN, time.monotonic() + LOOK_UP_SECONDS):
                link.connection.consume_input()
                while said := link.connection.notifies():
                    self._notify_waiters(said.extra)

    def _notify_waiters(self, said: bytes | None) -> None:
        with self._lock:
            for watch in self._watches:
                if said is None or said == b"%s %d" % (self._pool.place.schema.encode(), watch.stream):
                    watch.rung = True

    def _is_wanted(self) -> bool:
        with self._lock:
            wanted = bool(self._watches) and not self._closed and not self._deaf
            if not wanted:
                self._thread = None
            return wanted
