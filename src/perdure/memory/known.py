"""What is known of an agent's pieces of memory as a whole: how many there are, and how many have each term.

It is read once for each process, and again when there are noticeably more: what a word is worth hardly changes with a
few more memories, and to count them for every question would take longer than all the rest of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .boards import Scope

if TYPE_CHECKING:
    from ..engine import Engine

GROWN = 0.02
"""By so much they must have grown."""

GROWN_FROM = 200


class Known(msgspec.Struct, frozen=True):
    """As of some piece, the newest then."""

    newest: int
    scope: Scope


def known(engine: Engine) -> Scope:
    """What this process knows, brought up to date when it is too old."""
    kept: dict[tuple[int, str, str], Known] = engine.place.vectors
    which = (engine.stream, "known pieces", "")
    [(newest,)] = engine.store.read("pieces_now")
    found = kept.get(which)
    if found is None or newest - found.newest > max(GROWN * found.scope.total, GROWN_FROM):
        found = kept[which] = Known(newest, _counted(engine))
    return found.scope


def _counted(engine: Engine) -> Scope:
    store, owner = engine.store, engine.stream
    [(total, length)] = store.read("pieces_known", (owner,))
    having = {str(term): int(count) for term, count in store.read("terms_known", (owner,))}
    return Scope(int(total), int(length) / max(int(total), 1), having)
