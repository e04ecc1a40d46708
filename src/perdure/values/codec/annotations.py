"""The classes that the annotations of a function name, also inside `list[Flight]` and `Flight | None`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

from perdure.values.codec.plain_classes import is_class


def iterate_annotated_classes(function: Callable[..., Any]) -> Iterator[type]:
    """Return the classes in the annotations of a function."""
    for annotation in _hints(function).values():
        yield from _classes(annotation)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    # An annotation may be any expression, or a name that exists for type checkers only.
    except Exception:
        return dict(getattr(function, "__annotations__", {}))


def _classes(annotation: Any) -> Iterator[type]:
    if is_class(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from _classes(argument)
