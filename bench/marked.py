"""Tables of pages that people write: they stand between two marks, and a section of the benchmark puts in new ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .rows import Row

BETWEEN = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)


def is_measured(rows: Sequence[Row]) -> bool:
    """Whether all is there that has a bar; a peer that cannot be installed may be missing."""
    return all(row.measured is not None for row in rows if row.bar is not None)


def write(page: Path, rows: Sequence[Row]) -> None:
    """Puts rows in the place of the last ones."""
    lines = ["| what | measured | bar | |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.shown} | {row.target} | {row.note} |" for row in rows]
    text = page.read_text(encoding="utf-8")
    assert len(BETWEEN.findall(text)) == 1, f"{page} has no place for a table"
    page.write_text(BETWEEN.sub(lambda match: match[1] + "\n".join(lines) + "\n" + match[2], text), encoding="utf-8")
