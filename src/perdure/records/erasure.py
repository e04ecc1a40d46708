"""Records of runs whose content was erased because somebody deleted the conversation that they belong to."""

from __future__ import annotations

from perdure.records.base import Record
from perdure.records.compaction import CarriedSavings, CarriedUsage


class RunErased(Record, frozen=True):
    """The entries of this run lost their bodies. Its name and its cost are what remains of it."""

    agent: str
    run: str
    parent: int
    started_at: int
    reason: str
    by: str
    usage: tuple[CarriedUsage, ...] = ()
    savings: tuple[CarriedSavings, ...] = ()
