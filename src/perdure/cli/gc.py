"""`perdure gc`: shows what is not needed any more, then frees it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click

from ..durations import seconds_of
from ..engine import Engine
from ..errors import StoreUnavailable
from ..retention import GcReport
from ..retention import gc as free
from .output import Output, clean, counted, is_terminal, size
from .stores import agent_option, common, existing_store, said_again, url_of

if TYPE_CHECKING:
    from ..store.base import Store


@click.command()
@click.option("--yes", is_flag=True, help="Free it without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would be freed.")
@click.option("--fold-before", metavar="AGE", help='Also archive and fold entries older than this, such as "90d".')
@click.option("--events-before", metavar="AGE", help="Also archive and fold noted events older than this.")
@click.option(
    "--archive",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Where archives go. Default: beside the store.",
)
@click.option("--vacuum", is_flag=True, help="Give all empty space of a SQLite file back, however long that takes.")
@agent_option
@common
def gc(
    yes: bool,
    dry_run: bool,
    fold_before: str | None,
    events_before: str | None,
    archive: str | None,
    vacuum: bool,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Show what is not needed any more, and free it.

    Keys of state whose time has run out, checkpoints that no rule keeps, large values that nothing refers to, rows of
    dead processes. Asks before it frees anything; where there is nobody to ask, it only shows, unless you say --yes.
    Agents may be at work meanwhile. It can be interrupted anywhere, and started again.

    With --fold-before, what finished runs did that long ago, and changes of state that others have replaced by then,
    goes into archives: a run keeps its input, its result and its state. Noted events stay, unless you say
    --events-before, which folds entries of that age too.

    A SQLite file becomes smaller where that takes a moment. With --vacuum it does so however large it is; nobody else
    can write meanwhile.
    """
    if yes and dry_run:
        raise click.UsageError("--dry-run only shows, --yes frees: say one of them")
    if archive is not None and fold_before is None and events_before is None:
        raise click.UsageError("--archive says where entries go that --fold-before takes out")
    out = Output(as_json)
    freeing = partial(
        free,
        fold_before=_age(fold_before, "--fold-before"),
        events_before=_age(events_before, "--events-before"),
        archive_folder=archive,
        vacuum=vacuum,
    )
    with _engines(url, agent) as (store, engines):
        report = shown = _done(out, "looking", partial(freeing, store, engines, dry_run=True))
        if not as_json:
            _tell(out, shown)
        again = said_again(url, agent) + (f" --fold-before {fold_before}" if fold_before else "")
        again += (f" --events-before {events_before}" if events_before else "") + (" --vacuum" if vacuum else "")
        if yes or (not dry_run and (vacuum or not report.nothing) and _agreed(out, again)):
            report = _done(out, "freeing", partial(freeing, store, engines))
            if not as_json:
                _tell_freed(out, report, shown.notes)
    if as_json:
        out.json(_as_json(report))
    return 0


@contextmanager
def _engines(url: str | None, agent: str | None) -> Iterator[tuple[Store, list[Engine]]]:
    """The store, and the agents that are meant: all of them, unless one is named."""
    located = url_of(url)
    with existing_store(located) as store:
        names = [str(name) for name, *_ in store.read("all_agents") if agent in (None, name)]
    if agent is not None and not names:
        raise StoreUnavailable(clean(f"the store has no agent {agent!r}"), hint="`perdure runs` shows which there are")
    engines = [Engine(name, store=located) for name in names]
    try:
        with existing_store(located) if not engines else nullcontext(engines[0].store) as store:
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


def _done(out: Output, doing: str, freeing: Callable[..., GcReport]) -> GcReport:
    with out.progress(doing) as bar:
        return freeing(progress=lambda what, done, total: bar(done, total))


def _agreed(out: Output, again: str) -> bool:
    if out.as_json or not (is_terminal(sys.stdout) and sys.stdin.isatty()):
        if not out.as_json:
            out.line(clean(f"nothing was freed; to free it: perdure gc --yes{again}"))
        return False
    return click.confirm("free it?", default=False)


def _tell(out: Output, report: GcReport) -> None:
    for note in report.notes:
        out.line(clean(note))
    if report.nothing:
        out.line(f"nothing to free; the store takes {size(report.bytes_before)}")
        return
    found = [(many, part) for _, many, part in report.parts() if part.count]
    rows = [(what, str(part.count), size(part.bytes) if part.bytes else "") for what, part in found]
    out.table(("WHAT", "COUNT", "BYTES"), rows)


def _tell_freed(out: Output, report: GcReport, told: tuple[str, ...]) -> None:
    out.line(f"{report}; the store took {size(report.bytes_before)}, and takes {size(report.bytes_after)} now")
    for note in report.notes:
        if note not in told:
            out.line(clean(note))
    folders = sorted({os.path.dirname(path) for path in report.archives})
    for folder in folders:
        count = sum(os.path.dirname(path) == folder for path in report.archives)
        out.line(
            clean(f"{counted(count, 'archive')} in {folder}: keep them, they are the only copy of what was folded")
        )


def _as_json(report: GcReport) -> dict[str, object]:
    names = ("state", "checkpoints", "threads", "memories", "events", "objects", "holders")
    parts = {name: getattr(report, name) for name in names}
    counts = {name: {"count": part.count, "bytes": part.bytes} for name, part in parts.items()}
    sizes = {"bytes_before": report.bytes_before, "bytes_after": report.bytes_after}
    return {"dry_run": report.dry_run, **counts, **sizes, "archives": report.archives, "notes": report.notes}
