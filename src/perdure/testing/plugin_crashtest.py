"""A pytest fixture that crash-tests your own agent.

In `conftest.py`:

    pytest_plugins = ["perdure.testing.plugin_crashtest"]

In a test:

    def test_survives(crashtest):
        crashtest("agent.py", count_effects="outside.txt").assert_survives()
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.testing.crashtest import CrashtestReport
from perdure.testing.crashtest import crashtest as _crashtest


@pytest.fixture
def crashtest() -> Callable[..., CrashtestReport]:
    """Return `perdure.testing.crashtest.crashtest`, which kills a program at every point and compares the results."""
    return _crashtest
