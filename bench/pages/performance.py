"""docs/about/performance.md: what durability costs, beside the floor."""

from __future__ import annotations

from collections.abc import Sequence

from ..report import Report
from ..rows import Row
from .words import describe_machine, fill_page


def page(report: Report) -> str:
    """How it is measured, on what, and the tables."""
    slots = {"measured_on": [describe_machine(report)], "tables": _tables(report.rows)}
    return fill_page("performance.md", slots)


def _tables(rows: Sequence[Row]) -> list[str]:
    lines: list[str] = []
    for section in dict.fromkeys(row.section for row in rows):
        lines += ["", f"### {section[0].upper()}{section[1:]}", ""]
        lines += ["| what | measured | target | fails | verdict | |", "|---|---:|---:|---:|---|---|"]
        for row in (row for row in rows if row.section == section):
            cells = (row.what, row.shown, row.target, row.fails, row.verdict.value, row.note)
            lines.append("| " + " | ".join(cells) + " |")
    return lines[1:]
