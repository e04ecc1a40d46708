"""`perdure crashtest my_agent.py`: kills a program everywhere, starts it again, and compares it with itself."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ..durations import seconds_of
from ..store import is_embedded, is_postgres, locate
from ..testing.crashtest.report import Report
from ..testing.crashtest.testing import perform
from ..testing.crashtest.wish import BUDGET_SECONDS, LIMIT, Wish
from .output import Output, clean
from .stores import json_option

STYLES = (
    (r"(interrupted; so far: )?FAILED: |.* +\d+ +[\d.]+ +[\d.]+ +\d+$", "bold red"),
    (r"(interrupted; so far: )?survived: ", "bold green"),
    (r"\d+\. |.* tries +ok +asked +FAILED$", "bold"),
    (r"   (where|again) ", "cyan"),
    (r"note: ", "dim"),
)
"""How lines of a report look in a terminal."""


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("program", type=click.Path(dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--count-effects",
    metavar="FILE|COMMAND",
    default="",
    help="Where effects show outside: a file that gets a line for each, or a command that prints them.",
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=LIMIT, show_default=True, help="At most so many tries; 0 for all."
)
@click.option("--budget", default="", help=f"At most so much time. Default: {BUDGET_SECONDS / 60:g}m.")
@click.option("--answer", "answers", multiple=True, metavar="[QUESTION=]VALUE", help="What a person answers, if asked.")
@click.option("--event", "events", multiple=True, metavar="NAME[=JSON]", help="An event to send to a run that waits.")
@click.option("--depth", type=click.IntRange(1, 2), default=1, show_default=True, help="2: also kill the second start.")
@click.option("--jobs", type=click.IntRange(min=1), help="Rounds at a time. Default: one per core, up to 4.")
@click.option("--only", multiple=True, metavar="PLACE", help="Only this place, as a report names it.")
@click.option("--timeout", default="", help="A start that takes longer hangs. Default: 10 times an undisturbed one.")
@click.option("--folder", default="", help="The folder to copy for every round. Default: the working folder.")
@click.option("--strict", is_flag=True, help="Exit with 1 also when a person is asked about an effect.")
@click.option("--keep", is_flag=True, help="Keep the folders of rounds that failed, and say where they are.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write JUnit XML to this file.")
@click.option("--store", default="", metavar="URL", help="A PostgreSQL server: each round in a schema of its own.")
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
    """Prove that a program survives: kill it everywhere, start it again, compare.

    \b
    perdure crashtest my_agent.py --count-effects outside.txt
    perdure crashtest my_agent.py --depth 2 --limit 200 -- --fast NYC

    The program runs for real, three to five times in peace and then twice or more for every try, each time in a copy of
    the working folder and with an empty store, which it is told by PERDURE_URL. So let it talk to a test system.
    The exit code is 1 when something is wrong.
    """  # noqa: D301 - click wants the character itself: it keeps these lines as they stand
    out = Output(as_json)
    wish = Wish(
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
    """A file is made for every round in any case."""
    if not store or is_embedded(url := locate(store)):
        return ""
    if not is_postgres(url):
        raise click.UsageError("--store: a crash test works on SQLite files and on postgresql:// servers")
    if "schema=" in url:
        raise click.UsageError("--store: leave out the schema; each round gets a new one, which is dropped afterwards")
    return url


def _show(out: Output, report: Report) -> None:
    if out.as_json:
        out.json(report.as_json())
        return
    for line in report.lines():
        out.line(clean(line), style=next((style for pattern, style in STYLES if re.match(pattern, line)), ""))
