"""Hints for names that do not exist."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def insert_run_id(hint: str, run: str, options: str = "") -> str:
    """Put the id of a run into the commands of a hint, instead of the placeholder RUN."""
    return hint.replace("RUN", f"{shlex.quote(run)}{options}")


def did_you_mean(given: object, there: Iterable[str]) -> str:
    """Return a "did you mean" question for a mistyped name; empty if no name is close."""
    import difflib  # imported only on errors

    close = difflib.get_close_matches(str(given), list(there), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def name_hint(given: object, there: Iterable[str], nothing: str = "") -> str:
    """Return a hint for a mistyped name: the closest name, else some existing ones; or `nothing`."""
    names = list(there)
    if question := did_you_mean(given, names):
        return question
    return f"known: {', '.join(map(repr, names[:10]))}" if names else nothing
