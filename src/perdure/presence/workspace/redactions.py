"""Redacts forgotten texts, and keeps an outdated folder from bringing them back.

A folder records what it was last synced with as a digest. Once that text is erased, nobody knows which lines of the
folder are new. So the lines that had a forgotten text are remembered as keyed digests, with their replacements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b

from perdure.values.limits import FORGOTTEN_LINES_MAX
from perdure.values.lines import lines_of

FORGOTTEN = "[forgotten]"
_LEAST = 8
"""Minimum length of a line that can be a secret: shorter ones occur everywhere."""


class TextRedactor:
    """Replaces texts by a mark, also in the forms that a log has: on one line, or with indented continuation lines."""

    def __init__(self, texts: Sequence[str]) -> None:
        lines = ((text, lines_of(text)) for text in texts)
        shapes = (
            (text, "\n  ".join(text.split("\n")), "\n  ".join(cut), "\n".join(cut), " ".join(text.split()))
            for text, cut in lines
        )
        self._shapes = [shape for some in shapes for shape in dict.fromkeys(some)]

    def __call__(self, text: str) -> str:
        for shape in self._shapes:
            text = text.replace(shape, FORGOTTEN)
        return text

    def lines(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield the lines that are redacted, each with its replacement; empty if it goes with the line before."""
        yield from ((line, new) for line in text.split("\n") if (new := self(line)) != line)
        for shape in (shape for shape in self._shapes if "\n" in shape):
            start = text.find(shape)
            while start >= 0:
                begin, end = text.rfind("\n", 0, start) + 1, start + len(shape)
                end = text.find("\n", end) if "\n" in text[end:] else len(text)
                first, *others = text[begin:end].split("\n")
                yield first, self(text[begin:end])
                yield from ((line, "") for line in others)
                start = text.find(shape, start + len(shape))


def remember_digests(
    secret: bytes, before: Mapping[str, str], texts: Iterable[str], strike: TextRedactor
) -> dict[str, str]:
    """Return the redacted lines of some texts as digests, added to those remembered before."""
    found = dict(before)
    for text in texts:
        found |= {_digest(secret, line): new for line, new in strike.lines(text) if len(line.strip()) >= _LEAST}
    return dict([*found.items()][-FORGOTTEN_LINES_MAX:])


def remove_forgotten(secret: bytes, lines: Mapping[str, str], text: str) -> str:
    """Return a text without forgotten lines."""
    if not lines:
        return text
    kept = ((line, lines.get(_digest(secret, line))) for line in text.split("\n"))
    return "\n".join(line if new is None else new for line, new in kept if new != "")


def _digest(secret: bytes, line: str) -> str:
    return blake2b(line.rstrip("\r").encode("utf-8", "surrogatepass"), key=secret[:64], digest_size=16).hexdigest()
