"""Many histories, on all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from tests.simulation.history import play

CHUNK = 50


class Summary(msgspec.Struct, frozen=True):
    """Of one history, small enough to be sent from process to process."""

    seed: int
    violations: list[str]
    bodies: int
    takeovers: int


def summary(seed: int, broken: frozenset[str] = frozenset()) -> Summary:
    """Play one."""
    result = play(seed, broken=broken)
    return Summary(seed, result.violations, result.bodies, result.takeovers)


def summaries(seeds: Iterable[int], broken: frozenset[str] = frozenset()) -> Iterator[Summary]:
    """Play all, in the order of the seeds. Fresh processes: a fork would inherit the threads of other tests."""
    with multiprocessing.get_context("spawn").Pool(os.cpu_count() or 1) as pool:
        yield from pool.imap(partial(summary, broken=broken), seeds, CHUNK)


def report(bad: Iterable[Summary]) -> str:
    """What was violated, and how to see it again."""
    return "\n".join(
        f"seed {one.seed}: {violation}\n    python -m tests.simulation --seed {one.seed} --trace"
        for one in bad
        for violation in one.violations[:3]
    )
