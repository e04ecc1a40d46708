"""Where in a graph the code is: which thread, which task of it, and which call of `invoke` it is part of."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from ... import locks
from ...errors import NotDurable

_REMEMBERED_MAX = 512
"""Invocations and executions that are told apart at a time in one process."""


class Level(msgspec.Struct, frozen=True):
    """A task on the way from the whole graph down to the code: of a graph, at a checkpoint of it."""

    ns: str
    checkpoint: str
    task: str


class Place(msgspec.Struct, frozen=True):
    """A task of a graph that is being done."""

    thread: str
    levels: tuple[Level, ...]
    invocation: str
    saver: Any
    execution: int
    """Which doing of the task: it is done again after an error, and when it is resumed."""
    writes_at_exit: bool = False
    """Whether no checkpoint is written before the end: durability="exit"."""

    @property
    def task(self) -> str:
        """Its id, which LangGraph makes of the checkpoint: done again from the same one, it is the same."""
        return self.levels[-1].task

    @property
    def checkpoint(self) -> str:
        """The checkpoint that it began at."""
        return self.levels[-1].checkpoint

    @property
    def path(self) -> str:
        """The names of the nodes, which are the same after a crash, whatever became of the checkpoints."""
        return "/".join(_names(self.levels))


def _names(levels: tuple[Level, ...]) -> list[str]:
    return [level.task.partition("@")[2] for level in levels]


class _Remembered:
    """A name or a number for each of the last objects that were seen, by identity."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._known: OrderedDict[tuple[int, int], tuple[object, str]] = OrderedDict()

    def name_of(self, thing: object, part: int = 0) -> str:
        """The same for the same object, as long as it is in use; the object is held, so that its id stays its own."""
        with self._lock:
            _, name = self._known.setdefault((id(thing), part), (thing, uuid.uuid4().hex))
            self._known.move_to_end((id(thing), part))
            while len(self._known) > _REMEMBERED_MAX:
                self._known.popitem(last=False)
            return name


_invocations, _executions = _Remembered(), _Remembered()


def place_of(config: Mapping[str, Any] | None, what: str) -> Place:
    """Where the caller is, going by LangGraph's configuration."""
    given = (_config() if config is None else config).get("configurable", {})
    runtime = given.get("__pregel_runtime")
    info = getattr(runtime, "execution_info", None)
    saver = given.get("__pregel_checkpointer")
    if info is None or info.thread_id is None or saver in (None, False, True):
        raise NotDurable(
            f"{what} is called outside of a graph with a checkpointer: nothing would be remembered",
            hint='compile the graph with checkpointer=..., and invoke it with {"configurable": {"thread_id": ...}}',
        )
    scratchpad = given.get("__pregel_scratchpad")
    return Place(
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


def _levels(ns: str, checkpoints: Mapping[str, str], own: str) -> tuple[Level, ...]:
    """`outer:task1|inner:task2` is task2 of the graph `outer:task1`, in task1 of the whole."""
    parts, levels = ns.split("|"), list[Level]()
    for index, part in enumerate(parts):
        name, colon, task = part.rpartition(":")
        if colon:
            inside = "|".join(parts[:index])
            levels.append(Level(inside, checkpoints.get(inside, ""), f"{task}@{name}"))
    levels[-1] = msgspec.structs.replace(levels[-1], checkpoint=own)
    return tuple(levels)
