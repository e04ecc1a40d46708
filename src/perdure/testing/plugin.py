"""The fixtures of the conformance suite: a store for every test, and a home folder that is nobody's."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..engine import close_left

STORES: dict[str, Callable[[Path], str]] = {}
"""By name, what makes the URL of a new store, given a folder: every test that takes `store_url` runs once for each.

A test that is about some of them says so with `@pytest.mark.stores("sqlite")`.
"""

_session = uuid.uuid4().hex[:8]
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--perdure-store URL`, as often as there are stores."""
    text = "a store to test; {new} in it becomes a new name, and {folder} a new folder, for every test"
    parser.addoption("--perdure-store", action="append", default=[], metavar="URL", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks of the suite, and the stores of the command line."""
    config.addinivalue_line("markers", "stores(*names): the test is about these stores only")
    config.addinivalue_line("markers", "soak: runs for minutes to hours")
    for url in config.getoption("perdure_store"):
        STORES[url.partition(":")[0]] = _filled(url)


def _filled(url: str) -> Callable[[Path], str]:
    return lambda folder: url.format(new=f"perdure_{_session}_{next(_numbers)}", folder=folder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`store_url` of every store, or of those that the test is about."""
    if "store_url" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("stores")
        wanted = [name for name in STORES if marked is None or name in marked.args]
        metafunc.parametrize("store_url", wanted, indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a new store that no other test uses. What the test leaves open is closed."""
    url = STORES[request.param](tmp_path)
    yield url
    # Otherwise each would keep its connections, and a heart that beats, until all tests have ended.
    close_left(url)


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the home folders."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def isolated(homes: Path) -> Iterator[Path]:
    """A home folder of its own and no PERDURE_* or XDG_* for each test and its child processes.

    Otherwise a test would open the store of whoever runs it, and wait for whatever model it has. A test that wants
    one of these variables sets it with `monkeypatch`; all is put back afterwards.
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
