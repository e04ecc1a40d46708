"""Checks and applies search filters. A wrong filter is an error before anything is read, not an empty result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from perdure.errors import WrongValue
from perdure.values.hints import name_hint

ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
OPERATORS = ("$eq", "$ne", *ORDERS)


def check_filter(given: Any, path: str = "filter") -> None:
    """Raise if this is not a valid filter."""
    if not isinstance(given, Mapping):
        raise WrongValue(f"{path} must be a dict of keys and wanted values, not {given!r}")
    for key, wanted in given.items():
        if not isinstance(key, str):
            raise WrongValue(f"{path}: a key must be a str, not {key!r}")
        if key.startswith("$"):
            raise WrongValue(f"{path}: {key!r} is where a key is expected: {{'key': {{{key!r}: ...}}}}")
        _check_operand(wanted, f"{path}[{key!r}]")


def _check_operand(wanted: Any, path: str) -> None:
    if isinstance(wanted, Mapping):
        if not any(isinstance(key, str) and key.startswith("$") for key in wanted):
            check_filter(wanted, path)
            return
        for name, value in wanted.items():
            if name not in OPERATORS:
                known = ", ".join(OPERATORS)
                raise WrongValue(
                    f"{path}: unknown operator {name!r}; {name_hint(name, OPERATORS)} (supported: {known})"
                )
            if name in ORDERS and not isinstance(value, int | float | str | date):
                raise WrongValue(f"{path}: {name} needs a number, a str or a date, not {value!r}")
    elif isinstance(wanted, list | tuple):
        for place, inner in enumerate(wanted):
            _check_operand(inner, f"{path}[{place}]")


def matches(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a value matches a filter."""
    return all(_matches(value.get(key), part) for key, part in wanted.items())


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(key.startswith("$") for key in wanted):
            return all(_compares(value, name, part) for name, part in wanted.items())
        return isinstance(value, Mapping) and matches(value, wanted)
    if isinstance(wanted, list | tuple):
        return _matches_each(value, wanted)
    return bool(value == wanted)


def _matches_each(value: Any, wanted: Sequence[Any]) -> bool:
    if not isinstance(value, list | tuple) or len(value) != len(wanted):
        return False
    return all(_matches(one, part) for one, part in zip(value, wanted, strict=True))


def _compares(value: Any, name: str, wanted: Any) -> bool:
    if name == "$eq":
        return bool(value == wanted)
    if name == "$ne":
        return bool(value != wanted)
    compare = ORDERS[name]
    numbers = _number(value), _number(wanted)
    if numbers[0] is not None and numbers[1] is not None:
        return compare(*numbers)
    for kind in (str, datetime, date):
        if isinstance(value, kind) and isinstance(wanted, kind):
            return _compare_ordered(compare, value, wanted)
    return False  # values that cannot be compared do not match


def _compare_ordered(compare: Callable[[Any, Any], bool], value: Any, wanted: Any) -> bool:
    try:
        return compare(value, wanted)
    except TypeError:
        return False  # one time has a zone and the other has none


def _number(value: Any) -> float | None:
    """Convert to a number. As in LangGraph, text of digits counts as a number."""
    if not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
