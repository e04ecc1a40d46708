"""One fork_server and one folder in memory for the whole suite, and every test on every store.

A test that takes `stage` runs once per store; one that is about some of them says @pytest.mark.stores("sqlite").
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import pytest

from perdure.testing.plugin import STORES
from tests.conftest import new_store
from tests.crash.harness import ForkServer, Stage, Undisturbed

EVERYTHING = "PERDURE_TEST_STORES" in os.environ or os.environ.get("PERDURE_HYPOTHESIS") == "soak"
LONG = {"test_interrupts", "test_random", "test_recovery"}
"""On PostgreSQL these are for `make soak`, or for whoever names the store: CI has 15 minutes for all."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`stage` with every store, all tests of one store before those of the next."""
    if "stage" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("stores")
        wanted = [name for name in STORES if marked is None or name in marked.args]
        if not EVERYTHING and metafunc.module.__name__.rpartition(".")[2] in LONG:
            wanted = [name for name in wanted if name != "postgres"]
        metafunc.parametrize("stage", wanted, indirect=True, scope="session")


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """The process that all victims are forked from."""
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture(scope="session")
def stage(fork_server: ForkServer, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Where scenes are played."""
    stage = Stage(fork_server, partial(new_store, "postgres") if request.param == "postgres" else None)
    stage.folder()  # starts the server: later, several threads at once would start several
    yield stage
    stage.clear()


@pytest.fixture(scope="session")
def undisturbed(stage: Stage) -> dict[str, Undisturbed]:
    """The victim's run in peace, in both colours."""
    return {colour: stage.scene("victim:main", colour).play_undisturbed() for colour in ("sync", "async")}
