"""The life of an effect: intent, body, outcome; and never the body again unless it is known or allowed.

The intent is durable and fenced before the body starts. Whoever finds an intent without an outcome asks `doubt`.
"""

from __future__ import annotations

import time
from typing import Any

from .. import records as r
from ..errors import Abandoned, InDoubt, NotAwaited, NotDone, RunStopped, StepTimeout, StoreProblem, ValueProblem
from ..failpoints import Site
from .account import must_afford
from .core import PROCEED, RunCore
from .divergence import refuse_divergence
from .doubt import Verdict, ask_check, child_at_work, settle
from .ledger import Recorded
from .losses import KEY
from .obeying import heed
from .outcomes import EffectCall, begin_again, record_done, record_failed
from .requests import Invoke, Protocol, Read
from .scope import Buffer, Frame
from .steps import describe, pause_before_retry, raised_again, used_in, wait_until

_NOTHING = (NotDone, NotAwaited)
"""Exceptions of a body that say: nothing happened."""


def call_effect(it: EffectCall) -> Protocol[Any]:
    """From the call to its result, on the first time and on every resume."""
    run, frame = it.run, it.frame
    arguments = it.function.signature.arguments(it.args, it.kwargs)
    ident = it.function.ident(arguments, it.options)
    with run.one_at_a_time(frame, it.function.name, ident):
        return (yield from _match_or_begin(it, arguments, ident))


def _match_or_begin(it: EffectCall, arguments: dict[str, Any], ident: bytes) -> Protocol[Any]:
    """What is recorded, else what there is to do."""
    run, frame = it.run, it.frame
    recorded, nth = run.match(frame, it.function, it.options, arguments, ident)
    if recorded is not None and recorded.done:
        run.account.credit(recorded)
        run.land(frame, recorded.take_writes())
        return (yield from run.recall(recorded))
    if recorded is not None and recorded.failed and run.ledger.went_past(recorded):
        raise raised_again(run, recorded)
    if recorded is not None and recorded.in_doubt and run.ledger.finished is not None:
        raise InDoubt(f"nobody knows whether {it.function.name} happened (key {recorded.key})")
    if run.finished:
        run.must_be_open()
    run.must_be_here()
    if run.is_told:
        yield from heed(run)
    call = r.Call(frame.path, it.function.name, ident, nth)
    if recorded is not None:
        call = recorded.origin or call
    try:
        result = yield from _bring_about(it, call, recorded, arguments)
    except StoreProblem:
        frame.uncount(it.function.name, ident)  # nothing is recorded: calling again is the same call
        raise
    if run.is_told:
        yield from heed(run)
    return result


def _bring_about(it: EffectCall, call: r.Call, recorded: Recorded | None, arguments: dict[str, Any]) -> Protocol[Any]:
    """Make certain that a durable intent stands, settle an old one, and run the body if it has to run."""
    run = it.run
    if recorded is None or not recorded.key:
        yield from refuse_divergence(it, arguments, call.ident)
        if run.rehearsed:
            yield from run.settle()
        if (stand_in := run.begin("effect", call.name, arguments, call=call)) is not PROCEED:
            return stand_in
        must_afford(run)
        recorded = yield from _intend(it, call, arguments)
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
    if recorded.in_doubt:  # as a new one is when its first record was lost
        verdict = yield from settle(it, recorded)
        if verdict.done:
            return verdict.value
    recorded.running = True
    try:
        return (yield from _execute(it, call, recorded))
    finally:
        recorded.running = False


def _intend(it: EffectCall, call: r.Call, arguments: dict[str, Any]) -> Protocol[Recorded]:
    """Make the intent durable: from here on the effect can be in doubt, and has its key."""
    run = it.run
    recorded = Recorded(call.scope, call.name, call.ident, effect=True)
    losses = run.ledger.losses
    lost, key = losses.about(it.names, call, run.store.secret) if losses is not None else ("", "")
    recorded.key, recorded.fence = key or run.clock.key(), run.head.fence
    recorded.boot_ms = 0 if lost else run.clock.boot_ms()  # when the lost attempt began is not known
    recorded.timeout_ms = int((it.options.timeout or 0) * 1000)
    recorded.arguments, objects = run.pack(arguments, it.function.name)
    when = (recorded.fence, recorded.timeout_ms, recorded.boot_ms)
    intent = r.EffectIntended(call, run.head.seq, recorded.key, recorded.arguments, *when, lost)
    recorded.running, recorded.keyless = not lost, lost == KEY
    run.ledger.track(recorded, call.nth)
    try:
        recorded.seq = recorded.begun = yield from run.commit(Site.EFFECT_INTENT, intent, objects=objects)
    except StoreProblem:
        run.ledger.untrack(recorded)
        raise
    run.ledger.by_intent[recorded.seq] = recorded
    if losses is not None:
        recorded.holder = losses.recorded(recorded.key)
    return recorded


def _execute(it: EffectCall, call: r.Call, recorded: Recorded) -> Protocol[Any]:
    """Run the body, with its intent durable, until there is an outcome."""
    run, attempts = it.run, recorded.attempts
    while True:
        if run.is_told:
            yield from _withdraw_if_told(run, call, attempts)
        yield from run.must_hold_lease()
        body = _body_of(it, recorded)
        run.under_way.add(body)
        try:
            if run.leaving:
                yield from _withdraw(run, call, attempts, run.abandoned())
            begun = time.perf_counter_ns()
            try:
                result = yield Invoke(it.function.call, it.args, it.injected(recorded), body, it.options.timeout)
            except Exception as error:  # any exception may come after the effect has happened
                run.account.lose(used_in(body, call.name))
                attempts += 1
                verdict = yield from _raised(it, call, recorded, body, error, attempts)
                if verdict.done:
                    return verdict.value
                continue
            except BaseException:
                run.account.lose(used_in(body, call.name))
                raise
            took_us = (time.perf_counter_ns() - begun) // 1000
            assert body.buffer is not None
            try:
                packed, objects = run.pack(result, f"{it.function.name}()")
            except ValueProblem as error:
                run.account.lose(used_in(body, call.name))
                return (yield from _result_is_lost(it, recorded, error))
            yield from record_done(it, recorded, packed, objects, "body", body.buffer, took_us=took_us)
            return result
        finally:
            run.under_way.discard(body)


def _body_of(it: EffectCall, recorded: Recorded) -> Frame:
    """The frame of the next attempt."""
    body = it.frame.body("effect")
    body.intent, body.timeout, body.attempt = recorded.seq, it.options.timeout, it.run.bodies.attempts
    return body


def _withdraw_if_told(run: RunCore, call: r.Call, attempts: int) -> Protocol[None]:
    """The run was told to stop, and heard of it with the intent: the body does not begin, and that is no doubt."""
    try:
        yield from heed(run)
    except RunStopped as stopped:
        yield from _withdraw(run, call, attempts, stopped)


def _withdraw(run: RunCore, call: r.Call, attempts: int, why: RunStopped | Abandoned) -> Protocol[None]:
    """The intent stands, and the body does not begin: record that nothing happened."""
    packed, objects = run.pack(NotDone(why.message), call.name)
    yield from run.commit(Site.ATTEMPT_FAILED, r.AttemptFailed(call, attempts, packed, 0), objects=objects)
    raise why


def _result_is_lost(it: EffectCall, recorded: Recorded, error: ValueProblem) -> Protocol[Any]:
    """It happened, and what it returned cannot be kept: `check` or a person has to say it. Never the body again."""
    run, name = it.run, it.function.name
    recorded.happened = True
    verdict = yield from ask_check(it, recorded, believable=False)
    if verdict.done:
        packed, objects = run.pack(verdict.value, f"{name}()")
        yield from record_done(it, recorded, packed, objects, "check", Buffer(), note=describe(error))
        return verdict.value
    packed, objects = run.pack(error, recorded.name)
    entry = r.EffectDoubted(recorded.seq, packed, describe(error), happened=True)
    yield from run.commit(Site.EFFECT_DOUBT, entry, objects=objects)
    raise InDoubt(
        f"{name} happened, and its result cannot be stored: {error.message}",
        hint=f"return something that can be, then say what it was: `perdure answer {run.id} --done RESULT`",
    ) from error


def _did_not_happen(
    it: EffectCall, call: r.Call, recorded: Recorded, body: Frame, error: Exception, attempts: int
) -> Protocol[None]:
    """Nothing happened: failed for certain, so that repeating is safe."""
    again = attempts <= it.options.retries and not isinstance(error, NotAwaited)
    if again:
        it.run.under_way.discard(body)  # the block may be left during the pause: nothing is at work
        yield from pause_before_retry(it.run, call, attempts, it.options.backoff, error)
        return
    yield from record_failed(it.run, recorded, error)
    raise error


def _raised(
    it: EffectCall, call: r.Call, recorded: Recorded, body: Frame, error: Exception, attempts: int
) -> Protocol[Verdict]:
    """The body raised, perhaps after the effect, and says that nothing happened or `check` is asked at once."""
    run = it.run
    # Something of the body may still be at work: then "it did not happen" is not yet an answer, from anybody.
    believable = not run.bodies.at_work(recorded.seq)
    # Our own timeout is no word of the author's.
    if believable and isinstance(error, (*_NOTHING, *it.options.not_done)) and not isinstance(error, StepTimeout):
        yield from _did_not_happen(it, call, recorded, body, error, attempts)
        yield from begin_again(run, recorded, f"attempt {attempts} did nothing")
        return Verdict(absent=True)
    # A process that a timed-out body has started goes on without it.
    if believable and isinstance(error, StepTimeout) and it.options.check is not None:
        believable = (yield Read(child_at_work, (it, recorded))) is None
    verdict = yield from ask_check(it, recorded, believable)
    if verdict.done:
        packed, objects = run.pack(verdict.value, f"{it.function.name}()")
        yield from record_done(it, recorded, packed, objects, "check", Buffer(), note=describe(error))
        return verdict
    if verdict.absent:
        yield from _did_not_happen(it, call, recorded, body, error, attempts)
        yield from begin_again(run, recorded, "check: it did not happen")
        return verdict
    packed, objects = run.pack(error, recorded.name)
    entry = r.EffectDoubted(recorded.seq, packed, describe(error))
    yield from run.commit(Site.EFFECT_DOUBT, entry, objects=objects)
    raise InDoubt(f"nobody knows whether {it.function.name} happened: it raised {describe(error)}") from error
