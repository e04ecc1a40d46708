"""Many runs at a time, of Perdure and of DBOS: blocks of all take turns, as in the race."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

import msgspec

from .arena import Arena
from .companion import Companion
from .race import order_of
from .standings import Entrant

SYSTEMS = ("perdure", "dbos")
WAYS = {"called": "called in threads", "queued": "through a queue"}
STEPS = 10
AT_ONCE = 64


class Block(msgspec.Struct, frozen=True):
    """Some runs, from the start of the first to the result of the last."""

    seconds: float
    cpu_ns: int


class Score(msgspec.Struct, frozen=True):
    """What one system came to in one way on one store."""

    entrant: Entrant
    facts: dict[str, str]
    blocks: list[Block]
    runs: int

    @property
    def per_second(self) -> float:
        """Of the median block."""
        return self.runs / median(block.seconds for block in self.blocks)

    @property
    def cpu_ms(self) -> float:
        """Of its process, for one run."""
        return median(block.cpu_ns for block in self.blocks) / self.runs / 1e6

    def times(self, other: Score) -> float:
        """How many times the runs per second of another one: the median over blocks of the same round."""
        return median(their.seconds / our.seconds for our, their in zip(self.blocks, other.blocks, strict=True))


def crowds(arena: Arena, runs: int, rounds: int, say: Callable[[str], None]) -> list[Score]:
    """Both systems in both ways on every store; an entrant's kind is the way."""
    there = dict.fromkeys((one.store, one.system) for one in arena.entrants() if one.system in SYSTEMS)
    entrants = [Entrant(system, store, way) for store, system in there for way in WAYS]
    with ExitStack() as stack:
        companions = [stack.enter_context(_companion(arena, entrant)) for entrant in entrants]
        scores = [Score(one, entrant.hear(), [], runs) for one, entrant in zip(entrants, companions, strict=True)]
        for turn in range(rounds + 1):
            for number in order_of(len(entrants), turn):
                say(f"round {turn} of {rounds}: {entrants[number].title}, {entrants[number].store}")
                companions[number].order(first=turn * runs, runs=runs)
                block = msgspec.convert(companions[number].hear(), Block)
                # The first round warms up, and does not count.
                scores[number].blocks.extend([block] if turn else [])
        for companion in companions:
            companion.end()
    return scores


def _companion(arena: Arena, entrant: Entrant) -> Companion:
    spec = {"system": entrant.system, "url": arena.place(entrant).url, "way": entrant.kind}
    return Companion(arena.python(entrant), spec | {"steps": STEPS, "at_once": AT_ONCE}, module="bench.peers.crowd")
