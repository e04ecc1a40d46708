"""Fixtures of the kit."""

from pathlib import Path

import pytest

from tests.conformance.kit import world

__all__ = ["world"]


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """A store in a file, where the kind of the store makes no difference."""
    return f"sqlite:///{tmp_path}/shop.db"
