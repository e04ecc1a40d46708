"""`perdure init`, `backup` and `adopt`: create a store, copy it, and continue with a copy."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perdure.cli.output import CommandOutput, clean, format_count, size
from perdure.cli.store_option import add_common_options, open_existing_store, path_of, repeat_options
from perdure.errors import JournalDamaged, StoreUnavailable
from perdure.journal.keys import folder_of
from perdure.journal.rebuild import refresh
from perdure.journal.verify import verify
from perdure.journal.verify_report import FindingKind, Severity, VerifyReport
from perdure.kernel.engine import AcceptLosses, AddStoreLocation, home_of
from perdure.platform.files import make_folder, move_into_place, replace_file, sync_folder
from perdure.records.stores import LostEntries
from perdure.store import DATABASE_NAME, FOLDER_NAME, hide_password, is_postgres, locate, open_store, sqlite_path
from perdure.store.sqlite.backup import leave_wal_mode
from perdure.store.sqlite.mark import describe_lost, remove_mark

if TYPE_CHECKING:
    from perdure.store.base import Store

NEXT = """\
Next, in a program:

    from perdure import Agent

    agent = Agent("helper"{store})

    @agent.step
    def think(question):
        return "an answer to " + question

    with agent.run("first") as run:
        run.result = think("why?")

Kill it anywhere and start it again: it continues where it was. Then:

    perdure runs{options}
    perdure show first{options}"""


@click.command()
@add_common_options
def init(url: str | None, as_json: bool) -> int:
    """Create a store in this folder.

    Programs that run in this folder or below find it automatically. --store or PERDURE_URL names another place.
    """
    out = CommandOutput(as_json)
    meant = url is not None or bool(os.environ.get("PERDURE_URL"))
    located = locate(url) if meant else f"sqlite:///{Path.cwd() / FOLDER_NAME / DATABASE_NAME}"
    if is_postgres(located):
        created = _make_on_server(located)
        shown = name = hide_password(located)
    else:
        shown, created = _make_file(located, own_folder=not meant)
        name = f"sqlite:///{shown}"
    if as_json:
        out.json({"store": name, "created": created})
        return 0
    whence = ", as PERDURE_URL says" if meant and url is None else ""
    out.line(clean(f"created {shown}{whence}" if created else f"{shown} already exists{whence} and is up to date"))
    if created:
        _tell_what_next(out, url)
    return 0


def _make_file(url: str, own_folder: bool) -> tuple[str, bool]:
    """Create the file if necessary. Returns its path, and whether it is new."""
    path = sqlite_path(url)
    if path == ":memory:":
        raise StoreUnavailable("a store in memory cannot be created in advance", hint="give --store a file")
    is_new = not os.path.exists(path)
    if own_folder:
        _make_folder(Path(path).parent)
    else:
        make_folder(os.path.dirname(path))
    open_store(f"sqlite:///{path}").close()
    return path, is_new


def _make_on_server(url: str) -> bool:
    """Create the store on a server if necessary. Returns whether it is new."""
    try:
        _migrate(open_store(url, create=False))
    except StoreUnavailable:
        open_store(url).close()  # fails again if the cause was not a missing store
        return True
    return False


def _migrate(store: Store) -> None:
    """Bring an existing store up to date; opening it has already created new tables."""
    try:
        refresh(store)
    finally:
        store.close()


def _tell_what_next(out: CommandOutput, url: str | None) -> None:
    """Print an example program for this store."""
    shown = hide_password(url) if url is not None and is_postgres(url) else url
    program = NEXT.format(store=f", store={shown!r}" if shown is not None else "", options=repeat_options(url))
    out.line()
    for line in program.splitlines():
        out.line(clean(line))


def _make_folder(folder: Path) -> None:
    """Create the folder for its owner only, ignored by git: a store may hold confidential data."""
    folder.mkdir(mode=0o700, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


@click.command()
@click.argument("target", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--with-keys", is_flag=True, help="Copy the agents' private keys too, to PATH.keys.")
@add_common_options
def backup(target: Path, with_keys: bool, url: str | None, as_json: bool) -> int:
    """Copy a store while it is in use, and verify the copy.

    The copy is a consistent snapshot. PATH must not exist. Private keys are copied only with --with-keys: whoever has
    the keys can sign as the agents.
    """
    out = CommandOutput(as_json)
    _refuse_to_overwrite(target, with_keys)
    # In the target's folder, so that a verified copy gets its name with one rename.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.absolute().parent) as folder:
        aside = Path(folder) / target.name
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with open_existing_store(url) as store:
            source = folder_of(store)
            report = _copy(out, store, aside)
        leave_wal_mode(str(aside))
        move_into_place(aside, target, new=True)
        remove_mark(str(target))
    keys = _copy_keys(Path(source), Path(f"{target}.keys")) if with_keys and source is not None else 0
    _print_backup(out, target, report, keys, with_keys)
    return 0


def _refuse_to_overwrite(target: Path, with_keys: bool) -> None:
    for path in (target, Path(f"{target}.keys")) if with_keys else (target,):
        if path.exists() or path.is_symlink():
            raise click.UsageError(f"{path} exists; a backup never overwrites")
    if not target.absolute().parent.is_dir():
        raise click.UsageError(f"{target.absolute().parent} is not a folder")


def _copy(out: CommandOutput, store: Store, aside: Path) -> VerifyReport:
    """Copy the store, open the copy, and verify all of it."""
    with out.progress("copying") as progress:
        store.backup(str(aside), progress)
    with open_existing_store(str(aside)) as copy, out.progress("verifying") as progress:
        report = verify(copy, lambda done, total, entries: progress(done, total))
    if not report.ok:
        first = next(finding for finding in report.findings if finding.severity == Severity.DAMAGE)
        raise JournalDamaged(
            f"no backup was made, because the store is damaged: {first.text}", hint="`perdure verify` shows where"
        )
    return report


def _copy_keys(source: Path, target: Path) -> int:
    if not source.is_dir():
        return 0
    target.mkdir(mode=0o700)
    copied = 0
    for key in sorted(source.glob("*.key")):
        replace_file(target / key.name, key.read_bytes(), new=True)
        copied += 1
    sync_folder(target.absolute().parent)
    return copied


def _print_backup(out: CommandOutput, target: Path, report: VerifyReport, keys: int, with_keys: bool) -> None:
    taken = target.stat().st_size
    if out.as_json:
        counts = {"bytes": taken, "entries": report.entries, "objects": report.objects, "keys": keys}
        out.json({"backup": str(target.absolute()), "verified": True, **counts})
        return
    out.line(clean(f"{target}: {size(taken)}, {_contents(report)}, all verified"))
    if with_keys:
        out.line(clean(f"{target}.keys: {format_count(keys, 'private key')}; protect them like the originals"))
    else:
        out.line("private keys are not included; --with-keys copies them")


def _contents(report: VerifyReport) -> str:
    return f"{format_count(report.entries, 'entry', 'entries')} and {format_count(report.objects, 'object')}"


@click.command()
@click.option("--accept-damage", is_flag=True, help="Continue with a damaged store; its damaged runs stay unusable.")
@add_common_options
def adopt(accept_damage: bool, url: str | None, as_json: bool) -> int:
    """Continue with a store that was moved, copied or restored from a backup.

    Verifies the store, and changes nothing if it is damaged. Then records this host and file as its home. Adopt only
    one copy: two active copies are two agents with one name. If the store has lost entries, effects that they may
    contain are in doubt from now on.
    """
    out = CommandOutput(as_json)
    if is_postgres(locate(url)):
        raise StoreUnavailable("a store on a server does not move between hosts", hint="there is nothing to adopt")
    path = path_of(url)
    with open_existing_store(path) as store:
        damage = _find_damage(out, store)
        if damage and not accept_damage:
            return _print_refusal(out, path, damage)
        lost = store.losses()
        if lost:
            accepted = AcceptLosses(store.adoption())
            store.rolled_back = None
            store.submit(accepted)
        host, file = home_of(path)
        rows = store.read("last_location")
        moved = not rows or rows[0] != (host, file)
        if moved:
            store.submit(AddStoreLocation(store, host, file))
    if as_json:
        facts = {"store": f"sqlite:///{path}", "adopted": moved or bool(lost), "host": host, "file": file}
        out.json({**facts, "lost": [_make_lost_fields(one) for one in lost], "damage": damage})
        return 1 if damage else 0
    for one in lost:
        out.line(clean(f"lost: {describe_lost(one)}"))
    if lost:
        out.line("programs can continue; effects that the lost entries may contain are in doubt")
    if moved:
        out.line(clean(f"adopted {path}; do not start programs on the other copy any more"))
    elif not lost:
        out.line(clean(f"{path} has not moved: there is nothing to adopt"))
    return 1 if damage else 0


def _find_damage(out: CommandOutput, store: Store) -> list[str]:
    """Verify the store. Lost entries at the end do not count: `adopt` accepts those."""
    with out.progress("verifying") as progress:
        report = verify(store, lambda done, total, entries: progress(done, total))
    return [
        finding.text
        for finding in report.findings
        if finding.severity == Severity.DAMAGE and finding.what != FindingKind.ROLLED_BACK
    ]


def _print_refusal(out: CommandOutput, path: str, damage: list[str]) -> int:
    if out.as_json:
        out.json({"store": f"sqlite:///{path}", "adopted": False, "lost": [], "damage": damage})
        return 1
    out.line(clean(f"{path} is damaged: {damage[0]}. Nothing was adopted or changed"))
    out.line("`perdure verify` lists the damage; restore another backup, or continue with --accept-damage")
    return 1


def _make_lost_fields(one: LostEntries) -> dict[str, object]:
    lost = one.lost
    intents = [{"name": intent.name, "key": intent.key} for intent in lost.intents if intent.key]
    return {"run": one.name, "first": lost.first, "last": lost.last, "effects": intents, "complete": lost.complete}
