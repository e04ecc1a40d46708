"""`perdure replay-check module:function`: would today's code go on with the runs that are recorded? For CI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import msgspec

from ..records import Status
from ..rehearsal.passes import Rehearsal
from ..rehearsal.reports import FAILS, VERDICTS, Replay, Rules, Unreached
from ..runs import RunSummary, list_runs, task_of
from .output import Output, clean, counted
from .stores import agent_option, common
from .targets import Target, load_target, rehearse, rehearsing

LAST = 100


class Report(msgspec.Struct):
    """What all replays have shown."""

    target: str
    replays: list[Replay] = []
    notes: list[str] = []
    left_out: int = 0
    """Older runs that were not looked at."""
    interrupted: bool = False
    broken: bool = False
    """The program has ended before it opened a run."""

    def count(self, verdict: str) -> int:
        return sum(replay.verdict == verdict for replay in self.replays)

    @property
    def failed(self) -> int:
        """Runs of which it is not certain that they go on, and that nothing is done twice."""
        return sum(replay.fails for replay in self.replays)


@click.command()
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--run", "ids", multiple=True, metavar="ID", help="Only this run; may be given several times.")
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only runs in this status.")
@click.option(
    "--last", type=click.IntRange(min=0), default=LAST, show_default=True, help="The newest so many; 0 for all."
)
@click.option("--run-steps", is_flag=True, help="Run new steps for real; their results are not recorded.")
@click.option("--allow-steps", is_flag=True, help="Do not fail when recorded steps would run again.")
@click.option("--removed", multiple=True, metavar="NAME", help="This effect was removed on purpose; repeatable.")
@click.option("--strict", is_flag=True, help="Also fail when a run does not replay exactly as it is recorded.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write JUnit XML to this file.")
@agent_option
@common
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
    """Check that today's code repeats nothing that recorded runs have done, for CI.

    \b
    perdure replay-check my_module:main            called as main(run_id) for each recorded run,
                                                   or once, as main(), if it takes no argument
    perdure replay-check my_module:agent           the tasks of an agent, for their runs
    perdure replay-check my_agent.py -- --fast     a script, which opens its runs itself

    No effect or check is called, nothing is waited for, nothing is written to the store. Recorded calls return what is
    recorded. A new step is not run either, unless --run-steps is given: the code goes on with a stand-in for its
    result, until it uses that. Code outside of steps does run.
    The exit code is 0 only when nothing that is done would be done again: every recorded effect is reached, and every
    recorded step that something takes the place of. It is 1 as well when that could not be found out.
    """  # noqa: D301 - click wants the character itself: it keeps these lines as they stand
    if url is not None:
        os.environ["PERDURE_URL"] = url
    out, report = Output(as_json), Report(clean(target))
    with rehearsing(Rules(run_steps, allow_steps, frozenset(removed))) as rehearsal:
        try:
            _check(out, report, rehearsal, load_target(target, arguments), Chosen(ids, status, last, agent))
        except KeyboardInterrupt:
            report.interrupted = True
    missing = [run_id for run_id in ids if run_id not in {replay.id for replay in report.replays}]
    if junit is not None:
        junit.write_text(_as_junit(report), "utf-8")
    _show(out, report, missing, strict)
    failed = report.failed or report.broken or missing or (strict and report.count("differs"))
    return 130 if report.interrupted and not failed else int(bool(failed))


class Chosen(msgspec.Struct, frozen=True):
    """Which runs are meant."""

    ids: tuple[str, ...]
    status: str | None
    last: int
    agent: str | None

    def has(self, run: RunSummary) -> bool:
        if self.ids and run.id not in self.ids:
            return False
        return self.status in (None, run.status) and self.agent in (None, run.agent)


def _check(out: Output, report: Report, rehearsal: Rehearsal, target: Target, wanted: Chosen) -> None:
    """Go through the runs that are meant; the report grows with each, so that an interrupt loses none."""
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


def _runs(target: Target) -> list[RunSummary]:
    """The runs of the module's agents. Runs inside of others are replayed with those; queued ones have no record."""
    if not target.engines:
        raise click.UsageError("the module has no Agent at its top level, so its runs are not known")
    found = [run for engine in target.engines for run in list_runs(engine.store, engine.name)]
    if target.tasks_only:
        [engine] = target.engines
        return [run for run in found if task_of(engine.store, run.stream)]
    return [run for run in found if not run.parent and run.status != Status.QUEUED]


# -- showing -----------------------------------------------------------------------------------------------------------


def _show(out: Output, report: Report, missing: Sequence[str], strict: bool) -> None:
    if out.as_json:
        out.json(_as_json(report, missing))
        return
    for replay in report.replays:
        _show_replay(out, replay)
    for note in report.notes:
        out.line(clean(f"note: {note}"))
    if report.broken:
        out.line("not every run could be replayed: the program did not come to it", style="bold red")
    for run_id in missing:
        out.line(clean(f"run {run_id!r} is not among what was replayed"), style="bold red")
    if report.left_out:
        out.line(f"{counted(report.left_out, 'older run')} not looked at; --last 0 takes all")
    told = ", ".join(
        f"{report.count(verdict)} {_SUMMED_UP[verdict]}"
        for verdict in reversed(VERDICTS)
        if report.count(verdict) or verdict == "replays"
    )
    out.line(f"{counted(len(report.replays), 'run')}: {told}{' (interrupted)' if report.interrupted else ''}")


_SUMMED_UP = {
    "replays": "replayed",
    "stops": "not replayed",
    "differs": "differ",
    "unknown": "not known",
    "reruns": "would run steps again",
    "diverges": "diverge",
    "repeats": "would do effects again",
}


def _show_replay(out: Output, replay: Replay) -> None:
    verdict = replay.verdict
    head = f"{clean(replay.id)}  {replay.status}  {verdict}: {counted(replay.calls, 'recorded call')} asked for"
    style = "bold red" if replay.fails else "green" if verdict == "replays" else "yellow"
    out.line(f"{head}{f'; {clean(replay.then)}' if replay.then else ''}", style=style)
    for finding in replay.findings:
        out.line(clean(f"  {finding.kind}: {finding}"))
        if finding.hint:
            out.line(clean(f"    {finding.hint}"))


def _as_json(report: Report, missing: Sequence[str]) -> dict[str, Any]:
    return {
        "target": report.target,
        "runs": [
            {
                **msgspec.to_builtins(replay),
                "status": str(replay.status),
                "unreached": [_as_unreached(one) for one in replay.unreached],
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


def _as_unreached(one: Unreached) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("kind", "name", "entry", "scope", "cost_usd")}


def _as_junit(report: Report) -> str:
    """A test case for each run."""
    counts = {"tests": str(len(report.replays)), "failures": str(report.failed), "errors": "0"}
    suite = ElementTree.Element("testsuite", {"name": f"replay-check {report.target}", **counts})
    for replay in report.replays:
        case = ElementTree.SubElement(suite, "testcase", classname=clean(replay.agent), name=clean(replay.id))
        for finding in replay.findings:
            if finding.kind in FAILS:
                message = clean(str(finding))
                ElementTree.SubElement(case, "failure", message=message, type=finding.kind).text = clean(finding.hint)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
