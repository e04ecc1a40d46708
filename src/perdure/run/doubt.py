"""Settles an intent without an outcome: ask the author's `check`, then the policy, then a person. Never guess."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import InDoubt, NotDone, RunWaiting, WrongType
from perdure.journal.leases import LEASE_MS
from perdure.kernel.protocol import Invoke, Pause, Protocol, Read
from perdure.kernel.scope import WriteBuffer
from perdure.platform.descendants import Descendant, find_living_descendant
from perdure.platform.failpoints import Site
from perdure.platform.process import COPIED, proven_dead, strip_boot_prefix
from perdure.run.ledger import RecordedCall
from perdure.run.order_handling import read_orders, stop_if_ordered
from perdure.run.outcome import EffectCall, begin_again, record_done, record_failed
from perdure.run.parking import LOOK_SECONDS
from perdure.values.hints import insert_run_id
from perdure.values.limits import WAIT_POLL_SECONDS
from perdure.values.log import warn

CHECK_AGAIN_SECONDS = 0.5
CHECK_AGAIN_SECONDS_MAX = 30.0
"""Interval of further checks while a run waits for a person: the outside system may recover."""


PARKED_CHECK_SECONDS = 60.0
"""The interval when a worker has left the run. Each check replays the run."""

PARKED_CHILD_SECONDS = 5.0
"""The interval when only a child process of the old attempt may still act. It may end at any moment."""

PARKED_BODY_SECONDS = 2.0
"""The interval when the body still runs in this process."""

BODY_LOOK_MS = 200
"""How often a waiting run tests whether a body in this process has ended."""

NEVER = float("inf")


class Done(msgspec.Struct, frozen=True):
    """Returned by `check`: the effect happened, with this result.

    >>> def booked(flight, *, key):
    ...     booking = airline.find(key)
    ...     return Done(booking.number) if booking else NotDone
    """

    result: Any = None


class Unknown(Exception):
    """Returned by `check`: it cannot tell whether the effect happened."""


class DoubtVerdict(msgspec.Struct, frozen=True):
    """The known facts about an effect in doubt. If it is neither done nor absent, its outcome is unknown."""

    done: bool = False
    absent: bool = False
    value: Any = None
    disbelieved: bool = False
    """Whether the check says that it did not happen, while it may still happen."""


NOTHING_KNOWN = DoubtVerdict()


def ask_check(effect: EffectCall, recorded: RecordedCall, believable: bool) -> Protocol[DoubtVerdict]:
    """Ask the author's check. An exception counts as unknown."""
    check = effect.options.check
    if check is None:
        return NOTHING_KNOWN
    kwargs = dict(effect.kwargs)
    if takes_key(check):
        kwargs["key"] = recorded.key
    try:
        answer = yield Invoke(check, effect.args, kwargs, effect.frame.body("effect"), effect.options.timeout)
    except Exception as error:  # a failing check proves nothing, whatever it raises
        if not isinstance(error, NotDone):
            warn("the check of %s raised %r: counted as unknown", effect.function.name, error)
            return NOTHING_KNOWN
        answer = error
    if isinstance(answer, Done):
        return DoubtVerdict(done=True, value=answer.result)
    if answer is Done:
        return DoubtVerdict(done=True)
    if answer is NotDone or isinstance(answer, NotDone):
        return DoubtVerdict(absent=True) if believable else DoubtVerdict(disbelieved=True)
    if answer is Unknown or isinstance(answer, Unknown):
        return NOTHING_KNOWN
    raise WrongType(f"the check of {effect.function.name} returned {answer!r}: return Done(result), NotDone or Unknown")


def takes_key(check: Callable[..., Any]) -> bool:
    """Whether a check takes the idempotency key."""
    parameters = inspect.signature(check).parameters.values()
    return any(p.name == "key" or p.kind is p.VAR_KEYWORD for p in parameters)


def _old_holder_is_gone(effect: EffectCall, recorded: RecordedCall) -> bool:
    """Whether no old body can run any more, so that "it did not happen" stays true."""
    return effect.run.check_asked_at() >= _compute_holder_end(effect, recorded)


def _compute_holder_end(effect: EffectCall, recorded: RecordedCall) -> float:
    """Return the time, on our boot clock, from which no old body can still run."""
    run = effect.run
    if recorded.happened or run.bodies.is_running(recorded.seq):
        return NEVER  # it did happen, or a part of its body still runs in this process
    if run.ledger.is_shared(recorded):
        return NEVER  # the origin of a fork may execute it at any time
    holder = recorded.holder or run.ledger.holders[recorded.fence]
    if holder == run.lease_keeper.process or proven_dead(holder, run.store.one_host):
        return 0
    if holder.boot.startswith(COPIED):
        return NEVER  # the original of this copy may execute it at any time
    if not recorded.timeout_ms:
        return NEVER  # a body without a timeout may act at any later time
    lasts = recorded.timeout_ms + LEASE_MS
    if run.store.one_host and strip_boot_prefix(holder.boot) == holder.boot and recorded.boot_ms:
        return recorded.boot_ms + lasts + 1  # a holder of this boot, or it would be proven dead
    # Clocks of two hosts cannot be compared, and the server's may have been set. So count from the first takeover by
    # this host, on its boot clock: the old holder's lease ends within its term, and it starts no body after that.
    taken = run.ledger.find_first_takeover(recorded.fence, strip_boot_prefix(run.lease_keeper.process.boot))
    if holder.is_client and run.store.one_host:
        return taken + recorded.timeout_ms + 1  # a client starts no body after its lease, which had ended by then
    return taken + lasts


def child_at_work(effect: EffectCall, recorded: RecordedCall) -> Descendant | None:
    """Return a living process on this host that the old attempt or one of its descendants started."""
    return find_living_descendant(recorded.holder or effect.run.ledger.holders[recorded.fence], recorded.boot_ms)


def _ask_again(effect: EffectCall, recorded: RecordedCall) -> Protocol[tuple[DoubtVerdict, Descendant | None]]:
    """Ask the check, and return a living child process that keeps its "no" from counting, if there is one.

    Children are looked up first: one that ends during the check may have acted after the answer.
    """
    gone, child = _old_holder_is_gone(effect, recorded), None
    if gone and effect.options.check is not None:
        child = yield Read(child_at_work, (effect, recorded))
    verdict = yield from ask_check(effect, recorded, gone and child is None)
    return verdict, child


def settle(effect: EffectCall, recorded: RecordedCall) -> Protocol[DoubtVerdict]:
    """Settle an intent that an earlier attempt left open. Returns when the effect is done or may run."""
    run = effect.run
    question = run.ledger.questions.get(recorded.begun, 0)
    if answered := (yield _answer_to(effect, recorded)):
        return (yield from _apply_answer(effect, recorded, question, answered[0]))
    if recorded.keyless:
        why = _explain_question(effect, recorded, NOTHING_KNOWN, None)
        return (yield from _ask_a_person(effect, recorded, question, why, _BodyEndWatch(effect, recorded), None))
    ended = _BodyEndWatch(effect, recorded)  # before the check: a body that ends after it must be noticed
    verdict, child = yield from _ask_again(effect, recorded)
    if verdict.done or verdict.absent:
        yield from _apply_check(effect, recorded, verdict, question)
        return verdict
    if effect.options.in_doubt == "retry":
        yield from _close(effect, recorded, question, "retry")
        yield from begin_again(run, recorded, "declared safe to repeat with the same key")
        return verdict
    if effect.options.in_doubt == "fail":
        raise InDoubt(f"the outcome of {recorded.name} is unknown (key {recorded.key})", hint=run.hint_of(InDoubt))
    return (
        yield from _ask_a_person(
            effect, recorded, question, _explain_question(effect, recorded, verdict, child), ended, child
        )
    )


def _explain_question(
    effect: EffectCall, recorded: RecordedCall, verdict: DoubtVerdict, child: Descendant | None
) -> str:
    """Explain why a person must be asked."""
    if recorded.keyless:
        return f"the store has lost entries of this run, and {recorded.name} may have happened under a lost key"
    if recorded.happened:
        return f"{recorded.name} happened, but its result could not be stored"
    if not verdict.disbelieved:
        return f"the outcome of {recorded.name} is unknown"
    if effect.run.ledger.forked is not None and effect.run.ledger.is_shared(recorded):
        origin = f"run {effect.run.ledger.forked.of!r} has started it and may still execute it"
        return f"the check of {recorded.name} says that it did not happen, but {origin}"
    if effect.run.bodies.is_running(recorded.seq):
        at_work = "its body is still running in this process"
        return f"the check of {recorded.name} says that it did not happen, but {at_work}"
    holder = recorded.holder or effect.run.ledger.holders[recorded.fence]
    if child is not None:
        rest = f"{child} of {holder} may still be running"
        return f"the check of {recorded.name} says that it did not happen, but {rest}{child.advice}"
    seconds = (_compute_holder_end(effect, recorded) - effect.run.clock.boot_ms()) / 1000
    if seconds <= 0:
        return f"the check of {recorded.name} says that it did not happen, and will be asked again"
    rest = f"believed in {seconds:.0f} s" if seconds < NEVER else "believed only if the effect has a timeout"
    return f"the check of {recorded.name} says that it did not happen, but {holder} may still execute it ({rest})"


def find_unsettled_effect(effect: EffectCall) -> Protocol[RecordedCall | None]:
    """Return an effect of the same name that is in doubt and not yet answered."""
    for name in effect.names:
        for recorded in effect.run.ledger.doubtful_effects(effect.frame.path, name):
            answered = yield _answer_to(effect, recorded)
            if all(verdict == "retry" for verdict, *_ in answered):
                return recorded
    return None


def _answer_to(effect: EffectCall, recorded: RecordedCall) -> Read:
    return Read(effect.run.store.read, ("get_answer", (effect.run.head.stream, recorded.begun)))


def _apply_check(effect: EffectCall, recorded: RecordedCall, verdict: DoubtVerdict, question: int) -> Protocol[None]:
    if verdict.done:
        packed, objects = effect.run.pack(verdict.value, f"{effect.function.name}()")
        yield from record_done(effect, recorded, packed, objects, "check", WriteBuffer(), closes=question)
        return
    yield from _close(effect, recorded, question, "not done")
    yield from begin_again(effect.run, recorded, "check: it did not happen")


def _close(effect: EffectCall, recorded: RecordedCall, question: int, verdict: str) -> Protocol[None]:
    if question:
        yield from effect.run.commit(Site.QUESTION, r.QuestionClosed(question, verdict))
        effect.run.ledger.questions.pop(recorded.begun, None)


def _ask_a_person(
    effect: EffectCall, recorded: RecordedCall, question: int, why: str, ended: _BodyEndWatch, child: Descendant | None
) -> Protocol[DoubtVerdict]:
    """Wait durably until a person answers or the check knows the outcome."""
    run = effect.run
    answer = insert_run_id("perdure answer RUN", run.id, run.store_option)
    if run.has_orders:
        yield from stop_if_ordered(run, cleanup=False)
    if not question:
        asked = f"What did {recorded.name} return?" if recorded.happened else f"Did {recorded.name} happen?"
        text = f"{asked} (its key was lost)" if recorded.keyless else f"{asked} (key {recorded.key})"
        question = yield from run.commit(Site.QUESTION, r.QuestionAsked(recorded.begun, "in_doubt", text))
        run.ledger.questions[recorded.begun] = question
    warn("run %s waits: %s. Answer with: %s --done RESULT | --retry | --fail", run.id, why, answer)
    began = run.clock.boot_ms()
    check_every, check_at = CHECK_AGAIN_SECONDS, began + CHECK_AGAIN_SECONDS * 1000
    may_be_answered = run.store.watch(run.head.stream)
    while True:
        if may_be_answered():
            if answered := (yield _answer_to(effect, recorded)):
                return (yield from _apply_answer(effect, recorded, question, answered[0]))
            yield from read_orders(run)
        if run.has_orders:
            yield from stop_if_ordered(run, cleanup=False)
        now = run.clock.boot_ms()
        if run.wait is not None and now - began >= run.wait * 1000:
            raise RunWaiting(
                f"run {run.id!r} waits: {why}",
                hint=f"answer with `{answer} --done RESULT`, `--retry` or `--fail`, then start the run again",
            )
        if child is not None and child.has_ended():
            child = yield Read(child_at_work, (effect, recorded))
            check_at = check_at if child is not None else now  # another child is no reason to ask the check again
        may_ask = effect.options.check is not None and not recorded.keyless
        if may_ask and (now >= check_at or ended.has_just_ended(now)):
            verdict, child = yield from _ask_again(effect, recorded)
            if verdict.done or verdict.absent:
                yield from _apply_check(effect, recorded, verdict, question)
                return verdict
            check_every = min(check_every * 2, CHECK_AGAIN_SECONDS_MAX)
            check_at = run.clock.boot_ms() + check_every * 1000
            believable_at = _compute_holder_end(effect, recorded)
            if now < believable_at < check_at:
                check_at = believable_at
        yield from _sleep_or_park(effect, recorded, ended, child)


class _BodyEndWatch:
    """Detects the end of a body in this process, so that the check is asked again at once."""

    def __init__(self, effect: EffectCall, recorded: RecordedCall) -> None:
        self._bodies = effect.run.bodies
        self._intent = recorded.seq
        self.at_work = self._bodies.is_running(self._intent)
        """Whether the body was running at the last test."""
        self._look_at = 0

    def has_just_ended(self, now: int) -> bool:
        """Whether the body has ended since the last test."""
        if not self.at_work or now < self._look_at:
            return False
        self._look_at = now + BODY_LOOK_MS
        self.at_work = self._bodies.is_running(self._intent)
        return not self.at_work


def _sleep_or_park(
    effect: EffectCall, recorded: RecordedCall, ended: _BodyEndWatch, child: Descendant | None
) -> Protocol[None]:
    """Sleep briefly; in a worker, leave the run until it is answered or the next check is due."""
    run, parking = effect.run, effect.run.parking
    if parking is None:
        yield Pause(WAIT_POLL_SECONDS)
        return
    again = 0
    if effect.options.check is not None and not recorded.keyless:
        # Check as soon as a "no" would be believed.
        left = _compute_holder_end(effect, recorded) - run.clock.boot_ms()
        if ended.at_work:  # its end may not have been noticed yet
            most = PARKED_BODY_SECONDS * 1000
        else:
            most = (PARKED_CHECK_SECONDS if child is None else PARKED_CHILD_SECONDS) * 1000
        wait_ms = left if 0 < left < most else most
        again = run.clock.wall_ms() + int(wait_ms) + 1
    waiter = parking.wait(run, r.WakeCondition("answer", recorded.begun, run.head.stream), again, inside=True)
    try:
        parking.leave_if_idle()
        yield Pause(LOOK_SECONDS)
    finally:
        parking.stop_waiting(waiter)


def _apply_answer(
    effect: EffectCall, recorded: RecordedCall, question: int, answer: tuple[Any, ...]
) -> Protocol[DoubtVerdict]:
    """Apply a person's answer: done with this result, retry, or give up."""
    verdict, packed, by, _ = answer
    if verdict == "done":
        yield from record_done(effect, recorded, packed, (), "answer", WriteBuffer(), note=by, closes=question)
        effect.run.ledger.questions.pop(recorded.begun, None)
        return DoubtVerdict(done=True, value=(yield from effect.run.load(packed)))
    yield from _close(effect, recorded, question, verdict)
    if verdict == "retry":
        yield from begin_again(effect.run, recorded, f"answered by {by}")
        return NOTHING_KNOWN
    error = InDoubt(f"{by} gave up on {recorded.name}", hint=effect.run.hint_of(InDoubt))
    yield from record_failed(effect.run, recorded, error, final=True)
    raise error
