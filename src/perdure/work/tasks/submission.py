"""Queues runs for workers, and waits for their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import ResultErased, RunDeleted, RunNotFound, TaskFailed, WaitTimeout
from perdure.journal import objects
from perdure.journal.agent_writes import AgentWrite
from perdure.journal.departures import refuse_if_gone
from perdure.journal.project import order_text
from perdure.journal.task_starts import QueueRun, RequeueRun
from perdure.kernel.identity import Identity
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Pause, Protocol, Read
from perdure.kernel.scope import current_frame
from perdure.kernel.write_routing import enclosing_buffer, write
from perdure.platform.failpoints import Site
from perdure.records.tasks import encode_awaited_run
from perdure.run import wait as waiting
from perdure.run.answers import check_person
from perdure.run.core import RunCore, core_of
from perdure.run.function import CallOptions, CallSignature, DurableFunction
from perdure.run.listing import has_unstorable
from perdure.run.order_delivery import give_order
from perdure.run.order_handling import PendingOrder
from perdure.run.recorded_waits import RecordedWait
from perdure.run.step import call_step
from perdure.run.wait import WaitRequest
from perdure.store.base import Store
from perdure.store.rows import RunRow, read_entry, read_run, task_in
from perdure.values import codec
from perdure.values.durations import Duration, seconds_of
from perdure.values.hints import insert_run_id
from perdure.values.limits import AWAITED_LOOK_SECONDS, WAIT_POLL_SECONDS
from perdure.work.tasks.definition import TaskDefinition, TaskOptions

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

RESULT_POLL_SECONDS_MAX = 0.05
"""The longest polling interval of a caller that waits for a result outside a run."""


def start(
    engine: Engine,
    task: TaskDefinition,
    options: TaskOptions,
    run_id: str,
    given: dict[str, Any],
    *,
    awaits: bool,
    also: Callable[[], Sequence[AgentWrite]] = tuple,
) -> Protocol[None]:
    """Queue a run: with the enclosing body or item, as a step of the enclosing run, or at once.

    The writes of `also` land before it. Outside a run they have an entry of their own, which can be erased alone.
    """
    check_storable_name(run_id, "run's id")
    frame = current_frame()
    within = frame is not None and frame.run.store is engine.store

    def ask() -> list[AgentWrite]:
        engine.ensure_agent()
        parent = frame.run.head.stream if frame is not None and within else 0
        return [*also(), _make_request(engine, engine.stream, task, options, run_id, given, parent)]

    if frame is not None and within and frame.buffer is None:
        wanted = _make_step(engine, task.name, ask, awaits)
        begin = partial(call_step, frame, wanted, wanted.options, (run_id, given), {})
        parking = core_of(frame).parking
        yield from begin() if parking is None else parking.execute_counted(begin)
    else:
        *before, queued = yield Read(ask)
        if before:
            yield from write(engine, Site.STATE, before)
        yield from write(engine, Site.TASK, [queued])


def _make_request(
    engine: Engine,
    owner: int,
    task: TaskDefinition,
    options: TaskOptions,
    run_id: str,
    given: dict[str, Any],
    parent: int,
) -> QueueRun:
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
    return QueueRun(queued, made)


def _make_step(engine: Engine, name: str, ask: Callable[[], list[AgentWrite]], awaits: bool) -> DurableFunction:
    """Return a step that only queues the run."""

    def queue(run: str, input: dict[str, Any]) -> None:
        _note(engine, ask())

    async def queue_async(run: str, input: dict[str, Any]) -> None:
        import asyncio  # already imported by asynchronous programs; synchronous ones should not load it

        _note(engine, await asyncio.to_thread(ask))

    return DurableFunction(
        f"start {name}", queue_async if awaits else queue, False, CallSignature(queue, ()), CallOptions()
    )


def _note(engine: Engine, asked: list[AgentWrite]) -> None:
    room = enclosing_buffer(engine)
    assert room is not None, "the body of a step has a buffer"
    room.asks.extend(asked)


def retry_run(engine: Engine, run_id: str, by: str | None) -> Protocol[bool]:
    """Queue a dead-lettered run again, and let steps run again whose results could not be stored.

    Returns whether a worker will take the run; otherwise it goes on when its program opens it.
    """
    if (yield Read(has_unstorable, (engine.store, engine.name, run_id))):
        told = PendingOrder(r.Order.RETRY, "", check_person(by))
        yield from give_order(engine, engine.name, run_id, told)
        return bool((yield Read(engine.store.read, ("get_task", (engine.stream, run_id)))))
    owner = yield Read(lambda: engine.stream if engine.is_known() else 0)
    wanted = RequeueRun((owner, engine.name, check_storable_name(run_id, "run's id")), check_person(by))
    yield from write(engine, Site.TASK, [wanted])
    return True


# -- results -------------------------------------------------------------------------------------------------------


class RunEnd(msgspec.Struct, frozen=True):
    """How a run ended: `finished` with a result, `failed` with a recorded error, or `cancelled`."""

    how: str
    packed: bytes
    text: str = ""


def find_end(engine: Engine, run_id: str) -> RunEnd | None:
    """Return the end of a run, or None if it has not ended or will be retried by a worker."""
    store = engine.store
    task = task_in(store.read("get_task", (engine.stream, run_id))) if engine.is_known() else None
    run = read_run(store, engine.name, run_id)
    if run is None and task is None:
        raise RunNotFound(
            f"agent {engine.name!r} has no run {run_id!r}",
            hint="`perdure runs` lists them; a run started in a step or an item exists once that has ended",
        )
    if run is not None and run.status == r.RunStatus.ERASED:
        raise RunDeleted(f"run {run_id!r} was deleted with its conversation")
    over = (r.RunStatus.FINISHED, r.RunStatus.FAILED, r.RunStatus.CANCELLED)
    if run is None or run.status not in over or (task is not None and task.state != "dead"):
        refuse_if_gone(store, engine.name)  # if the agent has moved, the run ends in another store
        return None
    return _end_of(store, run)


def _end_of(store: Store, run: RunRow) -> RunEnd | None:
    entry = read_entry(store, run.stream, run.outcome)
    if entry is None:
        return None  # the run is being continued right now
    record = r.decode(entry.kind, entry.body) if entry.body is not None else r.remains(entry.kind)
    if isinstance(record, r.RunFinishedEntry):
        return RunEnd("finished", record.result)
    if isinstance(record, r.RunCancelledEntry):
        return RunEnd("cancelled", b"", order_text(record))
    assert isinstance(record, r.RunFailed)
    return RunEnd("failed", record.error, record.text)


def result(engine: Engine, run_id: str, timeout: Duration | None) -> Protocol[Any]:
    """Wait for the end of a run and return its result. Inside a run this is a durable wait, which frees the worker."""
    check_storable_name(run_id, "run's id")
    frame = current_frame()
    if frame is not None and frame.run.store is engine.store and not frame.inside:
        return (yield from _result_in(core_of(frame), engine, run_id, timeout))
    clock = engine.store.clock
    until = None if timeout is None else clock.boot_ms() + seconds_of(timeout, "timeout") * 1000
    pause = WAIT_POLL_SECONDS / 4
    while True:
        end: RunEnd | None = yield Read(find_end, (engine, run_id))
        if end is not None:
            return (yield from _value(engine, run_id, end))
        if until is not None and clock.boot_ms() >= until:
            raise WaitTimeout(f"run {run_id!r} did not end in time", hint="the run continues; ask again")
        yield Pause(pause)
        pause = min(pause * 1.5, RESULT_POLL_SECONDS_MAX)


def _result_in(run: RunCore, engine: Engine, run_id: str, timeout: Duration | None) -> Protocol[Any]:
    frame = waiting.place_of(run, "result")
    owner = yield Read(lambda: engine.stream if engine.is_known() else 0)

    def want(waited: RecordedWait) -> r.WakeCondition:
        return r.WakeCondition("run", stream=owner, agent=engine.name, run=run_id)

    def look(waited: RecordedWait) -> Protocol[bool]:
        end: RunEnd | None = yield Read(_find_end_for, (run, engine, run_id))
        if end is not None:
            yield from waiting.end_wait(run, waited, end.how, end.packed, end.text)
        return end is not None

    ident, text = encode_awaited_run(engine.name, run_id)
    # The end of a run in this store wakes the waiter. An agent that moves away does not, so poll for it.
    again = 0.0 if engine.name == run.engine.name else AWAITED_LOOK_SECONDS
    wait = WaitRequest("run", ident, text, waiting.deadline(run, timeout), want=want, polls=True, again=again)
    waited = yield from waiting.wait_for(frame, wait, look)
    if isinstance(waited, waiting.RehearsedWait):
        return waited.result
    if waited.how == "timeout":
        raise WaitTimeout(
            f"run {run_id!r} did not end in time", hint="the run continues; ask again, or use a longer timeout"
        )
    return (yield from _value(engine, run_id, RunEnd(waited.how, waited.value, waited.by)))


def _find_end_for(run: RunCore, engine: Engine, run_id: str) -> RunEnd | None:
    """Return the end of a run that another run waits for. One of their agents may have moved to this store alone."""
    try:
        return find_end(engine, run_id)
    except RunNotFound as error:
        if engine.name == run.engine.name or not Identity(run.engine).arrivals:
            raise
        raise RunNotFound(
            f"run {run_id!r} of agent {engine.name!r} is not in this store: agent {run.engine.name!r} was imported "
            "into this store, but the run it waits for was not",
            hint=f"import agent {engine.name!r} here too, then start run {run.id!r} again (a task: `perdure retry`)",
        ) from error


def _value(engine: Engine, run_id: str, end: RunEnd) -> Protocol[Any]:
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
    raise TaskFailed(f"run {run_id!r} has failed: {text}", hint=insert_run_id(TaskFailed.hint, run_id)) from cause
