"""A process with one run of one system, which does what it is told: `python -m bench.peers.child JSON`.

Orders come as lines of JSON on standard input, while the run is open: `{"first": 0, "size": 20}` calls the durable
function with the numbers 0 to 19, and the answer, a line of JSON, says how long each call took. Killed and started
again with the same JSON, the same run is resumed, and calls that are remembered do not reach the function.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns, time_ns
from typing import Any

from bench.syncs import counter

from . import settings
from .contender import Call, Contender, texts
from .systems import make


class Bodies:
    """The function that is made durable: it counts how often it really ran."""

    def __init__(self) -> None:
        self._texts = texts()
        self.ran = 0

    def __call__(self, number: int) -> str:
        self.ran += 1
        return self._texts(number)


def main() -> None:
    """Open the run, follow the orders, end it when there are no more."""
    begun, spec = time_ns(), json.loads(sys.argv[1])
    tell = mouth()
    settings.watch(count=spec["count"])
    if spec["count"] and spec["system"] in ("perdure", "floor"):
        settings.watch_apsw()
    system = make(spec["system"], spec["url"])
    bodies = Bodies()
    durable = system.durable(spec["kind"], bodies, effect=spec["kind"] == "effect")
    imported = time_ns()

    def body() -> None:
        tell({"begun_ns": begun, "imported_ns": imported, "opened_ns": time_ns()})
        for line in sys.stdin:
            tell(_obey(json.loads(line), durable, bodies, system))

    system.run("chain", body)


def mouth() -> Callable[[dict[str, Any]], None]:
    """Speaks to whoever started us. Whatever a system prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(said: dict[str, Any]) -> None:
        out.write(json.dumps(said) + "\n")
        out.flush()

    return tell


def _obey(order: dict[str, Any], durable: Call, bodies: Bodies, system: Contender) -> dict[str, Any]:
    if order.get("facts"):
        return system.facts()
    ran, said, count = bodies.ran, settings.statements(), counter()
    syncs = count() if count else 0
    taken, cpu = [], process_time_ns()
    for number in range(order["first"], order["first"] + order["size"]):
        begun = perf_counter_ns()
        durable(number)
        taken.append(perf_counter_ns() - begun)
    return {
        "nanoseconds": taken,
        "cpu_ns": process_time_ns() - cpu,
        "bodies": bodies.ran - ran,
        "statements": settings.statements() - said,
        "syncs": count() - syncs if count else None,
    }


if __name__ == "__main__":
    main()
