"""The captured calls of an open run: their numbers, their recorded answers, and what differs from the recorded program.

The key of a call is the run, the normalised request, and its number among equal requests. The number is taken when the
request is made, and given back if no answer is recorded: a retry of the SDK is the same call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from perdure.adapters.call_policy import STEP, AdapterCall, find_recorded, make_body, perform_call
from perdure.adapters.recorded_answers import report_answer
from perdure.errors import Diverged, ReplayDiffers
from perdure.kernel.program_line import calling_place, warn_at
from perdure.kernel.protocol import Protocol, drive_sync
from perdure.kernel.scope import Frame
from perdure.run.core import RunCore, core_of
from perdure.run.cost import check_budgets
from perdure.run.ledger import RecordedCall
from perdure.values import locks


class RunCalls:
    """The calls of an open run in this process: which numbers are taken, and which recorded answers are unread."""

    def __init__(self, run: RunCore) -> None:
        self._lock = locks.lock()
        self._taken: dict[object, set[int]] = {}
        self._unread = {id(one): one for calls in run.ledger.calls.values() for one in calls if one.done}
        self._at: dict[int, RecordedCall] | None = None

    def take(self, key: object) -> int:
        """Take the lowest free number."""
        with self._lock:
            taken = self._taken.setdefault(key, set())
            number = next(n for n in count() if n not in taken)
            taken.add(number)
        return number

    def give_back(self, key: object, number: int) -> None:
        """Free a number: nothing was recorded under it."""
        with self._lock:
            self._taken[key].discard(number)

    def mark_read(self, recorded: RecordedCall) -> None:
        """Remember that the program got this answer."""
        with self._lock:
            self._unread.pop(id(recorded), None)

    def find_other(self, run: RunCore, position: int) -> RecordedCall | None:
        """Return the unread answer of another request that the recorded program made at this position."""
        with self._lock:
            if self._at is None:
                self._at = {place: one for one in self._unread.values() if (place := _position_of(run, one)) >= 0}
            found = self._at.get(position)
            return found if found is not None and id(found) in self._unread else None


def _position_of(run: RunCore, recorded: RecordedCall) -> int:
    value = drive_sync(run.store, run.read_result(recorded))
    return int(value.get("position", -1)) if isinstance(value, dict) else -1


class CapturedCall:
    """A model call that is about to be made, or answered from the journal."""

    def __init__(self, frame: Frame, provider: str, name: str, digest: str) -> None:
        self.run, self.frame, self._provider = core_of(frame), frame, provider
        self._calls = self.run.parts.get_or_make(RunCalls, lambda: RunCalls(self.run))
        self._keys = ((frame.path, digest), "position")
        self._number, self._position = (self._calls.take(key) for key in self._keys)
        self.call = AdapterCall(name, {"request": digest}, STEP, f"{digest}:{self._number}")
        self.recorded: RecordedCall | None = None
        self._settled = self._handed = False

    def find(self, on_mismatch: str) -> None:
        """Look the answer up. Raises `Diverged` if the program asks something else and may not."""
        self.recorded = find_recorded(self.run, self.frame, self.call)
        if self.recorded is None:
            other = self._calls.find_other(self.run, self._position)
            if other is not None:
                self.recorded = self._handle_mismatch(other, on_mismatch)
        if self.recorded is None:
            check_budgets(self.run)
            return
        self._settled = True
        self._calls.mark_read(self.recorded)

    def _handle_mismatch(self, other: RecordedCall, on_mismatch: str) -> RecordedCall | None:
        text = (
            f"call {self._position + 1} of run {self.run.id!r} to {self.call.name} differs from the recorded one "
            f"to {other.name}"
        )
        if on_mismatch == "strict":
            raise Diverged(
                f"{text}: nothing was sent, and all recorded answers are kept",
                hint='start the program as it was, with a new id, or with on_mismatch="warn"',
            )
        if on_mismatch == "force":
            return other
        warn_at(calling_place(), ReplayDiffers(f"{text}: it is made and paid"))
        return None

    def read(self) -> Protocol[dict[str, Any]]:
        """Return the recorded answer."""
        assert self.recorded is not None
        stored: dict[str, Any] = yield from self.run.recall(self.frame, self.recorded)
        return stored

    def keep(self, status: int, kind: str, body: bytes) -> Protocol[None]:
        """Record an answer durably."""

        def answer(_: dict[str, Any], key: str) -> dict[str, Any]:
            report_answer(self._provider, kind, body)
            return {"status": status, "type": kind, "body": body, "position": self._position}

        yield from perform_call(self.run, self.frame, self.call, make_body(answer))
        self._settled = True

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Give the numbers back at the end, unless an answer was recorded or `hand_over` was called."""
        self._handed = False
        try:
            yield
        finally:
            if not self._handed:
                self.release()

    def hand_over(self) -> None:
        """Leave it to the stream to call `release`."""
        self._handed = True

    def release(self) -> None:
        """Give the numbers back if no answer was recorded."""
        if not self._settled:
            self._settled = True
            for key, number in zip(self._keys, (self._number, self._position), strict=True):
                self._calls.give_back(key, number)
