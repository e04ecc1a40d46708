"""The fixtures of the conformance suite: a new store and an empty home folder for every test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from perdure.kernel.engine import close_left

STORES: dict[str, Callable[[Path], str]] = {}
"""Store name -> function from a folder to the URL of a new store. Tests with `store_url` run once for each.

`@pytest.mark.stores("sqlite")` limits a test to some of them.
"""

SESSION_END = ExitStack()
"""Cleanup of resources that all tests of a process share; closed after the last test."""

_session = uuid.uuid4().hex[:8]
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the repeatable option `--perdure-store URL`."""
    text = "a store to test; every test replaces {new} by a unique name and {folder} by an empty folder"
    parser.addoption("--perdure-store", action="append", default=[], metavar="URL", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of the suite and the stores of the command line."""
    config.addinivalue_line("markers", "stores(*names): run the test on these stores only")
    config.addinivalue_line("markers", "soak: runs for minutes to hours")
    for url in config.getoption("perdure_store"):
        STORES[url.partition(":")[0]] = _make_copier(url)


def pytest_sessionfinish() -> None:
    """Release the resources that the tests shared."""
    SESSION_END.close()


def _make_copier(url: str) -> Callable[[Path], str]:
    if url.startswith(("http://", "https://")):  # the name of a tenant
        return lambda folder: url.format(new=f"perdure-{_session}-{next(_numbers)}", folder=folder)
    return lambda folder: url.format(new=f"perdure_{_session}_{next(_numbers)}", folder=folder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `store_url` with every store, or with those of the test's `stores` mark."""
    if "store_url" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("stores")
        wanted = [name for name in STORES if marked is None or name in marked.args]
        metafunc.parametrize("store_url", wanted, indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a new store. Agents that the test leaves open are closed."""
    url = STORES[request.param](tmp_path)
    yield url
    # Otherwise each would keep its connections and its heartbeat until all tests have ended.
    close_left(url)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the home folders."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def isolate_home(homes: Path) -> Iterator[Path]:
    """Give each test and its child processes an empty home folder, without PERDURE_* and XDG_* variables.

    Otherwise a test could open the user's own store and load the user's models. A test that needs such a variable sets
    it with `monkeypatch`.
    """
    before = dict(os.environ)
    home = Path(tempfile.mkdtemp(dir=homes))
    for name in [name for name in os.environ if name.startswith(("PERDURE_", "XDG_"))]:
        del os.environ[name]
    os.environ["HOME"] = str(home)
    os.environ["PERDURE_EMBEDDER"] = "words"
    yield home
    os.environ.clear()
    os.environ.update(before)
    shutil.rmtree(home, ignore_errors=True)
