"""Hints for names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable


def near(given: object, there: Iterable[str]) -> str:
    """Return a "did you mean" question for a mistyped name; empty if no name is close."""
    import difflib  # imported only on errors

    close = difflib.get_close_matches(str(given), list(there), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def meant(given: object, there: Iterable[str], nothing: str = "") -> str:
    """Return a hint for a mistyped name: the closest name, else some existing ones; or `nothing`."""
    names = list(there)
    if question := near(given, names):
        return question
    return f"known: {', '.join(map(repr, names[:10]))}" if names else nothing
