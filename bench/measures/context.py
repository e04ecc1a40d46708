"""`run.context` in a long run: a thousand turns, each with a large output of a tool, documents and memories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

from perdure import Agent

LINE = "nothing happens in this line of the log"
DOCUMENTS = ("SOUL.md", "USER.md", "MEMORY.md")


def context(folder: Path, turns: int, size: int, calls: int, memories: int, url: str | None = None) -> dict[str, Any]:
    """Milliseconds of the first context of a process, and of those after it, each after one more turn."""
    store = url or f"sqlite:///{folder / 'perdure.db'}"
    agent = Agent("bench", store=store, embedder="table")
    workspace = agent.workspace(folder / "workspace")
    for name in DOCUMENTS:
        workspace.write(name, "".join(f"- {LINE}, number {n} of {name}\n" for n in range(20)))
    agent.memory.remember_all([f"On day {n} the log had {7 * n} lines, and said: {LINE}" for n in range(memories)])
    with agent.run("long") as run:
        for number in range(turns):
            for message in turn(number, size):
                run.messages.append(message)
        first, later = _time_run(run), []
        for number in range(turns, turns + calls):
            for message in turn(number, size):
                run.messages.append(message)
            run.messages.append({"role": "user", "content": f"What does the log say on day {number % memories}?"})
            later.append(_time_run(run))
    agent.close()
    cuts = quantiles(later, n=20)
    return {"first": first, "p50": cuts[9], "p95": cuts[18]}


def _time_run(run: Any) -> float:
    begun = perf_counter()
    run.context()
    return (perf_counter() - begun) * 1000


def turn(number: int, size: int) -> Iterator[dict[str, Any]]:
    """A question, a call of a tool, what it returns, and an answer."""
    function = {"name": "read", "arguments": f'{{"page": {number}}}'}
    output = "".join(f"{line}: {LINE}\n" for line in range(size // len(LINE)))[:size]
    yield {"role": "user", "content": f"Question {number}?"}
    call = {"id": f"c{number}", "type": "function", "function": function}
    yield {"role": "assistant", "content": None, "tool_calls": [call]}
    yield {"role": "tool", "tool_call_id": f"c{number}", "content": f"page {number}\n{output}"}
    yield {"role": "assistant", "content": f"Answer {number}."}
