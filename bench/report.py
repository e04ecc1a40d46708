"""What people see: the tables in the terminal, and the results as JSON. The pages of docs/ are in `bench.pages`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from .comparison.standings import Crash, Standing
from .lab import ROOT
from .rows import Row, Verdict, number
from .savers import tables
from .savers.sections import SECTION
from .savers.standings import SaverStanding

RESULTS = ROOT / "bench" / "results" / "latest.json"
SAVERS = RESULTS.with_name("langgraph.json")
"""Of the section `langgraph` alone, which is a session of its own: none of its figures needs one of another."""

_COLOUR = {
    Verdict.OK: "green",
    Verdict.OVER_TARGET: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.FIGURE: "",
    Verdict.NOT_MEASURED: "dim",
}


class Report(msgspec.Struct, frozen=True):
    """One session of measuring, whole or in part."""

    date: str
    machine: dict[str, Any]
    load_before: float
    load_after: float
    quick: bool
    complete: bool
    rows: list[Row]
    standings: list[Standing] = []
    crashes: list[Crash] = []
    savers: list[SaverStanding] = []
    again: list[str] = []
    """Sections that were measured once more on the same day: something else had kept the machine busy."""

    @property
    def failed(self) -> list[Row]:
        """The rows beyond their last bar."""
        return [row for row in self.rows if row.verdict is Verdict.FAIL]

    @property
    def broken(self) -> bool:
        """Whether something failed that was measured well enough to say so."""
        return any(row.hard or not self.quick for row in self.failed)


def to_json(report: Report) -> str:
    """The report as JSON, verdicts included."""
    data = msgspec.to_builtins(report)
    for one, row in zip(data["rows"], report.rows, strict=True):
        one["verdict"] = row.verdict.value
    return json.dumps(data, indent=2) + "\n"


def save(report: Report) -> None:
    """Keep the results for `--write-docs`."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(to_json(report), encoding="utf-8")


def save_again(report: Report) -> None:
    """Rows that were measured again on the day of a whole session take the place of those of it."""
    whole, new = load_saved(), {row.section for row in report.rows}
    if whole is None or whole.date != report.date or report.standings or report.crashes or not new:
        return
    rows = [row for row in whole.rows if row.section not in new]
    order = list(dict.fromkeys(row.section for row in whole.rows))
    rows = sorted(
        [*rows, *report.rows], key=lambda row: order.index(row.section) if row.section in order else len(order)
    )
    save(msgspec.structs.replace(whole, rows=rows, again=sorted(new.union(whole.again))))


def save_savers(report: Report) -> None:
    """Keep what the page about LangGraph tells."""
    rows = [row for row in report.rows if row.section == SECTION]
    kept = msgspec.structs.replace(report, rows=rows, standings=[], crashes=[], complete=True)
    SAVERS.parent.mkdir(parents=True, exist_ok=True)
    SAVERS.write_text(to_json(kept), encoding="utf-8")


def load_saved() -> Report | None:
    """The last results, if any."""
    return _read(RESULTS)


def load_saved_savers() -> Report | None:
    """The last ones of the section `langgraph`, if any."""
    return _read(SAVERS)


def _read(path: Path) -> Report | None:
    return msgspec.json.decode(path.read_bytes(), type=Report) if path.exists() else None


def show(report: Report, console: Console) -> None:
    """The tables, and what is to be said about them."""
    shown = [_rows(report.rows), _standings(report.standings), _crashes(report.crashes)]
    shown += [_make_table(one) for one in tables.make_tables(report.savers)]
    for table in shown:
        if table.row_count:
            console.print(table)
    for line in [*settings(report), *remarks(report)]:
        console.print(line, markup=False, highlight=False)


def _rows(rows: list[Row]) -> Table:
    table = Table(title="Perdure beside a bare commit", title_justify="left")
    table.add_column("")
    table.add_column("what", min_width=30)
    for name in ("measured", "target", "fails"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("note", style="dim")
    last = ""
    for row in rows:
        if last and row.section != last:
            table.add_section()
        section = row.section if row.section != last else ""
        verdict = f"[{_COLOUR[row.verdict]}]{row.verdict}[/]" if _COLOUR[row.verdict] else ""
        table.add_row(section, row.what, row.shown, row.target, row.fails, verdict, row.note)
        last = row.section
    return table


def _make_table(figures: tables.Figures) -> Table:
    table = Table(title=figures.title, title_justify="left")
    for place, heading in enumerate(figures.headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in figures.rows:
        table.add_row(*row)
    return table


def _standings(standings: list[Standing]) -> Table:
    table = Table(title="Beside peers, in one session", title_justify="left")
    table.add_column("")
    for heading in COMPARED:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in standings:
        table.add_row(f"{one.entrant.title}, {one.entrant.store}", *format_contender(one))
    return table


COMPARED = (
    "per second",
    "p50 ms",
    "p99 ms",
    "CPU ms",
    "server CPU ms",
    "syncs",
    "statements",
    "round trips",
    "bytes",
    "back ms",
    "1,000 ms",
)


def format_contender(one: Standing) -> list[str]:
    """The figures of a contender, as people read them, in the order of `COMPARED`."""
    speed, costs, back = one.speed, one.costs, one.back
    figures = [speed.per_second, speed.p50_ms, speed.p99_ms, speed.cpu_ms, speed.server_cpu_ms]
    figures += [costs.syncs, costs.statements, costs.trips, costs.bytes] if costs is not None else [None] * 4
    figures += [back.short_ms, back.long_ms] if back is not None else [None] * 2
    return [number(figure) if figure is not None else "" for figure in figures]


def settings(report: Report) -> list[str]:
    """The versions of all contenders, and what each has set to make a commit survive a power cut."""
    found = [
        f"{one.entrant.title} {one.version}".rstrip() + f", {one.entrant.store}: {one.durability}"
        for one in report.standings
    ]
    found += [f"{one.entry.saver} ({one.version}), {one.entry.store}: {one.durability}" for one in report.savers]
    server = report.machine.get("postgres")
    return found + ([f"the server: {server}"] if server else [])


def _crashes(crashes: list[Crash]) -> Table:
    table = Table(title="How often did the effect happen?", title_justify="left")
    for heading in ("", "store", "moment", "happened", "told after the restart"):
        table.add_column(heading)
    for one in crashes:
        table.add_row(one.system, one.store, one.cell, one.times, one.noticed)
    return table


def remarks(report: Report) -> list[str]:
    """The conclusion in words."""
    hard = [row.what for row in report.failed if row.hard]
    soft = [row.what for row in report.failed if not row.hard]
    lines = [f"load average {report.load_before:.1f} before, {report.load_after:.1f} after"]
    if hard:
        lines.append(f"FAIL, and no noise explains it: {', '.join(hard)}")
    if soft:
        why = (
            "too few repetitions to tell" if report.quick else "the machine may be busy: measure again when it is idle"
        )
        lines.append(f"FAIL, but these are times, and {why}: {', '.join(soft)}")
    if report.machine.get("file_system") in ("tmpfs", "ramfs"):
        lines.append("The folder is in memory, where a sync costs nothing: the ratios say little.")
    if not report.complete:
        lines.append("Not all of it was measured.")
    return lines
