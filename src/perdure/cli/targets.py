"""The program that recorded runs are replayed with: a script, a function, or the tasks of an agent."""

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

from ..aio import AsyncAgent, AsyncRun
from ..engine import Engine
from ..errors import TaskNotFound
from ..rehearsal.passes import Rehearsal
from ..rehearsal.reports import FAILS, RUN_STEPS, Finding, Replay, Rules
from ..rehearsal.stand_ins import OPAQUE, RECORDED, VALUES, Stops
from ..sync import Agent, Run

AnyAgent = Agent | AsyncAgent


class Target(msgspec.Struct, frozen=True):
    """How the code of a run is brought to run."""

    go: Callable[..., Any]
    by_id: bool
    """Whether it is called for one run, with its id; else it opens its runs by itself."""
    engines: tuple[Engine, ...] = ()
    """The agents of the module, whose runs can be listed."""
    tasks_only: bool = False
    """Whether only runs of tasks are meant."""


def load_target(given: str, arguments: tuple[str, ...]) -> Target:
    """`agent.py` is a script; `module:name` a function or an agent."""
    name, _, attribute = given.partition(":")
    if not attribute:
        if not name.endswith(".py"):
            raise click.UsageError(f"{given}: give a script (agent.py), a function or an agent (module:name)")
        if not os.path.exists(name):
            raise click.UsageError(f"there is no file {name!r}")
        return Target(lambda: _run_script(name, arguments), by_id=False)
    with _quietly():
        module = imported(name)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    engines = tuple({id(it): it._engine for it in vars(module).values() if isinstance(it, AnyAgent)}.values())
    if isinstance(found, AnyAgent):
        return _tasks_of(found, given)
    if not callable(found):
        raise click.UsageError(f"{given}: {'there is no such name' if found is None else 'it cannot be called'}")
    return Target(lambda *run_id: _call(found, run_id), _wants_id(found), engines)


def _tasks_of(agent: AnyAgent, given: str) -> Target:
    """The tasks of an agent, for their runs."""
    engine = agent._engine
    if not engine.tasks:
        raise click.UsageError(
            f"{given}: the agent has no tasks, and does not say how its runs are opened; name the function that does, "
            "or the script"
        )

    def task_of(run: Run | AsyncRun) -> Any:
        started = run._core.ledger.started
        assert started is not None
        name = started.task
        if name not in engine.tasks:
            raise TaskNotFound(
                f"run {run.id!r} is of task {name!r}, which agent {engine.name!r} does not declare: no worker takes it",
                hint=f'declare it, or say was="{name}" where it has another name now',
            )
        return engine.tasks[name]

    async def perform(run_id: str) -> None:
        assert isinstance(agent, AsyncAgent)
        async with agent.run(run_id) as run:
            await task_of(run)._call(run)

    def perform_sync(run_id: str) -> None:
        assert isinstance(agent, Agent)
        with agent.run(run_id) as run:
            task_of(run)._call(run)

    chosen = perform if isinstance(agent, AsyncAgent) else perform_sync
    return Target(lambda *run_id: _call(chosen, run_id), True, (engine,), tasks_only=True)


def _wants_id(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _call(function: Callable[..., Any], run_id: tuple[str, ...]) -> Any:
    result = function(*run_id)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
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


def imported(name: str) -> Any:
    """A module, as `python` would find it from the working folder."""
    import importlib

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise click.UsageError(f"there is no module {name!r} to be found from {os.getcwd()}") from error
        raise


@contextmanager
def _quietly() -> Iterator[None]:
    """What the program prints is not what it is asked for here."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


@contextmanager
def rehearsing(rules: Rules) -> Iterator[Rehearsal]:
    """From now on, agents of this process only rehearse."""
    rehearsal = Engine.rehearsal = Rehearsal(rules)
    try:
        yield rehearsal
    finally:
        Engine.rehearsal = None
        rehearsal.close()


def rehearse(rehearsal: Rehearsal, target: Target, run_id: str | None) -> list[Replay]:
    """Let the program go through a run, or through the runs that it opens; returns what became of each.

    The first pass decides. One that fails is repeated with recorded results, if that tells more. One that passes
    although the code was handed stand-ins is repeated with the values that code compares by `is`.
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


def _worse(replay: Replay, again: Replay | None) -> Replay:
    """The report that tells more, of two that both fail."""
    if again is None or not (replay.fails and again.fails):
        return replay
    return again if FAILS.index(again.verdict) <= FAILS.index(replay.verdict) else replay


def _shaken(replay: Replay, rehearsal: Rehearsal, value: object, what: str) -> Replay:
    """A report that holds only if a result is not of this value."""
    lost = [
        one for run in rehearsal.runs if (run.engine.name, run.id) == (replay.agent, replay.id) for one in run.lost()
    ]
    text = next((one.text for one in lost if one.kind in FAILS), "")
    if not text or replay.fails:
        return replay
    finding = Finding("unknown", f"if {what} returns {value!r}: {text}", hint=RUN_STEPS)
    return msgspec.structs.replace(replay, findings=(*replay.findings, finding))


def _go_through(rehearsal: Rehearsal, target: Target, run_id: str | None, mode: object) -> list[Replay]:
    """One pass of the program."""
    rehearsal.start(mode)
    with _quietly():
        try:
            target.go(*(() if run_id is None else (run_id,)))
        except (Stops, SystemExit):
            pass
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # told with the run that it has left, or as a note: it is the user's program
            if not _is_known(rehearsal, error):
                rehearsal.break_off(f"it raises {type(error).__name__}: {error}")
    return rehearsal.told()


def _is_known(rehearsal: Rehearsal, error: BaseException) -> bool:
    """Whether it comes out of a run, which has noted it; a group of tasks has wrapped the end of a replay."""
    return any(run.over for run in rehearsal.runs)
