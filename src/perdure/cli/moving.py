"""`perdure export` and `perdure import`: an agent into a file, and out of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import click
import msgspec

from ..engine import Engine
from ..errors import AgentNotFound, ExportDamaged
from ..hints import near
from ..moving.checking import Checked, check
from ..moving.importing import Imported, bring_in
from ..moving.leaving import Exported, Wish
from ..moving.leaving import export as write
from ..moving.lines import header_of
from .output import Output, clean, counted, size, when
from .stores import common, existing_store, url_of

ASKED = "PERDURE_PASSPHRASE"

_passphrase = click.option(
    "--passphrase-file",
    "secret",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"Where the passphrase of the private key is; else {ASKED}, else you are asked.",
)


@click.command()
@click.argument("agent")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--move", is_flag=True, help="Nothing is written for the agent here any more: it goes on where it arrives."
)
@click.option("--private-key", is_flag=True, help="Take the private key along, locked by a passphrase.")
@click.option(
    "--archive",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="Where its archives are, if not beside the store.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go, and what would stay behind.")
@_passphrase
@common
def export(
    agent: str,
    file: Path,
    move: bool,
    private_key: bool,
    archive: str | None,
    dry_run: bool,
    secret: Path | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Write an agent into one file: to copy it, or to move it to another store.

    All of it: journal, state, memories, artifacts, threads, workflows, what they can be found by, and its archives.
    FILE must not exist. What `perdure import` makes of a plain copy is a child with a key of its own; with --move it is
    the same agent, and the original refuses to continue. The file is signed, and verified as it is written.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        names = [str(name) for name, *_ in store.read("all_agents")]
    if agent not in names:
        raise AgentNotFound(clean(f"there is no agent {agent!r} in this store"), hint=clean(near(agent, names)))
    passphrase = _said(secret, confirm=True) if private_key else None
    wish = Wish(move, private_key, passphrase, archive, dry_run)
    with closing(Engine(agent, store=url_of(url))) as engine, out.progress("exporting") as progress:
        told = write(engine, str(file), wish, progress)
    _tell_export(out, told)
    return 0


def _tell_export(out: Output, told: Exported) -> None:
    if out.as_json:
        out.json(msgspec.structs.asdict(told))
        return
    out.line(
        clean(
            f"{told.path}: agent {told.agent}, {size(told.bytes)}, {_counts(told.entries, told.objects, told.archives)}"
        )
    )
    out.line(f"contents {told.contents}{'' if told.signed else '; not signed: the private key is not here'}")
    _tell_notes(out, told.notes)
    if told.dry_run:
        out.line("nothing was written")
    elif told.moved:
        out.line(clean(f"nothing is written for {told.agent} here any more; it goes on where the file is imported"))
        if not told.private_key:
            out.line("its private key stays here: without it, heads are unsigned there (--private-key takes it along)")
    else:
        out.line("what is imported from it is a child of this agent, with a key of its own")


def _counts(entries: int, objects: int, archives: int) -> str:
    also = f" and {counted(archives, 'archive')}" if archives else ""
    return f"{counted(entries, 'entry', 'entries')}{',' if archives else ' and'} {counted(objects, 'object')}{also}"


def _tell_notes(out: Output, notes: Sequence[str]) -> None:
    for note in notes:
        out.line(clean(f"note: {note}"))


@click.command(name="import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="What the agent is called here; else what it was called there.")
@click.option("--take-back", is_flag=True, help="Undo a move, in the store that it left: nobody has imported the file.")
@click.option(
    "--origin",
    metavar="URL",
    help="The store that it left, if it can be reached: it is told, and nobody can import the same agent besides.",
)
@click.option(
    "--accept-unsigned",
    is_flag=True,
    help="Import a file that its agent has not signed: anybody may have written it. Never with a private key.",
)
@click.option("--check", "only_check", is_flag=True, help="Only look whether the file is sound, and who is in it.")
@_passphrase
@common
def import_(
    file: Path,
    name: str | None,
    take_back: bool,
    origin: str | None,
    accept_unsigned: bool,
    only_check: bool,
    secret: Path | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Bring the agent in a file into a store, of either kind.

    The file is read to its end first: every chain, every signature, every large value. Then all of it becomes visible
    in one commit; interrupted, nothing of it is there, and you can do it again. At last it is read back and compared.
    The store is made if it is not there.
    """
    out = Output(as_json)
    if only_check:
        return _only_check(out, file)
    passphrase = _needed(file, secret, take_back)
    with closing(Engine(name or header_of(file).agent, store=url)) as engine, out.progress("importing") as progress:
        tell = partial(_told, progress)
        asked = {"passphrase": passphrase, "origin": origin}
        told = bring_in(engine, str(file), **asked, take_back=take_back, accept_unsigned=accept_unsigned, tell=tell)
    _tell_import(out, told)
    return 0


def _told(progress: Callable[[int, int], None], _: str, done: int, total: int) -> None:
    progress(done, total)


def _only_check(out: Output, file: Path) -> int:
    try:
        with out.progress("checking") as progress:
            found = check(file, progress)
    except ExportDamaged as error:
        if out.as_json:
            out.json({"file": str(file), "ok": False, "text": error.message})
        else:
            out.line(clean(f"damaged: {error.message}"))
        return 1
    _tell_check(out, found)
    return 0


def _tell_check(out: Output, found: Checked) -> None:
    header, end = found.header, found.end
    key = header.public_key.hex()
    if out.as_json:
        counts = {"streams": end.streams, "entries": end.entries, "objects": end.objects}
        about = {"agent": header.agent, "public_key": key, "move": header.move, "at": when(header.at)}
        more = {"signed": found.signed, "private_key": found.key is not None, "contents": end.contents.hex()}
        stays = {"archives": found.archives, "notes": found.notes}
        out.json({"file": found.path, "ok": True, **about, **counts, **more, **stays})
        return
    how = "moved out" if header.move else "copied"
    out.line(clean(f"{found.path}: agent {header.agent}, {how} on {when(header.at)}"))
    out.line(f"{_counts(end.entries, end.objects, found.archives)}, all sound")
    out.line(f"contents {end.contents.hex()}")
    out.line(f"{'signed by' if found.signed else 'NOT signed by'} key {key}")
    _tell_notes(out, found.notes)


def _tell_import(out: Output, told: Imported) -> None:
    if out.as_json:
        out.json(msgspec.structs.asdict(told))
        return
    out.line(clean(f"{told} in {told.store}"))
    out.line(f"contents {told.contents}, the same as in the file")
    if told.how == "moved":
        out.line(f"arrival {told.number}: whoever has another one of this file has the same agent a second time")
    if told.archives:
        out.line(f"{counted(told.archives, 'archive')} beside the store: keep them")
    _tell_notes(out, told.notes)
    if not told.signed:
        out.line("the file was not signed: nothing proves whom it comes from")
    if not told.private_key:
        out.line("the private key is not here: heads stay unsigned, and `perdure verify` says so")


def _needed(file: Path, secret: Path | None, take_back: bool) -> str | None:
    """The passphrase, if the private key is in the file and of use: a child has its own, and who stays has it still."""
    header = header_of(file)
    wanted = header.private_key and header.move and not take_back
    return _said(secret) if secret is not None or wanted else None


def _said(secret: Path | None, *, confirm: bool = False) -> str:
    if secret is not None:
        return secret.read_text(encoding="utf-8").rstrip("\r\n")
    if said := os.environ.get(ASKED):
        return said
    if not sys.stdin.isatty():
        raise click.UsageError(f"the private key needs a passphrase: --passphrase-file FILE, or {ASKED}")
    asked: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)
    return asked
