"""`perdure worker module:agent`: executes queued runs until it is stopped."""

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

from perdure.api.aio import AsyncAgent
from perdure.api.aio.worker import AsyncWorker
from perdure.api.sync import Agent
from perdure.api.sync.worker import Worker
from perdure.cli.output import clean, format_count
from perdure.cli.program import load_agent
from perdure.cli.store_option import add_common_options
from perdure.store import file_of, locate
from perdure.values.limits import TASKS_AT_ONCE
from perdure.work.tasks.definition import tasks_of


@click.command()
@click.argument("program", metavar="MODULE:AGENT")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; repeatable. Default: all.")
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=TASKS_AT_ONCE, show_default=True, help="Runs at a time."
)
@click.option("--verbose", "-v", is_flag=True, help="Print a line for every run, not only for failures.")
@add_common_options
def worker(
    program: str, queues: tuple[str, ...], concurrency: int, verbose: bool, url: str | None, as_json: bool
) -> int:
    """Execute queued runs of an agent's tasks, including those of dead workers.

    `perdure worker my_agents:agent --queue mail --concurrency 8` imports the module from the working folder.
    --store sets PERDURE_URL for it; an agent that names another store itself is refused.

    On Ctrl-C or SIGTERM it takes no new runs, lets current steps finish, leaves the rest to other workers and exits
    with 0. A second signal ends it at once.
    """
    agent = _load_agent_at(program, url)
    telling = _WorkerOutput(as_json, verbose)
    wanted = list(queues) or None
    made: Worker | AsyncWorker
    if isinstance(agent, Agent):
        made = Worker(agent._engine, wanted, concurrency, telling.report_run)
    else:
        made = AsyncWorker(agent._engine, wanted, concurrency, telling.report_run)
    _drain_on_signals(made, telling)
    agent._engine.ensure_agent()  # opens the store now, so that signals are handled from here on
    telling.report_start(agent, wanted, concurrency)
    if isinstance(made, AsyncWorker):
        asyncio.run(made.run())
    else:
        made.run()
    telling.report_end()
    return 0


def _load_agent_at(program: str, url: str | None) -> Agent | AsyncAgent:
    """Load the agent; refuse one that does not use the given store."""
    if url is not None:
        os.environ["PERDURE_URL"] = url
    agent = load_agent(program)
    if url is not None and _same_place(agent._engine.url) != _same_place(locate(url)):
        shown = clean(agent._engine.shown_url)
        raise click.UsageError(f"the program passes store={shown!r} to its agent; leave out one of the two")
    return agent


def _same_place(url: str) -> str:
    """Return a URL in which relative and absolute paths are the same."""
    return file_of(url) or url


def _drain_on_signals(made: Worker | AsyncWorker, telling: _WorkerOutput) -> None:
    def drain(number: int, frame: FrameType | None) -> None:
        if telling.draining:
            os._exit(128 + number)  # other workers take over, because this process is then provably dead
        telling.drains(made.under_way)
        made.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)


class _WorkerOutput:
    """The output of a worker: JSON lines for programs, a few lines for people."""

    def __init__(self, as_json: bool, verbose: bool) -> None:
        self._as_json = as_json
        self._verbose = verbose
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.draining = False

    def report_start(self, agent: Agent | AsyncAgent, queues: list[str] | None, concurrency: int) -> None:
        """Report that the worker is ready."""
        engine = agent._engine
        shown = ", ".join(map(clean, queues)) if queues else "all"
        tasks = ", ".join(map(clean, sorted(tasks_of(engine)))) or "none"
        text = f"worker of agent {clean(engine.name)} at {clean(engine.shown_url)}: queues {shown}; tasks {tasks}; "
        facts = {"agent": engine.name, "store": engine.shown_url, "queues": queues, "tasks": sorted(tasks_of(engine))}
        self._print({"worker": "ready", **facts, "concurrency": concurrency}, f"{text}{concurrency} at a time")

    def report_run(self, run: str, task: str, what: str) -> None:
        """Report the start or outcome of a run."""
        outcome, _, why = what.partition(": ")
        with self._lock:
            self._counts[outcome] += 1
        loud = self._verbose or outcome == "failed"
        told = f"{clean(run)} ({clean(task)}) {clean(what)}"
        facts: dict[str, object] = {"run": run, "task": task, "is": outcome}
        self._print({**facts, "error": why} if why else facts, told if loud else "")

    def drains(self, under_way: int) -> None:
        """Report that the worker takes no new runs."""
        self.draining = True
        self._print({"worker": "draining", "under_way": under_way}, f"draining: {format_count(under_way, 'open run')}")

    def report_end(self) -> None:
        """Report that the worker has ended."""
        counts = {name: self._counts[name] for name in ("finished", "failed", "parked", "drained")}
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        self._print({"worker": "ended", **counts}, f"ended: {told or 'no runs'}")

    def _print(self, facts: dict[str, object], text: str) -> None:
        if self._as_json:
            print(json.dumps(facts), flush=True)
        elif text:
            print(f"perdure: {text}", file=sys.stderr, flush=True)
