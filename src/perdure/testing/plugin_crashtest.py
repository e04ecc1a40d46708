"""A fixture for your own tests: does my agent survive?

In `conftest.py`:

    pytest_plugins = ["perdure.testing.plugin_crashtest"]

In a test:

    def test_survives(crashtest):
        crashtest("agent.py", count_effects="outside.txt").assert_survives()
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .crashtest import Report
from .crashtest import crashtest as _crashtest


@pytest.fixture
def crashtest() -> Callable[..., Report]:
    """Kills a program everywhere, starts it again, and compares: `perdure.testing.crashtest.crashtest`."""
    return _crashtest
