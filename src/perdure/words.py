"""How a text is cut into words that can be searched; the same for every store, and for what is looked for.

There are two ways to cut, since two indexes are full of what came of them and nothing would be found in them otherwise:
values of state (`search/`) by `words_in`, as they are written; memories by `memory/terms.py`, without endings and small
words. What both do alike is here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from .limits import WORD_CHARACTERS_MAX, WORDS_MAX

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""

_ASCII = re.compile("[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_RUN = re.compile(f"([{UNSPACED}]+)")


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


def plain(text: str) -> str:
    """Without accents, and with one way to write each character; the case stays.

    Marks that are vowels of their script stay; those of Latin, Greek and Cyrillic go. Hangul is put together again.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))


def pairs(run: str) -> Iterator[str]:
    """Where nobody says where a word ends, every two neighbours are one."""
    yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))


def _beyond_ascii(text: str) -> Iterator[str]:
    bare = plain(text.casefold())
    # Marks are parts of words in many scripts, and Python's \w leaves them out.
    for run in "".join(it if it.isalnum() or unicodedata.category(it)[0] == "M" else " " for it in bare).split():
        for piece in _RUN.split(run):
            if piece and _RUN.match(piece):
                yield from pairs(piece)
            elif piece:
                yield piece
