r"""Makes characters visible that a terminal or a browser would obey: control, ANSI and direction marks."""

from __future__ import annotations

import unicodedata

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (direction marks), surrogate, private and unassigned characters, line separators."""


def clean(text: str, keep: str = "") -> str:
    r"""Escape control characters in text from a store; those in `keep` stay.

    >>> clean("\x1b[2Jgone\n")
    '\\x1b[2Jgone\\n'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in keep else _visible(one) for one in text)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _OBEYED:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
