"""Predefined kinds of events, so that programs understand each other's events.

>>> from perdure import kinds
>>> agent.events.append(kinds.Decision("take the 9am", why="cheapest", options=["9am", "11am"]))
>>> agent.events.append(kinds.ToolCall("search", {"to": "NYC"}))
>>> [event.payload.what for event in agent.events.read(kind=kinds.Decision)]
['take the 9am']

They are ordinary typed kinds. An event of the same name with a payload of your own is stored unchecked.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Decision", "Error", "Handoff", "Observation", "Plan", "ToolCall", "ToolResult"]


class Plan(msgspec.Struct, frozen=True):
    """The agent's plan. Kind `plan`."""

    goal: str
    steps: list[str] = []
    notes: str = ""


class Decision(msgspec.Struct, frozen=True):
    """A choice and its reason. Kind `decision`."""

    what: str
    why: str = ""
    options: list[Any] = []
    """The alternatives."""


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool. Kind `tool_call`."""

    tool: str
    arguments: dict[str, Any] = {}
    id: str = ""
    """Links the call to its result, which has the same id."""


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool call. Kind `tool_result`."""

    tool: str
    result: Any = None
    ok: bool = True
    id: str = ""


class Observation(msgspec.Struct, frozen=True):
    """An observation. Kind `observation`."""

    what: str
    source: str = ""
    data: Any = None


class Error(msgspec.Struct, frozen=True):
    """An error. Kind `error`."""

    what: str
    type: str = ""
    where: str = ""

    @classmethod
    def of(cls, error: BaseException, where: str = "") -> Error:
        """Return the event for an exception."""
        return cls(str(error), type(error).__name__, where)


class Handoff(msgspec.Struct, frozen=True):
    """Another agent, a model or a person continues the work. Kind `handoff`."""

    to: str
    task: str = ""
    context: Any = None


VOCABULARY: dict[str, type[msgspec.Struct]] = {
    "plan": Plan,
    "decision": Decision,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "observation": Observation,
    "error": Error,
    "handoff": Handoff,
}
"""Kind name -> class."""
