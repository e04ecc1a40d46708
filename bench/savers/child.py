"""A process with one saver, which does what it is told: `python -m bench.savers.child JSON`.

Orders and answers are lines of JSON, as with `bench.peers.child`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.peers.child import mouth

from .crowd import Crowd
from .entries import Saver
from .graphs import run_bare, run_loop
from .talk import Talk, reads


class Stage:
    """The saver and its conversations."""

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self._talks: dict[str, Talk] = {}
        self._crowd: Crowd | None = None

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """One order, by the name of a method."""
        answer: dict[str, Any] = getattr(self, order.pop("do"))(**order)
        return answer

    def facts(self) -> dict[str, str]:
        """Version and settings."""
        return self._saver.facts()

    def steps(self, thread: str, kind: str, first: int, size: int) -> dict[str, Any]:
        """The conversation goes on."""
        talk = self._talks.setdefault(thread, Talk(self._saver, thread, kind))
        puts, writes = self._saver.run(talk.steps(first, size))
        return {"puts": puts, "writes": writes}

    def gets(self, thread: str, times: int, messages: int) -> dict[str, Any]:
        """Its newest checkpoint is read."""
        return {"gets": self._saver.run(reads(self._saver, thread, times, messages))}

    def loop(self, thread: str, steps: int, delta: bool = False) -> dict[str, float]:
        """A graph runs from its start to its end."""
        return self._saver.run(run_loop(self._saver, thread, steps, delta=delta))

    def bare(self, steps: int) -> dict[str, float]:
        """The same graph without a saver."""
        return run_bare(steps)

    def crowd(self, count: int, steps: int) -> dict[str, float]:
        """One conversation alone, then all at once."""
        self._crowd = self._crowd or Crowd(self._saver, count)
        return {"alone": self._crowd.run_alone(steps), "together": self._crowd.run_together(steps)}


def main() -> None:
    """Open the saver, follow the orders."""
    spec, tell = json.loads(sys.argv[1]), mouth()
    saver = Saver(spec["system"], spec["url"], pooled=spec["pooled"])
    stage = Stage(saver)
    tell({"opened": True})
    for line in sys.stdin:
        tell(stage.obey(json.loads(line)))
    saver.close()


if __name__ == "__main__":
    main()
