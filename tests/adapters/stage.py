"""What the programs of tests/adapters/frameworks.py share: what they count, and where they are killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure import Done, NotDone
from perdure.adapters.call_policy import effect_key
from tests.conformance.kit import World, die

ANSWER = "all done"
TOOLS = (1, 2, 3)
MOMENTS = ("before", "inside", "after", "model", "stream")
"""Before and after the effect of tool 2, after its result was stored, in the next model call, in the last stream."""


class Stage:
    """Where a program plays: what it counts, where it is killed, and with which store."""

    def __init__(self, folder: Path, url: str, kill: str, *, ours: bool) -> None:
        self.world, self.folder, self.url, self.kill, self.ours = World(folder), folder, url, kill, ours
        self.streams = "stream" in folder.name

    def model(self, results: int) -> str | None:
        """Count a model call. Returns the tool to call, or None for the final answer."""
        if results == 2 and self.kill == "after":
            die()
        self.world.do("model")
        if results == 2 and self.kill == "model":
            die()
        return f"tool{results + 1}" if results < len(TOOLS) else None

    def pieces(self) -> list[str]:
        """The final answer in pieces, for a stream that may be cut."""
        return ["all ", "done"]

    def cut(self) -> None:
        """Between two pieces of the final answer."""
        if self.kill == "stream":
            die()

    def tool(self, number: int, x: int) -> str:
        """The effect of a tool."""
        if number == 2 and self.kill == "before":
            die()
        self.world.do(f"tool{number} {effect_key()}")
        if number == 2 and self.kill == "inside":
            die()
        return f"did {x}"

    def check(self, number: int) -> Callable[..., Any]:
        """Asks the world whether it has seen the key of a call."""

        def check(x: int, *, key: str) -> Any:
            return Done(f"did {x}") if f"tool{number} {key}" in self.world.read_all() else NotDone

        return check


def make_function(stage: Stage, number: int) -> Any:
    """A tool as a plain function."""

    def tool(x: int) -> str:
        """Do something that must happen once."""
        return stage.tool(number, x)

    tool.__name__ = f"tool{number}"
    return tool
