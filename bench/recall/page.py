"""The tables of docs/memory-recall.md, written from what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..lab import ROOT
from ..rows import Row

PAGE = ROOT / "docs" / "memory-recall.md"
_BETWEEN = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)


def write(rows: Iterable[Row]) -> None:
    """Puts them in the place of the last ones."""
    lines = ["| what | measured | bar | |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.shown} | {row.target} | {row.note} |" for row in rows]
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_BETWEEN.sub(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], text), encoding="utf-8")
