"""Which runs somebody still needs: a run that is over is replayed by its forks, and by the run that it is part of.

A fork has the beginning of its origin by reference, and goes through it again whenever it is resumed. A run that opens
others inside itself comes to them again when it is resumed, and reads what is recorded of them. So long as one of those
is at work, what they would miss stays.
"""

from __future__ import annotations

from typing import Any

from .. import records as r
from ..store.base import Store

OVER = (r.Status.FINISHED, r.Status.CANCELLED)


class Reliance:
    """The runs of a store, as they are now."""

    def __init__(self, store: Store) -> None:
        rows = store.read("all_runs")
        self._runs: dict[int, tuple[Any, ...]] = {row[0]: row for row in rows}
        self._forks: dict[int, list[int]] = {}
        for row in sorted(rows):
            if row[11]:
                self._forks.setdefault(row[11], []).append(row[0])
        self.relied_on: dict[int, tuple[int, ...]] = {}
        """The forks of every run that was asked about: whoever acts on the answers must see that there are no more."""

    def why(self, stream: int, seq: int) -> str:
        """Why an entry of a run must stay; empty if nobody needs it."""
        run = self._runs.get(stream)
        if run is None or run[3] not in OVER:
            return "its run is not over: finish or cancel it, and forget the text again"
        self._rely_on(stream)
        for fork in self._forks.get(stream, ()):
            if seq <= self._runs[fork][12] and (name := self._at_work(fork)):
                return (
                    f"run {name} shares it by a fork, and is not over: finish or cancel it, and forget the text again"
                )
        if run[5] and (name := self._at_work(run[5])):
            return f"its run is part of run {name}, which is not over: finish or cancel it, and forget the text again"
        return ""

    def _at_work(self, stream: int) -> str:
        """The name of a run that is not over: this one, one that needs it, and so on."""
        waiting, seen = [stream], set[int]()
        while waiting:
            one = waiting.pop()
            run = self._runs.get(one)
            if run is None or one in seen:
                continue
            if run[3] not in OVER:
                return str(run[2])
            seen.add(one)
            self._rely_on(one)
            waiting += [*self._forks.get(one, ()), run[5]]
        return ""

    def _rely_on(self, stream: int) -> None:
        self.relied_on[stream] = tuple(self._forks.get(stream, ()))
