"""Attributes that are computed when they are first read.

In Python 3.11 `functools.cached_property` has one lock for all instances of a class. A child made by os.fork() finds it
taken for ever if another thread was computing. Here two threads may compute at once, and the later value stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - a decorator, as `property` is
    """Turn a method into an attribute that is computed once per instance."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = self._compute(instance)
        instance.__dict__[self._name] = value  # found before this descriptor from now on
        return value
