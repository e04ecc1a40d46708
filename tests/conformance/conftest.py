"""Fixtures of the kit."""

from collections.abc import Iterator

import pytest

from perdure.journal import objects

from .chat import program
from .kit import clock, file_url, world
from .replay_programs import shop

__all__ = ["clock", "file_url", "forget_damage", "program", "shop", "world"]


@pytest.fixture(autouse=True)
def forget_damage() -> Iterator[None]:
    """A process that has met damage relies on less of what it knows: the next test starts without."""
    yield
    objects._suspects.clear()
