"""What is in the stores: the same program for those who write them and those who open them."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from perdure import Agent, Done, NotDone

LARGE = "a page of text that repeats itself. " * 200
NOISE = random.Random(7).randbytes(3000)
FILES = [f"part_{number}.py" for number in range(1, 6)]
KILLED_AT = 3
"""Which effect of the unfinished run has happened, and was not recorded any more."""
CONVERSATION = [{"role": "user", "content": f"message {number} " * 12} for number in range(60)]
PLAIN = {
    "text": "Grüße, 世界",
    "numbers": (1, -2.5, 3 + 4j, 10**30, Decimal("99.90")),
    "nested": [{"a": [None, True]}, {1: "one", (2, 3): "pair"}],
    "sets": {frozenset({1, 2})},
    "bytes": NOISE,
    "path": Path("/tmp/x"),
}
"""A value with something of every kind."""

FLIGHT = "release-flight"
"""The stored name of a class that had version 1 when the stores were written, and has version 3 now."""


def unfinished(agent: Agent, outside: Path, think: Callable[[str], Any], happened: Callable[[], object]) -> Any:
    """A review of five files, each with a comment that is posted once."""
    review = agent.step(name="review")(think)

    def posted(file: str, opinion: Any, *, key: str) -> Any:
        return Done("found") if outside.exists() and key in outside.read_text() else NotDone

    @agent.effect(name="post", check=posted, timeout=1, ignore=("opinion",))
    def post(file: str, opinion: Any, *, key: str) -> str:
        with outside.open("a") as world:
            world.write(f"{key} {file}\n")
        happened()
        return "posted"

    with agent.run("unfinished", input={"files": FILES}) as run:
        for file in run.each(run.input["files"]):
            opinion = review(file)
            run.state[file] = [post(file, opinion), opinion]
            run.messages.append({"role": "assistant", "content": file})
        run.result = dict(run.state)
    return run.result
