r"""Where a line ends: the same for everybody who reads a text.

`split("\n")`, `splitlines()`, terminals, editors and models disagree about carriage return, vertical tab, form feed,
NEL and the separators of Unicode. Whoever chooses a text must not begin a line with them that is taken for ours.
"""

from __future__ import annotations

import re

_END = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
"""What `splitlines()` takes for the end of a line, apart from a newline."""


def lines_of(text: str) -> list[str]:
    r"""All lines of a text, wherever any reader would end one.

    >>> lines_of("one\u2028two\r\nthree\n")
    ['one', 'two', 'three', '']
    """
    return _END.sub("\n", text).split("\n")


def with_newlines_only(text: str) -> str:
    r"""A text with the lines that `split("\n")` sees, for every reader: what else may end one becomes a space.

    >>> with_newlines_only("one\u2028still one\r\ntwo\n")
    'one still one\ntwo\n'
    """
    return _END.sub(lambda end: "\n" if end[0] == "\r\n" else " ", text)
