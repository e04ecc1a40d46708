"""`perdure gc`: garbage collection and compaction."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click

from perdure.cli.output import CommandOutput, clean, format_count, is_terminal, size
from perdure.cli.store_option import add_common_options, agent_option, open_existing_store, repeat_options, url_of
from perdure.errors import StoreUnavailable
from perdure.kernel.engine import Engine
from perdure.maintenance.retention import GcReport
from perdure.maintenance.retention import gc as free
from perdure.values.durations import seconds_of

if TYPE_CHECKING:
    from perdure.store.base import Store


@click.command()
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would be freed.")
@click.option(
    "--compact-before", metavar="AGE", help='Also archive and compact entries older than this, such as "90d".'
)
@click.option("--events-before", metavar="AGE", help="Also archive and compact events older than this.")
@click.option(
    "--archive",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="The folder for archives. Default: next to the store.",
)
@click.option("--vacuum", is_flag=True, help="Return all free space of a SQLite file, however long that takes.")
@agent_option
@add_common_options
def gc(
    yes: bool,
    dry_run: bool,
    compact_before: str | None,
    events_before: str | None,
    archive: str | None,
    vacuum: bool,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Delete data that is no longer needed, after showing it.

    This is: expired state keys, checkpoints that no rule retains, unreferenced large values, rows of dead processes. It
    asks first; without a terminal it only reports, unless you pass --yes. Agents may keep working. It is safe to
    interrupt and repeat.

    --compact-before moves old entries of finished runs and superseded state changes to archives. A run keeps its input,
    result and state. Events stay unless --events-before compacts them too.

    A SQLite file shrinks if that is quick. --vacuum shrinks a file of any size, but blocks all other writers.
    """
    if yes and dry_run:
        raise click.UsageError("--dry-run and --yes exclude each other")
    if archive is not None and compact_before is None and events_before is None:
        raise click.UsageError("--archive needs --compact-before or --events-before")
    out = CommandOutput(as_json)
    freeing = partial(
        free,
        compact_before=_age(compact_before, "--compact-before"),
        events_before=_age(events_before, "--events-before"),
        archive_folder=archive,
        vacuum=vacuum,
    )
    with _engines(url, agent) as (store, engines):
        report = shown = _collect_garbage(out, "looking", partial(freeing, store, engines, dry_run=True))
        if not as_json:
            _print_report(out, shown)
        again = repeat_options(url, agent) + (f" --compact-before {compact_before}" if compact_before else "")
        again += (f" --events-before {events_before}" if events_before else "") + (" --vacuum" if vacuum else "")
        if yes or (not dry_run and (vacuum or not report.nothing) and _confirm(out, again)):
            report = _collect_garbage(out, "freeing", partial(freeing, store, engines))
            if not as_json:
                _tell_freed(out, report, shown.notes)
    if as_json:
        out.json(_as_json(report))
    return 0


@contextmanager
def _engines(url: str | None, agent: str | None) -> Iterator[tuple[Store, list[Engine]]]:
    """Open the store and the named agent, or all agents."""
    located = url_of(url)
    with open_existing_store(located) as store:
        names = [str(name) for name, *_ in store.read("all_agents") if agent in (None, name)]
    if agent is not None and not names:
        raise StoreUnavailable(clean(f"the store has no agent {agent!r}"), hint="`perdure runs` lists the agents")
    engines = [Engine(name, store=located) for name in names]
    try:
        with open_existing_store(located) if not engines else nullcontext(engines[0].store) as store:
            yield store, engines
    finally:
        for engine in engines:
            engine.close()


def _age(text: str | None, option: str) -> str | None:
    if text is not None:
        try:
            seconds_of(text, option)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return text


def _collect_garbage(out: CommandOutput, doing: str, freeing: Callable[..., GcReport]) -> GcReport:
    with out.progress(doing) as bar:
        return freeing(progress=lambda what, done, total: bar(done, total))


def _confirm(out: CommandOutput, again: str) -> bool:
    if out.as_json or not (is_terminal(sys.stdout) and sys.stdin.isatty()):
        if not out.as_json:
            out.line(clean(f"nothing was freed; to do it: perdure gc --yes{again}"))
        return False
    return click.confirm("free it?", default=False)


def _print_report(out: CommandOutput, report: GcReport) -> None:
    for note in report.notes:
        out.line(clean(note))
    if report.nothing:
        out.line(f"nothing to free; the store takes {size(report.bytes_before)}")
        return
    found = [(many, part) for _, many, part in report.parts() if part.count]
    rows = [(what, str(part.count), size(part.bytes) if part.bytes else "") for what, part in found]
    out.table(("WHAT", "COUNT", "BYTES"), rows)


def _tell_freed(out: CommandOutput, report: GcReport, told: tuple[str, ...]) -> None:
    out.line(f"{report}; size of the store: {size(report.bytes_before)} before, {size(report.bytes_after)} now")
    for note in report.notes:
        if note not in told:
            out.line(clean(note))
    folders = sorted({os.path.dirname(path) for path in report.archives})
    for folder in folders:
        count = sum(os.path.dirname(path) == folder for path in report.archives)
        out.line(
            clean(
                f"{format_count(count, 'archive')} in {folder}: keep them, they are the only copy of the compacted data"
            )
        )


def _as_json(report: GcReport) -> dict[str, object]:
    names = ("state", "checkpoints", "threads", "memories", "events", "objects", "holders")
    parts = {name: getattr(report, name) for name in names}
    counts = {name: {"count": part.count, "bytes": part.bytes} for name, part in parts.items()}
    sizes = {"bytes_before": report.bytes_before, "bytes_after": report.bytes_after}
    return {"dry_run": report.dry_run, **counts, **sizes, "archives": report.archives, "notes": report.notes}
