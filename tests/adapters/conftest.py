"""Fixtures of the kit."""

from pathlib import Path

import pytest

from tests.conformance.kit import world

__all__ = ["world"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Graphs run with LangGraph's defaults here, as its own tests do; one test is about the warning."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:LangGraph starts the next node"))


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """A store in a file, where the kind of the store makes no difference."""
    return f"sqlite:///{tmp_path}/shop.db"
