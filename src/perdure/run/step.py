"""The life of a step: matched or executed, then recorded together with its writes in one commit."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Any

from perdure import records as r
from perdure.errors import (
    Abandoned,
    Diverged,
    InDoubt,
    InputChanged,
    NothingToRetry,
    PerdureError,
    StepTimeout,
    StoreProblem,
    VersionConflict,
    WorkflowProblem,
)
from perdure.kernel.program_line import format_calling_line
from perdure.kernel.protocol import Invoke, Pause, Protocol
from perdure.kernel.scope import Frame
from perdure.platform.failpoints import Site
from perdure.run.core import PROCEED, RunCore, core_of
from perdure.run.cost import check_budgets, write_credit
from perdure.run.function import EXPLICIT, CallOptions, DurableFunction
from perdure.run.ledger import RecordedCall
from perdure.run.order_handling import stop_if_ordered
from perdure.run.unstorable import stays_failed
from perdure.store.base import Statement, is_storable_name
from perdure.values.codec.salvage import salvage
from perdure.values.limits import ORDER_LOOK_SECONDS, RETRY_BACKOFF_SECONDS_MAX

_DONE = Site.STEP_DONE
"""Looked up once: before Python 3.12 a member of an enum costs as much as a call."""

_NO_RESULT: Any = object()
"""Stands for the result while a body is running."""

REFUSED = (VersionConflict, WorkflowProblem, InputChanged, NothingToRetry)
"""Raised when a write to an agent is refused. The step's result is kept."""


def call_step(
    frame: Frame, function: DurableFunction, options: CallOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Protocol[Any]:
    """Call a step in a run. A plain function, because every generator around `_execute` adds cost to each answer."""
    run = core_of(frame)
    arguments = function.signature.arguments(args, kwargs)
    ident = function.ident(arguments, options)
    recorded, nth = run.match(frame, function, options, arguments, ident)
    call = r.CallIdentity(frame.path, function.name, ident, nth)
    if recorded is not None and recorded.done:
        return run.recall(frame, recorded)
    if recorded is not None or run.rehearsed:
        return _call_again(frame, function, options, call, args, kwargs, arguments, recorded)
    run.begin("step", function.name, arguments, "", call)
    return _execute(run, frame, function, options, call, args, kwargs, ident, 0)


def _call_again(
    frame: Frame,
    function: DurableFunction,
    options: CallOptions,
    call: r.CallIdentity,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arguments: dict[str, Any],
    recorded: RecordedCall | None,
) -> Protocol[Any]:
    """Continue a call that is recorded, or handle one in a rehearsal."""
    run, ident = core_of(frame), call.ident
    if recorded is not None and recorded.failed and stays_failed(run.ledger, recorded, options):
        raise rebuild_failure(run, recorded)
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
    return (yield from _execute(run, frame, function, options, call, args, kwargs, ident, attempts))


def _refuse_doubt(run: RunCore, recorded: RecordedCall) -> None:
    """Raise for an effect in doubt that the code now declares as a step: repeating it could be a duplicate."""
    if recorded.effect and recorded.in_doubt:
        raise Diverged(
            f"{recorded.name}{format_calling_line()} is a step now, but was an effect when run {run.id!r} started it "
            f"(entry {recorded.seq}): its outcome is unknown. Nothing was executed, and everything recorded is kept",
            hint=f"record its outcome with `perdure answer {shlex.quote(run.id)}{run.store_option}`, or keep it an "
            'effect until then, with in_doubt="retry" if it may be repeated',
        )


def _prepare_new_work(frame: Frame, name: str, ident: bytes) -> Protocol[None]:
    """Obey orders to the run, and record its savings."""
    run = core_of(frame)
    try:
        if run.has_orders:
            yield from stop_if_ordered(run)
        if run.account.owes_credit:
            yield from write_credit(run)
    except StoreProblem:
        frame.uncount(name, ident)  # nothing was recorded: the next attempt is the same call
        raise


def _execute(
    run: RunCore,
    frame: Frame,
    function: DurableFunction,
    options: CallOptions,
    call: r.CallIdentity,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    ident: bytes,
    attempts: int,
) -> Protocol[Any]:
    """Run the body until it succeeds or its retries are exhausted. The call was counted under `ident`."""
    since = run.head.seq
    if run.has_orders or run.account.owes_credit:
        yield from _prepare_new_work(frame, function.name, ident)
    while True:
        if run.account.budgets:
            check_budgets(run)
        body = frame.body("step")
        run.under_way.add(body)
        try:
            if run.leaving:
                raise run.abandoned_error()
            begun, result = time.perf_counter_ns(), _NO_RESULT
            try:
                result = yield Invoke(function.call, args, kwargs, body, options.timeout, stops=True)
                packed, objects = run.pack(result, f"{function.name}()")
            except BaseException as error:  # cancelled or interrupted: only its cost is recorded
                run.account.record_lost(collect_usage(body, call.name))
                attempts += 1
                if not isinstance(error, Exception):
                    raise
                if not (yield from _tries_again(body, call, since, options, attempts, error, result)):
                    raise
                continue
            buffer = body.buffer
            assert buffer is not None
            writes = buffer.landing_writes() if buffer.writes else ()
            took_us = (time.perf_counter_ns() - begun) // 1000
            # The step's completion: after this commit, the result and all writes of the body are durable.
            usage = buffer.take_usage(call.name) if buffer.usage else ()
            done, made = r.StepDone(call, since, took_us, packed, writes, (), usage), (*objects, *buffer.objects)
            plain = None if buffer.asks else run.make_plain_commit(_DONE, done, made)
            try:
                if plain is not None:
                    yield plain
                else:
                    yield from run.commit(_DONE, done, objects=made, asks=buffer.asks)
            except REFUSED as error:
                run.account.record_lost(usage)
                yield from _give_up(run, call, since, error, packed, objects)  # the result was paid for, so it is kept
                raise
            if writes:
                run.land(frame, writes)
            if options.id is not None:
                run.ledger.track_step(frame.path, function.name, call.ident, packed)
            if run.has_orders:
                yield from stop_if_ordered(run)
            return result
        except StoreProblem:
            frame.uncount(function.name, ident)
            raise
        finally:
            run.under_way.discard(body)


def _tries_again(
    body: Frame,
    call: r.CallIdentity,
    since: int,
    options: CallOptions,
    attempts: int,
    error: Exception,
    result: Any,
) -> Protocol[bool]:
    """Record what the user's code raised, and return whether the body runs again."""
    run = core_of(body)
    if run.leaving and isinstance(error, Abandoned):
        return False  # the run cut it off, so it has no outcome of its own
    if result is not _NO_RESULT or attempts > options.retries or _is_ours(error):
        yield from _record_failure(run, call, since, error, result, options)
        return False
    run.under_way.discard(body)
    yield from pause_before_retry(run, call, attempts, options.backoff, error)
    return True


def collect_usage(body: Frame, name: str) -> tuple[r.ModelUsage, ...]:
    """Return the usage of a body, whether it succeeded or not."""
    return body.buffer.take_usage(name) if body.buffer is not None else ()


def _is_ours(error: Exception) -> bool:
    """Whether an error is not worth a retry: misuse of Perdure stays misuse. A timeout may pass."""
    return isinstance(error, PerdureError) and not isinstance(error, StepTimeout)


def _give_up(
    run: RunCore,
    call: r.CallIdentity,
    since: int,
    error: Exception,
    result: bytes = b"",
    also: Sequence[Statement] = (),
) -> Protocol[None]:
    packed, objects = run.pack(error, call.name)
    entry = r.StepFailedEntry(call, since, packed, describe(error), result)
    mark(error, run, (yield from run.commit(Site.STEP_FAILED, entry, objects=(*objects, *also))))


def _record_failure(
    run: RunCore, call: r.CallIdentity, since: int, error: Exception, result: Any, options: CallOptions
) -> Protocol[None]:
    """Record that the body failed, or that its result cannot be stored: repeating it would only pay for it again."""
    if result is _NO_RESULT:
        return (yield from _give_up(run, call, since, error))
    kept, more = run.pack(salvage(result), call.name)
    packed, objects = run.pack(error, call.name)
    entry = r.StepFailedEntry(call, since, packed, describe(error), kept, options.version)
    seq = yield from run.commit(Site.STEP_FAILED, entry, objects=(*objects, *more))
    mark(error, run, seq)
    if call.ident.startswith(EXPLICIT):  # which stands for one call, however often it is made
        recorded = RecordedCall(call.scope, call.name, call.ident, effect=False, seq=seq)
        recorded.failed, recorded.error, recorded.unstorable = seq, packed, options.version
        run.ledger.track(recorded, 0)


def pause_before_retry(
    run: RunCore, call: r.CallIdentity, attempts: int, backoff: float, error: Exception
) -> Protocol[None]:
    """Record a failed attempt and the time of the next one, so that both survive a crash."""
    delay = min(backoff * 2 ** (attempts - 1), RETRY_BACKOFF_SECONDS_MAX)
    next_at = run.clock.wall_ms() + int(delay * 1000)
    packed, objects = run.pack(error, call.name)
    yield from run.commit(Site.ATTEMPT_FAILED, r.AttemptFailed(call, attempts, packed, next_at), objects=objects)
    yield from wait_until(run, next_at)


def wait_until(run: RunCore, at: int) -> Protocol[None]:
    """Sleep until a time, at most one maximum backoff: the clock may have been set back."""
    seconds = min((at - run.clock.wall_ms()) / 1000, RETRY_BACKOFF_SECONDS_MAX)
    while seconds > 0:
        if run.has_orders:
            yield from stop_if_ordered(run)
        yield Pause(min(seconds, ORDER_LOOK_SECONDS))
        seconds -= ORDER_LOOK_SECONDS


def rebuild_failure(run: RunCore, recorded: RecordedCall) -> BaseException:
    """Return the exception of a recorded failure."""
    error: BaseException = run.unpack(recorded.error)
    assert isinstance(error, BaseException)
    if isinstance(error, InDoubt) and error.hint == InDoubt.hint:
        error.hint = run.hint_of(InDoubt)  # hints are not stored
    mark(error, run, recorded.failed)
    return error


def mark(error: BaseException, run: RunCore, seq: int) -> None:
    """Store on the exception which entry recorded it. If it leaves the run, that entry is the cause."""
    error.__dict__["_perdure_failure"] = (run.head.stream, seq)


def describe(error: BaseException) -> str:
    """Describe an exception in one line that can be stored: messages may contain any characters."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if is_storable_name(text) else text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
