"""Decides which finished runs are still needed: by their forks, and by the run that they are part of.

A fork references the beginning of its origin and replays it on every resume. A run with nested runs replays their
recorded results. While one of them is unfinished, the entries that it would miss stay.
"""

from __future__ import annotations

from perdure import records as r
from perdure.store.base import Store
from perdure.store.rows import read_runs

OVER = (r.RunStatus.FINISHED, r.RunStatus.CANCELLED, r.RunStatus.ERASED)


class RunReliance:
    """A snapshot of the runs of a store and of their dependencies."""

    def __init__(self, store: Store) -> None:
        self._runs = {run.stream: run for run in read_runs(store)}
        self._forks: dict[int, list[int]] = {}
        for stream in sorted(self._runs):
            if self._runs[stream].is_fork:
                self._forks.setdefault(self._runs[stream].forked_from, []).append(stream)
        self.relied_on: dict[int, tuple[int, ...]] = {}
        """The forks of every run that was checked. The caller must verify in its commit that no new ones exist."""

    def explain(self, stream: int, seq: int) -> str:
        """Return why an entry of a run must stay; empty if it is not needed."""
        run = self._runs.get(stream)
        if run is None or run.status not in OVER:
            return "its run is unfinished: finish or cancel it, then forget the text again"
        self._rely_on(stream)
        for fork in self._forks.get(stream, ()):
            if seq <= self._runs[fork].forked_at and (name := self._find_unfinished_run(fork)):
                return (
                    f"unfinished run {name} needs it for a fork: finish or cancel that run, then forget the text again"
                )
        if run.parent and (name := self._find_unfinished_run(run.parent)):
            return f"its run is part of unfinished run {name}: finish or cancel that run, then forget the text again"
        return ""

    def _find_unfinished_run(self, stream: int) -> str:
        """Return the name of an unfinished run: this one, or one that needs it directly or indirectly."""
        waiting, seen = [stream], set[int]()
        while waiting:
            one = waiting.pop()
            run = self._runs.get(one)
            if run is None or one in seen:
                continue
            if run.status not in OVER:
                return run.id
            seen.add(one)
            self._rely_on(one)
            waiting += [*self._forks.get(one, ()), run.parent]
        return ""

    def _rely_on(self, stream: int) -> None:
        self.relied_on[stream] = tuple(self._forks.get(stream, ()))
