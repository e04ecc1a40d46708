"""The words of the pages, in Markdown files beside this one, and the figures that are put into them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..report import Report

FOLDER = Path(__file__).parent
SLOT = re.compile(r"^\{(\w+)\}$", re.MULTILINE)


def filled(name: str, slots: Mapping[str, Sequence[str]]) -> str:
    """A page whose lines `{slot}` have become the lines of that slot; each is used, and none is missing."""
    words = (FOLDER / name).read_text("utf-8")
    assert set(SLOT.findall(words)) == slots.keys(), f"{name} and its figures do not fit"
    return SLOT.sub(lambda slot: "\n".join(slots[slot[1]]).strip("\n"), words)


def measured_on(report: Report) -> str:
    """When, on what, and how busy it was."""
    it = report.machine
    server = f", {it['postgres']}" if it.get("postgres") else ""
    again = f" Measured once more on that day: {', '.join(report.again)}." if report.again else ""
    return (
        f"Measured on {report.date} with {it['cores']} cores of {it['processor']}, {it['system']}, "
        f"{it['file_system']}, Python {it['python']}, SQLite {it['sqlite']}{server}; load average "
        f"{report.load_before:.1f} before and {report.load_after:.1f} after.{again}"
    )
