"""`perdure doctor`: look for what could go wrong, and say how to mend it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import click

from ..errors import PerdureError
from ..store import is_postgres, locate, sqlite_path, without_password
from . import checkup, checkup_queues, checkup_store
from .checkup import Checked, Level
from .output import STYLES, Output, clean, counted
from .stores import common, existing_store, said_again


@click.command()
@common
def doctor(url: str | None, as_json: bool) -> int:
    """Look for what could go wrong, and say how to mend it.

    Exit code 1 when there is a problem. `perdure verify` looks at the content of the store.
    """
    out = Output(as_json)
    located = locate(url)
    shown = without_password(located) if is_postgres(located) else located
    found = list(_examine(located, said_again(url), chosen=url is not None))
    problems = sum(it.level == Level.PROBLEM for it in found)
    if as_json:
        fields = Checked.__struct_fields__
        out.json({"store": shown, "ok": not problems, "checks": [{f: getattr(it, f) for f in fields} for it in found]})
        return 1 if problems else 0
    out.line(clean(f"store {shown}"), style="bold")
    if out.rich:
        _print_list(out, found)
    else:
        rows = [(it.about, it.level.value, clean(it.text), clean(it.fix)) for it in found]
        out.table(("CHECK", "LEVEL", "FOUND", "FIX"), rows)
    out.line(counted(problems, "problem") if problems else "no problems")
    return 1 if problems else 0


def _print_list(out: Output, found: Sequence[Checked]) -> None:
    """What is wrong last, where the eyes are; a fix on a line of its own, to be copied."""
    signs = {Level.OK: "✓", Level.NOTE: "!", Level.PROBLEM: "✗"} if out.unicode else {}
    width = max(len(it.about) for it in found)
    for it in sorted(found, key=lambda it: list(Level).index(it.level)):
        sign = signs.get(it.level, it.level.value[0].upper())
        out.pieces([(f"{sign} {it.about:<{width}}  ", STYLES[it.level.value]), (clean(it.text), "")])
        if it.fix:
            out.pieces([(" " * (width + 4) + clean(it.fix), "cyan")])


def _examine(url: str, options: str, chosen: bool) -> Iterator[Checked]:
    """All checks; the later ones need what the earlier ones found in order. `options` are for printed commands."""
    yield from checkup.library()
    if is_postgres(url):
        yield from _look_inside(url, "", options, chosen)
        return
    path = sqlite_path(url)
    if not os.path.isfile(path):
        what = f"{path} is a folder" if os.path.isdir(path) else f"there is no store at {path}"
        yield Checked(Level.PROBLEM, "store", what, f"perdure init{'' if os.path.isdir(path) else options}")
        return
    yield from checkup.place(path)
    yield from checkup.permissions(path)
    for it in checkup.header(path):
        yield it
        if it.level == Level.PROBLEM:
            return
    yield from checkup.write_lock(path)
    yield from _look_inside(url, path, options, chosen)


def _look_inside(url: str, path: str, options: str, chosen: bool) -> Iterator[Checked]:
    try:
        with existing_store(url) as store:
            yield Checked(Level.OK, "store", path or store.url)
            yield from checkup_store.home(store, path, options) if path else checkup_store.server(store)
            yield from checkup_store.losses(store, options)
            yield from checkup_store.clocks(store)
            yield from checkup_store.holders(store, options)
            yield from checkup_store.agents(store)
            yield from checkup_store.forgotten(store, options)
            yield from checkup_store.runs(store, options)
            yield from checkup_queues.queues(store, options)
            yield from checkup_store.signing(store)
            yield from checkup_store.namesakes(store, chosen)
    except PerdureError as error:
        # Whatever keeps the store from being read is what the doctor was called for.
        yield Checked(Level.PROBLEM, "store", error.message, error.hint or f"perdure verify{options}")
