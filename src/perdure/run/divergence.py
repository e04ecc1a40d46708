"""Detects a new effect that may be a changed form of a recorded one, and so would happen twice."""

from __future__ import annotations

from typing import Any

from perdure.errors import Diverged
from perdure.kernel.program_line import format_call, format_calling_line
from perdure.kernel.protocol import Protocol
from perdure.run.declarations import Declarations
from perdure.run.doubt import find_unsettled_effect
from perdure.run.ledger import RecordedCall
from perdure.run.outcome import EffectCall
from perdure.run.renames import find_same_arguments


def may_diverge(effect: EffectCall) -> bool:
    """Whether `refuse_divergence` has anything to compare: a recorded effect that the code has not reached."""
    ledger, path = effect.run.ledger, effect.frame.path
    if ledger.by_arguments is None or ledger.by_arguments or effect.options.was:
        return True
    return bool(ledger.effects.get((path, effect.function.name)))


def refuse_divergence(effect: EffectCall, arguments: dict[str, Any], ident: bytes) -> Protocol[None]:
    """Raise for a new effect while a recorded one is unmatched: it is more likely a changed call than a new one."""
    run, path = effect.run, effect.frame.path
    if (doubtful := (yield from find_unsettled_effect(effect))) is not None:
        raise _divergence_error(
            effect, arguments, doubtful, "is in doubt", _ANSWER.format(run=run.id, store=run.store_option)
        )
    if "rerun" in (effect.options.on_change, run.on_change):
        return
    unasked = (run.ledger.find_unconsumed_effect(path, name) for name in effect.names)
    if (other := next((one for one in unasked if one is not None), None)) is not None:
        hint = _CHANGED.format(run=run.id, before=other.seq - 1)
        raise _divergence_error(
            effect, arguments, other, "is recorded, and the code has not called it before this one", hint
        )
    if (renamed := _find_renamed(effect, ident)) is not None:
        state = "is recorded with the same arguments, and no step or effect has that name any more"
        raise _divergence_error(effect, arguments, renamed, state, _RENAMED.format(was=renamed.name))


_CHANGED = (
    'to drop the recorded call and run the new one, set on_change="rerun"; to keep both, call the recorded one first '
    "or tell them apart with id=; otherwise restore the recorded arguments, or continue without the recorded call in "
    "another run: agent.runs.fork({run!r}, at={before})"
)
_ANSWER = "record its outcome with `perdure answer {run}{store}`; until then no other effect of that name starts"
_RENAMED = 'if it was renamed, declare it with was="{was}"; if it is a different effect, with was=()'


def _find_renamed(effect: EffectCall, ident: bytes) -> RecordedCall | None:
    """Return a recorded effect that this one may be under an earlier name.

    Names decide only if both are declared in the program before its first run opens, and `was=` is not given.
    """
    engine, run = effect.run.engine, effect.run
    declared = engine.parts.get(Declarations)
    mine = declared.get(effect.function.name)
    if effect.options.was is not None or mine is None or not mine.early:
        return None
    for one in find_same_arguments(run.ledger, effect.frame.path, ident):
        if declared.find(one.name) is None:
            return one
    return None


def _divergence_error(
    effect: EffectCall, arguments: dict[str, Any], other: RecordedCall, state: str, hint: str
) -> Diverged:
    recorded = format_call(other.name, effect.run.unpack(other.arguments))
    return Diverged(
        f"{format_call(effect.function.name, arguments)} is new, but {recorded} {state} (run {effect.run.id!r}, "
        f"entry {other.seq}; called{format_calling_line()}); nothing was executed, and everything recorded is kept",
        hint=hint,
    )
