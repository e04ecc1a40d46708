"""Queues runs for workers, and waits for their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .. import codec, objects
from .. import records as r
from ..answers import whoever
from ..durations import Duration, seconds_of
from ..errors import ResultErased, RunNotFound, TaskFailed, WaitTimeout
from ..failpoints import Site
from ..identity import Identity
from ..journal.departures import refuse_if_gone
from ..journal.fold import told_by
from ..journal.starts import Again, Start
from ..limits import AWAITED_LOOK_SECONDS, WAIT_POLL_SECONDS
from ..run import waiting
from ..run.core import RunCore
from ..run.functions import Function, Options, Signature
from ..run.requests import Pause, Protocol, Read
from ..run.scope import current
from ..run.steps import call_step
from ..run.waiting import Wait
from ..run.waits import Waited
from ..run.writes import named
from ..state import waiting_room, write
from ..store.base import Store
from ..task_records import run_awaited
from .defining import Definition, TaskOptions

if TYPE_CHECKING:
    from ..engine import Engine

RESULT_POLL_SECONDS_MAX = 0.05
"""The longest polling interval of a caller that waits for a result outside a run."""


def start(
    engine: Engine, task: Definition, options: TaskOptions, run_id: str, given: dict[str, Any], *, awaits: bool
) -> Protocol[None]:
    """Queue a run: with the enclosing body or item, as a step of the enclosing run, or at once."""
    named(run_id, "run's id")
    frame = current()
    within = frame is not None and frame.run.store is engine.store

    def ask() -> Start:
        engine.ensure_agent()
        parent = frame.run.head.stream if frame is not None and within else 0
        return _asked(engine, engine.stream, task, options, run_id, given, parent)

    if frame is not None and within and frame.buffer is None:
        wanted = _recorded(engine, task.name, ask, awaits)
        protocol = call_step(frame, wanted, wanted.options, (run_id, given), {})
        parking = frame.run.parking
        yield from protocol if parking is None else parking.counted(protocol)
    else:
        yield from write(engine, Site.TASK, [(yield Read(ask))])


def _asked(
    engine: Engine, owner: int, task: Definition, options: TaskOptions, run_id: str, given: dict[str, Any], parent: int
) -> Start:
    path = f"{task.name}()"
    packed, made = objects.pack(engine.store, given, path)
    later = 0 if options.delay is None else int(seconds_of(options.delay, "delay") * 1000)
    queued = r.TaskQueued(
        owner,
        engine.name,
        run_id,
        task.name,
        options.queue,
        packed,
        codec.digest(given, path),
        parent,
        options.priority,
        task.key(options.key, given),
        engine.store.clock.wall_ms() + later if later else 0,
    )
    return Start(queued, made)


def _recorded(engine: Engine, name: str, ask: Callable[[], Start], awaits: bool) -> Function:
    """Return a step whose only write is the queued run."""

    def queue(run: str, input: dict[str, Any]) -> None:
        _note(engine, ask())

    async def queue_async(run: str, input: dict[str, Any]) -> None:
        import asyncio  # already imported by asynchronous programs; synchronous ones should not load it

        _note(engine, await asyncio.to_thread(ask))

    return Function(f"start {name}", queue_async if awaits else queue, False, Signature(queue, ()), Options())


def _note(engine: Engine, asked: Start) -> None:
    room = waiting_room(engine)
    assert room is not None, "the body of a step has a buffer"
    room.asks.append(asked)


def again(engine: Engine, run_id: str, by: str | None) -> Protocol[None]:
    """Queue a dead-lettered run again."""
    owner = yield Read(lambda: engine.stream if engine.is_known() else 0)
    wanted = Again((owner, engine.name, named(run_id, "run's id")), by or whoever())
    yield from write(engine, Site.TASK, [wanted])


# -- results -------------------------------------------------------------------------------------------------------


class Ended(msgspec.Struct, frozen=True):
    """How a run ended: `finished` with a result, `failed` with a recorded error, or `cancelled`."""

    how: str
    packed: bytes
    text: str = ""


def ended(engine: Engine, run_id: str) -> Ended | None:
    """Return the end of a run, or None if it has not ended or will be retried by a worker."""
    store = engine.store
    task = store.read("get_task", (engine.stream, run_id)) if engine.is_known() else []
    rows = store.read("get_run", (engine.name, run_id))
    if not rows and not task:
        raise RunNotFound(
            f"agent {engine.name!r} has no run {run_id!r}",
            hint="`perdure runs` lists them; a run started in a step or an item exists once that has ended",
        )
    over = (r.Status.FINISHED, r.Status.FAILED, r.Status.CANCELLED)
    if not rows or rows[0][3] not in over or (task and task[0][5] != "dead"):
        refuse_if_gone(store, engine.name)  # if the agent has moved, the run ends in another store
        return None
    return _end_of(store, rows[0])


def _end_of(store: Store, row: tuple[Any, ...]) -> Ended | None:
    found = store.read("event_at", (row[0], row[9]))
    if not found:
        return None  # the run is being continued right now
    _, kind, _, body, _, _ = found[0]
    record = r.decode(kind, body) if body is not None else r.remains(kind)
    if isinstance(record, r.RunFinished):
        return Ended("finished", record.result)
    if isinstance(record, r.RunCancelled):
        return Ended("cancelled", b"", told_by(record))
    assert isinstance(record, r.RunFailed)
    return Ended("failed", record.error, record.text)


def result(engine: Engine, run_id: str, timeout: Duration | None) -> Protocol[Any]:
    """Wait for the end of a run and return its result. Inside a run this is a durable wait, which frees the worker."""
    named(run_id, "run's id")
    frame = current()
    if frame is not None and frame.run.store is engine.store and not frame.inside:
        return (yield from _result_in(frame.run, engine, run_id, timeout))
    clock = engine.store.clock
    until = None if timeout is None else clock.boot_ms() + seconds_of(timeout, "timeout") * 1000
    pause = WAIT_POLL_SECONDS / 4
    while True:
        end: Ended | None = yield Read(ended, (engine, run_id))
        if end is not None:
            return (yield from _value(engine, run_id, end))
        if until is not None and clock.boot_ms() >= until:
            raise WaitTimeout(f"run {run_id!r} did not end in time", hint="the run continues; ask again")
        yield Pause(pause)
        pause = min(pause * 1.5, RESULT_POLL_SECONDS_MAX)


def _result_in(run: RunCore, engine: Engine, run_id: str, timeout: Duration | None) -> Protocol[Any]:
    frame = waiting.place_of(run, "result")
    owner = yield Read(lambda: engine.stream if engine.is_known() else 0)

    def want(waited: Waited) -> r.Want:
        return r.Want("run", stream=owner, agent=engine.name, run=run_id)

    def look(waited: Waited) -> Protocol[bool]:
        end: Ended | None = yield Read(_ended_for, (run, engine, run_id))
        if end is not None:
            yield from waiting.end_wait(run, waited, end.how, end.packed, end.text)
        return end is not None

    ident, text = run_awaited(engine.name, run_id)
    # The end of a run in this store wakes the waiter. An agent that moves away does not, so poll for it.
    again = 0.0 if engine.name == run.engine.name else AWAITED_LOOK_SECONDS
    wait = Wait("run", ident, text, waiting.deadline(run, timeout), want=want, polls=True, again=again)
    waited = yield from waiting.wait_for(frame, wait, look)
    if isinstance(waited, waiting.StoodIn):
        return waited.result
    if waited.how == "timeout":
        raise WaitTimeout(
            f"run {run_id!r} did not end in time", hint="the run continues; ask again, or use a longer timeout"
        )
    return (yield from _value(engine, run_id, Ended(waited.how, waited.value, waited.by)))


def _ended_for(run: RunCore, engine: Engine, run_id: str) -> Ended | None:
    """Return the end of a run that another run waits for. One of their agents may have moved to this store alone."""
    try:
        return ended(engine, run_id)
    except RunNotFound as error:
        if engine.name == run.engine.name or not Identity(run.engine).arrivals:
            raise
        raise RunNotFound(
            f"run {run_id!r} of agent {engine.name!r} is not in this store: agent {run.engine.name!r} was imported "
            "into this store, but the run it waits for was not",
            hint=f"import agent {engine.name!r} here too, then start run {run.id!r} again (a task: `perdure retry`)",
        ) from error


def _value(engine: Engine, run_id: str, end: Ended) -> Protocol[Any]:
    if end.how == "cancelled":
        raise TaskFailed(
            f"run {run_id!r} was cancelled {end.text}",
            hint="a cancelled run never continues; start a new one with another id",
        )
    if not end.packed:
        raise ResultErased(f"the result of run {run_id!r} was erased")
    value = yield Read(objects.unpack, (engine.store, end.packed))
    if end.how == "finished":
        return value
    cause = value if isinstance(value, BaseException) else None
    text = f"{type(value).__name__}: {value}" if cause is not None else str(value)
    raise TaskFailed(f"run {run_id!r} has failed: {text}") from cause
