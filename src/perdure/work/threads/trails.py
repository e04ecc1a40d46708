"""The trail of a thread: an adapter's record of started calls, as keys in `agent.state`, each the id of a call's run.

It is deleted with the thread, in the same commit, so that a new thread of the same id starts from scratch. Effects in
doubt stay recorded, so that they are not repeated silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.journal import objects
from perdure.journal.agent_writes import SetKey
from perdure.journal.lineage import events_of
from perdure.journal.retention_rules import OURS
from perdure.run.ledger import Ledger
from perdure.store.rows import read_run

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

IN_DOUBT = "is in doubt"
FRAMEWORKS = f"{OURS}frameworks"
"""The namespace with a key for each saved thread that another framework than LangGraph continues."""


def framework_of(engine: Engine, thread: str) -> str:
    """Return who continues a saved thread."""
    rows = engine.store.read("get_state_value", (engine.stream, FRAMEWORKS, thread))
    return next((str(objects.unpack(engine.store, packed)) for packed, *_ in rows if packed), "langgraph")


def frameworks(engine: Engine) -> dict[str, str]:
    """Return who continues each saved thread, except those of LangGraph."""
    now = engine.store.clock.wall_ms()
    rows = engine.store.read("agent_state_page", (engine.stream, FRAMEWORKS, now, "", 0, 1 << 60))
    return {thread: objects.unpack(engine.store, value) for thread, value, *_ in rows}


def space_of(thread: str) -> str:
    """Return the internal namespace of `agent.state` that holds the trail of a thread."""
    return f"{OURS}calls/{thread}"


def delete_trail(engine: Engine, thread: str) -> list[SetKey]:
    """Return the deletions that forget the trail of a thread."""
    rows = engine.store.read("agent_state_of", (engine.stream, space_of(thread), engine.store.clock.wall_ms()))
    runs = [run for run, *_ in rows]
    gone = [SetKey((engine.stream, space_of(thread), run)) for run in runs if effect_outcome(engine, run) != IN_DOUBT]
    if engine.store.read("get_state_value", (engine.stream, FRAMEWORKS, thread)):
        gone.append(SetKey((engine.stream, FRAMEWORKS, thread)))
    return gone


def effect_outcome(engine: Engine, run_id: str) -> str:
    """Return the outcome of the effect of a run as text; empty if it has not happened."""
    run = read_run(engine.store, engine.name, run_id)
    if run is None:
        return ""
    effects = Ledger(events_of(engine.store, run.stream, fork=run.is_fork)).by_intent.values()
    if any(one.in_doubt for one in effects):
        return IN_DOUBT
    return "was done" if any(one.done for one in effects) else ""
