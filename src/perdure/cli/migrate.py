"""`perdure migrate`: bring an old store forward, after a copy of it, or only say what that would do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from .. import __version__
from ..errors import StorageFull
from ..files import put_in_place
from ..journal.rebuild import refresh
from ..store import file_of, is_postgres, open_store, versions_of, without_password
from ..store.versions import Step, Versions
from .output import Output, clean, counted, size
from .stores import common, said_again, url_of


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit code 1 when there is something to do.")
@click.option("--no-backup", is_flag=True, help="Make no copy of the file first.")
@common
def migrate(check: bool, no_backup: bool, url: str | None, as_json: bool) -> int:
    """Bring an old store forward, or say what that would do.

    Any program of this version does the same when it opens the store: in one transaction, all or nothing. This one
    copies a file first, to PATH.schema-N, where N is the schema that it had. A store on a server is not copied.
    """
    out = Output(as_json)
    located = url_of(url)
    found = versions_of(located)
    found.refuse_newer()
    shown = without_password(located) if is_postgres(located) else located
    path = file_of(located)
    copy = _free_name(f"{path}.schema-{found.found}") if path is not None and not no_backup and found.steps else None
    if not as_json:
        out.line(clean(f"store {shown}: schema {found.found}; Perdure {__version__} knows schema {found.known}"))
    if not check and found.steps:
        _bring_forward(out, located, path, copy)
    if as_json:
        out.json(_facts(shown, found, copy, done=not check))
    else:
        _tell(out, found, path, copy, check, said_again(url))
    return 1 if check and found.steps else 0


def _bring_forward(out: Output, url: str, path: str | None, copy: Path | None) -> None:
    if path is not None and copy is not None:
        with out.progress("copying") as progress:
            _keep_copy(path, copy, progress)
    store = open_store(url, create=False)
    try:
        refresh(store)
    finally:
        store.close()


def _keep_copy(path: str, copy: Path, progress: Callable[[int, int], None]) -> None:
    """The copy gets its name when it is whole and on disk."""
    from ..store.sqlite_copy import copy_unopened

    aside = Path(f"{copy}.part")
    aside.unlink(missing_ok=True)
    try:
        copy_unopened(path, str(aside), progress)
        put_in_place(aside, copy)
    except StorageFull as error:
        hint = f"free {size(os.path.getsize(path))}, or say --no-backup; the store was left as it is"
        raise StorageFull(f"there is no space for a copy at {copy}", hint=hint) from error
    finally:
        aside.unlink(missing_ok=True)


def _free_name(name: str) -> Path:
    """A copy never takes the place of another one."""
    number, path = 1, Path(name)
    while path.exists():
        number += 1
        path = Path(f"{name}.{number}")
    return path


def _facts(shown: str, found: Versions, copy: Path | None, done: bool) -> dict[str, object]:
    steps = [{field: getattr(step, field) for field in Step.__struct_fields__} for step in found.steps]
    told = {"store": shown, "schema": found.found, "known": found.known, "oldest": found.oldest, "steps": steps}
    return {**told, "backup": str(copy) if copy is not None else None, "done": done}


def _size(path: str | None) -> str:
    return f": {size(os.path.getsize(path))}" if path is not None else ""


def _tell(out: Output, found: Versions, path: str | None, copy: Path | None, check: bool, options: str) -> None:
    if not found.steps:
        newer = found.found > found.known
        out.line("it is newer, and made for this version too" if newer else "nothing to do: it is up to date")
        return
    for step in found.steps:
        out.line(f"  {step.number} {step.name}: {_what(step)}")
    slow = any(step.goes_through or step.makes_views_anew for step in found.steps)
    cost = f"takes longer the larger the store is{_size(path)}" if slow else "takes milliseconds, whatever its size"
    if not check:
        out.line(f"done: {counted(len(found.steps), 'step')} in one transaction; it has schema {found.known} now")
        if copy is not None:
            out.line(clean(f"the store as it was: {copy}; older programs can open that, and not the store any more"))
        return
    out.line(f"to do: {counted(len(found.steps), 'step')} in one transaction, all or nothing; it {cost}")
    if copy is not None:
        out.line(clean(f"`perdure migrate{options}` does it, and copies the file to {copy} first"))
    elif path is not None:
        out.line(clean(f"`perdure migrate{options} --no-backup` does it, without a copy of the file"))
    else:
        out.line(clean(f"make a backup with your own tools (pg_dump), then `perdure migrate{options}` does it"))


def _what(step: Step) -> str:
    parts = [f"adds {', '.join(step.adds)}"] if step.adds else []
    parts += [f"adds a column to {', '.join(step.widens)}"] if step.widens else []
    parts += [f"goes through {', '.join(step.goes_through)}"] if step.goes_through else []
    parts += ["makes the views anew from the journal"] if step.makes_views_anew else []
    return "; ".join(parts) or "changes no rows"
