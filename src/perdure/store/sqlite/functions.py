"""SQL functions that Perdure registers in SQLite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.store.base import Rows


def teller(told: Rows) -> Callable[..., bool]:
    """Make the SQL function `tell`, which adds its argument to the result rows and returns true.

    RETURNING would do the same, but it creates a temporary table each time, which costs a tenth of a step.
    """

    def tell(value: Any) -> bool:
        told.append((value,))
        return True

    return tell  # refers to the list, not the store, which could otherwise not be collected
