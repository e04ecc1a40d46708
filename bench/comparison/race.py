"""Speed, costs and the way back of every contender, in one session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from time import time_ns

import msgspec

from .arena import Arena
from .companion import Block, Companion
from .standings import Costs, Entrant, Return, Speed

BLOCK = 40
WARM = 20
SHORT = 10
LONG = 1000


class Finish(msgspec.Struct, frozen=True):
    """What a contender did in the race."""

    entrant: Entrant
    facts: dict[str, str]
    blocks: list[Block]
    server_cpu_ns: list[int]
    """Of the server during each block; empty when there is none, or nobody tells."""

    @property
    def speed(self) -> Speed:
        """Of the median block; percentiles are those of all calls."""
        taken = sorted(ns for block in self.blocks for ns in block.nanoseconds)
        return Speed(
            per_second=1 / median(block.seconds / BLOCK for block in self.blocks),
            p50_ms=taken[len(taken) // 2] / 1e6,
            p99_ms=taken[min(len(taken) - 1, int(len(taken) * 0.99))] / 1e6,
            cpu_ms=median(block.cpu_ns / BLOCK for block in self.blocks) / 1e6,
            server_cpu_ms=median(self.server_cpu_ns) / BLOCK / 1e6 if self.server_cpu_ns else None,
        )

    def times(self, other: Finish) -> float:
        """How many times the calls per second of another one: the median over blocks of the same round."""
        return median(their.seconds / our.seconds for our, their in zip(self.blocks, other.blocks, strict=True))


def race(arena: Arena, rounds: int, say: Callable[[str], None]) -> list[Finish]:
    """Blocks of all contenders take turns, in changing order, so that what disturbs one disturbs all."""
    entrants = arena.entrants()
    with ExitStack() as stack:
        companions = [stack.enter_context(arena.companion(entrant, arena.place(entrant))) for entrant in entrants]
        finishes = [Finish(*one, [], []) for one in zip(entrants, map(_facts, companions), strict=True)]
        for turn in range(rounds + 1):
            say(f"round {turn} of {rounds}: {len(entrants)} contenders take turns")
            for number in order_of(len(entrants), turn):
                before = arena.server_cpu_ns(entrants[number])
                block = companions[number].calls(BLOCK)
                after = arena.server_cpu_ns(entrants[number])
                # The first round warms up, and does not count.
                if turn:
                    finishes[number].blocks.append(block)
                    finishes[number].server_cpu_ns.extend([after - before] if after and before else [])
        for companion in companions:
            companion.end()
    return finishes


def _facts(companion: Companion) -> dict[str, str]:
    companion.wait_opened()
    return companion.facts()


def order_of(count: int, turn: int) -> list[int]:
    """Who comes when, in a round: another one first each time, and every other time backwards."""
    forwards = [(turn + number) % count for number in range(count)]
    return forwards if turn % 2 else forwards[::-1]


def costs(arena: Arena, entrant: Entrant, calls: int) -> Costs:
    """Counted in processes that are not timed: statements, syncs, round trips, and what a call leaves on disk."""
    empty, place = arena.place(entrant), arena.place(entrant)
    with arena.companion(entrant, empty) as companion:
        companion.wait_opened()
        companion.end()
    with arena.proxy(entrant) as proxy, arena.start_counted(entrant, place, proxy) as companion:
        companion.wait_opened()
        companion.calls(WARM)
        trips, statements = (proxy.trips, proxy.statements) if proxy is not None else (0, 0)
        syncs = arena.server_syncs(entrant)
        block = companion.calls(calls)
        done = (proxy.statements - statements) if proxy is not None else block.statements
        syncs_per_call = _per_call(syncs, arena.server_syncs(entrant), block, calls)
        trips_per_call = (proxy.trips - trips) / calls if proxy is not None else None
        companion.end()
    size = (arena.size(place) - arena.size(empty)) / (calls + WARM)
    return Costs(done / calls, syncs_per_call, trips_per_call, size)


def _per_call(before: int | None, after: int | None, block: Block, calls: int) -> float | None:
    if before is not None and after is not None:
        return (after - before) / calls
    return block.syncs / calls if block.syncs is not None else None


def comeback(arena: Arena, entrant: Entrant, attempts: int) -> Return:
    """Killed while the run is open, and started again at once."""
    short = _returns(arena, entrant, SHORT, attempts)
    long = _returns(arena, entrant, LONG, attempts)
    return Return(
        short_ms=median(one.short_ms for one in short),
        long_ms=median(one.long_ms for one in long),
        replay_ms=median(one.replay_ms for one in long),
        repeated=sum(one.repeated for one in short + long),
    )


def _returns(arena: Arena, entrant: Entrant, calls: int, attempts: int) -> list[Return]:
    place = arena.place(entrant)
    with arena.companion(entrant, place) as companion:
        companion.wait_opened()
        companion.calls(calls)
        dead = companion.kill()
    found = []
    for attempt in range(attempts):
        with arena.companion(entrant, place) as companion:
            # Ordered before it is there to hear it: nobody waits for us.
            companion.order(first=0, size=calls + attempt)
            companion.order(first=calls + attempt, size=1)
            opening, replay, _new = companion.wait_opened(), companion.answer(), companion.answer()
            done = time_ns()
            took = replay.seconds * 1000
            found.append(Return((done - dead) / 1e6, (done - opening.imported_ns) / 1e6, took, replay.bodies))
            dead = companion.kill()
    return found
