"""What all swaps share: a store per test, and the tests that cannot hold for another class."""

from __future__ import annotations

import inspect
import itertools
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import pytest

_FOLDER = tempfile.mkdtemp()
_NUMBERS = itertools.count()


def new_store() -> str:
    """The path of a store that does not exist yet."""
    return f"{_FOLDER}/{next(_NUMBERS)}.db"


def leave_out(items: list[Any], internals: str, explained: Mapping[str, str]) -> None:
    """Skip tests that look into the bundled class, and those that are explained by name."""
    for item in items:
        name = item.originalname
        reasons = [reason for pattern, reason in explained.items() if re.fullmatch(pattern, name)]
        if re.search(internals, inspect.getsource(item.function)):
            reasons = ["looks into the bundled class"]
        if reasons:
            item.add_marker(pytest.mark.skip(reason=reasons[0]))
