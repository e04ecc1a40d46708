"""`python -m bench`: measure, show, judge."""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .lab import Lab, MeasurementFailed, machine
from .report import PAGE, RESULTS, Report, save, saved, show, to_json, write_page
from .rows import Row
from .sections import SECTIONS

INTERRUPTED = 130
PIPE_COLUMNS = 150


def main() -> int:
    """The exit code: 0, 1 when a bar is broken, 2 when nothing could be measured, 130 after Ctrl-C."""
    options = _options()
    errors = Console(stderr=True)
    if options.write_docs:
        return _write_docs(errors)
    try:
        report = _measure(options, errors)
    except MeasurementFailed as error:
        errors.print(f"a measurement failed: {error}", markup=False, highlight=False)
        return 2
    if report.complete and not report.quick:
        save(report)
    if options.json:
        sys.stdout.write(to_json(report))
    else:
        console = Console()
        # In a pipe or a log there is no width to respect, and a table of narrow columns is hard to read.
        show(report, console if console.is_terminal else Console(width=PIPE_COLUMNS))
    if not report.complete and not options.sections:
        return INTERRUPTED
    return 1 if report.broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Speed and size beside a bare commit.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="few repetitions; only counts can fail")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--folder", type=Path, help="measure on the disk of this folder")
    parser.add_argument("--write-docs", action="store_true", help="write docs/performance.md from the last results")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    return options


def _write_docs(errors: Console) -> int:
    report = saved()
    if report is None:
        errors.print(f"{RESULTS} is not there: run `make bench` first", highlight=False)
        return 2
    write_page(report)
    errors.print(f"wrote {PAGE}", highlight=False)
    return 0


def _measure(options: argparse.Namespace, errors: Console) -> Report:
    lab = Lab(quick=options.quick, base=options.folder)
    before, rows, complete = os.getloadavg()[0], [], not options.sections
    names = options.sections or list(SECTIONS)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        with Progress(*columns, console=errors, transient=True) as progress:
            task = progress.add_task("", total=None)
            for number, name in enumerate(names, start=1):
                progress.update(task, description=f"{number}/{len(names)} {SECTIONS[name].__doc__}")
                rows += _rows(lab, name, progress)
    except KeyboardInterrupt:
        complete = False
        errors.print("interrupted: what was measured so far")
    finally:
        facts = machine(lab.folder)
        lab.close()
    date = datetime.now(UTC).date().isoformat()
    return Report(date, facts, before, os.getloadavg()[0], options.quick, complete, rows)


def _rows(lab: Lab, name: str, progress: Progress) -> list[Row]:
    """The rows of a section, each told as it comes."""
    found = []
    for row in SECTIONS[name](lab):
        progress.console.print(f"  {row.what}: {row.shown} {row.verdict}", markup=False, highlight=False)
        found.append(row)
    return found


if __name__ == "__main__":
    sys.exit(main())
