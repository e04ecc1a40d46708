"""Fixtures of several files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure.store import open_store


@pytest.fixture
def store(store_url: str) -> Iterator[Any]:
    """An open store of each kind."""
    store = open_store(store_url)
    yield store
    store.close()
