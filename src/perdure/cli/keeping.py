"""`perdure init`, `backup` and `adopt`: making a store, copying it, and going on with a copy."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..engine import AddHome, Adopt, home_of
from ..errors import JournalDamaged, StoreUnavailable
from ..files import make_folder, put_in_place, replace_file, sync_folder
from ..journal.findings import Report, Severity
from ..journal.rebuild import refresh
from ..journal.verify import verify
from ..keys import folder_of
from ..store import DATABASE_NAME, FOLDER_NAME, is_postgres, locate, open_store, sqlite_path, without_password
from ..store.sqlite_mark import LostEntries, lost_in_words, remove_mark
from .output import Output, clean, counted, size
from .stores import common, existing_store, path_of, said_again

if TYPE_CHECKING:
    from ..store.base import Store

NEXT = """\
Next, in a program:

    from perdure import Agent

    agent = Agent("helper"{store})

    @agent.step
    def think(question):
        return "an answer to " + question

    with agent.run("first") as run:
        run.result = think("why?")

Kill it anywhere and start it again: it goes on where it was. Then:

    perdure runs{options}
    perdure show first{options}"""


@click.command()
@common
def init(url: str | None, as_json: bool) -> int:
    """Make a store in this folder.

    Programs that run in this folder or below it find it by themselves. With --store or PERDURE_URL, the store
    that is named there is made instead.
    """
    out = Output(as_json)
    meant = url is not None or bool(os.environ.get("PERDURE_URL"))
    located = locate(url) if meant else f"sqlite:///{Path.cwd() / FOLDER_NAME / DATABASE_NAME}"
    if is_postgres(located):
        created = _make_on_server(located)
        shown = name = without_password(located)
    else:
        shown, created = _make_file(located, own_folder=not meant)
        name = f"sqlite:///{shown}"
    if as_json:
        out.json({"store": name, "created": created})
        return 0
    whence = ", as PERDURE_URL says" if meant and url is None else ""
    out.line(clean(f"made {shown}{whence}" if created else f"{shown} was there already{whence}, and is up to date"))
    if created:
        _tell_what_next(out, url)
    return 0


def _make_file(url: str, own_folder: bool) -> tuple[str, bool]:
    """Its path, and whether it is new."""
    path = sqlite_path(url)
    if path == ":memory:":
        raise StoreUnavailable("a store in memory cannot be made beforehand", hint="give --store a file")
    is_new = not os.path.exists(path)
    if own_folder:
        _make_folder(Path(path).parent)
    else:
        make_folder(os.path.dirname(path))
    open_store(f"sqlite:///{path}").close()
    return path, is_new


def _make_on_server(url: str) -> bool:
    """Whether it is new."""
    try:
        _bring_forward(open_store(url, create=False))
    except StoreUnavailable:
        open_store(url).close()  # if it was not for want of a store, this fails in the same way
        return True
    return False


def _bring_forward(store: Store) -> None:
    """A store that was there; an old one has got new tables just now."""
    try:
        refresh(store)
    finally:
        store.close()


def _tell_what_next(out: Output, url: str | None) -> None:
    """A program that finds the store: by name, if it was named on the command line."""
    shown = without_password(url) if url is not None and is_postgres(url) else url
    program = NEXT.format(store=f", store={shown!r}" if shown is not None else "", options=said_again(url))
    out.line()
    for line in program.splitlines():
        out.line(clean(line))


def _make_folder(folder: Path) -> None:
    """Only for its owner, and nothing in it for git: the store holds whatever the agents were told."""
    folder.mkdir(mode=0o700, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


@click.command()
@click.argument("target", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--with-keys", is_flag=True, help="Copy the agents' private keys too, to PATH.keys.")
@common
def backup(target: Path, with_keys: bool, url: str | None, as_json: bool) -> int:
    """Copy a store that is in use, and verify the copy.

    The copy is of one moment. PATH must not exist. Private keys stay behind unless you ask for them: who has
    the keys can sign in the agents' names.
    """
    out = Output(as_json)
    _refuse_to_overwrite(target, with_keys)
    # Beside the target, so that it gets its name only when it is whole and verified.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.absolute().parent) as folder:
        aside = Path(folder) / target.name
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with existing_store(url) as store:
            source = folder_of(store)
            report = _copy(out, store, aside)
        put_in_place(aside, target, new=True)
        remove_mark(str(target))
    keys = _copy_keys(Path(source), Path(f"{target}.keys")) if with_keys and source is not None else 0
    _tell(out, target, report, keys, with_keys)
    return 0


def _refuse_to_overwrite(target: Path, with_keys: bool) -> None:
    for path in (target, Path(f"{target}.keys")) if with_keys else (target,):
        if path.exists() or path.is_symlink():
            raise click.UsageError(f"{path} exists; a backup never overwrites")
    if not target.absolute().parent.is_dir():
        raise click.UsageError(f"{target.absolute().parent} is not a folder")


def _copy(out: Output, store: Store, aside: Path) -> Report:
    """Copy, open the copy like any store, and look at all of it."""
    with out.progress("copying") as progress:
        store.backup(str(aside), progress)
    with existing_store(str(aside)) as copy, out.progress("verifying") as progress:
        report = verify(copy, lambda done, total, entries: progress(done, total))
    if not report.ok:
        first = next(finding for finding in report.findings if finding.severity == Severity.DAMAGE)
        raise JournalDamaged(
            f"no backup was made, because the store is damaged: {first.text}", hint="`perdure verify` says where"
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


def _tell(out: Output, target: Path, report: Report, keys: int, with_keys: bool) -> None:
    taken = target.stat().st_size
    if out.as_json:
        counts = {"bytes": taken, "entries": report.entries, "objects": report.objects, "keys": keys}
        out.json({"backup": str(target.absolute()), "verified": True, **counts})
        return
    out.line(clean(f"{target}: {size(taken)}, {_contents(report)}, all verified"))
    if with_keys:
        out.line(clean(f"{target}.keys: {counted(keys, 'private key')}; keep as safe as the originals"))
    else:
        out.line("private keys are not in it; --with-keys copies them")


def _contents(report: Report) -> str:
    return f"{counted(report.entries, 'entry', 'entries')} and {counted(report.objects, 'object')}"


@click.command()
@common
def adopt(url: str | None, as_json: bool) -> int:
    """Go on with a store that was moved, copied or put back to an earlier state.

    Records this host and this file as its home. Do it with one copy only: two that go on are two agents with
    one name. If the store has lost entries, effects that may have happened in them are in doubt from now on.
    """
    out = Output(as_json)
    if is_postgres(locate(url)):
        raise StoreUnavailable("a store on a server has no home that it could leave", hint="there is nothing to adopt")
    path = path_of(url)
    with existing_store(path) as store:
        lost = store.losses()
        if lost:
            accepted = Adopt(store.adoption())
            store.rolled_back = None
            store.submit(accepted)
        host, file = home_of(path)
        rows = store.read("last_home")
        moved = not rows or rows[0] != (host, file)
        if moved:
            store.submit(AddHome(store, host, file))
    if as_json:
        facts = {"store": f"sqlite:///{path}", "adopted": moved or bool(lost), "host": host, "file": file}
        out.json({**facts, "lost": [_lost_fields(one) for one in lost]})
        return 0
    for one in lost:
        out.line(clean(f"lost: {lost_in_words(one)}"))
    if lost:
        out.line("programs can go on; effects that may have happened in the lost entries are in doubt")
    if moved:
        out.line(clean(f"{path} is at home here from now on; do not start programs on the other copy any more"))
    else:
        out.line(clean(f"{path} is at home here already"))
    return 0


def _lost_fields(one: LostEntries) -> dict[str, object]:
    lost = one.lost
    intents = [{"name": intent.name, "key": intent.key} for intent in lost.intents if intent.key]
    return {"run": one.name, "first": lost.first, "last": lost.last, "effects": intents, "complete": lost.complete}
