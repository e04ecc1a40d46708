"""Waiting for an answer without asking for it all the time.

Whoever answers a run that waits tells the channel `perdure`, in the transaction of the answer (`add_answer` in
queries.sql). One connection of each process listens, while anybody in it waits. That is a hint and no more: now and
then a waiter looks for itself, and where nobody can listen, behind a pooler, it only looks.
"""

from __future__ import annotations

import select
import threading
import time
import weakref

from psycopg import OperationalError

from ..errors import PerdureError
from ..limits import LISTEN_POLL_SECONDS, WAIT_POLL_SECONDS, WAIT_POLL_SECONDS_MAX
from .postgres_errors import Cut, ServerError
from .postgres_link import Link, Raw, ready
from .postgres_pool import Pool

LOOK_UP_SECONDS = 0.5
"""How often the listener looks whether it is still wanted."""

LISTEN_AFTER_SECONDS = 0.1
"""Who waits for a moment only needs no connection for it."""

RETRY_SECONDS = 2.0

_LISTEN = Raw(b"LISTEN perdure")


class Watch:
    """Asked whether a stream may have got an answer since the last time."""

    __slots__ = ("__weakref__", "_listener", "_next", "_pause", "rung", "stream")

    def __init__(self, listener: Listener, stream: int) -> None:
        self._listener = listener
        self.stream = stream
        self.rung = True
        self._next = 0.0
        self._pause = WAIT_POLL_SECONDS

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self.rung and now < self._next:
            return False
        self.rung = False
        joined = self._pause > LISTEN_AFTER_SECONDS
        if joined:
            self._listener.join(self)
        self._pause = min(self._pause * 1.5, WAIT_POLL_SECONDS_MAX)
        # The listener may be there for another one, and then does not ring for this one yet.
        self._next = now + (LISTEN_POLL_SECONDS if joined and self._listener.listening else self._pause)
        return True


class Listener:
    """The thread that listens for a store; there is none while nobody waits."""

    def __init__(self, pool: Pool) -> None:
        self.listening = False
        self._pool = pool
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._deaf = self._closed = False

    def join(self, watch: Watch) -> None:
        """Ring for this one too."""
        with self._lock:
            self._watches.add(watch)
            if self._thread is None and not self._deaf and not self._closed:
                self._thread = threading.Thread(target=self._serve, name="perdure-listen", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop, soon."""
        self._closed = True

    def _serve(self) -> None:
        while self._wanted():
            try:
                link = self._pool.connect(time.monotonic() + self._pool.place.connect_seconds, self._target())
                try:
                    self._listen(link)
                finally:
                    self._pool.close_link(link)
            except (Cut, ServerError, OperationalError, PerdureError):
                pass  # those who wait look for themselves meanwhile
            self.listening = False
            if self._wanted():
                time.sleep(RETRY_SECONDS)

    def _target(self) -> str:
        return self._pool.place.listen_url or self._pool.place.target

    def _listen(self, link: Link) -> None:
        if link.pooled:
            self._deaf = True  # what a pooler's server hears is not for us
            return
        link.talk([_LISTEN], time.monotonic() + self._pool.place.connect_seconds)
        self.listening = True
        self._ring(None)  # something may have been said before
        while self._wanted():
            if ready(link.connection.socket, select.POLLIN, time.monotonic() + LOOK_UP_SECONDS):
                link.connection.consume_input()
                while said := link.connection.notifies():
                    self._ring(said.extra)

    def _ring(self, said: bytes | None) -> None:
        with self._lock:
            for watch in self._watches:
                if said is None or said == b"%s %d" % (self._pool.place.schema.encode(), watch.stream):
                    watch.rung = True

    def _wanted(self) -> bool:
        with self._lock:
            wanted = bool(self._watches) and not self._closed and not self._deaf
            if not wanted:
                self._thread = None
            return wanted
