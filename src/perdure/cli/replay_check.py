"""`perdure replay-check module:function`: checks in CI that today's code can continue recorded runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_count
from perdure.cli.replay_targets import RunTarget, enable_rehearsal, load_target, rehearse
from perdure.cli.store_option import add_common_options, agent_option
from perdure.records import RunStatus
from perdure.run.listing import RunSummary, list_runs, task_of
from perdure.run.rehearse.rehearsal import Rehearsal
from perdure.run.rehearse.verdict import FAILS, VERDICTS, ReplayResult, ReplayRules, UnreachedOperation

LAST = 100


class ReplayCheckReport(msgspec.Struct):
    """The results of all replays."""

    target: str
    replays: list[ReplayResult] = []
    notes: list[str] = []
    left_out: int = 0
    """The number of older runs that were not checked."""
    interrupted: bool = False
    broken: bool = False
    """Whether the program ended before it opened a run."""

    def count(self, verdict: str) -> int:
        return sum(replay.verdict == verdict for replay in self.replays)

    @property
    def failed(self) -> int:
        """How many runs may not continue, or may repeat something."""
        return sum(replay.fails for replay in self.replays)


@click.command()
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--run", "ids", multiple=True, metavar="ID", help="Only this run; repeatable.")
@click.option("--status", type=click.Choice(RunStatus.listed()), help="Only runs in this status.")
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=LAST,
    show_default=True,
    help="Only the newest runs; 0 for all.",
)
@click.option("--run-steps", is_flag=True, help="Run new steps for real; their results are not recorded.")
@click.option("--allow-steps", is_flag=True, help="Do not fail if recorded steps would run again.")
@click.option("--removed", multiple=True, metavar="NAME", help="This effect was removed on purpose; repeatable.")
@click.option("--strict", is_flag=True, help="Also fail if a run does not replay exactly as recorded.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write JUnit XML to this file.")
@agent_option
@add_common_options
def replay_check(
    target: str,
    arguments: tuple[str, ...],
    ids: tuple[str, ...],
    status: str | None,
    last: int,
    run_steps: bool,
    allow_steps: bool,
    removed: tuple[str, ...],
    strict: bool,
    junit: Path | None,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Check in CI that today's code can continue recorded runs and repeats nothing.

    \b
    perdure replay-check my_module:main            called as main(run_id) for each recorded run,
                                                   or once, as main(), if it takes no argument
    perdure replay-check my_module:agent           the tasks of an agent, for their runs
    perdure replay-check my_agent.py -- --fast     a script, which opens its runs itself

    The code runs, but no effect, check or wait is executed and nothing is written. Recorded calls return their recorded
    results. A new step is executed only with --run-steps; otherwise the code continues with a placeholder until it uses
    the result.
    Exit code 0 if nothing would be repeated: every recorded effect is reached, and every recorded step unless nothing
    replaces it. Exit code 1 otherwise, also if that could not be determined.
    """  # noqa: D301 - the literal \b tells click not to rewrap these lines
    if url is not None:
        os.environ["PERDURE_URL"] = url
    out, report = CommandOutput(as_json), ReplayCheckReport(clean(target))
    with enable_rehearsal(ReplayRules(run_steps, allow_steps, frozenset(removed))) as rehearsal:
        try:
            _check(out, report, rehearsal, load_target(target, arguments), RunSelection(ids, status, last, agent))
        except KeyboardInterrupt:
            report.interrupted = True
    missing = [run_id for run_id in ids if run_id not in {replay.id for replay in report.replays}]
    if junit is not None:
        junit.write_text(_as_junit(report), "utf-8")
    _show(out, report, missing, strict)
    failed = report.failed or report.broken or missing or (strict and report.count("differs"))
    return 130 if report.interrupted and not failed else int(bool(failed))


class RunSelection(msgspec.Struct, frozen=True):
    """The selected runs."""

    ids: tuple[str, ...]
    status: str | None
    last: int
    agent: str | None

    def has(self, run: RunSummary) -> bool:
        if self.ids and run.id not in self.ids:
            return False
        return self.status in (None, run.status) and self.agent in (None, run.agent)


def _check(
    out: CommandOutput, report: ReplayCheckReport, rehearsal: Rehearsal, target: RunTarget, wanted: RunSelection
) -> None:
    """Replay the selected runs. The report grows with each, so that an interrupt loses none."""
    chosen: list[str | None] = [None]
    if target.by_id:
        found = [run for run in _runs(target) if wanted.has(run)]
        chosen = [run.id for run in (found[: wanted.last] if wanted.last else found)]
        report.left_out = len(found) - len(chosen)
    with out.progress(f"replaying with {report.target}") as progress:
        for done, run_id in enumerate(chosen):
            progress(done, len(chosen))
            told = rehearse(rehearsal, target, run_id)
            report.broken = report.broken or rehearsal.broken
            report.replays += [one for one in told if target.by_id or not wanted.ids or one.id in wanted.ids]
            where = "" if run_id is None else f"run {run_id!r}: "
            report.notes += [f"{where}{note}" for note in rehearsal.notes]
            if run_id is not None and run_id not in {one.id for one in told}:
                report.notes.append(f"run {run_id!r} was not opened by {report.target}")
                report.broken = report.broken or bool(rehearsal.notes)


def _runs(target: RunTarget) -> list[RunSummary]:
    """Return the runs of the module's agents, without child runs, which replay with their parent, and queued ones."""
    if not target.engines:
        raise click.UsageError("the module has no Agent at its top level, so its runs cannot be listed")
    found = [run for engine in target.engines for run in list_runs(engine.store, engine.name)]
    if target.tasks_only:
        [engine] = target.engines
        return [run for run in found if task_of(engine.store, run.stream)]
    return [run for run in found if not run.parent and run.status != RunStatus.QUEUED]


# -- showing -----------------------------------------------------------------------------------------------------------


def _show(out: CommandOutput, report: ReplayCheckReport, missing: Sequence[str], strict: bool) -> None:
    if out.as_json:
        out.json(_as_json(report, missing))
        return
    for replay in report.replays:
        _show_replay(out, replay)
    for note in report.notes:
        out.line(clean(f"note: {note}"))
    if report.broken:
        out.line("not every run was replayed: the program ended before it opened them all", style="bold red")
    for run_id in missing:
        out.line(clean(f"run {run_id!r} was not replayed"), style="bold red")
    if report.left_out:
        out.line(f"{format_count(report.left_out, 'older run')} not checked; --last 0 checks all")
    told = ", ".join(
        f"{report.count(verdict)} {_SUMMED_UP[verdict]}"
        for verdict in reversed(VERDICTS)
        if report.count(verdict) or verdict == "replays"
    )
    out.line(f"{format_count(len(report.replays), 'run')}: {told}{' (interrupted)' if report.interrupted else ''}")


_SUMMED_UP = {
    "replays": "replayed",
    "stops": "not replayed",
    "differs": "differ",
    "unknown": "not known",
    "reruns": "would run steps again",
    "diverges": "diverge",
    "repeats": "would do effects again",
}


def _show_replay(out: CommandOutput, replay: ReplayResult) -> None:
    verdict = replay.verdict
    head = f"{clean(replay.id)}  {replay.status}  {verdict}: {format_count(replay.calls, 'recorded call')} reached"
    style = "bold red" if replay.fails else "green" if verdict == "replays" else "yellow"
    out.line(f"{head}{f'; {clean(replay.then)}' if replay.then else ''}", style=style)
    for finding in replay.findings:
        out.line(clean(f"  {finding.kind}: {finding}"))
        if finding.hint:
            out.line(clean(f"    {finding.hint}"))


def _as_json(report: ReplayCheckReport, missing: Sequence[str]) -> dict[str, Any]:
    return {
        "target": report.target,
        "runs": [
            {
                **msgspec.to_builtins(replay),
                "status": str(replay.status),
                "unreached": [_unreached_as_json(one) for one in replay.unreached],
                "verdict": replay.verdict,
                "fails": replay.fails,
            }
            for replay in report.replays
        ],
        "notes": report.notes,
        "missing": list(missing),
        "left_out": report.left_out,
        "interrupted": report.interrupted,
        **{verdict: report.count(verdict) for verdict in VERDICTS},
        "failed": report.failed,
        "broken": report.broken,
    }


def _unreached_as_json(one: UnreachedOperation) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("kind", "name", "entry", "scope", "cost_usd")}


def _as_junit(report: ReplayCheckReport) -> str:
    """Return JUnit XML with a test case for each run."""
    counts = {"tests": str(len(report.replays)), "failures": str(report.failed), "errors": "0"}
    suite = ElementTree.Element("testsuite", {"name": f"replay-check {report.target}", **counts})
    for replay in report.replays:
        case = ElementTree.SubElement(suite, "testcase", classname=clean(replay.agent), name=clean(replay.id))
        for finding in replay.findings:
            if finding.kind in FAILS:
                message = clean(str(finding))
                ElementTree.SubElement(case, "failure", message=message, type=finding.kind).text = clean(finding.hint)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
