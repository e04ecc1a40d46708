"""The end of a block while bodies of the run are still at work, in other tasks or threads.

Steps are cancelled and awaited. Effects are awaited, because a cancelled effect is in doubt: up to their `timeout`, or
30 seconds without one. When the block itself is cancelled, effects are cancelled too. A plain function in a thread
cannot be cancelled: it is cut off from writing. What has not ended is in doubt, and `Bodies` knows that it is at work.
"""

from __future__ import annotations

from .. import interrupts
from ..errors import InDoubt, RunStopped
from ..limits import LEAVE_LOOK_SECONDS, LEAVE_SECONDS
from .core import RunCore
from .obeying import stopped_in
from .parking import Left
from .requests import Pause, Protocol
from .scope import Frame


def wind_up(run: RunCore, error: BaseException | None) -> Protocol[BaseException | None]:
    """Let bodies end. Returns what the block is left with instead: a cancellation meanwhile, or an effect in doubt."""
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
    except BaseException as interrupted:  # the task that leaves the block was cancelled: it waits no longer
        cancelled = interrupted
        _cancel(run, cut_off, "step", "effect")
    for body in run.under_way.copy():
        body.alive = False
    return cancelled or (_in_doubt(run, late) if error is None else None)


def _is_cancellation(error: BaseException | None) -> bool:
    """Whether the process or the task is to end. An order to the run, or a worker that leaves it, lets effects end."""
    if error is None or isinstance(error, Exception | RunStopped | Left):
        return False
    return stopped_in(error) is None


def _cancel(run: RunCore, cut_off: set[Frame], *kinds: str) -> None:
    """Cancel coroutines; cut plain functions off, for which nobody waits."""
    for body in run.under_way.copy():
        if body.inside not in kinds:
            continue
        if body.awaited is not None:
            body.awaited.interrupt()
        else:
            body.alive = False
            cut_off.add(body)


def _patience(run: RunCore) -> float:
    """How long effects are awaited. One with a timeout ends by itself before that, and is then recorded."""
    return max((body.timeout or LEAVE_SECONDS for body in run.under_way.copy() if body.inside == "effect"), default=0.0)


def _wait(run: RunCore, cut_off: set[Frame], seconds: float) -> Protocol[None]:
    """Wait until nothing else is at work, but no longer than that, and not beyond Ctrl-C."""
    until = run.clock.boot_ms() + seconds * 1000
    while run.under_way - cut_off and run.clock.boot_ms() < until and not interrupts.held():
        yield Pause(LEAVE_LOOK_SECONDS)


def _in_doubt(run: RunCore, late: set[int]) -> InDoubt | None:
    """A run does not finish with an effect that was at work until it was cancelled: nobody would ever settle that."""
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
        f"the block of run {run.id!r} ended while {', '.join(names)} was still at work and took too long. The run has "
        "failed; what it recorded is kept",
        hint="await what you start before the block ends, then start the run again: the effect is settled there",
    )
