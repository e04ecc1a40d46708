"""The same scene played with two savers: what a user sees of it, with ids and times made comparable.

A scene is written once, as a coroutine. Blocking, it calls `invoke` and never waits; under asyncio, `ainvoke`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Interrupt, StateSnapshot

_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
    r"|(?<=lc_)[0-9a-f-]{36}"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?")

Scene = Callable[["Play"], Coroutine[Any, Any, None]]


class Play:
    """A saver, a colour, and the notes of what was seen."""

    def __init__(self, saver: Any, colour: str, thread: str) -> None:
        self.saver = saver
        self.is_async = colour == "async"
        self.notes: list[Any] = []
        self._names: dict[str, str] = {}
        self.config: dict[str, Any] = {"configurable": {"thread_id": thread}}

    def run_tasks_serially(self) -> None:
        """No two tasks at once: what runs side by side ends in any order, and ids are named as they are seen."""
        self.config["max_concurrency"] = 1

    def config_at(self, config: dict[str, Any]) -> dict[str, Any]:
        """The config of a snapshot, to be gone on from."""
        return {**self.config, **config}

    def note(self, *seen: Any) -> None:
        """Remember what was seen."""
        self.notes.append([self._normalize(one) for one in seen])

    async def invoke(self, graph: Any, given: Any, config: dict[str, Any] | None = None, **options: Any) -> Any:
        """Run the graph; note the outcome, or the error."""
        config = config or self.config
        try:
            if self.is_async:
                outcome = await graph.ainvoke(given, config, **options)
            else:
                outcome = graph.invoke(given, config, **options)
        except Exception as error:
            outcome = error
        self.note("invoked", outcome)
        return outcome

    async def stream(self, graph: Any, given: Any, modes: list[str], **options: Any) -> None:
        """The same, and note everything that is streamed."""
        options = {"stream_mode": modes, **options}
        try:
            if self.is_async:
                found = [chunk async for chunk in graph.astream(given, self.config, **options)]
            else:
                found = list(graph.stream(given, self.config, **options))
        except Exception as error:
            found = [error]
        for chunk in found:
            self.note("streamed", chunk)

    async def state(self, graph: Any, config: dict[str, Any] | None = None, **options: Any) -> StateSnapshot:
        """The state as it is now, or was."""
        config = config or self.config
        found = await graph.aget_state(config, **options) if self.is_async else graph.get_state(config, **options)
        self.note("state", found)
        return found  # type: ignore[no-any-return]

    async def history(self, graph: Any, config: dict[str, Any] | None = None, **options: Any) -> list[StateSnapshot]:
        """All states there were, newest first."""
        config = config or self.config
        if self.is_async:
            found = [one async for one in graph.aget_state_history(config, **options)]
        else:
            found = list(graph.get_state_history(config, **options))
        for one in found:
            self.note("history", one)
        return found

    async def update(self, graph: Any, values: Any, config: dict[str, Any] | None = None, **options: Any) -> Any:
        """A change from outside; its config, or the error."""
        config = config or self.config
        try:
            if self.is_async:
                found = await graph.aupdate_state(config, values, **options)
            else:
                found = graph.update_state(config, values, **options)
        except Exception as error:
            found = error
        self.note("updated", found)
        return found

    async def bulk(self, graph: Any, supersteps: Any) -> Any:
        """Several of them."""
        if self.is_async:
            found = await graph.abulk_update_state(self.config, supersteps)
        else:
            found = graph.bulk_update_state(self.config, supersteps)
        self.note("updated in bulk", found)
        return found

    def _normalize(self, value: Any) -> Any:
        """The value with the n-th id called #n, and without times."""
        if isinstance(value, str):
            return _TIME.sub("<time>", _ID.sub(self._name, str(value))).replace(
                self.config["configurable"]["thread_id"], "T"
            )
        if isinstance(value, BaseException):
            # LangGraph's own savers keep no more of an error of a task than this.
            return self._normalize(repr(value))
        if isinstance(value, Interrupt):
            return ("Interrupt", self._normalize(value.value), self._normalize(value.id))
        if isinstance(value, BaseMessage):
            return (type(value).__name__, self._normalize(value.model_dump()))
        if isinstance(value, dict):
            return {self._normalize(key): self._normalize(one) for key, one in value.items() if key not in _SKIPPED}
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return (type(value).__name__, self._normalize(value._asdict()))
        if isinstance(value, list | tuple | set | frozenset):
            return [self._normalize(one) for one in _sort_values(value)]
        return value if isinstance(value, int | float | bool | bytes | None) else repr(value)

    def _name(self, found: re.Match[str]) -> str:
        return self._names.setdefault(found[0], f"#{len(self._names) + 1}")


_SKIPPED = frozenset({"ls_integration", "thread_id", "max_concurrency", "recursion_limit"})
"""Some savers give a config back as it was asked for, and some do not."""


def _sort_values(values: Iterable[Any]) -> Iterable[Any]:
    return sorted(values, key=repr) if isinstance(values, set | frozenset) else values


def play_scene(scene: Scene, saver: Any, colour: str, thread: str) -> list[Any]:
    """The notes of a scene."""
    play = Play(saver, colour, thread)
    if play.is_async:
        asyncio.run(scene(play))
        return play.notes
    try:
        scene(play).send(None)
    except StopIteration:
        return play.notes
    raise AssertionError("a blocking scene has waited for a loop")
