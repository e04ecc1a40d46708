"""Waits for answers with a long poll instead of frequent polling.

While a run waits, one thread of its process asks the server, which answers when one of the streams may have received
something. This is only a hint: waiters also poll now and then.
"""

from __future__ import annotations

import threading
import weakref

from perdure.errors import PerdureError
from perdure.store.answer_watch import AnswerWatch
from perdure.store.outage import ConnectionCut, ServerRefusal
from perdure.store.remote.transport import HttpLinks
from perdure.store.remote.wire import WATCH, WatchRequest, encode

POLL_SECONDS = 2.0
"""How long one long poll lasts; then the streams that wait by now are asked for."""

ANSWER_SECONDS = 5.0
RETRY_SECONDS = 2.0


class RemoteListener:
    """The listening thread of a store; it runs only while a run waits."""

    def __init__(self, links: HttpLinks) -> None:
        self._links = links
        self._watches: weakref.WeakSet[AnswerWatch] = weakref.WeakSet()
        self._heard: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def join(self, watch: AnswerWatch) -> None:
        """Notify this watch too."""
        with self._lock:
            self._watches.add(watch)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._serve, name="perdure-listen", daemon=True)
                self._thread.start()

    def hears(self, watch: AnswerWatch) -> bool:
        """Whether the server is being asked about the stream of this watch."""
        return watch.stream in self._heard

    def close(self) -> None:
        """Ask the thread to stop."""
        self._closed.set()

    def _serve(self) -> None:
        while streams := self._wanted():
            asked = WatchRequest(tuple(sorted(streams)), POLL_SECONDS)
            self._heard = streams
            try:
                answer = self._links.long_exchange(WATCH, encode(asked), POLL_SECONDS + ANSWER_SECONDS)
                if answer != NOTHING:
                    self._notify_waiters(streams)
            except (ConnectionCut, ServerRefusal, PerdureError):
                self._heard = frozenset()  # waiters poll meanwhile
                self._closed.wait(RETRY_SECONDS)

    def _notify_waiters(self, streams: frozenset[int]) -> None:
        with self._lock:
            for watch in self._watches:
                if watch.stream in streams:
                    watch.rung = True

    def _wanted(self) -> frozenset[int]:
        with self._lock:
            streams = frozenset(watch.stream for watch in self._watches)
            if not streams or self._closed.is_set():
                self._thread, self._heard = None, frozenset()
                return frozenset()
            return streams


NOTHING = encode(False)
"""The answer to a long poll that heard nothing."""
