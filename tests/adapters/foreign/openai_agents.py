"""A pytest plugin: the sessions of openai-agents are `PerdureSession`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import agents.memory
from agents.extensions import memory as extensions
from agents.extensions.memory import async_sqlite_session

from perdure.adapters.openai_agents import PerdureSession

from .swapping import leave_out, new_store

_INTERNALS = (
    r"session\w*\._|SQLiteSession\._|sqlite3|monkeypatch|aiosqlite|Session\(SQLiteSession|corrupt|_await_mutation"
)
_HOOKS = "the SDK compacts a limited view only through private methods of its own sessions"
_EXPLAINED = {
    r".*closed_.*|.*close_before_use.*|.*close_is_idempotent": "raises StoreClosed, not RuntimeError",
    "test_session_settings_rejects_unknown_dictionary_fields": "the TypeError has other words",
    "test_new_backend_write_invalidates_snapshot": _HOOKS,
    "test_partial_compaction_.*": _HOOKS,
    "test_unverifiable_rows_inside_snapshot_are_retained": _HOOKS,
    "test_backend_read_limit_cannot_hide_retained_history_from_compaction": _HOOKS,
    "test_encrypted_compaction_skips_unencrypted_stored_history": _HOOKS,
    "test_encrypted_pop_.*": "EncryptedSession validates before a pop only in SQLiteSession",
}


class SwappedSession(PerdureSession):
    """Takes the arguments of the bundled sessions."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "",
        messages_table: str = "",
        session_settings: Any = None,
    ) -> None:
        lost = str(db_path) == ":memory:" or str(db_path).startswith("file:")
        super().__init__(new_store() if lost else Path(db_path), session_id, session_settings)


for _module in (agents, agents.memory):
    _module.SQLiteSession = SwappedSession
for _module in (extensions, async_sqlite_session):
    _module.AsyncSQLiteSession = SwappedSession


def pytest_collection_modifyitems(items: list[Any]) -> None:
    leave_out(items, _INTERNALS, _EXPLAINED)
