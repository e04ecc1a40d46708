"""A vocabulary for what agents note: ready kinds of events, so that one program understands another's.

>>> from perdure import kinds
>>> agent.events.append(kinds.Decision("take the 9am", why="cheapest", options=["9am", "11am"]))
>>> agent.events.append(kinds.ToolCall("search", {"to": "NYC"}))
>>> [event.payload.what for event in agent.events.read(kind=kinds.Decision)]
['take the 9am']

They are ordinary typed kinds. Under the same names, events with a payload of your own are stored as they are.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Decision", "Error", "Handoff", "Observation", "Plan", "ToolCall", "ToolResult"]


class Plan(msgspec.Struct, frozen=True):
    """What the agent is going to do. Kind `plan`."""

    goal: str
    steps: list[str] = []
    notes: str = ""


class Decision(msgspec.Struct, frozen=True):
    """What was chosen, and why. Kind `decision`."""

    what: str
    why: str = ""
    options: list[Any] = []
    """Among what."""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool is called. Kind `tool_call`."""

    tool: str
    arguments: dict[str, Any] = {}
    id: str = ""
    """The same as that of its result."""


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool gave back. Kind `tool_result`."""

    tool: str
    result: Any = None
    ok: bool = True
    id: str = ""


class Observation(msgspec.Struct, frozen=True):
    """Something that was seen. Kind `observation`."""

    what: str
    source: str = ""
    data: Any = None


class Error(msgspec.Struct, frozen=True):
    """Something that went wrong. Kind `error`."""

    what: str
    type: str = ""
    where: str = ""

    @classmethod
    def of(cls, error: BaseException, where: str = "") -> Error:
        """One made of an exception."""
        return cls(str(error), type(error).__name__, where)


class Handoff(msgspec.Struct, frozen=True):
    """The work goes on elsewhere: with another agent, a model or a person. Kind `handoff`."""

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
"""By the name of the kind."""
