"""What is known of an agent's pieces of memory as a whole: how many there are, and how many have each term.

It is read once for each process, and again when there are noticeably more: what a word is worth hardly changes with a
few more memories, and to count them for every question would take longer than all the rest of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..store.base import Statement
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
    """What this process knows; counted when it is first asked."""
    kept: dict[tuple[int, str, str], Known] = engine.place.vectors
    which = (engine.stream, "known pieces", "")
    return (kept.get(which) or kept.setdefault(which, _counted(engine))).scope


def outgrown(engine: Engine, newest: int) -> bool:
    """Whether it is too old, as the number of the newest piece says: then it is counted anew for who asks next."""
    kept: dict[tuple[int, str, str], Known] = engine.place.vectors
    found = kept.get((engine.stream, "known pieces", ""))
    if found is None or newest - found.newest <= max(GROWN * found.scope.total, GROWN_FROM):
        return False
    kept.pop((engine.stream, "known pieces", ""), None)
    return True


def _counted(engine: Engine) -> Known:
    owner = engine.stream
    queries = [Statement("pieces_now"), Statement("pieces_known", (owner,)), Statement("terms_known", (owner,))]
    [(newest,)], [(total, length)], terms = engine.store.read_all(queries)
    having = {str(term): int(count) for term, count in terms}
    return Known(newest, Scope(int(total), int(length) / max(int(total), 1), having))
