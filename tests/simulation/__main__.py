"""The command line: replay one history, or look for bad ones."""

from __future__ import annotations

import argparse
import sys
from itertools import islice

from tests.simulation.campaign import report, summaries
from tests.simulation.history import play
from tests.simulation.planted_faults import SABOTAGES


def main(arguments: list[str]) -> int:
    """0 when nothing was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this history")
    parser.add_argument("--trace", action="store_true", help="with --seed: say everything that happened")
    parser.add_argument("--count", type=int, default=10_000, help="without --seed: how many histories to play")
    parser.add_argument("--first", type=int, default=0, help="without --seed: the first of their seeds")
    parser.add_argument("--broken", choices=sorted(SABOTAGES), help="with this fault in it")
    given = parser.parse_args(arguments)
    broken = frozenset({given.broken} if given.broken else ())
    if given.seed is not None:
        return replay(given.seed, broken, trace=given.trace)
    bad = (one for one in summaries(range(given.first, given.first + given.count), broken) if one.violations)
    found = list(islice(bad, 10))
    print(report(found) or f"{given.count} histories, nothing violated")
    return 1 if found else 0


def replay(seed: int, broken: frozenset[str], *, trace: bool) -> int:
    """Play one history, and show it."""
    result = play(seed, broken=broken, trace=trace)
    for line in result.trace:
        print(line)
    print(f"seed {seed}: {result.seconds:.1f} s, {result.bodies} deeds, {result.takeovers} takeovers, {result.digest}")
    for violation in result.violations:
        print(f"VIOLATED {violation}")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
