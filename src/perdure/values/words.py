"""Splits text into searchable words, the same way for every store and for queries.

There are two ways to split, because two indexes are built on them. Values of state (`data/search/`) use `words_in`,
which keeps words as written. Memories use `memory/recall/terms.py`, which drops endings and stop words. The common
parts are here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from perdure.values.limits import WORD_CHARACTERS_MAX, WORDS_MAX

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese."""

_ASCII = re.compile("[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_RUN = re.compile(f"([{UNSPACED}]+)")


def words_in(text: str) -> list[str]:
    """Return the words of a text in order, without case and accents, up to a limit.

    >>> words_in("Straße, CAFÉ au_lait 3.5")
    ['strasse', 'cafe', 'au', 'lait', '3', '5']
    """
    cut = _ASCII.findall(text.lower()) if text.isascii() else list(_iterate_beyond_ascii(text))
    return [word[:WORD_CHARACTERS_MAX] for word in cut[:WORDS_MAX]]


def space_words(text: str) -> str:
    """Return the words of a text separated by spaces, as stores need them."""
    return " ".join(words_in(text))


def normalize(text: str) -> str:
    """Normalize text: without accents, one form for each character, case unchanged.

    Marks that are vowels of their script stay; those of Latin, Greek and Cyrillic are removed. Hangul is recomposed.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))


def pairs(run: str) -> Iterator[str]:
    """Yield overlapping pairs of characters, for scripts without word boundaries."""
    yield from (run[at : at + 2] for at in range(max(len(run) - 1, 1)))


def _iterate_beyond_ascii(text: str) -> Iterator[str]:
    bare = normalize(text.casefold())
    # Marks are parts of words in many scripts, and Python's \w excludes them.
    for run in "".join(
        letter if letter.isalnum() or unicodedata.category(letter)[0] == "M" else " " for letter in bare
    ).split():
        for piece in _RUN.split(run):
            if piece and _RUN.match(piece):
                yield from pairs(piece)
            elif piece:
                yield piece
