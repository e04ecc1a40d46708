"""`perdure worker module:agent`: does what is queued, until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter
from types import FrameType

import click

from ..aio import AsyncAgent
from ..aio.worker import AsyncWorker
from ..limits import TASKS_AT_ONCE
from ..sync import Agent
from ..sync.worker import Worker
from .output import clean, counted
from .programs import load_agent
from .stores import json_option


@click.command()
@click.argument("program", metavar="MODULE:AGENT")
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; may be repeated. Default: all."
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=TASKS_AT_ONCE, show_default=True, help="Runs at a time."
)
@click.option("--verbose", "-v", is_flag=True, help="Print a line for every run, not only for those that fail.")
@json_option
def worker(program: str, queues: tuple[str, ...], concurrency: int, verbose: bool, as_json: bool) -> int:
    """Do what is queued: take runs of an agent's tasks, and those of dead workers.

    `perdure worker my_agents:agent --queue mail --concurrency 8`: the store is that of the agent, whose module is found
    from the working folder.

    Ctrl-C or SIGTERM: takes nothing new, lets the steps under way end, and leaves the rest to other workers; then it
    exits with 0. A second one ends it at once.
    """
    agent = load_agent(program)
    telling = _Telling(as_json, verbose)
    wanted = list(queues) or None
    made: Worker | AsyncWorker
    if isinstance(agent, Agent):
        made = Worker(agent._engine, wanted, concurrency, telling.run)
    else:
        made = AsyncWorker(agent._engine, wanted, concurrency, telling.run)
    _drain_on_signals(made, telling)
    agent._engine.ensure_agent()  # the store is open: from here on nothing is waited for
    telling.begins(agent, wanted, concurrency)
    if isinstance(made, AsyncWorker):
        asyncio.run(made.run())
    else:
        made.run()
    telling.ends()
    return 0


def _drain_on_signals(made: Worker | AsyncWorker, telling: _Telling) -> None:
    def drain(number: int, frame: FrameType | None) -> None:
        if telling.draining:
            os._exit(128 + number)  # others take over what was under way: this process is proven dead then
        telling.drains(made.under_way)
        made.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)


class _Telling:
    """What is said on the way: lines of JSON for programs, little for people."""

    def __init__(self, as_json: bool, verbose: bool) -> None:
        self._as_json = as_json
        self._verbose = verbose
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.draining = False

    def begins(self, agent: Agent | AsyncAgent, queues: list[str] | None, concurrency: int) -> None:
        """The worker is there."""
        engine = agent._engine
        shown = ", ".join(map(clean, queues)) if queues else "all"
        tasks = ", ".join(map(clean, sorted(engine.tasks))) or "none"
        text = f"worker of agent {clean(engine.name)} at {clean(engine.shown_url)}: queues {shown}; tasks {tasks}; "
        facts = {"agent": engine.name, "store": engine.shown_url, "queues": queues, "tasks": sorted(engine.tasks)}
        self._say({"worker": "ready", **facts, "concurrency": concurrency}, f"{text}{concurrency} at a time")

    def run(self, run: str, task: str, what: str) -> None:
        """Something became of a run."""
        outcome, _, why = what.partition(": ")
        with self._lock:
            self._counts[outcome] += 1
        loud = self._verbose or outcome == "failed"
        told = f"{clean(run)} ({clean(task)}) {clean(what)}"
        facts: dict[str, object] = {"run": run, "task": task, "is": outcome}
        self._say({**facts, "error": why} if why else facts, told if loud else "")

    def drains(self, under_way: int) -> None:
        """Told to stop."""
        self.draining = True
        self._say({"worker": "draining", "under_way": under_way}, f"draining: {counted(under_way, 'run')} under way")

    def ends(self) -> None:
        """The last run has been left."""
        counts = {name: self._counts[name] for name in ("finished", "failed", "parked", "drained")}
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        self._say({"worker": "ended", **counts}, f"ended: {told or 'nothing was to do'}")

    def _say(self, facts: dict[str, object], text: str) -> None:
        if self._as_json:
            print(json.dumps(facts), flush=True)
        elif text:
            print(f"perdure: {text}", file=sys.stderr, flush=True)
