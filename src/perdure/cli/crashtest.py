"""`perdure crashtest my_agent.py`: kills a program at every point, restarts it, and compares the results."""

from __future__ import annotations

import re
from pathlib import Path

import click

from perdure.cli.output import CommandOutput, clean
from perdure.cli.store_option import json_option
from perdure.store import is_embedded, is_postgres, locate
from perdure.testing.crashtest.options import BUDGET_SECONDS, LIMIT, CrashtestOptions
from perdure.testing.crashtest.report import CrashtestReport
from perdure.testing.crashtest.run import perform
from perdure.values.durations import seconds_of

STYLES = (
    (r"(interrupted; so far: )?FAILED: |.* +\d+ +[\d.]+ +[\d.]+ +\d+$", "bold red"),
    (r"(interrupted; so far: )?survived: ", "bold green"),
    (r"\d+\. |.* tries +ok +asked +FAILED$", "bold"),
    (r"   (where|again) ", "cyan"),
    (r"note: ", "dim"),
)
"""Styles of report lines in a terminal."""


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("program", type=click.Path(dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--count-effects",
    metavar="FILE|COMMAND",
    default="",
    help="Where effects are visible: a file with a line for each, or a command that prints them.",
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=LIMIT, show_default=True, help="Maximum number of tries; 0 for all."
)
@click.option("--budget", default="", help=f"Maximum duration. Default: {BUDGET_SECONDS / 60:g}m.")
@click.option("--answer", "answers", multiple=True, metavar="[QUESTION=]VALUE", help="Answer a question of the run.")
@click.option("--event", "events", multiple=True, metavar="NAME[=JSON]", help="Send an event to a waiting run.")
@click.option("--depth", type=click.IntRange(1, 2), default=1, show_default=True, help="2: also kill the second start.")
@click.option("--jobs", type=click.IntRange(min=1), help="Rounds at a time. Default: one per core, up to 4.")
@click.option("--only", multiple=True, metavar="PLACE", help="Only this place, as named in a report.")
@click.option("--timeout", default="", help="When a start counts as hanging. Default: 10 times an undisturbed one.")
@click.option("--folder", default="", help="The folder to copy for every round. Default: the working folder.")
@click.option("--strict", is_flag=True, help="Also exit with 1 if a person is asked about an effect.")
@click.option("--keep", is_flag=True, help="Keep the folders of failed rounds and print their paths.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write JUnit XML to this file.")
@click.option("--store", default="", metavar="URL", help="A PostgreSQL server; each round gets its own schema.")
@json_option
def crashtest(
    program: str,
    arguments: tuple[str, ...],
    count_effects: str,
    limit: int,
    budget: str,
    answers: tuple[str, ...],
    events: tuple[str, ...],
    depth: int,
    jobs: int | None,
    only: tuple[str, ...],
    timeout: str,
    folder: str,
    strict: bool,
    keep: bool,
    junit: Path | None,
    store: str,
    as_json: bool,
) -> int:
    """Kill a program at every point, restart it, and compare the results.

    \b
    perdure crashtest my_agent.py --count-effects outside.txt
    perdure crashtest my_agent.py --depth 2 --limit 200 -- --fast NYC

    The program runs for real: three to five times undisturbed, then at least twice for every try. Each run has a copy
    of the working folder and an empty store, set by PERDURE_URL. Point it at a test system.
    Exit code 1 if something is wrong.
    """  # noqa: D301 - the literal \b tells click not to rewrap these lines
    out = CommandOutput(as_json)
    wish = CrashtestOptions(
        program=program, arguments=arguments, folder=folder, store=_server(store), depth=depth, jobs=jobs or 0,
        count_effects=count_effects, answers=answers, events=events, limit=limit, only=only, keep=keep,
        budget=seconds_of(budget, "budget") if budget else BUDGET_SECONDS,
        timeout=seconds_of(timeout, "timeout") if timeout else 0,
    )  # fmt: skip
    with out.progress(f"crashtest {clean(program)}") as progress:
        report = perform(wish, progress)
    if junit is not None:
        junit.write_text(report.as_junit(), "utf-8")
    _show(out, report)
    if report.interrupted and report.survived:
        return 130
    return int(not report.survived or (strict and report.asked > 0))


def _server(store: str) -> str:
    """Return the PostgreSQL server to use. SQLite needs none: every round gets a new file."""
    if not store or is_embedded(url := locate(store)):
        return ""
    if not is_postgres(url):
        raise click.UsageError("--store: crashtest supports SQLite files and postgresql:// servers")
    if "schema=" in url:
        raise click.UsageError("--store: leave out the schema; each round gets a new one, which is dropped afterwards")
    return url


def _show(out: CommandOutput, report: CrashtestReport) -> None:
    if out.as_json:
        out.json(report.as_json())
        return
    for line in report.lines():
        out.line(clean(line), style=next((style for pattern, style in STYLES if re.match(pattern, line)), ""))
