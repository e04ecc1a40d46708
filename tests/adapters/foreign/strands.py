"""A pytest plugin: session managers of Strands are `PerdureSessionManager`, and repositories our `StoredSessions`."""

from __future__ import annotations

from typing import Any

import strands.session
import strands.session.file_session_manager as file_module

import tests.fixtures.mock_session_repository as mock_module
from perdure.adapters.open_engine import EngineHolder
from perdure.adapters.strands import PerdureSessionManager, StoredSessions

from .swapping import leave_out, new_store

_INTERNALS = r"\._get_|os\.path|open\(|corrupt|symlink|storage_dir|patch|json\.load"


class SwappedRepository(StoredSessions):
    """A repository with a store of its own."""

    def __init__(self) -> None:
        self.home = EngineHolder(new_store(), "strands")
        super().__init__(self.home.engine)


class SwappedManager(PerdureSessionManager):
    """Takes the arguments of the bundled manager, which is a repository too."""

    def __init__(self, session_id: str, storage_dir: str | None = None, **kwargs: Any) -> None:
        super().__init__(f"{storage_dir}/sessions.db" if storage_dir else new_store(), session_id, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_sessions":
            raise AttributeError(name)
        return getattr(self._sessions, name)


mock_module.MockedSessionRepository = SwappedRepository
file_module.FileSessionManager = strands.session.FileSessionManager = SwappedManager


def pytest_collection_modifyitems(items: list[Any]) -> None:
    leave_out(items, _INTERNALS, {})
