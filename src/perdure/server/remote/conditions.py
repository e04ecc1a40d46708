"""The errors of conditions: a client names the class that it will raise, and the server never needs to know it."""

from __future__ import annotations

import re
from functools import lru_cache

from perdure.errors import PerdureError, RequestInvalid
from perdure.store.remote.wire import error_classes

_NAME = re.compile(r"[A-Za-z_]\w{0,79}", re.ASCII)
NAMES_MAX = 256


class ConditionFailed(PerdureError):
    """A statement did not affect exactly one row."""


@lru_cache(NAMES_MAX)
def find_condition(name: str) -> type[PerdureError]:
    """Return the error class of that name; one that only the client knows is stood in for."""
    if not _NAME.fullmatch(name):
        raise RequestInvalid("the error of a condition has no valid name")
    return error_classes().get(name) or type(name, (ConditionFailed,), {"__doc__": ConditionFailed.__doc__})
