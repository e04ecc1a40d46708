"""One server for the tests that leave it as they found it; the others make their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.crash.harness import Stage, open_stage
from tests.postgres.cluster import Cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A server that nobody kills."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def schema() -> str:
    """A name that no other test uses."""
    return f"test_{next(_numbers)}"


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    """Where child processes play, forked from one that has loaded everything."""
    with open_stage() as stage:
        yield stage
