"""Objects that refuse unknown attributes: a mistyped assignment must not be lost silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

    if not TYPE_CHECKING:  # for type checkers every attribute would exist

        def __getattr__(self, name: str) -> Any:
            # Programs that probe for protocols ask for private names: they need no hint. A known attribute that is
            # missing all the same has its own error, which a second access raises again.
            if name.startswith("_") or hasattr(type(self), name):
                return object.__getattribute__(self, name)
            raise self._unknown(name)

    def _unknown(self, name: str) -> UnknownAttribute:
        """Return the error for an attribute that does not exist."""
        from perdure.values.synonyms import SYNONYMS  # imported only on errors

        known = SYNONYMS.get(type(self).__name__.removeprefix("Async"), {})
        if name in known:
            return self._error(name, f"did you mean {known[name]!r}?")
        there = [known for known in dir(type(self)) if not known.startswith("_")]
        return self._error(name, name_hint(name, there))

    def _error(self, name: str, hint: str) -> UnknownAttribute:
        return UnknownAttribute(f"{type(self).__name__} has no attribute {name!r}", hint=hint)
