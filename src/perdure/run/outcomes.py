"""What is recorded about an effect after its intent: that it begins again, is done, or has failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .. import records as r
from ..errors import PerdureError
from ..failpoints import Site
from ..store.base import Statement
from .account import must_afford
from .core import RunCore
from .functions import Function, Options
from .ledger import Recorded
from .requests import Protocol
from .scope import Buffer, Frame
from .steps import REFUSED, describe, mark


class EffectCall(msgspec.Struct, frozen=True):
    """One call of an effect in a run."""

    frame: Frame
    function: Function
    options: Options
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def run(self) -> RunCore:
        return self.frame.run

    @property
    def names(self) -> tuple[str, ...]:
        """What it is called, and what it was called before."""
        return (self.function.name, *(self.options.was or ()))

    def injected(self, recorded: Recorded) -> dict[str, Any]:
        """The keyword arguments of the body, with the key and the fencing number where it asks for them."""
        return self.function.signature.injected(self.kwargs, recorded.key, recorded.fence)


def begin_again(run: RunCore, recorded: Recorded, reason: str) -> Protocol[None]:
    """Renew an intent, fenced and durable, before its body starts once more."""
    must_afford(run)
    recorded.fence, recorded.failed, recorded.boot_ms = run.head.fence, 0, run.clock.boot_ms()
    recorded.happened = recorded.keyless = False
    recorded.holder = None
    again = r.EffectAgain(recorded.seq, reason, recorded.fence, recorded.boot_ms)
    recorded.begun = yield from run.commit(Site.EFFECT_AGAIN, again)


def record_done(
    it: EffectCall,
    recorded: Recorded,
    packed: bytes,
    objects: Sequence[Statement],
    how: str,
    buffer: Buffer,
    *,
    took_us: int = 0,
    note: str = "",
    closes: int = 0,
) -> Protocol[None]:
    """The outcome: result and everything written inside, durable together when this returns."""
    writes = buffer.landing()
    done = r.EffectDone(recorded.seq, took_us, how, packed, writes, note, (), buffer.used(recorded.name))
    more, made = [r.QuestionClosed(closes, "done")] if closes else [], (*objects, *buffer.objects)
    lost: PerdureError | None = None
    try:
        yield from it.run.commit(Site.EFFECT_OUTCOME, done, *more, objects=made, asks=buffer.asks)
    except REFUSED as error:
        # It happened, whatever became of the state: that is recorded in any case, and the conflict told.
        lost, done = error, msgspec.structs.replace(done, note=describe(error))
        yield from it.run.commit(Site.EFFECT_OUTCOME, done, *more, objects=made)
    recorded.done, recorded.result = True, packed
    it.run.ledger.close(recorded)
    it.run.land(it.frame, writes)
    if lost is not None:
        raise lost


def record_failed(run: RunCore, recorded: Recorded, error: BaseException, final: bool = False) -> Protocol[None]:
    """Nothing happened, or a person gave up on knowing (`final`)."""
    packed, objects = run.pack(error, recorded.name)
    entry = r.EffectFailed(recorded.seq, packed, describe(error), final)
    recorded.failed = yield from run.commit(Site.EFFECT_FAILED, entry, objects=objects)
    recorded.error, recorded.final = packed, final
    mark(error, run, recorded.failed)
