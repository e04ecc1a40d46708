"""Decides whether the result of a task is part of a checkpoint of its graph, from what the saver has.

A task starts at a checkpoint. Once the graph itself writes the next checkpoint, all results of the tasks are in it.
Pending writes at the first checkpoint do not count: new input makes the graph drop them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Protocol

from perdure.adapters.langgraph.checkpoints import config_at
from perdure.adapters.langgraph.location import GraphLevel, GraphTask

WRITTEN_SECONDS_MAX = 2.0
"""How long to wait for a checkpoint that is still being written, with durability "async"."""


class _StartedCall(Protocol):
    @property
    def levels(self) -> tuple[GraphLevel, ...]: ...

    @property
    def invocation(self) -> str: ...


def are_past(place: GraphTask, begun: Sequence[_StartedCall]) -> list[bool]:
    """Return for each call whether it is past. In a subgraph, the inner or the outer task decides."""
    spaces: dict[str, _GraphCheckpoints] = {}
    passed: dict[str, str] = {}
    """For each invocation, the last root checkpoint that it passed. Earlier ones are past too."""
    verdicts = [False] * len(begun)
    # Newest first: it is usually past, and then no older checkpoint must be read.
    for index in sorted(range(len(begun)), key=lambda n: begun[n].levels[0].checkpoint, reverse=True):
        started = begun[index]
        whole = started.levels[0].checkpoint
        if whole < passed.get(started.invocation, ""):
            verdicts[index] = True
            continue
        for level in started.levels:
            space = spaces.setdefault(level.ns, _GraphCheckpoints(place, level.ns))
            if space.has_passed(level.checkpoint):
                verdicts[index] = True
                if level is started.levels[0]:
                    passed.setdefault(started.invocation, whole)
                break
    return verdicts


class _GraphCheckpoints:
    """The checkpoints of a graph or subgraph, from some point on."""

    def __init__(self, place: GraphTask, ns: str) -> None:
        self._place, self._ns = place, ns
        self._found: dict[str, Any] = {}
        self._since: str | None = None

    def _look(self, since: str) -> None:
        if self._since is not None and self._since <= since:
            return
        self._since, self._found = since, self._read(since)
        ours = next((level.checkpoint for level in self._place.levels if level.ns == self._ns), "")
        until = time.monotonic() + WRITTEN_SECONDS_MAX
        while ours > since and not self._is_here(ours) and time.monotonic() < until:
            time.sleep(0.02)
            self._found = self._read(since)

    def _is_here(self, checkpoint: str) -> bool:
        return checkpoint in self._found or self._place.writes_at_exit

    def _read(self, since: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with closing(iter(self._place.saver.list(config_at(self._place.thread, self._ns)))) as newest_first:
            for one in newest_first:
                if one.checkpoint["id"] < since:
                    break
                found[one.checkpoint["id"]] = one
        return found

    def has_passed(self, checkpoint: str) -> bool:
        """Return whether all tasks that started at a checkpoint are done and their results stored."""
        self._look(checkpoint)
        if checkpoint in self._found:
            return any(_parent(one) == checkpoint and _is_from_loop(one) for one in self._found.values())
        return any(self._parent_is_missing(one, checkpoint) for one in self._found.values())

    def _parent_is_missing(self, one: Any, checkpoint: str) -> bool:
        """Return whether a checkpoint continues from another that is missing: never written ("exit") or pruned."""
        if one.checkpoint["id"] < checkpoint or not _is_from_loop(one):
            return False
        before = _parent(one)
        if before >= checkpoint:
            return before not in self._found
        step = self._step_of(before)
        # Steps are numbered without gaps: a gap means that steps ran but were not written.
        return step is not None and one.metadata.get("step", -1) - step > 1

    def _step_of(self, checkpoint: str) -> int | None:
        if not checkpoint:
            return -2
        found = self._place.saver.get_tuple(config_at(self._place.thread, self._ns, checkpoint))
        return None if found is None else int(found.metadata.get("step", -2))


def _parent(one: Any) -> str:
    return str((one.parent_config or {}).get("configurable", {}).get("checkpoint_id") or "")


def _is_from_loop(one: Any) -> bool:
    return bool(one.metadata.get("source") == "loop")
