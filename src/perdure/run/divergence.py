"""An effect that today's code asks for, and one that is recorded: is it the same one, or would it happen twice?"""

from __future__ import annotations

from typing import Any

from ..errors import Diverged
from .doubt import unsettled_effect
from .ledger import Recorded
from .lines import at_line, called
from .outcomes import EffectCall
from .renames import same_arguments
from .requests import Protocol


def refuse_divergence(it: EffectCall, arguments: dict[str, Any], ident: bytes) -> Protocol[None]:
    """A new effect beside a recorded one that the code no longer asks for is more likely a changed call of that."""
    run, path = it.run, it.frame.path
    if (doubtful := (yield from unsettled_effect(it))) is not None:
        raise _diverged(it, arguments, doubtful, "is in doubt", _ANSWER.format(run=run.id, store=run.store_option))
    if "rerun" in (it.options.on_change, run.on_change):
        return
    unasked = (run.ledger.unconsumed_effect(path, name) for name in it.names)
    if (other := next((one for one in unasked if one is not None), None)) is not None:
        hint = _CHANGED.format(run=run.id, before=other.seq - 1)
        raise _diverged(it, arguments, other, "is recorded, and was not asked for before this one", hint)
    if (renamed := _renamed(it, ident)) is not None:
        state = "is recorded with the same arguments, and nothing is called so any more"
        raise _diverged(it, arguments, renamed, state, _RENAMED.format(was=renamed.name))


_CHANGED = (
    'if the recorded one is not wanted any more, on_change="rerun" lets the new one run; if both are wanted, call the '
    "recorded one first, or tell them apart with id=; else call it with the arguments that are recorded, or go on "
    "without it in another run: agent.runs.fork({run!r}, at={before})"
)
_ANSWER = "say how that one ended with `perdure answer {run}{store}`; no other of its name begins before"
_RENAMED = 'if it was only renamed, declare it with was="{was}"; if it is another one, with was=()'


def _renamed(it: EffectCall, ident: bytes) -> Recorded | None:
    """A recorded effect that this one may be under an old name.

    Only where names tell something: both are declared in the program, before its first run is open, and nobody has
    said what this one was called before.
    """
    engine, run = it.run.engine, it.run
    mine = engine.functions.get(it.function.name)
    if it.options.was is not None or mine is None or not mine.early:
        return None
    for one in same_arguments(run.ledger, it.frame.path, ident):
        if engine.declared(one.name) is None:
            return one
    return None


def _diverged(it: EffectCall, arguments: dict[str, Any], other: Recorded, state: str, hint: str) -> Diverged:
    recorded = called(other.name, it.run.unpack(other.arguments))
    return Diverged(
        f"{called(it.function.name, arguments)} is new, but {recorded} {state} (run {it.run.id!r}, "
        f"entry {other.seq}; called{at_line()}); nothing was run, and all that is recorded is kept",
        hint=hint,
    )
