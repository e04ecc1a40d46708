"""A pytest plugin: the SQLite persistence of CrewAI is `PerdureFlowPersistence`."""

from __future__ import annotations

from typing import Any

import crewai.flow.persistence
import crewai.flow.persistence.sqlite

from perdure.adapters.crewai import PerdureFlowPersistence

from .swapping import leave_out, new_store

_INTERNALS = r"sqlite3|corrupt|\.db_path|\bpatch\b|_connect"
_TYPES = "times in a state that is a dict come back as times, not as text"
_EXPLAINED = {
    "test_persist_complex_types_dict_state": _TYPES,
    "test_save_pending_feedback_complex_types": _TYPES,
}


class SwappedPersistence(PerdureFlowPersistence):
    """Takes the arguments of the bundled class."""

    def __init__(self, db_path: str | None = None, **fields: Any) -> None:
        super().__init__(f"{db_path}.perdure" if db_path else new_store(), **fields)


for _module in (crewai.flow.persistence, crewai.flow.persistence.sqlite):
    _module.SQLiteFlowPersistence = SwappedPersistence


def pytest_collection_modifyitems(items: list[Any]) -> None:
    leave_out(items, _INTERNALS, _EXPLAINED)
