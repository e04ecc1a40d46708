"""docs/about/comparison.md: Perdure beside its peers, as measured, and where they are better."""

from __future__ import annotations

from collections.abc import Sequence

from ..comparison.crashes import CELLS
from ..comparison.standings import POSTGRES, SQLITE, Crash, Standing
from ..report import COMPARED, Report, format_contender
from .words import describe_machine, fill_page, wrap_paragraph

TOLD = {
    "finished": "finished",
    "RunWaiting": "waits for a person",
    "Lost": "the error again",
}


def page(report: Report) -> str:
    """Who was measured, the figures, the crash matrix, and what others do better."""
    slots = {
        "measured_on": [describe_machine(report)],
        "settings": _settings(report.standings),
        "figures": _figures(report.standings),
        "losses": _losses(report.standings),
        "matrix": _matrix(report.crashes),
    }
    return fill_page("comparison.md", slots)


def _settings(standings: Sequence[Standing]) -> list[str]:
    lines = ["| system | version | store | how it makes a commit survive |", "|---|---|---|---|"]
    for one in standings:
        if one.entrant.kind == "step":
            entrant = one.entrant
            lines.append(f"| {entrant.title} | {one.version} | {entrant.store} | `{one.durability}` |")
    return lines


def _figures(standings: Sequence[Standing]) -> list[str]:
    lines = []
    for store in (SQLITE, POSTGRES):
        there = [one for one in standings if one.entrant.store == store]
        if there:
            lines += [f"### {store}", "", "| | " + " | ".join(COMPARED) + " |", "|---|" + "---:|" * len(COMPARED)]
            lines += [f"| {one.entrant.title} | " + " | ".join(format_contender(one)) + " |" for one in there]
            lines.append("")
    return lines


def _losses(standings: Sequence[Standing]) -> list[str]:
    """Whose finished calls ran again after a kill."""
    found = [one for one in standings if one.back is not None and one.back.repeated]
    if not found:
        return ["No call that had returned before its process was killed ran again.", ""]
    names = ", ".join(f"{one.entrant.title} on {one.entrant.store} ({one.back.repeated})" for one in found if one.back)
    return [wrap_paragraph(f"Calls that had returned before their process was killed, and ran again: {names}."), ""]


def _matrix(crashes: Sequence[Crash]) -> list[str]:
    lines = ["| | store | " + " | ".join(CELLS.values()) + " |", "|---|---|" + "---|" * len(CELLS)]
    kinds = dict.fromkeys((one.system, one.store) for one in crashes)
    for system, store in kinds:
        cells = {one.cell: one for one in crashes if (one.system, one.store) == (system, store)}
        lines.append(f"| {system} | {store} | " + " | ".join(_cell(cells.get(cell)) for cell in CELLS) + " |")
    return [*lines, ""]


def _cell(crash: Crash | None) -> str:
    if crash is None:
        return ""
    often = f"**{crash.times}**" if max(crash.happened) > 1 else crash.times
    told = ", ".join(TOLD.get(end, end) for end in crash.noticed.split(", "))
    return f"{often}: {told}"
