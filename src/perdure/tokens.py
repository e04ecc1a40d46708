"""How many tokens a text has, when nobody has a tokeniser at hand: an estimate."""

from __future__ import annotations

import re
from collections.abc import Callable

Tokens = Callable[[str], int]
"""Counts the tokens of a text: a provider's tokeniser, or `estimated`."""

_PIECES = re.compile(
    r"([A-Za-z]+)|([\u00c0-\u1fff]+[A-Za-z\u00c0-\u1fff]*)|(\d+)|(\s*\n\s*)|([^\w\s\u1100-\uffff]+|_+)|(\w)"
)
_LETTERS, _OTHER_LETTERS, _DIGITS, _SIGNS = 9, 3, 3, 4
"""So many of each make a token, on the average. Between words there is no token: the blank belongs to the word."""


def estimated(text: str) -> int:
    """About as many tokens as the models of today make of a text.

    Measured against the vocabularies cl100k and o200k of OpenAI on pages of documentation, Python, JSON, logs and
    conversations: see `docs/workspace.md`. It is an estimate: leave a margin, or give a tokeniser.
    """
    return sum(map(_tokens_of, _PIECES.finditer(text)))


def _tokens_of(piece: re.Match[str]) -> int:
    size = piece.end() - piece.start()
    which = piece.lastindex
    if which == 1:
        return -(-size // _LETTERS)
    if which == 2:
        return -(-size // _OTHER_LETTERS)
    if which == 3:
        return -(-size // _DIGITS)
    return -(-size // _SIGNS) if which == 5 else 1
