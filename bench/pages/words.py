"""The words of the pages, in Markdown files beside this one, and the figures that are put into them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..report import Report

FOLDER = Path(__file__).parent
SLOT = re.compile(r"^\{(\w+)\}$", re.MULTILINE)


def fill_page(name: str, slots: Mapping[str, Sequence[str]]) -> str:
    """A page whose lines `{slot}` have become the lines of that slot; each is used, and none is missing."""
    words = (FOLDER / name).read_text("utf-8")
    assert set(SLOT.findall(words)) == slots.keys(), f"{name} and its figures do not fit"
    return SLOT.sub(lambda slot: "\n".join(slots[slot[1]]).strip("\n"), words)


def describe_machine(report: Report) -> str:
    """When, on what, and how busy it was."""
    measured = report.machine
    server = f", {measured['postgres']}" if measured.get("postgres") else ""
    again = f" Measured once more on that day: {', '.join(report.again)}." if report.again else ""
    return wrap_paragraph(
        f"Measured on {report.date} with {measured['cores']} cores of {measured['processor']}, {measured['system']}, "
        f"{measured['file_system']}, Python {measured['python']}, SQLite {measured['sqlite']}{server}; load average "
        f"{report.load_before:.1f} before and {report.load_after:.1f} after.{again}"
    )


def wrap_paragraph(paragraph: str) -> str:
    """Break a paragraph into lines of at most 120 characters."""
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)
