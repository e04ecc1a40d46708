r"""Line ends that all readers of a text agree on.

`split("\n")`, `splitlines()`, terminals, editors and models disagree about carriage return, vertical tab, form feed,
NEL and the Unicode separators. The author of a text must not be able to use them to forge a line of ours.
"""

from __future__ import annotations

import re

_END = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
"""Line ends of `splitlines()` other than a newline."""


def lines_of(text: str) -> list[str]:
    r"""Split a text wherever any reader would end a line.

    >>> lines_of("one\u2028two\r\nthree\n")
    ['one', 'two', 'three', '']
    """
    return _END.sub("\n", text).split("\n")


def normalize_newlines(text: str) -> str:
    r"""Replace every line end other than a newline by a space, so that all readers see the same lines.

    >>> with_newlines_only("one\u2028still one\r\ntwo\n")
    'one still one\ntwo\n'
    """
    return _END.sub(lambda end: "\n" if end[0] == "\r\n" else " ", text)
