"""A process that measures one thing: `python -m bench.child NAME JSON` prints figures as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .measures import (
    artifacts,
    chain,
    checkpoints,
    concurrent,
    context,
    counts,
    events,
    flat,
    long_run,
    many_runs,
    remote,
    resume,
    server_load,
    state,
    values,
)

MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "counts": counts.single_operations,
    "bytes": counts.bytes_per_step,
    "pages": counts.pages_of_a_bare_commit,
    "python": counts.python_calls,
    "chain": chain.chain,
    "growth": chain.growth,
    "concurrent": concurrent.concurrent,
    "server_load": server_load.server_load,
    "remote_chain": remote.remote_chain,
    "remote_load": remote.remote_load,
    "idle_followers": remote.idle_followers,
    "async_chain": server_load.async_chain,
    "prepare": resume.prepare,
    "resume": resume.resume,
    "prepare_long": long_run.prepare_long,
    "open_long": long_run.open_long,
    "values": values.values,
    "state": state.state,
    "many_sets": state.many_sets,
    "checkpoints": checkpoints.checkpoints,
    "flat": flat.flat,
    "flat_view": flat.flat_view,
    "many_runs": many_runs.many_runs,
    "events": events.events,
    "artifacts": artifacts.artifacts,
    "context": context.context,
}


def main() -> None:
    """Measure and tell."""
    arguments = json.loads(sys.argv[2])
    print(json.dumps(MEASURES[sys.argv[1]](Path(arguments.pop("folder")), **arguments)))


if __name__ == "__main__":
    main()
