"""`perdure migrate`: copy and migrate an old store, or only show what that would do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from perdure import __version__
from perdure.cli.output import CommandOutput, clean, format_count, size
from perdure.cli.store_option import add_common_options, repeat_options, url_of
from perdure.errors import StorageFull
from perdure.journal.rebuild import refresh
from perdure.platform.files import move_into_place
from perdure.store import file_of, hide_password, is_postgres, open_store, versions_of
from perdure.store.schema_version import MigrationStep, StoreVersions


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; exit code 1 if a migration is needed.")
@click.option("--no-backup", is_flag=True, help="Do not copy the file first.")
@add_common_options
def migrate(check: bool, no_backup: bool, url: str | None, as_json: bool) -> int:
    """Migrate an old store to this version, or show what that would do.

    Any program of this version does the same when it opens the store, in one transaction. This command first copies a
    file to PATH.schema-N, where N is its old schema. A store on a server is not copied.
    """
    out = CommandOutput(as_json)
    located = url_of(url)
    found = versions_of(located)
    found.refuse_newer()
    shown = hide_password(located) if is_postgres(located) else located
    path = file_of(located)
    copy = (
        _choose_free_name(f"{path}.schema-{found.found}")
        if path is not None and not no_backup and found.steps
        else None
    )
    if not as_json:
        out.line(clean(f"store {shown}: schema {found.found}; Perdure {__version__} uses schema {found.known}"))
    if not check and found.steps:
        _migrate(out, located, path, copy)
    if as_json:
        out.json(_facts(shown, found, copy, done=not check))
    else:
        _print_outcome(out, found, path, copy, check, repeat_options(url))
    return 1 if check and found.steps else 0


def _migrate(out: CommandOutput, url: str, path: str | None, copy: Path | None) -> None:
    if path is not None and copy is not None:
        with out.progress("copying") as progress:
            _keep_copy(path, copy, progress)
    store = open_store(url, create=False)
    try:
        refresh(store)
    finally:
        store.close()


def _keep_copy(path: str, copy: Path, progress: Callable[[int, int], None]) -> None:
    """Copy the file. The copy gets its name when it is complete and on disk."""
    from perdure.store.sqlite.backup import copy_unopened

    aside = Path(f"{copy}.part")
    aside.unlink(missing_ok=True)
    try:
        copy_unopened(path, str(aside), progress)
        move_into_place(aside, copy)
    except StorageFull as error:
        hint = f"free {size(os.path.getsize(path))}, or pass --no-backup; the store is unchanged"
        raise StorageFull(f"there is no space for a copy at {copy}", hint=hint) from error
    finally:
        aside.unlink(missing_ok=True)


def _choose_free_name(name: str) -> Path:
    """Return a name that no file has: a copy never replaces another one."""
    number, path = 1, Path(name)
    while path.exists():
        number += 1
        path = Path(f"{name}.{number}")
    return path


def _facts(shown: str, found: StoreVersions, copy: Path | None, done: bool) -> dict[str, object]:
    steps = [{field: getattr(step, field) for field in MigrationStep.__struct_fields__} for step in found.steps]
    told = {"store": shown, "schema": found.found, "known": found.known, "oldest": found.oldest, "steps": steps}
    return {**told, "backup": str(copy) if copy is not None else None, "done": done}


def _size(path: str | None) -> str:
    return f": {size(os.path.getsize(path))}" if path is not None else ""


def _print_outcome(
    out: CommandOutput, found: StoreVersions, path: str | None, copy: Path | None, check: bool, options: str
) -> None:
    if not found.steps:
        newer = found.found > found.known
        out.line("it is newer, and compatible with this version" if newer else "nothing to do: it is up to date")
        return
    for step in found.steps:
        out.line(f"  {step.number} {step.name}: {_describe_step(step)}")
    slow = any(step.goes_through or step.makes_views_anew for step in found.steps)
    cost = f"takes longer for a larger store{_size(path)}" if slow else "takes milliseconds at any size"
    if not check:
        out.line(f"done: {format_count(len(found.steps), 'step')} in one transaction; schema {found.known} now")
        if copy is not None:
            out.line(clean(f"the old store: {copy}; older programs can open only that copy"))
        return
    out.line(f"to do: {format_count(len(found.steps), 'step')} in one transaction; it {cost}")
    if copy is not None:
        out.line(clean(f"`perdure migrate{options}` copies the file to {copy} and migrates"))
    elif path is not None:
        out.line(clean(f"`perdure migrate{options} --no-backup` migrates without a copy of the file"))
    else:
        out.line(clean(f"make a backup with your own tools (pg_dump), then run `perdure migrate{options}`"))


def _describe_step(step: MigrationStep) -> str:
    parts = [f"adds {', '.join(step.adds)}"] if step.adds else []
    parts += [f"adds a column to {', '.join(step.widens)}"] if step.widens else []
    parts += [f"reads all of {', '.join(step.goes_through)}"] if step.goes_through else []
    parts += ["rebuilds the views from the journal"] if step.makes_views_anew else []
    return "; ".join(parts) or "changes no rows"
