"""`perdure doctor`: look for what could go wrong, and say how to mend it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from ..errors import PerdureError
from ..store import is_postgres, locate, sqlite_path, without_password
from . import checkup
from .checkup import Checked, Level
from .output import Output, clean, counted
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
    found = list(_examine(located, said_again(url)))
    problems = sum(it.level == Level.PROBLEM for it in found)
    if as_json:
        fields = Checked.__struct_fields__
        out.json({"store": shown, "ok": not problems, "checks": [{f: getattr(it, f) for f in fields} for it in found]})
        return 1 if problems else 0
    out.line(clean(f"store {shown}"))
    rows = [(it.about, it.level.value, clean(it.text), clean(it.fix)) for it in found]
    out.table(("CHECK", "LEVEL", "FOUND", "FIX"), rows)
    out.line(counted(problems, "problem") if problems else "no problems")
    return 1 if problems else 0


def _examine(url: str, options: str) -> Iterator[Checked]:
    """All checks; the later ones need what the earlier ones found in order. `options` are for printed commands."""
    yield from checkup.library()
    if is_postgres(url):
        yield from _examine_server(url, options)
        return
    path = sqlite_path(url)
    if not os.path.exists(path):
        yield Checked(Level.PROBLEM, "store", f"there is no store at {path}", f"perdure init{options}")
        return
    yield Checked(Level.OK, "store", path)
    yield from checkup.place(path)
    yield from checkup.permissions(path)
    blocked = False
    for check in (checkup.header, checkup.write_lock):
        for it in check(path):
            blocked = blocked or it.level == Level.PROBLEM
            yield it
    if not blocked:
        yield from _look_inside(path, options)


def _examine_server(url: str, options: str) -> Iterator[Checked]:
    try:
        with existing_store(url) as store:
            yield Checked(Level.OK, "store", store.url)
            yield from checkup.server(store)
            yield from checkup.holders(store)
            yield from checkup.runs(store, options)
            yield from checkup.signing(store)
    except PerdureError as error:
        yield Checked(Level.PROBLEM, "store", error.message, error.hint or f"perdure verify{options}")


def _look_inside(path: str, options: str) -> Iterator[Checked]:
    try:
        with existing_store(path) as store:
            yield from checkup.home(store, path, options)
            yield from checkup.holders(store)
            yield from checkup.runs(store, options)
            yield from checkup.signing(store)
    except PerdureError as error:
        # Whatever keeps the store from being read is what the doctor was called for.
        yield Checked(Level.PROBLEM, "store", error.message, error.hint or f"perdure verify{options}")
