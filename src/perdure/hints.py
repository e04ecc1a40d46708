"""What was meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable


def near(given: object, there: Iterable[str]) -> str:
    """A question about what is nearest to a mistyped name; empty when nothing is near."""
    import difflib  # only for who has mistyped

    close = difflib.get_close_matches(str(given), list(there), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def meant(given: object, there: Iterable[str], nothing: str = "") -> str:
    """A hint for somebody who has mistyped a name: what is nearest to it, else some that there are; or `nothing`."""
    names = list(there)
    if question := near(given, names):
        return question
    return f"there is {', '.join(map(repr, names[:10]))}" if names else nothing
