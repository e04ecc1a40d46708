"""What was meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable


def meant(given: object, there: Iterable[str], nothing: str = "") -> str:
    """A hint for somebody who has mistyped a name: what is nearest to it, else some that there are; or `nothing`."""
    import difflib  # only for who has mistyped

    names = list(there)
    close = difflib.get_close_matches(str(given), names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there is {', '.join(map(repr, names[:10]))}" if names else nothing
