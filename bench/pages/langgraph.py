"""docs/guides/langgraph.md: the saver for LangGraph, and what was measured beside those that LangGraph ships."""

from __future__ import annotations

from ..report import Report
from ..savers import tables
from .words import describe_machine, fill_page


def page(report: Report) -> str:
    """How to switch, what one gains, and the tables."""
    slots = {
        "measured_on": [describe_machine(report)],
        "bars": _bars(report),
        "figures": [line for one in tables.make_tables(report.savers) for line in _table(one)],
        "settings": [
            f"- {one.entry.saver} ({one.version}), {one.entry.store}: `{one.durability}`" for one in report.savers
        ],
    }
    return fill_page("langgraph.md", slots)


def _bars(report: Report) -> list[str]:
    lines = ["| what | measured | target | verdict | |", "|---|---:|---:|---|---|"]
    rows = [(row.what, row.shown, row.target, row.verdict.value, row.note) for row in report.rows]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def _table(figures: tables.Figures) -> list[str]:
    lines = [
        f"### {figures.title}",
        "",
        "| " + " | ".join(figures.headings) + " |",
        "|---|" + "---:|" * (len(figures.headings) - 1),
    ]
    return [*lines, *("| " + " | ".join(row) + " |" for row in figures.rows), ""]
