"""The life of a step: matched, or run, and then recorded with everything that it wrote, in one commit."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Any

from .. import records as r
from ..errors import (
    Abandoned,
    Diverged,
    InputChanged,
    NothingToRetry,
    PerdureError,
    StepTimeout,
    StoreProblem,
    VersionConflict,
    WorkflowProblem,
)
from ..failpoints import Site
from ..limits import ORDER_LOOK_SECONDS, RETRY_BACKOFF_SECONDS_MAX
from ..store.base import Statement, holds
from .account import must_afford, write_credit
from .core import PROCEED, RunCore
from .functions import Function, Options
from .ledger import Recorded
from .lines import at_line
from .obeying import heed
from .requests import Invoke, Pause, Protocol
from .scope import Frame

REFUSED = (VersionConflict, WorkflowProblem, InputChanged, NothingToRetry)
"""What is raised when something that is to be written to an agent cannot be: what was done for it is kept."""


def call_step(
    frame: Frame, function: Function, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Protocol[Any]:
    """One call of a step in a run."""
    run = frame.run
    arguments = function.signature.arguments(args, kwargs)
    ident = function.ident(arguments, options)
    recorded, nth = run.match(frame, function, options, arguments, ident)
    if recorded is not None and recorded.done:
        run.account.credit(recorded)
        run.land(frame, recorded.take_writes())
        return (yield from run.recall(recorded))
    if recorded is not None and recorded.failed and run.ledger.went_past(recorded):
        raise raised_again(run, recorded)
    call = r.Call(frame.path, function.name, ident, nth)
    attempts = 0
    if recorded is not None:
        _refuse_doubt(run, recorded)
    if run.rehearsed:
        yield from run.settle()
    stand_in = run.begin("step", function.name, arguments, call=call)
    if stand_in is not PROCEED:
        return stand_in
    if recorded is not None:
        call = recorded.origin or call
        attempts = recorded.attempts
        yield from wait_until(run, recorded.next_at)
    try:
        return (yield from _execute(frame, function, options, call, args, kwargs, attempts))
    except StoreProblem:
        frame.uncount(function.name, ident)  # nothing is recorded: calling again is the same call
        raise


def _refuse_doubt(run: RunCore, recorded: Recorded) -> None:
    """An effect that has become a step may be repeated from now on; that it may have been is not known by that."""
    if recorded.effect and recorded.in_doubt:
        raise Diverged(
            f"{recorded.name}{at_line()} is a step now, and was an effect when run {run.id!r} began it (entry "
            f"{recorded.seq}): nobody knows whether that happened. Nothing was run, and all that is recorded is kept",
            hint=f"say how it ended with `perdure answer {shlex.quote(run.id)}{run.store_option}`, or leave it an "
            'effect until then, with in_doubt="retry" if it may be repeated',
        )


def _execute(
    frame: Frame,
    function: Function,
    options: Options,
    call: r.Call,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    attempts: int,
) -> Protocol[Any]:
    """Run the body until it succeeds or its retries are used up."""
    run, since = frame.run, frame.run.head.seq
    if run.is_told:
        yield from heed(run)
    if run.account.owes_credit:
        yield from write_credit(run)
    while True:
        must_afford(run)
        body = frame.body("step")
        run.under_way.add(body)
        try:
            run.must_stay()
            begun = time.perf_counter_ns()
            try:
                result = yield Invoke(function.call, args, kwargs, body, options.timeout, stops=True)
                packed, objects = run.pack(result, f"{function.name}()")
            except Exception as error:  # the user's code may raise anything, and all of it is an outcome
                run.account.lose(used_in(body, call.name))
                if run.leaving and isinstance(error, Abandoned):
                    raise  # it was cut off: that is not an outcome of its own
                attempts += 1
                if attempts > options.retries or _is_ours(error):
                    yield from _give_up(run, call, since, error)
                    raise
                run.under_way.discard(body)
                yield from pause_before_retry(run, call, attempts, options.backoff, error)
                continue
            except BaseException:  # cancelled, interrupted: nothing is recorded of it but what it has cost
                run.account.lose(used_in(body, call.name))
                raise
            assert body.buffer is not None
            writes = body.buffer.landing()
            took_us = (time.perf_counter_ns() - begun) // 1000
            # The step's completion: result and everything written inside, durable together when this line is passed.
            usage = body.buffer.used(call.name)
            done, made = r.StepDone(call, since, took_us, packed, writes, (), usage), (*objects, *body.buffer.objects)
            try:
                yield from run.commit(Site.STEP_DONE, done, objects=made, asks=body.buffer.asks)
            except REFUSED as error:
                run.account.lose(usage)
                yield from _give_up(run, call, since, error, packed, objects)  # the result was paid for, and is kept
                raise
            run.land(frame, writes)
            if options.id is not None:
                run.ledger.track_step(frame.path, function.name, call.ident, packed)
            if run.is_told:
                yield from heed(run)
            return result
        finally:
            run.under_way.discard(body)


def used_in(body: Frame, name: str) -> tuple[r.Usage, ...]:
    """What a body has spent, however it ended."""
    return body.buffer.used(name) if body.buffer is not None else ()


def _is_ours(error: Exception) -> bool:
    """A wrong use of Perdure stays wrong when it is repeated; a timeout may not."""
    return isinstance(error, PerdureError) and not isinstance(error, StepTimeout)


def _give_up(
    run: RunCore,
    call: r.Call,
    since: int,
    error: Exception,
    result: bytes = b"",
    also: Sequence[Statement] = (),
) -> Protocol[None]:
    packed, objects = run.pack(error, call.name)
    entry = r.StepFailed(call, since, packed, describe(error), result)
    mark(error, run, (yield from run.commit(Site.STEP_FAILED, entry, objects=(*objects, *also))))


def pause_before_retry(run: RunCore, call: r.Call, attempts: int, backoff: float, error: Exception) -> Protocol[None]:
    """Record a failed attempt and when the next is due, so that a crash forgets neither."""
    delay = min(backoff * 2 ** (attempts - 1), RETRY_BACKOFF_SECONDS_MAX)
    next_at = run.clock.wall_ms() + int(delay * 1000)
    packed, objects = run.pack(error, call.name)
    yield from run.commit(Site.ATTEMPT_FAILED, r.AttemptFailed(call, attempts, packed, next_at), objects=objects)
    yield from wait_until(run, next_at)


def wait_until(run: RunCore, at: int) -> Protocol[None]:
    """Let the time come. A clock that was set back must not make anybody wait for longer than a backoff lasts."""
    seconds = min((at - run.clock.wall_ms()) / 1000, RETRY_BACKOFF_SECONDS_MAX)
    while seconds > 0:
        if run.is_told:
            yield from heed(run)
        yield Pause(min(seconds, ORDER_LOOK_SECONDS))
        seconds -= ORDER_LOOK_SECONDS


def raised_again(run: RunCore, recorded: Recorded) -> BaseException:
    """The exception of a recorded failure."""
    error = run.unpack(recorded.error)
    assert isinstance(error, BaseException)
    mark(error, run, recorded.failed)
    return error


def mark(error: BaseException, run: RunCore, seq: int) -> None:
    """Remember on the exception which entry recorded it: when it leaves the run, that entry is the cause."""
    error.__dict__["_perdure_failure"] = (run.head.stream, seq)


def describe(error: BaseException) -> str:
    """An exception in one line, that can be kept as text: a model's words may hold anything."""
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return told if holds(told) else told.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
