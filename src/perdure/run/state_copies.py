"""Notices changes to copies of `run.state` that the code never writes back, such as `run.state["seen"].append(x)`."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from perdure.errors import PerdureError, StateNotSaved
from perdure.kernel.program_line import Place, calling_place, line_of, warn_at
from perdure.run.core import RunCore
from perdure.values import codec

IMMUTABLE: Final = frozenset({type(None), bool, int, float, complex, str, bytes, Decimal, range})

StateRead = Callable[[], tuple[bytes, Any]]
"""Reads a key: its packed value, which tells whether it was written since, and a fresh copy."""


class StateCopy(NamedTuple):
    """A copy that the code has got, and how to get a fresh one."""

    packed: bytes
    value: Any
    read: StateRead
    at: Place | None


class StateCopies:
    """The last copy of each key that an open run has handed out."""

    def __init__(self) -> None:
        self._copies: dict[str, StateCopy] = {}

    def __bool__(self) -> bool:
        return bool(self._copies)

    def add(self, what: str, copy: StateCopy) -> None:
        """Note a copy. The one before it was changed in place if it differs and nothing was written since."""
        before = self._copies.get(what)
        self._copies[what] = copy
        if before is not None and before.packed == copy.packed:
            _compare(what, before, copy.value)

    def check(self) -> None:
        """Compare all copies with what is stored, at the end of the run."""
        copies, self._copies = self._copies, {}
        for what, copy in copies.items():
            try:
                packed, value = copy.read()
            except (KeyError, PerdureError):  # deleted since, or erased
                continue
            if packed == copy.packed:
                _compare(what, copy, value)


def handed_out(run: RunCore, what: str, read: StateRead) -> Any:
    """Return the value that `read` gives, and remember it if the code can change it in place."""
    packed, value = read()
    if type(value) not in IMMUTABLE:
        run.parts.get(StateCopies).add(what, StateCopy(packed, value, read, calling_place()))
    return value


def _compare(what: str, copy: StateCopy, stored: Any) -> None:
    if _are_same(copy.value, stored):
        return
    where = f" at {line_of(copy.at)}" if copy.at is not None else ""
    text = (
        f"{what}, read{where}, was changed in place: that changes a copy, and is not saved "
        f"(write it back: {what} = value; or copy it first, if only the copy is meant)"
    )
    warn_at(copy.at, StateNotSaved(text))


def _are_same(one: Any, other: Any) -> bool:
    """Compare as stored: `==` is user code, and says otherwise of NaN and arrays."""
    try:
        return codec.encode(one) == codec.encode(other)
    except PerdureError:  # what was put in cannot be stored
        return False
