"""Counts the tokens of a text: with a given tokenizer, an installed one, or an estimate."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from perdure.errors import WrongType
from perdure.values import locks

TokenCounter = Callable[[str], int]
"""Counts the tokens of a text: a provider's tokenizer, or `estimate_tokens`."""

ENCODING = "o200k_base"
"""The vocabulary of OpenAI's current models. Other providers do not publish theirs; their counts are close to it."""

_BLOB = f"https://openaipublic.blob.core.windows.net/encodings/{ENCODING}.tiktoken"
"""The source of tiktoken's vocabulary. tiktoken caches it under a digest of this name; nothing is fetched here."""


_PIECES = re.compile(
    r"([A-Za-z\d]{20,})|([A-Za-z]+)|([\u00c0-\u1fff]+[A-Za-z\u00c0-\u1fff]*)|(\d+)|(\s*\n\s*)"
    r"|([^\w\s\u1100-\U0010ffff]+|_+)|(\w)|([\u2500-\u259f]+)|([\u2800-\u28ff])|([^\w\s])"
)
_LETTERS, _OTHER_LETTERS, _DIGITS, _SIGNS, _LINES = 9, 3, 3, 4, 2
"""How many characters of each class make a token on average. A space counts with the following word."""

_SECRETS = 0.6
"""Tokens per character of text that is not words: keys, hashes, images in base64."""
_BRAILLE, _EMOJI = 3, 2
"""Tokens per character for terminal spinners (braille), and for characters outside of 16 bits."""


def counter(given: TokenCounter | None) -> tuple[TokenCounter, bool]:
    """Return the function that counts tokens, and whether it only estimates."""
    if given is not None:
        if not callable(given):
            raise WrongType(f"tokens= must be a function that counts the tokens of a text, not {given!r}")
        return _cache_counts(given), given is estimate_tokens or getattr(given, "counts", None) is estimate_tokens
    found = find_installed()
    return (_cache_counts(found), False) if found is not None else (_cache_counts(estimate_tokens), True)


class CachingCounter:
    """A counter with a cache for long texts: a context contains the same documents, cut the same way, in every turn."""

    def __init__(self, counts: TokenCounter) -> None:
        self.counts = counts
        self._known: dict[bytes, int] = {}
        self._lock = locks.lock()

    def __call__(self, text: str) -> int:
        """Count the tokens of a text."""
        if len(text) <= _REMEMBERED:
            return self.counts(text)
        which = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        known = self._known.get(which)
        return known if known is not None else self._keep(which, self.counts(text))

    def _keep(self, which: bytes, tokens: int) -> int:
        with self._lock:
            self._known[which] = tokens
            if len(self._known) > _LONG_ONES:
                del self._known[next(iter(self._known))]
        return tokens


def _cache_counts(count: TokenCounter) -> TokenCounter:
    try:
        return count if isinstance(count, CachingCounter) else _remembered_by(count)
    except TypeError:
        return count  # the object is not hashable


_remembered_by = lru_cache(maxsize=16)(CachingCounter)
"""One cache per function: counts of another function must not be reused."""


@cache
def find_installed() -> TokenCounter | None:
    """Return the tokenizer of an installed package that has its vocabulary."""
    return _rs_bpe() or _tiktoken()


def _rs_bpe() -> TokenCounter | None:
    if find_spec("rs_bpe") is None:
        return None
    from rs_bpe import bpe  # type: ignore[import-not-found, unused-ignore]

    count: TokenCounter = bpe.openai.o200k_base().count
    return count


def _tiktoken() -> TokenCounter | None:
    if find_spec("tiktoken") is None or not _is_cached():
        return None
    import tiktoken  # type: ignore[import-not-found, unused-ignore]

    encode = tiktoken.get_encoding(ENCODING).encode_ordinary
    return lambda text: len(encode(text))


def _is_cached() -> bool:
    """Return whether tiktoken has cached its vocabulary. Otherwise it would fetch it from the network."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    where = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    return (where / hashlib.sha1(_BLOB.encode()).hexdigest()).is_file()


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens current models make of a text.

    Measured against OpenAI's vocabularies cl100k and o200k on documentation, Python, JSON, logs and conversations: see
    `docs/reference/context.md`. Leave a margin, or pass a tokenizer.
    """
    return _again(text) if len(text) <= _REMEMBERED else _count(text)


def _count(text: str) -> int:
    return sum(map(_tokens_of, _PIECES.finditer(text)))


_REMEMBERED, _LONG_ONES = 2000, 4096
"""The maximum length of a short text, and how many long texts are cached by digest."""
_again = lru_cache(maxsize=4096)(_count)
"""Contexts count the same lines and messages repeatedly. Long texts would fill the memory."""


def _tokens_of(piece: re.Match[str]) -> int:
    size = piece.end() - piece.start()
    per = _PER.get(piece.lastindex or 0)
    if per is not None:
        return -(-size // per)
    if piece.lastindex == _LONG:
        text = piece[0]
        return -(-size // _LETTERS) if text.isalpha() else round(_SECRETS * size)
    if piece.lastindex == _SYMBOL:
        return _EMOJI if piece[0] > "\uffff" else 1
    return _BRAILLE if piece.lastindex == _DOTS else 1


_PER = {2: _LETTERS, 3: _OTHER_LETTERS, 4: _DIGITS, 6: _SIGNS, 8: _LINES}
_LONG, _DOTS, _SYMBOL = 1, 9, 10
"""Group numbers of the pattern."""
