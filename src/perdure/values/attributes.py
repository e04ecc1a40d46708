"""Objects that refuse unknown attributes: a mistyped assignment must not be lost silently."""

from __future__ import annotations

from perdure.errors import UnknownAttribute
from perdure.values.hints import name_hint


class KnownAttributes:
    """Base of public objects. It needs `__slots__` in every subclass; one without them has attributes of its own.

    >>> run.resutl = 5
    Traceback (most recent call last):
    perdure.errors.UnknownAttribute: Run has no attribute 'resutl' (did you mean 'result'?)
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError:
            if hasattr(type(self), name):
                raise
            raise self._unknown(name) from None

    def _unknown(self, name: str) -> UnknownAttribute:
        """Return the error for an attribute that does not exist."""
        there = [known for known in dir(type(self)) if not known.startswith("_")]
        return UnknownAttribute(f"{type(self).__name__} has no attribute {name!r}", hint=name_hint(name, there))
