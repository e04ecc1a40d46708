"""An intent without an outcome: ask the author's `check`, then the policy, then a person. Never guess."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from .. import records as r
from ..descendants import Descendant, living_descendant
from ..errors import InDoubt, NotDone, RunWaiting
from ..failpoints import Site
from ..leases import LEASE_MS
from ..limits import WAIT_POLL_SECONDS
from ..process import COPIED, at_home, proven_dead
from .ledger import Recorded
from .obeying import heed, listen
from .outcomes import EffectCall, begin_again, record_done, record_failed
from .parking import LOOK_SECONDS
from .requests import Invoke, Pause, Protocol, Read
from .scope import Buffer

logger = logging.getLogger("perdure")

CHECK_AGAIN_SECONDS = 0.5
CHECK_AGAIN_SECONDS_MAX = 30.0
"""While a run waits for a person, its check is asked again now and then: the outside may have come back."""


PARKED_CHECK_SECONDS = 60.0
"""The same when a worker has left the run: it is replayed for it."""

PARKED_CHILD_SECONDS = 5.0
"""The same when only a child process of the old attempt stands in the way, which may end at any moment."""

PARKED_BODY_SECONDS = 2.0
"""The same when its body is still at work in this process."""

BODY_LOOK_MS = 200
"""How often a waiting run looks whether a body in this process has ended."""

NEVER = float("inf")


class Done(msgspec.Struct, frozen=True):
    """`check` returns it to say: the effect happened, with this result.

    >>> def booked(flight, *, key):
    ...     booking = airline.find(key)
    ...     return Done(booking.number) if booking else NotDone
    """

    result: Any = None


class Unknown(Exception):
    """`check` returns it to say: I cannot tell."""


class Verdict(msgspec.Struct, frozen=True):
    """What is known about an effect in doubt. Neither done nor absent: nothing."""

    done: bool = False
    absent: bool = False
    value: Any = None
    disbelieved: bool = False
    """The check says that it did not happen, and that may still become false."""


NOTHING_KNOWN = Verdict()


def ask_check(it: EffectCall, recorded: Recorded, believable: bool) -> Protocol[Verdict]:
    """Ask the outside world through the author's function; raising counts as not knowing."""
    check = it.options.check
    if check is None:
        return NOTHING_KNOWN
    kwargs = dict(it.kwargs)
    if takes_key(check):
        kwargs["key"] = recorded.key
    try:
        answer = yield Invoke(check, it.args, kwargs, it.frame.body("effect"), it.options.timeout)
    except Exception as error:  # a check that fails has told us nothing, whatever it raises
        if not isinstance(error, NotDone):
            logger.warning("the check of %s raised %r: counted as unknown", it.function.name, error)
            return NOTHING_KNOWN
        answer = error
    if isinstance(answer, Done):
        return Verdict(done=True, value=answer.result)
    if answer is Done:
        return Verdict(done=True)
    if answer is NotDone or isinstance(answer, NotDone):
        return Verdict(absent=True) if believable else Verdict(disbelieved=True)
    if answer is Unknown or isinstance(answer, Unknown):
        return NOTHING_KNOWN
    raise TypeError(f"the check of {it.function.name} returned {answer!r}: return Done(result), NotDone or Unknown")


def takes_key(check: Callable[..., Any]) -> bool:
    """Whether a check wants to be told the key."""
    parameters = inspect.signature(check).parameters.values()
    return any(p.name == "key" or p.kind is p.VAR_KEYWORD for p in parameters)


def _old_holder_is_gone(it: EffectCall, recorded: Recorded) -> bool:
    """Whether "it did not happen" can still become false: only a body that may yet run could do that."""
    return it.run.clock.boot_ms() >= _old_holder_gone_at(it, recorded)


def _old_holder_gone_at(it: EffectCall, recorded: Recorded) -> float:
    """From when on, by our boot clock, no old body can be at work any more."""
    run = it.run
    if recorded.happened or run.bodies.at_work(recorded.seq):
        return NEVER  # we know better; or something of its body is still at work in this process
    if run.ledger.is_shared(recorded):
        return NEVER  # a fork takes nothing from its origin, which may be at it, or come to it again, at any time
    holder = recorded.holder or run.ledger.holders[recorded.fence]
    if holder == run.engine.tenancy.process or proven_dead(holder, run.store.one_host):
        return 0
    if holder.boot.startswith(COPIED):
        return NEVER  # as of a fork: the one that this is a copy of may be at it, or come to it again, at any time
    if not recorded.timeout_ms:
        return NEVER  # a body without a timeout may sleep for ever and then act
    lasts = recorded.timeout_ms + LEASE_MS
    if run.store.one_host and at_home(holder.boot) == holder.boot and recorded.boot_ms:
        return recorded.boot_ms + lasts + 1  # of this boot, or it would be proven dead
    # The clocks of two hosts agree on nothing, and the server's may have been set. Counted from the first takeover by
    # this host, on its boot clock: the old holder believes in its lease for no longer, and begins no body after that.
    return run.ledger.first_takeover(recorded.fence, run.engine.tenancy.process.boot) + lasts


def child_at_work(it: EffectCall, recorded: Recorded) -> Descendant | None:
    """A process on this host that the old attempt has started, or one of its descendants has, and that still lives."""
    return living_descendant(recorded.holder or it.run.ledger.holders[recorded.fence], recorded.boot_ms)


def _ask_again(it: EffectCall, recorded: Recorded) -> Protocol[tuple[Verdict, Descendant | None]]:
    """Ask the check, and return the child that keeps its "no" from counting, if there is one.

    Children are looked for first: one that ends while the check is asked may have acted after the answer.
    """
    gone, child = _old_holder_is_gone(it, recorded), None
    if gone and it.options.check is not None:
        child = yield Read(child_at_work, (it, recorded))
    verdict = yield from ask_check(it, recorded, gone and child is None)
    return verdict, child


def settle(it: EffectCall, recorded: Recorded) -> Protocol[Verdict]:
    """Find out about an intent that an earlier attempt left; returns when the effect is done or may run."""
    run = it.run
    question = run.ledger.questions.get(recorded.begun, 0)
    if answered := (yield _answer_to(it, recorded)):
        return (yield from _apply_answer(it, recorded, question, answered[0]))
    if recorded.keyless:
        why = _why(it, recorded, NOTHING_KNOWN, None)
        return (yield from _ask_a_person(it, recorded, question, why, _Ended(it, recorded), None))
    ended = _Ended(it, recorded)  # before the check is asked: a body that ends after that must be noticed
    verdict, child = yield from _ask_again(it, recorded)
    if verdict.done or verdict.absent:
        yield from _apply_check(it, recorded, verdict, question)
        return verdict
    if it.options.in_doubt == "retry":
        yield from _close(it, recorded, question, "retry")
        yield from begin_again(run, recorded, "declared safe to repeat with the same key")
        return verdict
    if it.options.in_doubt == "fail":
        raise InDoubt(f"nobody knows whether {recorded.name} happened (key {recorded.key})")
    return (yield from _ask_a_person(it, recorded, question, _why(it, recorded, verdict, child), ended, child))


def _why(it: EffectCall, recorded: Recorded, verdict: Verdict, child: Descendant | None) -> str:
    """Why somebody has to be asked."""
    if recorded.keyless:
        return f"the store has lost entries of this run, and {recorded.name} may have happened under a lost key"
    if recorded.happened:
        return f"{recorded.name} happened, and its result could not be stored"
    if not verdict.disbelieved:
        return f"nobody knows whether {recorded.name} happened"
    if it.run.ledger.forked is not None and it.run.ledger.is_shared(recorded):
        origin = f"run {it.run.ledger.forked.of!r} has begun it and may still do it"
        return f"the check of {recorded.name} says that it did not happen, but {origin}"
    if it.run.bodies.at_work(recorded.seq):
        at_work = "its body is still at work in this process"
        return f"the check of {recorded.name} says that it did not happen, but {at_work}"
    holder = recorded.holder or it.run.ledger.holders[recorded.fence]
    if child is not None:
        rest = f"{child} of {holder} may still be at work"
        return f"the check of {recorded.name} says that it did not happen, but {rest}{child.advice}"
    seconds = (_old_holder_gone_at(it, recorded) - it.run.clock.boot_ms()) / 1000
    if seconds <= 0:
        return f"the check of {recorded.name} says that it did not happen, and is asked once more"
    rest = f"believed in {seconds:.0f} s" if seconds < NEVER else "believed if the effect has a timeout"
    return f"the check of {recorded.name} says that it did not happen, but {holder} may still be at it ({rest})"


def unsettled_effect(it: EffectCall) -> Protocol[Recorded | None]:
    """An effect of the same name that is in doubt, and of which nobody has said how it ended."""
    for name in it.names:
        for recorded in it.run.ledger.doubtful_effects(it.frame.path, name):
            answered = yield _answer_to(it, recorded)
            if not answered or answered[0][0] == "retry":
                return recorded
    return None


def _answer_to(it: EffectCall, recorded: Recorded) -> Read:
    return Read(it.run.store.read, ("get_answer", (it.run.head.stream, recorded.begun)))


def _apply_check(it: EffectCall, recorded: Recorded, verdict: Verdict, question: int) -> Protocol[None]:
    if verdict.done:
        packed, objects = it.run.pack(verdict.value, f"{it.function.name}()")
        yield from record_done(it, recorded, packed, objects, "check", Buffer(), closes=question)
        return
    yield from _close(it, recorded, question, "not done")
    yield from begin_again(it.run, recorded, "check: it did not happen")


def _close(it: EffectCall, recorded: Recorded, question: int, verdict: str) -> Protocol[None]:
    if question:
        yield from it.run.commit(Site.QUESTION, r.QuestionClosed(question, verdict))
        it.run.ledger.questions.pop(recorded.begun, None)


def _ask_a_person(
    it: EffectCall, recorded: Recorded, question: int, why: str, ended: _Ended, child: Descendant | None
) -> Protocol[Verdict]:
    """Wait, visibly and durably, until somebody answers or the check comes to know."""
    run = it.run
    answer = f"perdure answer {run.id}{run.store_option}"
    if run.is_told:
        yield from heed(run, cleanup=False)
    if not question:
        asked = f"What did {recorded.name} return?" if recorded.happened else f"Did {recorded.name} happen?"
        text = f"{asked} (its key was lost)" if recorded.keyless else f"{asked} (key {recorded.key})"
        question = yield from run.commit(Site.QUESTION, r.QuestionAsked(recorded.begun, "in_doubt", text))
        run.ledger.questions[recorded.begun] = question
    logger.warning("run %s waits: %s. Answer with: %s --done RESULT | --retry | --fail", run.id, why, answer)
    began = run.clock.boot_ms()
    check_every, check_at = CHECK_AGAIN_SECONDS, began + CHECK_AGAIN_SECONDS * 1000
    may_be_answered = run.store.watch(run.head.stream)
    while True:
        if may_be_answered():
            if answered := (yield _answer_to(it, recorded)):
                return (yield from _apply_answer(it, recorded, question, answered[0]))
            yield from listen(run)
        if run.is_told:
            yield from heed(run, cleanup=False)
        now = run.clock.boot_ms()
        if run.wait is not None and now - began >= run.wait * 1000:
            raise RunWaiting(
                f"run {run.id!r} waits: {why}",
                hint=f"answer with `{answer} --done RESULT`, `--retry` or `--fail`, then start it again",
            )
        if child is not None and child.ended():
            child = yield Read(child_at_work, (it, recorded))
            check_at = check_at if child is not None else now  # another child is no reason to ask the outside again
        may_ask = it.options.check is not None and not recorded.keyless
        if may_ask and (now >= check_at or ended.just_now(now)):
            verdict, child = yield from _ask_again(it, recorded)
            if verdict.done or verdict.absent:
                yield from _apply_check(it, recorded, verdict, question)
                return verdict
            check_every = min(check_every * 2, CHECK_AGAIN_SECONDS_MAX)
            check_at = run.clock.boot_ms() + check_every * 1000
            believable_at = _old_holder_gone_at(it, recorded)
            if now < believable_at < check_at:
                check_at = believable_at
        yield from _let_time_pass(it, recorded, ended, child)


class _Ended:
    """Notices the end of a body in this process, so that the check is asked again at once."""

    def __init__(self, it: EffectCall, recorded: Recorded) -> None:
        self._bodies = it.run.bodies
        self._intent = recorded.seq
        self.at_work = self._bodies.at_work(self._intent)
        """As of the last look."""
        self._look_at = 0

    def just_now(self, now: int) -> bool:
        """Whether it has ended since the last look."""
        if not self.at_work or now < self._look_at:
            return False
        self._look_at = now + BODY_LOOK_MS
        self.at_work = self._bodies.at_work(self._intent)
        return not self.at_work


def _let_time_pass(it: EffectCall, recorded: Recorded, ended: _Ended, child: Descendant | None) -> Protocol[None]:
    """A little of it; or a worker leaves the run, which is taken again for an answer, or to ask the check once more."""
    run, parking = it.run, it.run.parking
    if parking is None:
        yield Pause(WAIT_POLL_SECONDS)
        return
    again = 0
    if it.options.check is not None and not recorded.keyless:
        # As soon as its "no" is believed, if that is all that is missing.
        left = _old_holder_gone_at(it, recorded) - run.clock.boot_ms()
        if ended.at_work:  # its end may not have been noticed yet
            most = PARKED_BODY_SECONDS * 1000
        else:
            most = (PARKED_CHECK_SECONDS if child is None else PARKED_CHILD_SECONDS) * 1000
        wait_ms = left if 0 < left < most else most
        again = run.clock.wall_ms() + int(wait_ms) + 1
    waiter = parking.wait(run, r.Want("answer", recorded.begun, run.head.stream), again, inside=True)
    try:
        parking.leave_if_idle()
        yield Pause(LOOK_SECONDS)
    finally:
        parking.go_on(waiter)


def _apply_answer(it: EffectCall, recorded: Recorded, question: int, answer: tuple[Any, ...]) -> Protocol[Verdict]:
    """Somebody knows: done with this result, run it again, or give up."""
    verdict, packed, by, _ = answer
    if verdict == "done":
        yield from record_done(it, recorded, packed, (), "answer", Buffer(), note=by, closes=question)
        it.run.ledger.questions.pop(recorded.begun, None)
        return Verdict(done=True, value=(yield from it.run.load(packed)))
    yield from _close(it, recorded, question, verdict)
    if verdict == "retry":
        yield from begin_again(it.run, recorded, f"answered by {by}")
        return NOTHING_KNOWN
    error = InDoubt(f"{by} gave up on {recorded.name}")
    yield from record_failed(it.run, recorded, error, final=True)
    raise error
