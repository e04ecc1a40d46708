"""Locates the running code in a graph: its thread, its task, and the `invoke` call it belongs to."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.errors import NotDurable
from perdure.values import locks

_REMEMBERED_MAX = 512
"""How many invocations and executions are tracked per process."""


class GraphLevel(msgspec.Struct, frozen=True):
    """A task on the path from the root graph to the running code, with its graph and checkpoint."""

    ns: str
    checkpoint: str
    task: str


class GraphTask(msgspec.Struct, frozen=True):
    """The task that is running."""

    thread: str
    levels: tuple[GraphLevel, ...]
    invocation: str
    saver: Any
    execution: int
    """The execution of the task: it changes after an error and on resume."""
    writes_at_exit: bool = False
    """Whether checkpoints are written only at the end: durability="exit"."""

    @property
    def task(self) -> str:
        """The id of the task. LangGraph derives it from the checkpoint, so a repeated execution has the same id."""
        return self.levels[-1].task

    @property
    def checkpoint(self) -> str:
        """The checkpoint that the task started at."""
        return self.levels[-1].checkpoint

    @property
    def path(self) -> str:
        """The names of the nodes, which stay the same after a crash even if checkpoints are lost."""
        return "/".join(_names(self.levels))


def _names(levels: tuple[GraphLevel, ...]) -> list[str]:
    return [level.task.partition("@")[2] for level in levels]


class _NameCache:
    """Names for the most recently seen objects, by identity."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._known: OrderedDict[tuple[int, int], tuple[object, str]] = OrderedDict()

    def name_of(self, thing: object, part: int = 0) -> str:
        """Return a stable name for an object. The object is referenced, so that its id is not reused."""
        with self._lock:
            _, name = self._known.setdefault((id(thing), part), (thing, uuid.uuid4().hex))
            self._known.move_to_end((id(thing), part))
            while len(self._known) > _REMEMBERED_MAX:
                self._known.popitem(last=False)
            return name


_invocations, _executions = _NameCache(), _NameCache()


def place_of(config: Mapping[str, Any] | None, what: str) -> GraphTask:
    """Return where the caller is, from LangGraph's configuration. Raises `NotDurable` outside a graph."""
    given = (_config() if config is None else config).get("configurable", {})
    runtime = given.get("__pregel_runtime")
    info = getattr(runtime, "execution_info", None)
    saver = given.get("__pregel_checkpointer")
    if info is None or info.thread_id is None or saver in (None, False, True):
        raise NotDurable(
            f"{what} was called outside a graph with a checkpointer, so nothing would be recorded",
            hint='compile the graph with checkpointer=..., and invoke it with {"configurable": {"thread_id": ...}}',
        )
    scratchpad = given.get("__pregel_scratchpad")
    return GraphTask(
        str(info.thread_id),
        _levels(info.checkpoint_ns, given.get("checkpoint_map") or {}, info.checkpoint_id),
        _invocations.name_of(runtime.control),
        saver,
        int(_executions.name_of(scratchpad, info.node_attempt)[:12], 16),
        given.get("__pregel_durability") == "exit",
    )


def _config() -> Mapping[str, Any]:
    from langgraph.config import get_config

    try:
        return get_config()
    except RuntimeError:
        return {}


def _levels(ns: str, checkpoints: Mapping[str, str], own: str) -> tuple[GraphLevel, ...]:
    """Parse a namespace: `outer:task1|inner:task2` is task2 of the graph `outer:task1`, in task1 of the root graph."""
    parts, levels = ns.split("|"), list[GraphLevel]()
    for index, part in enumerate(parts):
        name, colon, task = part.rpartition(":")
        if colon:
            inside = "|".join(parts[:index])
            levels.append(GraphLevel(inside, checkpoints.get(inside, ""), f"{task}@{name}"))
    levels[-1] = msgspec.structs.replace(levels[-1], checkpoint=own)
    return tuple(levels)
