"""What a million events must not slow down: every question about them is answered from an index."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from perdure.store import sql
from tests.conformance.rich_store import copy_to

SPAN = (0, 0, 0, 0, 1 << 62, 0, 0, 0)
QUESTIONS = {
    "agent_events": (1, *SPAN, 10),
    "agent_events_newest_first": (1, *SPAN, 10),
    "agent_events_of_kind": (1, "A", *SPAN, 10),
    "agent_events_of_kind_newest_first": (1, "A", *SPAN, 10),
    "run_events": (1, 2, "", *SPAN, 10),
    "run_events_newest_first": (1, 2, "A", *SPAN, 10),
    "last_event_before": (1, 5),
    "first_event_since": (1, 5),
    "has_event": (1, 5, 0, 0, 0),
    "find_event": (1, 5, 0, 0, 0),
    "add_event": (1, 0, "A", 1, 1, 0, 5),
    "add_run_event": ("A", 1, 1, 0, 5),
    "journal_among": ("[[1, 1]]",),
    "last_replay_snapshot": (1, b"", 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_query_of_events_uses_an_index(tmp_path: Path, name: str) -> None:
    connection = apsw.Connection(str(copy_to(tmp_path / "perdure.db")))
    text = sql.number_parameters(sql.load("sqlite")[name], "?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", QUESTIONS[name])]
    connection.close()
    for step in map(str, plan):
        assert "TEMP B-TREE" not in step, plan
        assert not step.startswith("SCAN") or "json_each" in step or "CONSTANT ROW" in step, plan
    if name.startswith(("agent_events", "run_events")):
        index = "events_of_run" if "run" in name else "events_of_kind" if "kind" in name else "PRIMARY KEY"
        assert index in str(plan[0]), plan
        assert "(arrival,stream,seq,place)>" in str(plan[0]), plan
