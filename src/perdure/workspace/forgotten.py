"""Texts that were forgotten: what takes them out of others, and keeps a folder that is behind from bringing them back.

A folder knows what it was last in step with by a digest, and when that text was erased nobody can say any more which
of its lines are new. So the lines that had a forgotten text in them are remembered, each as a digest that only this
store can make, with what stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b

from ..limits import FORGOTTEN_LINES_MAX
from ..lines import lines_of

FORGOTTEN = "[forgotten]"
_LEAST = 8
"""Characters of a line that can be somebody's secret: shorter ones stand everywhere."""


class Striking:
    """Puts a mark in place of texts, as a log has them too: in one line, or with the lines after the first indented."""

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
        """The lines of a text that are struck, each with what it becomes; nothing, if it goes with the one before."""
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


def remembered(secret: bytes, before: Mapping[str, str], texts: Iterable[str], strike: Striking) -> dict[str, str]:
    """What is remembered of texts of which something is struck, with what was remembered before."""
    found = dict(before)
    for text in texts:
        found |= {_digest(secret, line): new for line, new in strike.lines(text) if len(line.strip()) >= _LEAST}
    return dict([*found.items()][-FORGOTTEN_LINES_MAX:])


def without_forgotten(secret: bytes, lines: Mapping[str, str], text: str) -> str:
    """A text without lines that were forgotten."""
    if not lines:
        return text
    kept = ((line, lines.get(_digest(secret, line))) for line in text.split("\n"))
    return "\n".join(line if new is None else new for line, new in kept if new != "")


def _digest(secret: bytes, line: str) -> str:
    return blake2b(line.rstrip("\r").encode("utf-8", "surrogatepass"), key=secret[:64], digest_size=16).hexdigest()
