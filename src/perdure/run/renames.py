"""What is recorded under names that the code had before, found again under those that it has now.

The journal is not rewritten: a call that was begun under an old name is recorded under it to its end, and is found
by its new name each time that the run is opened.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import msgspec

from .. import records as r
from .functions import Function, Options
from .ledger import Ledger, Recorded, scopes_around
from .waits import AGAIN


class Place(msgspec.Struct, frozen=True):
    """Where a call belongs: its scope, its name, what tells it from others, and the how manieth of its kind it is."""

    path: str
    name: str
    ident: bytes
    nth: int


def adopt(
    ledger: Ledger, place: Place, function: Function, options: Options, arguments: dict[str, Any]
) -> Recorded | None:
    """The next call that is recorded as this one was before, and not asked for yet: from now on it is this one.

    It had another name (`was=`), or fewer parameters: one that was added with a default, and is not given, changes
    nothing about the call.
    """
    known = _names(ledger)
    names = [name for name in (function.name, *(options.was or ())) if (place.path, name) in known]
    if not names:
        return None
    for ident in (place.ident, *function.earlier_idents(arguments, options)):
        for name in names:
            if (name, ident) != (place.name, place.ident) and (one := _next(ledger, place.path, name, ident)):
                _take(ledger, one, place)
                return one
    return None


def _names(ledger: Ledger) -> set[tuple[str, str]]:
    """Of what was recorded before this opening, by scope."""
    if ledger.names is None:
        ledger.names = {(path, name) for path, name, _ in ledger.calls}
    return ledger.names


def _next(ledger: Ledger, path: str, name: str, ident: bytes) -> Recorded | None:
    for nth, one in enumerate(ledger.calls.get((path, name, ident), ())):
        if (one.name, one.ident) == (name, ident) and not one.consumed and not one.blank:
            one.origin = one.origin or r.Call(path, name, ident, nth)
            return one
    return None


def _take(ledger: Ledger, one: Recorded, place: Place) -> None:
    """It keeps its old place too, so that a later call of the old kind is not taken for this one."""
    effects = ledger.effects.get((one.path, one.name), [])
    if one in effects:
        effects.remove(one)
        ledger.effects.setdefault((one.path, place.name), []).append(one)
    one.name, one.ident = place.name, place.ident
    calls = ledger.calls.setdefault((place.path, place.name, place.ident), [])
    missing = range(len(calls), place.nth + 1)
    calls += [Recorded(place.path, place.name, place.ident, one.effect) for _ in missing]
    calls[place.nth] = one


def same_arguments(ledger: Ledger, path: str, ident: bytes) -> list[Recorded]:
    """Effects of earlier openings that were called like this and may have happened, whatever their names."""
    if ledger.by_arguments is None:
        ledger.by_arguments = {}
        for one in ledger.by_intent.values():
            if not one.consumed:
                ledger.by_arguments.setdefault((one.path, one.ident), []).append(one)
    return [one for one in ledger.by_arguments.get((path, ident), ()) if not one.consumed and not one.failed]


def move_scope(ledger: Ledger, old: str, new: str) -> None:
    """What is recorded in the items of a loop that has another name now; what the new name has came later."""
    if not _has_loop(ledger, old):
        return
    ledger.within = ledger.loops = ledger.names = None

    def moved(path: str) -> str:
        return new + path[len(old) :]

    for key in [key for key in ledger.calls if key[0].startswith(old)]:
        earlier, place = ledger.calls.pop(key), (moved(key[0]), *key[1:])
        for nth, one in enumerate(earlier):
            one.origin = one.origin or r.Call(*key, nth)
            one.path = place[0]
        ledger.calls[place] = _merged(earlier, ledger.calls.get(place, []))
    ledger.items |= {moved(path) for path in ledger.items if path.startswith(old)}
    lists: tuple[dict[Any, list[Any]], ...] = (ledger.effects, ledger.operations, ledger.waits)
    for by_key in lists:
        for key in [key for key in by_key if key[0].startswith(old)]:
            place, first = (moved(key[0]), *key[1:]), by_key.pop(key)
            then = by_key.get(place, [])
            # What was asked again was asked in the same place.
            by_key[place] = [one for one in first if not then or getattr(one, "how", "") not in AGAIN] + then
    by_scope: tuple[dict[str, list[Any]], ...] = (ledger.landed, ledger.item_usage)
    for by_path in by_scope:
        for path in [path for path in by_path if path.startswith(old)]:
            by_path[moved(path)] = by_path.pop(path) + by_path.get(moved(path), [])


def _has_loop(ledger: Ledger, prefix: str) -> bool:
    """Whether anything is recorded in its items; asked for every loop that had another name."""
    if ledger.loops is None:
        paths = {key[0] for key in (*ledger.calls, *ledger.operations, *ledger.waits)} | ledger.items
        inside = (scope for path in paths for scope in scopes_around(path))
        ledger.loops = {scope[: scope.rindex(":") + 1] for scope in inside}
    return prefix in ledger.loops


def _merged(earlier: list[Recorded], later: list[Recorded]) -> list[Recorded]:
    """Calls of one kind, recorded in part under one name of their loop and in part under another."""
    pairs = zip_longest(earlier, later)
    return [a if a is not None and (b is None or not a.blank) else b for a, b in pairs]
