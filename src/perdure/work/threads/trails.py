"""The trail of a thread: an adapter's record of started calls, as keys in `agent.state`, each the id of a call's run.

It is deleted with the thread, in the same commit, so that a new thread of the same id starts from scratch. Effects in
doubt stay recorded, so that they are not repeated silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.journal.agent_writes import SetKey
from perdure.journal.lineage import events_of
from perdure.journal.retention_rules import OURS
from perdure.run.ledger import Ledger
from perdure.store.rows import read_run

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

IN_DOUBT = "is in doubt"


def space_of(thread: str) -> str:
    """Return the internal namespace of `agent.state` that holds the trail of a thread."""
    return f"{OURS}calls/{thread}"


def delete_trail(engine: Engine, thread: str) -> list[SetKey]:
    """Return the deletions that forget the trail of a thread."""
    rows = engine.store.read("agent_state_of", (engine.stream, space_of(thread), engine.store.clock.wall_ms()))
    runs = [run for run, *_ in rows]
    return [SetKey((engine.stream, space_of(thread), run)) for run in runs if effect_outcome(engine, run) != IN_DOUBT]


def effect_outcome(engine: Engine, run_id: str) -> str:
    """Return the outcome of the effect of a run as text; empty if it has not happened."""
    run = read_run(engine.store, engine.name, run_id)
    if run is None:
        return ""
    effects = Ledger(events_of(engine.store, run.stream, fork=run.is_fork)).by_intent.values()
    if any(one.in_doubt for one in effects):
        return IN_DOUBT
    return "was done" if any(one.done for one in effects) else ""
