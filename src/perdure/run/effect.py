"""The life of an effect: intent, body, outcome. The body never runs again without a proof, a policy or a person.

The intent is durable and fenced before the body starts. An intent without an outcome goes to `doubt`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from perdure import records as r
from perdure.errors import Abandoned, InDoubt, NotAwaited, NotDone, RunStopped, StepTimeout, StoreProblem, ValueProblem
from perdure.kernel.protocol import Invoke, Protocol, Read
from perdure.kernel.scope import Frame, WriteBuffer
from perdure.platform.failpoints import Site
from perdure.run.core import PROCEED, RunCore
from perdure.run.cost import check_budgets
from perdure.run.divergence import may_diverge, refuse_divergence
from perdure.run.doubt import DoubtVerdict, ask_check, child_at_work, settle
from perdure.run.ledger import RecordedCall
from perdure.run.lost_effects import KEY
from perdure.run.order_handling import stop_if_ordered
from perdure.run.outcome import (
    EffectCall,
    begin_again,
    close_done,
    commit_outcome,
    outcome_of,
    record_done,
    record_failed,
)
from perdure.run.step import collect_usage, describe, pause_before_retry, rebuild_failure, wait_until
from perdure.store.base import Statement
from perdure.values.hints import insert_run_id

_INTENT, _OUTCOME = Site.EFFECT_INTENT, Site.EFFECT_OUTCOME
"""Looked up once: before Python 3.12 a member of an enum costs as much as a call."""

_NOTHING = (NotDone, NotAwaited)
"""Exceptions by which a body says that nothing happened."""


def call_effect(effect: EffectCall) -> Protocol[Any]:
    """Execute a call of an effect, or return its recorded result. A plain function for speed, like `call_step`."""
    arguments = effect.function.signature.arguments(effect.args, effect.kwargs)
    ident = effect.function.ident(arguments, effect.options)
    if effect.options.id is None:
        return _match_or_begin(effect, arguments, ident)
    return _execute_exclusively(effect, arguments, ident)


def _execute_exclusively(effect: EffectCall, arguments: dict[str, Any], ident: bytes) -> Protocol[Any]:
    """Execute a call with an explicit id. A concurrent call with the same id is refused."""
    with effect.run.exclusive_id(effect.frame, effect.function.name, ident):
        return (yield from _match_or_begin(effect, arguments, ident))


def _match_or_begin(effect: EffectCall, arguments: dict[str, Any], ident: bytes) -> Protocol[Any]:
    """Return the recorded result, or start or continue the effect."""
    frame = effect.frame
    recorded, nth = effect.run.match(frame, effect.function, effect.options, arguments, ident)
    if recorded is not None and recorded.done:
        return effect.run.recall(frame, recorded)
    call = r.CallIdentity(frame.path, effect.function.name, ident, nth)
    return _begin_or_go_on(effect, call, recorded, arguments)


def _begin_or_go_on(
    effect: EffectCall, call: r.CallIdentity, recorded: RecordedCall | None, arguments: dict[str, Any]
) -> Protocol[Any]:
    """Start or continue an effect that has no recorded outcome."""
    run, frame, ident = effect.run, effect.frame, call.ident
    if recorded is not None and recorded.failed and run.ledger.has_continued_after(recorded):
        raise rebuild_failure(run, recorded)
    if recorded is not None and recorded.in_doubt and run.ledger.finished is not None:
        raise InDoubt(
            f"the outcome of {effect.function.name} is unknown (key {recorded.key})", hint=run.hint_of(InDoubt)
        )
    if run.finished:
        run.check_open()
    if not run.root.alive:
        run.check_not_left()
    if run.has_orders:
        yield from stop_if_ordered(run)
    if recorded is not None:
        call = recorded.origin or call
    try:
        result = yield from _settle_and_execute(effect, call, recorded, arguments)
    except StoreProblem:
        frame.uncount(effect.function.name, ident)  # nothing was recorded: the next attempt is the same call
        raise
    if run.has_orders:
        yield from stop_if_ordered(run)
    return result


def _settle_and_execute(
    effect: EffectCall, call: r.CallIdentity, recorded: RecordedCall | None, arguments: dict[str, Any]
) -> Protocol[Any]:
    """Commit the intent if there is none, settle an open one, and run the body if necessary."""
    run = effect.run
    if recorded is None or not recorded.key:
        if may_diverge(effect):
            yield from refuse_divergence(effect, arguments, call.ident)
        if run.rehearsed:
            yield from run.settle()
        if (stand_in := run.begin("effect", call.name, arguments, call=call)) is not PROCEED:
            return stand_in
        if run.account.budgets:
            check_budgets(run)
        recorded, intent, objects = _intent_of(effect, call, arguments)
        try:
            if (plain := run.make_plain_commit(_INTENT, intent, objects)) is not None:
                recorded.seq = recorded.begun = yield plain
            else:
                recorded.seq = recorded.begun = yield from run.commit(_INTENT, intent, objects=objects)
        except StoreProblem:
            run.ledger.untrack(recorded)
            raise
        _note_intent(run, recorded)
    elif recorded.in_doubt:
        why = "it is in doubt: its check would be asked, and then its policy"
        if (stand_in := run.begin("doubt", call.name, arguments, why)) is not PROCEED:
            return stand_in
    else:
        if (stand_in := run.begin("retry", call.name, arguments, "nothing had happened")) is not PROCEED:
            return stand_in
        yield from wait_until(run, recorded.next_at)
        yield from begin_again(run, recorded, "nothing had happened")
        recorded.running = True
    if recorded.in_doubt:  # also set for a new intent whose earlier record was lost
        verdict = yield from settle(effect, recorded)
        if verdict.done:
            return verdict.value
    recorded.running = True
    try:
        return (yield from execute_body(effect, call, recorded))
    finally:
        recorded.running = False


def _intent_of(
    effect: EffectCall, call: r.CallIdentity, arguments: dict[str, Any]
) -> tuple[RecordedCall, r.EffectIntended, Sequence[Statement]]:
    """Build the intent. Once it is durable, the effect has its key and can be in doubt."""
    run = effect.run
    recorded = RecordedCall(call.scope, call.name, call.ident, effect=True)
    losses = run.ledger.losses
    lost, key = losses.find_lost_call(effect.names, call, run.store.content_key) if losses is not None else ("", "")
    recorded.key, recorded.fence = key or run.make_key(), run.head.fence
    recorded.boot_ms = 0 if lost else run.clock.boot_ms()  # the lost attempt's start time is unknown
    recorded.timeout_ms = int((effect.options.timeout or 0) * 1000)
    recorded.arguments, objects = run.pack(arguments, effect.function.name)
    when = (recorded.fence, recorded.timeout_ms, recorded.boot_ms)
    intent = r.EffectIntended(call, run.head.seq, recorded.key, recorded.arguments, *when, lost)
    recorded.running, recorded.keyless = not lost, lost == KEY
    run.ledger.track(recorded, call.nth)
    return recorded, intent, objects


def _note_intent(run: RunCore, recorded: RecordedCall) -> None:
    """Index a durable intent."""
    run.ledger.by_intent[recorded.seq] = recorded
    if run.ledger.losses is not None:
        recorded.holder = run.ledger.losses.mark_recorded(recorded.key)


def execute_body(effect: EffectCall, call: r.CallIdentity, recorded: RecordedCall) -> Protocol[Any]:
    """Run the body until there is an outcome. Its intent is already durable."""
    run, attempts = effect.run, recorded.attempts
    while True:
        if run.has_orders:
            yield from _withdraw_if_told(run, call, attempts)
        if not run.holds_lease:
            yield from run.check_lease()
        body = _body_of(effect, recorded)
        run.under_way.add(body)
        try:
            if run.leaving:
                yield from _withdraw(run, call, attempts, run.abandoned_error())
            begun = time.perf_counter_ns()
            try:
                result = yield Invoke(
                    effect.function.call, effect.args, effect.inject(recorded), body, effect.options.timeout
                )
            except Exception as error:  # the effect may have happened before any exception
                run.account.record_lost(collect_usage(body, call.name))
                attempts += 1
                verdict = yield from _handle_exception(effect, call, recorded, body, error, attempts)
                if verdict.done:
                    return verdict.value
                continue
            except BaseException:
                run.account.record_lost(collect_usage(body, call.name))
                raise
            took_us = (time.perf_counter_ns() - begun) // 1000
            assert body.buffer is not None
            try:
                packed, objects = run.pack(result, f"{effect.function.name}()")
            except ValueProblem as error:
                run.account.record_lost(collect_usage(body, call.name))
                return (yield from _result_is_lost(effect, recorded, error))
            done, made = outcome_of(recorded, packed, objects, "body", body.buffer, took_us)
            plain = None if body.buffer.asks else run.make_plain_commit(_OUTCOME, done, made)
            if plain is None:
                yield from commit_outcome(effect, recorded, done, made, body.buffer)
            else:
                yield plain
                close_done(effect, recorded, done)
            return result
        finally:
            run.under_way.discard(body)


def _body_of(effect: EffectCall, recorded: RecordedCall) -> Frame:
    """Return the frame of the next attempt."""
    body = effect.frame.body("effect")
    body.intent, body.timeout, body.attempt = recorded.seq, effect.options.timeout, effect.run.bodies.attempts
    return body


def _withdraw_if_told(run: RunCore, call: r.CallIdentity, attempts: int) -> Protocol[None]:
    """Withdraw the intent if the run was ordered to stop before the body started: the effect is not in doubt."""
    try:
        yield from stop_if_ordered(run)
    except RunStopped as stopped:
        yield from _withdraw(run, call, attempts, stopped)


def _withdraw(run: RunCore, call: r.CallIdentity, attempts: int, why: RunStopped | Abandoned) -> Protocol[None]:
    """Record that nothing happened: the intent is durable, but the body does not start."""
    packed, objects = run.pack(NotDone(why.message), call.name)
    yield from run.commit(Site.ATTEMPT_FAILED, r.AttemptFailed(call, attempts, packed, 0), objects=objects)
    raise why


def _result_is_lost(effect: EffectCall, recorded: RecordedCall, error: ValueProblem) -> Protocol[Any]:
    """Let `check` or a person supply a result that cannot be stored. The body never runs again."""
    run, name = effect.run, effect.function.name
    recorded.happened = True
    verdict = yield from ask_check(effect, recorded, believable=False)
    if verdict.done:
        packed, objects = run.pack(verdict.value, f"{name}()")
        yield from record_done(effect, recorded, packed, objects, "check", WriteBuffer(), note=describe(error))
        return verdict.value
    packed, objects = run.pack(error, recorded.name)
    entry = r.EffectDoubted(recorded.seq, packed, describe(error), happened=True)
    yield from run.commit(Site.EFFECT_DOUBT, entry, objects=objects)
    raise InDoubt(
        f"{name} happened, but its result cannot be stored: {error.message}",
        hint=insert_run_id(
            "return a storable value, then record the result: `perdure answer RUN --done RESULT`",
            run.id,
            run.store_option,
        ),
    ) from error


def _did_not_happen(
    effect: EffectCall, call: r.CallIdentity, recorded: RecordedCall, body: Frame, error: Exception, attempts: int
) -> Protocol[None]:
    """Retry or fail an effect that certainly did not happen."""
    again = attempts <= effect.options.retries and not isinstance(error, NotAwaited)
    if again:
        effect.run.under_way.discard(body)  # the body has ended, so the block may be left during the pause
        yield from pause_before_retry(effect.run, call, attempts, effect.options.backoff, error)
        return
    yield from record_failed(effect.run, recorded, error)
    raise error


def _handle_exception(
    effect: EffectCall, call: r.CallIdentity, recorded: RecordedCall, body: Frame, error: Exception, attempts: int
) -> Protocol[DoubtVerdict]:
    """Handle an exception of the body: it says that nothing happened, or `check` is asked."""
    run = effect.run
    # While any part of the body still runs, "it did not happen" proves nothing.
    believable = not run.bodies.is_running(recorded.seq)
    # Our own timeout says nothing about the effect.
    if believable and isinstance(error, (*_NOTHING, *effect.options.not_done)) and not isinstance(error, StepTimeout):
        yield from _did_not_happen(effect, call, recorded, body, error, attempts)
        yield from begin_again(run, recorded, f"attempt {attempts} did nothing")
        return DoubtVerdict(absent=True)
    # A process that a timed-out body started may still run.
    if believable and isinstance(error, StepTimeout) and effect.options.check is not None:
        believable = (yield Read(child_at_work, (effect, recorded))) is None
    verdict = yield from ask_check(effect, recorded, believable)
    if verdict.done:
        packed, objects = run.pack(verdict.value, f"{effect.function.name}()")
        yield from record_done(effect, recorded, packed, objects, "check", WriteBuffer(), note=describe(error))
        return verdict
    if verdict.absent:
        yield from _did_not_happen(effect, call, recorded, body, error, attempts)
        yield from begin_again(run, recorded, "check: it did not happen")
        return verdict
    packed, objects = run.pack(error, recorded.name)
    entry = r.EffectDoubted(recorded.seq, packed, describe(error))
    yield from run.commit(Site.EFFECT_DOUBT, entry, objects=objects)
    told = f"the outcome of {effect.function.name} is unknown: it raised {describe(error)}"
    raise InDoubt(told, hint=run.hint_of(InDoubt)) from error
