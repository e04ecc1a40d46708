"""How much memories are worth: by importance and use, both of which decay.

    worth = importance x (1 + log2(1 + uses)) x 0.5 ** (days since it was recorded or last recalled / 30)

Each time a memory is recalled counts, and the clock begins anew: what is asked for again and again stays, what nobody
has asked for is worth half as much after a month. Something of importance 1 does not decay: it is never let go by a
rule. Uses are noted in memory, and written along with the next memory or when the agent is closed: recalling commits
nothing. Who is killed before has lost a few of them, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..failpoints import Site
from ..store.base import Last, Script, Statement, Unit

if TYPE_CHECKING:
    from ..engine import Engine
    from .found import Memory
    from .reading import Kept

HALF_LIFE_DAYS = 30.0
DAY_MS = 86_400_000
ALWAYS = 1.0
"""The importance of what no rule lets go."""


def worth(it: Kept, now: int) -> float:
    """What a memory is worth at a time; nothing, when another has taken its place by then."""
    if it.ended and it.replaced <= now:
        return 0.0
    idle = max(0, now - touched(it)) / DAY_MS
    decay = 1.0 if it.importance >= ALWAYS else 0.5 ** (idle / HALF_LIFE_DAYS)
    return it.importance * (1 + math.log2(1 + it.uses)) * decay


def touched(it: Kept) -> int:
    """When it was recorded, or last recalled."""
    return max(it.recorded, it.last)


def note(engine: Engine, found: Iterable[Memory]) -> None:
    """Memories were recalled just now. Of what has not landed nothing is noted: perhaps it never does."""
    if engine.store.read_only:
        return
    now = engine.store.clock.wall_ms()
    for it in found:
        if it.entry[0]:
            uses, _ = engine.recalled.get(it.id, (0, 0))
            engine.recalled[it.id] = (uses + 1, now)


def written(engine: Engine) -> list[Statement]:
    """What writes the uses that nobody has written yet; they are somebody else's from now on."""
    noted, engine.recalled = engine.recalled, {}
    return [Statement("use_memory", (engine.stream, which, *use)) for which, use in sorted(noted.items())]


class Uses(Unit[None]):
    """The same by themselves. Done twice, a few uses are counted twice."""

    site = Site.MEMORY

    def __init__(self, engine: Engine) -> None:
        self._statements = written(engine)

    def script(self) -> Script[None]:
        yield Last(self._statements)
