"""A process that does many runs of one system at a time, as it is told: `python -m bench.peers.crowd JSON`.

A run is some durable calls in a row, each with a result of 1 KB. It is `called` in one of so many threads, or `queued`:
handed to the queue of the system, whose worker is in this process too. Orders come as lines of JSON: `{"first": 0,
"runs": 64}` does the runs 0 to 63, and the answer says how long it took until the result of the last was there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, process_time_ns
from typing import Any, Protocol

from . import settings
from .child import mouth
from .contender import texts

CALLED, QUEUED = "called", "queued"


class Crowd(Protocol):
    """A system on a store, whose one workflow is so many steps."""

    def call(self, name: str) -> None:
        """Do the run of that name here and now."""

    def queue(self, names: Sequence[str]) -> None:
        """Hand them over, and wait for the results of all."""

    def facts(self) -> dict[str, str]:
        """Its version, and what it has set."""

    def close(self) -> None:
        """No more."""


Make = Callable[[str, Callable[[int], str], int, int], Crowd]
"""From the URL of a store, the body of the steps, how many steps a run has, and how many runs are done at a time."""


def main() -> None:
    """Follow the orders, until there are no more."""
    spec, tell = json.loads(sys.argv[1]), mouth()
    settings.watch(count=False)
    crowd = _make(spec["system"])(spec["url"], texts(), spec["steps"], spec["at_once"])
    with ThreadPoolExecutor(spec["at_once"]) as pool:
        tell(crowd.facts())
        for line in sys.stdin:
            tell(_obey(json.loads(line), crowd, pool, spec["way"]))
    crowd.close()


def _make(system: str) -> Make:
    """Imported late: each lives in an environment of its own."""
    if system == "perdure":
        from . import our_crowd

        return our_crowd.crowd
    from . import dbos_crowd

    return dbos_crowd.crowd


def _obey(order: dict[str, Any], crowd: Crowd, pool: ThreadPoolExecutor, way: str) -> dict[str, Any]:
    names = [f"run-{number}" for number in range(order["first"], order["first"] + order["runs"])]
    cpu, begun = process_time_ns(), perf_counter()
    if way == CALLED:
        list(pool.map(crowd.call, names))
    else:
        crowd.queue(names)
    return {"seconds": perf_counter() - begun, "cpu_ns": process_time_ns() - cpu}


if __name__ == "__main__":
    main()
