"""Loads and runs the program of a replay check: a script, a function, or the tasks of an agent."""

from __future__ import annotations

import asyncio
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click
import msgspec

from perdure.api.aio import AsyncAgent, AsyncRun
from perdure.api.sync import Agent, Run
from perdure.errors import TaskNotFound
from perdure.kernel.engine import Engine
from perdure.run.rehearse.placeholders import OPAQUE, RECORDED, VALUES, ReplayStop
from perdure.run.rehearse.rehearsal import Rehearsal
from perdure.run.rehearse.verdict import FAILS, RUN_STEPS, ReplayFinding, ReplayResult, ReplayRules
from perdure.work.tasks.definition import tasks_of

AnyAgent = Agent | AsyncAgent


class RunTarget(msgspec.Struct, frozen=True):
    """How to execute the code of a run."""

    go: Callable[..., Any]
    by_id: bool
    """Whether it is called once for each run, with its id; otherwise it opens its runs itself."""
    engines: tuple[Engine, ...] = ()
    """The agents of the module, whose runs can be listed."""
    tasks_only: bool = False
    """Whether only runs of tasks are replayed."""


def load_target(given: str, arguments: tuple[str, ...]) -> RunTarget:
    """Load a script (`agent.py`), or a function or agent (`module:name`)."""
    name, _, attribute = given.partition(":")
    if not attribute:
        if not name.endswith(".py"):
            raise click.UsageError(f"{given}: give a script (agent.py), a function or an agent (module:name)")
        if not os.path.exists(name):
            raise click.UsageError(f"there is no file {name!r}")
        return RunTarget(lambda: _run_script(name, arguments), by_id=False)
    with _quietly():
        module = import_target(name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    engines = tuple(
        {id(agent): agent._engine for agent in vars(module).values() if isinstance(agent, AnyAgent)}.values()
    )
    if isinstance(found, AnyAgent):
        return _tasks_of(found, given)
    if not callable(found):
        raise click.UsageError(f"{given}: {'there is no such name' if found is None else 'it cannot be called'}")
    return RunTarget(lambda *run_id: _call(found, run_id), _wants_id(found), engines)


def _tasks_of(agent: AnyAgent, given: str) -> RunTarget:
    """Return a target that executes the tasks of an agent."""
    engine = agent._engine
    if not tasks_of(engine):
        raise click.UsageError(f"{given}: the agent has no tasks; name the function or the script that opens its runs")

    def task_of(run: Run | AsyncRun) -> Any:
        started = run._core.ledger.started
        assert started is not None
        name = started.task
        if name not in tasks_of(engine):
            raise TaskNotFound(
                f"run {run.id!r} is of task {name!r}, which agent {engine.name!r} does not declare: no worker takes it",
                hint=f'declare it, or pass was="{name}" to the task if it was renamed',
            )
        return tasks_of(engine)[name]

    async def perform(run_id: str) -> None:
        assert isinstance(agent, AsyncAgent)
        async with agent.run(run_id) as run:
            await task_of(run)._call(run)

    def perform_sync(run_id: str) -> None:
        assert isinstance(agent, Agent)
        with agent.run(run_id) as run:
            task_of(run)._call(run)

    chosen = perform if isinstance(agent, AsyncAgent) else perform_sync
    return RunTarget(lambda *run_id: _call(chosen, run_id), True, (engine,), tasks_only=True)


def _wants_id(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _call(function: Callable[..., Any], run_id: tuple[str, ...]) -> Any:
    result = function(*run_id)
    return asyncio.run(_await_result(result)) if inspect.isawaitable(result) else result


async def _await_result(result: Any) -> Any:
    return await result


def _run_script(path: str, arguments: Iterable[str]) -> None:
    before, folder = sys.argv, os.path.dirname(os.path.abspath(path))
    sys.argv = [path, *arguments]
    sys.path.insert(0, folder)
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv = before
        sys.path.remove(folder)


def import_target(name: str) -> Any:
    """Import a module, as `python` finds it from the working folder."""
    import importlib

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise click.UsageError(f"there is no module {name!r} in {os.getcwd()} or on the path") from error
        raise


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep the output of the program apart from that of the command."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


@contextmanager
def enable_rehearsal(rules: ReplayRules) -> Iterator[Rehearsal]:
    """Make all agents of this process rehearse instead of execute."""
    rehearsal = Engine.rehearsal = Rehearsal(rules)
    try:
        yield rehearsal
    finally:
        Engine.rehearsal = None
        rehearsal.close()


def rehearse(rehearsal: Rehearsal, target: RunTarget, run_id: str | None) -> list[ReplayResult]:
    """Replay one run, or all runs that the program opens, and return the result of each.

    The first pass decides. A failed pass is repeated with recorded results if that tells more. A pass with placeholders
    is repeated with the values that code compares by `is`.
    """
    rehearsal.ran.clear()
    replays = _go_through(rehearsal, target, run_id, OPAQUE)
    notes, broken, handed = rehearsal.notes, rehearsal.broken, rehearsal.handed
    if handed and any(run.cut for run in rehearsal.runs) and any(replay.fails for replay in replays):
        again = {(replay.agent, replay.id): replay for replay in _go_through(rehearsal, target, run_id, RECORDED)}
        replays = [_worse(replay, again.get((replay.agent, replay.id))) for replay in replays]
    if handed and not any(replay.fails for replay in replays):
        for value in VALUES:
            _go_through(rehearsal, target, run_id, value)
            replays = [_shaken(replay, rehearsal, value, handed[0].text) for replay in replays]
    rehearsal.notes, rehearsal.broken = notes, broken
    return replays


def _worse(replay: ReplayResult, again: ReplayResult | None) -> ReplayResult:
    """Return the more informative one of two failed results."""
    if again is None or not (replay.fails and again.fails):
        return replay
    return again if FAILS.index(again.verdict) <= FAILS.index(replay.verdict) else replay


def _shaken(replay: ReplayResult, rehearsal: Rehearsal, value: object, what: str) -> ReplayResult:
    """Return a result with the finding that it holds only if a call does not return this value."""
    lost = [
        one
        for run in rehearsal.runs
        if (run.engine.name, run.id) == (replay.agent, replay.id)
        for one in run.find_lost()
    ]
    text = next((one.text for one in lost if one.kind in FAILS), "")
    if not text or replay.fails:
        return replay
    finding = ReplayFinding("unknown", f"if {what} returns {value!r}: {text}", hint=RUN_STEPS)
    return msgspec.structs.replace(replay, findings=(*replay.findings, finding))


def _go_through(rehearsal: Rehearsal, target: RunTarget, run_id: str | None, mode: object) -> list[ReplayResult]:
    """Execute the program once."""
    rehearsal.start(mode)
    with _quietly():
        try:
            target.go(*(() if run_id is None else (run_id,)))
        except (ReplayStop, SystemExit):
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any error of the user's program is reported with its run, or as a note
            if not _is_known(rehearsal, error):
                rehearsal.end_program(f"it raises {type(error).__name__}: {error}")
    return rehearsal.collect_reports()


def _is_known(rehearsal: Rehearsal, error: BaseException) -> bool:
    """Whether a run has already reported the error. A task group may have wrapped the end of a replay."""
    return any(run.over for run in rehearsal.runs)
