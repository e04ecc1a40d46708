"""Records the progress of an effect after its intent: another attempt, success or failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import PerdureError
from perdure.kernel.protocol import Protocol
from perdure.kernel.scope import Frame, WriteBuffer
from perdure.platform.failpoints import Site
from perdure.run.core import RunCore
from perdure.run.cost import check_budgets
from perdure.run.function import CallOptions, DurableFunction
from perdure.run.ledger import RecordedCall
from perdure.run.step import REFUSED, describe, mark
from perdure.store.base import Statement


class EffectCall(msgspec.Struct, frozen=True):
    """One call of an effect in a run."""

    run: RunCore
    frame: Frame
    function: DurableFunction
    options: CallOptions
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """Its current and earlier names."""
        return (self.function.name, *(self.options.was or ()))

    def inject(self, recorded: RecordedCall) -> dict[str, Any]:
        """Return the keyword arguments of the body, with the key and the fencing token where it takes them."""
        return self.function.signature.inject(self.kwargs, recorded.key, recorded.fence)


def begin_again(run: RunCore, recorded: RecordedCall, reason: str) -> Protocol[None]:
    """Commit a renewed, fenced intent before the body starts again."""
    check_budgets(run)
    recorded.fence, recorded.failed, recorded.boot_ms = run.head.fence, 0, run.clock.boot_ms()
    recorded.happened = recorded.keyless = False
    recorded.holder = None
    again = r.EffectAgain(recorded.seq, reason, recorded.fence, recorded.boot_ms, run.request)
    recorded.begun = yield from run.commit(Site.EFFECT_AGAIN, again)


def record_done(
    effect: EffectCall,
    recorded: RecordedCall,
    packed: bytes,
    objects: Sequence[Statement],
    how: str,
    buffer: WriteBuffer,
    *,
    took_us: int = 0,
    note: str = "",
    closes: int = 0,
) -> Protocol[None]:
    """Commit the outcome: the result and all writes of the body become durable together."""
    done, made = outcome_of(recorded, packed, objects, how, buffer, took_us, note)
    yield from commit_outcome(effect, recorded, done, made, buffer, closes)


def outcome_of(
    recorded: RecordedCall,
    packed: bytes,
    objects: Sequence[Statement],
    how: str,
    buffer: WriteBuffer,
    took_us: int = 0,
    note: str = "",
) -> tuple[r.EffectDone, Sequence[Statement]]:
    """Return the entry of an outcome, and the objects that it refers to."""
    writes = buffer.landing_writes() if buffer.writes else ()
    usage = buffer.take_usage(recorded.name) if buffer.usage else ()
    done = r.EffectDone(recorded.seq, took_us, how, packed, writes, note, (), usage)
    return done, (*objects, *buffer.objects)


def commit_outcome(
    effect: EffectCall,
    recorded: RecordedCall,
    done: r.EffectDone,
    made: Sequence[Statement],
    buffer: WriteBuffer,
    closes: int = 0,
) -> Protocol[None]:
    """Commit an outcome. If its agent writes are refused, it is recorded without them."""
    more = [r.QuestionClosed(closes, "done")] if closes else []
    lost: PerdureError | None = None
    try:
        yield from effect.run.commit(Site.EFFECT_OUTCOME, done, *more, objects=made, asks=buffer.asks)
    except REFUSED as error:
        # The effect happened, so it is recorded in any case. The conflict is raised afterwards.
        lost, done = error, msgspec.structs.replace(done, note=describe(error))
        yield from effect.run.commit(Site.EFFECT_OUTCOME, done, *more, objects=made)
    close_done(effect, recorded, done)
    if lost is not None:
        raise lost


def close_done(effect: EffectCall, recorded: RecordedCall, done: r.EffectDone) -> None:
    """Apply a durable outcome to the ledger and the run's data."""
    run = effect.run
    recorded.done, recorded.result = True, done.result
    run.ledger.close(recorded)
    if done.writes:
        run.land(effect.frame, done.writes)


def record_failed(run: RunCore, recorded: RecordedCall, error: BaseException, final: bool = False) -> Protocol[None]:
    """Record that nothing happened, or that a person gave up (`final`)."""
    packed, objects = run.pack(error, recorded.name)
    entry = r.EffectFailed(recorded.seq, packed, describe(error), final)
    recorded.failed = yield from run.commit(Site.EFFECT_FAILED, entry, objects=objects)
    recorded.error, recorded.final = packed, final
    mark(error, run, recorded.failed)
