"""Ends a block while bodies of the run still work in other tasks or threads.

Steps are cancelled and awaited. Effects are awaited up to their `timeout`, or 30 seconds, because a cancelled effect is
in doubt. If the block itself is cancelled, effects are cancelled too. A plain function in a thread cannot be cancelled:
it can no longer write. An effect that has not ended is in doubt, and `EffectBodies` still tracks it.
"""

from __future__ import annotations

from perdure.errors import InDoubt, RunStopped
from perdure.kernel.protocol import Pause, Protocol
from perdure.kernel.scope import Frame
from perdure.platform import interrupts
from perdure.run.core import RunCore
from perdure.run.order_handling import find_stop_in
from perdure.run.parking import WorkerExit
from perdure.values.limits import LEAVE_LOOK_SECONDS, LEAVE_SECONDS


def drain_bodies(run: RunCore, error: BaseException | None) -> Protocol[BaseException | None]:
    """Let bodies end. Returns the error to raise instead: a cancellation meanwhile, or an effect in doubt."""
    run.leaving = True
    if not run.under_way:
        return None
    cut_off, late, cancelled = set[Frame](), set[int](), None
    try:
        if not _is_cancellation(error):
            _cancel(run, cut_off, "step")
            yield from _wait(run, cut_off, _patience(run))
        late = {body.intent for body in run.under_way.copy() if body.intent}
        _cancel(run, cut_off, "step", "effect")
        yield from _wait(run, cut_off, LEAVE_SECONDS)
    except GeneratorExit:
        raise
    except BaseException as interrupted:  # the task that leaves the block was cancelled: stop waiting
        cancelled = interrupted
        _cancel(run, cut_off, "step", "effect")
    for body in run.under_way.copy():
        body.alive = False
    return cancelled or (_find_in_doubt_error(run, late) if error is None else None)


def _is_cancellation(error: BaseException | None) -> bool:
    """Whether the process or the task is ending. A stop order or a leaving worker lets effects end."""
    if error is None or isinstance(error, Exception | RunStopped | WorkerExit):
        return False
    return find_stop_in(error) is None


def _cancel(run: RunCore, cut_off: set[Frame], *kinds: str) -> None:
    """Cancel coroutines. Plain functions can no longer write, and are not awaited."""
    for body in run.under_way.copy():
        if body.inside not in kinds:
            continue
        if body.awaited is not None:
            body.awaited.interrupt()
        else:
            body.alive = False
            cut_off.add(body)


def _patience(run: RunCore) -> float:
    """Return how long to wait for effects. One with a timeout ends before that, and is then recorded."""
    return max((body.timeout or LEAVE_SECONDS for body in run.under_way.copy() if body.inside == "effect"), default=0.0)


def _wait(run: RunCore, cut_off: set[Frame], seconds: float) -> Protocol[None]:
    """Wait until no other body works, up to a time limit or Ctrl-C."""
    until = run.clock.boot_ms() + seconds * 1000
    while run.under_way - cut_off and run.clock.boot_ms() < until and not interrupts.has_deferred_signal():
        yield Pause(LEAVE_LOOK_SECONDS)


def _find_in_doubt_error(run: RunCore, late: set[int]) -> InDoubt | None:
    """Return an error if effects were cancelled while they worked: a finished run could never settle them."""
    known = run.ledger.by_intent
    names = sorted(
        {
            known[intent].name
            for intent in late
            if intent in known and not known[intent].done and not known[intent].failed
        }
    )
    if not names:
        return None
    return InDoubt(
        f"the block of run {run.id!r} ended while {', '.join(names)} was still running and took too long. The run has "
        "failed; everything recorded is kept",
        hint="await everything before the block ends, then start the run again: it settles the effect",
    )
