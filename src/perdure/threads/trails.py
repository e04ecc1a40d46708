"""What an adapter remembers of the calls that a thread has begun: keys of `agent.state`, each the id of a call's run.

It goes with the thread, in the same commit: who begins the thread anew begins everything anew. But an effect of which
nobody knows whether it happened stays known, so that it is not done again without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..journal.keeping import OURS
from ..journal.landing import Ask
from ..journal.lineage import events_of
from ..run.ledger import Ledger

if TYPE_CHECKING:
    from ..engine import Engine

IN_DOUBT = "is in doubt"


def space_of(thread: str) -> str:
    """The namespace of `agent.state` in which the trail of a thread is; one of those that nobody else is shown."""
    return f"{OURS}calls/{thread}"


def forgetting(engine: Engine, thread: str) -> list[Ask]:
    """What makes the trail of a thread be forgotten."""
    rows = engine.store.read("entries_of", (engine.stream, space_of(thread), engine.store.clock.wall_ms()))
    runs = [row[0] for row in rows]
    return [Ask((engine.stream, space_of(thread), run)) for run in runs if how_it_stands(engine, run) != IN_DOUBT]


def how_it_stands(engine: Engine, run_id: str) -> str:
    """What is known of the effect that a run was for, in words; nothing when it has not happened."""
    for row in engine.store.read("get_run", (engine.name, run_id)):
        effects = Ledger(events_of(engine.store, row[0], fork=row[11] > 0)).by_intent.values()
        if any(one.in_doubt for one in effects):
            return IN_DOUBT
        if any(one.done for one in effects):
            return "was done"
    return ""
