"""Finds calls that were recorded under earlier names of a function or a loop.

The journal is not rewritten. A call that began under an old name keeps it in the journal to its end, and each opening
of the run finds it under its new name.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import msgspec

from perdure import records as r
from perdure.kernel.scope import scopes_around
from perdure.run.function import CallOptions, DurableFunction
from perdure.run.ledger import Ledger, RecordedCall
from perdure.run.recorded_waits import AGAIN


class CallPosition(msgspec.Struct, frozen=True):
    """The position of a call: scope, name, identity of its arguments, and number among equal calls."""

    path: str
    name: str
    ident: bytes
    nth: int


def adopt(
    ledger: Ledger, place: CallPosition, function: DurableFunction, options: CallOptions, arguments: dict[str, Any]
) -> RecordedCall | None:
    """Return the next unmatched call that was recorded under an earlier form of this one, and match it from now on.

    The earlier form had another name (`was=`) or fewer parameters. A parameter that was added with a default and is not
    given does not change the call.
    """
    known = _names(ledger)
    names = [name for name in (function.name, *(options.was or ())) if (place.path, name) in known]
    if not names:
        return None
    for ident in (place.ident, *function.iterate_earlier_idents(arguments, options)):
        for name in names:
            if (name, ident) != (place.name, place.ident) and (one := _find_next(ledger, place.path, name, ident)):
                _take(ledger, one, place)
                return one
    return None


def _names(ledger: Ledger) -> set[tuple[str, str]]:
    """Return the scopes and names that were recorded before this opening."""
    if ledger.names is None:
        ledger.names = {(path, name) for path, name, _ in ledger.calls}
    return ledger.names


def _find_next(ledger: Ledger, path: str, name: str, ident: bytes) -> RecordedCall | None:
    for nth, one in enumerate(ledger.calls.get((path, name, ident), ())):
        if (one.name, one.ident) == (name, ident) and not one.consumed and not one.blank:
            one.origin = one.origin or r.CallIdentity(path, name, ident, nth)
            return one
    return None


def _take(ledger: Ledger, one: RecordedCall, place: CallPosition) -> None:
    """Match a recorded call under its new name too. The old position stays, so later calls keep theirs."""
    effects = ledger.effects.get((one.path, one.name), [])
    if one in effects:
        effects.remove(one)
        ledger.effects.setdefault((one.path, place.name), []).append(one)
    one.name, one.ident = place.name, place.ident
    calls = ledger.calls.setdefault((place.path, place.name, place.ident), [])
    missing = range(len(calls), place.nth + 1)
    calls += [RecordedCall(place.path, place.name, place.ident, one.effect) for _ in missing]
    calls[place.nth] = one


def find_same_arguments(ledger: Ledger, path: str, ident: bytes) -> list[RecordedCall]:
    """Return effects of earlier openings with these arguments that may have happened, whatever their names."""
    if ledger.by_arguments is None:
        ledger.by_arguments = {}
        for one in ledger.by_intent.values():
            if not one.consumed:
                ledger.by_arguments.setdefault((one.path, one.ident), []).append(one)
    return [one for one in ledger.by_arguments.get((path, ident), ()) if not one.consumed and not one.failed]


def move_scope(ledger: Ledger, old: str, new: str) -> None:
    """Move the entries of a renamed loop's items to its new name. Entries under the new name are later ones."""
    if not _has_loop(ledger, old):
        return
    ledger.within = ledger.loops = ledger.names = None

    def move_path(path: str) -> str:
        return new + path[len(old) :]

    for key in [key for key in ledger.calls if key[0].startswith(old)]:
        earlier, place = ledger.calls.pop(key), (move_path(key[0]), *key[1:])
        for nth, one in enumerate(earlier):
            one.origin = one.origin or r.CallIdentity(*key, nth)
            one.path = place[0]
        ledger.calls[place] = _merge_calls(earlier, ledger.calls.get(place, []))
    ledger.items |= {move_path(path) for path in ledger.items if path.startswith(old)}
    lists: tuple[dict[Any, list[Any]], ...] = (ledger.effects, ledger.operations, ledger.waits)
    for by_key in lists:
        for key in [key for key in by_key if key[0].startswith(old)]:
            place, first = (move_path(key[0]), *key[1:]), by_key.pop(key)
            then = by_key.get(place, [])
            # A repeated question has the same position as the first.
            by_key[place] = [one for one in first if not then or getattr(one, "how", "") not in AGAIN] + then
    by_scope: tuple[dict[str, list[Any]], ...] = (ledger.landed, ledger.item_usage)
    for by_path in by_scope:
        for path in [path for path in by_path if path.startswith(old)]:
            by_path[move_path(path)] = by_path.pop(path) + by_path.get(move_path(path), [])


def _has_loop(ledger: Ledger, prefix: str) -> bool:
    """Whether anything is recorded in the items of a loop. Cached, because every renamed loop asks."""
    if ledger.loops is None:
        paths = {key[0] for key in (*ledger.calls, *ledger.operations, *ledger.waits)} | ledger.items
        inside = (scope for path in paths for scope in scopes_around(path))
        ledger.loops = {scope[: scope.rindex(":") + 1] for scope in inside}
    return prefix in ledger.loops


def _merge_calls(earlier: list[RecordedCall], later: list[RecordedCall]) -> list[RecordedCall]:
    """Merge calls of one kind that were recorded under two names of their loop."""
    pairs = zip_longest(earlier, later)
    return [a if a is not None and (b is None or not a.blank) else b for a, b in pairs]
