"""Fixtures: a running server on each kind of store, and one on SQLite for tests that are not about stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import Client, Server


@pytest.fixture
def server(store_url: str, tmp_path: Path) -> Iterator[Server]:
    """A server on an empty store, once per kind of store."""
    running = Server(store_url, tmp_path).start()
    yield running
    running.kill()


@pytest.fixture
def writer(server: Server) -> Client:
    """A client that may read and write the default tenant."""
    return server.writer()


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on a SQLite file that the tests of a module share. Each test uses names of its own."""
    folder = tmp_path_factory.mktemp("server")
    running = Server(f"sqlite:///{folder / 'perdure.db'}", folder).start()
    yield running
    running.kill()
