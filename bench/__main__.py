"""`python -m bench`: measure, show, judge."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .comparison import sections as comparison
from .comparison.sections import Finding
from .comparison.standings import Crash, Standing
from .failures import MeasurementFailed
from .lab import PARKED, Lab, machine
from .load_sections import SECTIONS as LOAD
from .pages import write_pages
from .playbooks import SECTIONS as PLAYBOOKS
from .recall.sections import SECTIONS as RECALL
from .remote_sections import SECTIONS as REMOTE
from .report import RESULTS, Report, load_saved, load_saved_savers, save, save_again, save_savers, show, to_json
from .rows import Row
from .savers.sections import SECTIONS as SAVERS
from .savers.standings import SaverStanding
from .sections import SECTIONS as OURS
from .workers.sections import SECTIONS as WORKERS

FAILED = 2
INTERRUPTED = 130
PIPE_COLUMNS = 150
Found = Finding | SaverStanding
SECTIONS: dict[str, Callable[[Lab], Iterator[Found]]] = {
    **OURS,
    **WORKERS,
    **LOAD,
    **REMOTE,
    **comparison.SECTIONS,
    **SAVERS,
    **RECALL,
    **PLAYBOOKS,
}


def main() -> int:
    """The exit code: 0, 1 when a bar is broken, 2 when something could not be measured, 130 after Ctrl-C."""
    options = _options()
    errors = Console(stderr=True)
    # `timeout` and `kill` end it as Ctrl-C does: a server and other processes of ours have to be stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.write_docs:
        return _write_docs(errors)
    report, code = _measure(options, errors)
    if report.complete and not report.quick:
        save(report)
    elif not (report.quick or code):
        save_again(report)
    if report.savers and not report.quick and not code:
        save_savers(report)
    if options.json:
        sys.stdout.write(to_json(report))
    else:
        console = Console()
        # In a pipe or a log there is no width to respect, and a table of narrow columns is hard to read.
        show(report, console if console.is_terminal else Console(width=PIPE_COLUMNS))
    return code or (1 if report.broken else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Speed and size beside a bare commit.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="few repetitions; only counts can fail")
    parser.add_argument("--no-peers", action="store_true", help="without DBOS and LangGraph")
    parser.add_argument(
        "--parked", type=int, default=PARKED, metavar="N", help=f"runs to park, of each store: {PARKED}"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--folder", type=Path, help="measure on the disk of this folder")
    parser.add_argument("--write-docs", action="store_true", help="write the pages in docs/ from the last results")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    return options


def _write_docs(errors: Console) -> int:
    report, savers = load_saved(), load_saved_savers()
    if report is None and savers is None:
        errors.print(f"{RESULTS} is not there: run `make bench` first", highlight=False)
        return 2
    for path in write_pages(report, savers=savers):
        errors.print(f"wrote {path}", highlight=False)
    return 0


def _measure(options: argparse.Namespace, errors: Console) -> tuple[Report, int]:
    """What was found, and the exit code when that is not all: 130 after Ctrl-C, 2 when a measurement failed."""
    lab = Lab(quick=options.quick, base=options.folder, peers=not options.no_peers, parked=options.parked)
    found: list[Found] = []
    before, code = os.getloadavg()[0], 0
    names = options.sections or list(SECTIONS)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        with Progress(*columns, console=errors, transient=True) as progress:
            for number, name in enumerate(names, start=1):
                try:
                    found += _section(lab, name, f"{number}/{len(names)}", progress)
                except MeasurementFailed as error:
                    errors.print(f"a measurement failed: {error}", markup=False, highlight=False)
                    code = FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
        errors.print("interrupted: what was measured so far")
    finally:
        facts = machine(lab)
        lab.close()
    complete = not (code or options.sections or options.no_peers)
    return _report(facts, before, options.quick, complete, found), code


def _section(lab: Lab, name: str, place: str, progress: Progress) -> Iterator[Found]:
    """The findings of a section, each told as it comes."""
    where, begun = f"{place} {SECTIONS[name].__doc__}", monotonic()
    task = progress.add_task(where, total=None)
    lab.say = lambda text: progress.update(task, description=f"{where} {text}")
    try:
        for finding in SECTIONS[name](lab):
            progress.console.print(f"  {_format_finding(finding)}", markup=False, highlight=False)
            yield finding
    finally:
        progress.remove_task(task)
        progress.console.print(f"  {place} {name} took {monotonic() - begun:.0f} s", markup=False, highlight=False)


def _report(facts: dict[str, object], before: float, quick: bool, complete: bool, found: list[Found]) -> Report:
    return Report(
        date=datetime.now(UTC).date().isoformat(),
        machine=facts,
        load_before=before,
        load_after=os.getloadavg()[0],
        quick=quick,
        complete=complete,
        rows=[one for one in found if isinstance(one, Row)],
        standings=[one for one in found if isinstance(one, Standing)],
        crashes=[one for one in found if isinstance(one, Crash)],
        savers=[one for one in found if isinstance(one, SaverStanding)],
    )


def _format_finding(finding: Found) -> str:
    """One line as it comes."""
    if isinstance(finding, Row):
        return f"{finding.what}: {finding.shown} {finding.verdict}"
    if isinstance(finding, SaverStanding):
        return f"{finding.entry.saver} on {finding.entry.store}: {finding.loop.ms:.2f} ms for a step of a graph"
    if isinstance(finding, Standing):
        entrant = finding.entrant
        return f"{entrant.title} on {entrant.store}: {finding.speed.per_second:,.0f} per second"
    return f"{finding.system} on {finding.store}, {finding.cell}: happened {finding.times}"


if __name__ == "__main__":
    sys.exit(main())
