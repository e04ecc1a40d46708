"""`perdure doctor`: find problems and print how to fix them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import click

from perdure.cli import doctor_environment, doctor_queues, doctor_store, doctor_tools
from perdure.cli.doctor_environment import CheckLevel, CheckResult
from perdure.cli.output import STYLES, CommandOutput, clean, format_count
from perdure.cli.store_option import add_common_options, open_existing_store, repeat_options
from perdure.errors import PerdureError
from perdure.store import hide_password, is_postgres, locate, sqlite_path

_RESTORE = "restore it from a backup; without one, `sqlite3 FILE .recover` saves what can be read"
"""For a broken store, whose own hint leads here."""


@click.command()
@add_common_options
def doctor(url: str | None, as_json: bool) -> int:
    """Find problems and print how to fix them.

    Exit code 1 if there is a problem. `perdure verify` checks the content of the store.
    """
    out = CommandOutput(as_json)
    located = locate(url)
    shown = hide_password(located) if is_postgres(located) else located
    found = list(_examine(located, repeat_options(url), chosen=url is not None))
    problems = sum(check.level == CheckLevel.PROBLEM for check in found)
    if as_json:
        fields = CheckResult.__struct_fields__
        out.json(
            {"store": shown, "ok": not problems, "checks": [{f: getattr(check, f) for f in fields} for check in found]}
        )
        return 1 if problems else 0
    out.line(clean(f"store {shown}"), style="bold")
    if out.rich:
        _print_list(out, found)
    else:
        rows = [(check.about, check.level.value, clean(check.text), clean(check.fix)) for check in found]
        out.table(("CHECK", "LEVEL", "FOUND", "FIX"), rows)
    out.line(format_count(problems, "problem") if problems else "no problems")
    return 1 if problems else 0


def _print_list(out: CommandOutput, found: Sequence[CheckResult]) -> None:
    """Print problems last, where people look first, and each fix on its own line, ready to copy."""
    signs = {CheckLevel.OK: "✓", CheckLevel.NOTE: "!", CheckLevel.PROBLEM: "✗"} if out.unicode else {}
    width = max(len(result.about) for result in found)
    for check in sorted(found, key=lambda result: list(CheckLevel).index(result.level)):
        sign = signs.get(check.level, check.level.value[0].upper())
        out.pieces([(f"{sign} {check.about:<{width}}  ", STYLES[check.level.value]), (clean(check.text), "")])
        if check.fix:
            out.pieces([(" " * (width + 4) + clean(check.fix), "cyan")])


def _examine(url: str, options: str, chosen: bool) -> Iterator[CheckResult]:
    """Run all checks; later ones depend on earlier ones. `options` is appended to printed commands."""
    yield from doctor_environment.library()
    yield from doctor_tools.connections()
    if is_postgres(url):
        yield from _look_inside(url, "", options, chosen)
        return
    path = sqlite_path(url)
    if not os.path.isfile(path):
        what = f"{path} is a folder" if os.path.isdir(path) else f"there is no store at {path}"
        yield CheckResult(CheckLevel.PROBLEM, "store", what, f"perdure init{'' if os.path.isdir(path) else options}")
        return
    yield from doctor_environment.place(path)
    yield from doctor_environment.permissions(path)
    for check in doctor_environment.header(path):
        yield check
        if check.level == CheckLevel.PROBLEM:
            return
    yield from doctor_environment.write_lock(path)
    yield from _look_inside(url, path, options, chosen)


def _look_inside(url: str, path: str, options: str, chosen: bool) -> Iterator[CheckResult]:
    try:
        with open_existing_store(url) as store:
            yield CheckResult(CheckLevel.OK, "store", path or store.url)
            yield from doctor_store.home(store, path, options) if path else doctor_store.server(store)
            yield from doctor_store.losses(store, options)
            yield from doctor_store.clocks(store)
            yield from doctor_store.holders(store, options)
            yield from doctor_store.agents(store)
            yield from doctor_store.check_forgotten(store, options)
            yield from doctor_store.runs(store, options)
            yield from doctor_queues.queues(store, options)
            yield from doctor_store.check_signing(store)
            yield from doctor_store.namesakes(store, chosen)
    except PerdureError as error:
        # An error that prevents reading the store is a finding, not a failure of the command.
        hint = _RESTORE if "perdure doctor" in error.hint else error.hint
        yield CheckResult(CheckLevel.PROBLEM, "store", error.message, hint or f"perdure verify{options}")
