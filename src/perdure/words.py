"""How a text is cut into words that can be searched; the same for every store, and for what is looked for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from .limits import WORD_CHARACTERS_MAX, WORDS_MAX

_ASCII = re.compile("[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+)"
)
"""Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""


def words_in(text: str) -> list[str]:
    """The words of a text in their order, without case and accents; so many at most.

    >>> words_in("Straße, CAFÉ au_lait 3.5")
    ['strasse', 'cafe', 'au', 'lait', '3', '5']
    """
    cut = _ASCII.findall(text.lower()) if text.isascii() else list(_beyond_ascii(text))
    return [word[:WORD_CHARACTERS_MAX] for word in cut[:WORDS_MAX]]


def spaced(text: str) -> str:
    """The same with a space between them, as stores want them."""
    return " ".join(words_in(text))


def _beyond_ascii(text: str) -> Iterator[str]:
    apart = unicodedata.normalize("NFKD", text.casefold())
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", apart))
    # Marks are parts of words in many scripts, and Python's \w leaves them out.
    for run in "".join(it if it.isalnum() or unicodedata.category(it)[0] == "M" else " " for it in plain).split():
        for piece in _UNSPACED.split(run):
            if piece and _UNSPACED.match(piece):
                yield from _pairs(piece)
            elif piece:
                yield piece


def _pairs(run: str) -> Iterator[str]:
    """Where nobody says where a word ends, every two neighbours are one."""
    if len(run) == 1:
        yield run
    for start in range(len(run) - 1):
        yield run[start : start + 2]
