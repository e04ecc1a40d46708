"""`perdure export` and `perdure import`: copy or move an agent between stores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_count, format_time, size
from perdure.cli.store_option import add_common_options, open_existing_store, url_of
from perdure.errors import AgentNotFound, ExportDamaged, ExportUnsigned
from perdure.kernel.engine import Engine
from perdure.transfer.check import VerifiedExport, check
from perdure.transfer.export import Exported, ExportOptions
from perdure.transfer.export import export as write
from perdure.transfer.file_format import header_of
from perdure.transfer.import_file import Imported, find_refusal, import_agent
from perdure.values.hints import did_you_mean

ASKED = "PERDURE_PASSPHRASE"

_passphrase = click.option(
    "--passphrase-file",
    "secret",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"File with the passphrase of the private key. Default: {ASKED}, else a prompt.",
)


@click.command()
@click.argument("agent")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--move", is_flag=True, help="Move the agent: it can no longer write here and continues where it is imported."
)
@click.option("--private-key", is_flag=True, help="Include the private key, encrypted with a passphrase.")
@click.option(
    "--archive",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="The folder of its archives. Default: next to the store.",
)
@click.option("--dry-run", is_flag=True, help="Only report what would be exported, and what would stay behind.")
@_passphrase
@add_common_options
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
    """Export an agent to one file, to copy it or to move it to another store.

    The file has journal, state, memories, artifacts, threads, workflows, search indexes and archives. FILE must not
    exist. An imported copy becomes a child with its own key. With --move it stays the same agent, and the original
    refuses to continue. The file is signed, and verified while it is written.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        names = [str(name) for name, *_ in store.read("all_agents")]
    if agent not in names:
        raise AgentNotFound(clean(f"there is no agent {agent!r} in this store"), hint=clean(did_you_mean(agent, names)))
    passphrase = _prompt_secret(secret, confirm=True) if private_key else None
    wish = ExportOptions(move, private_key, passphrase, archive, dry_run)
    with closing(Engine(agent, store=url_of(url))) as engine, out.progress("exporting") as progress:
        told = write(engine, str(file), wish, progress)
    _tell_export(out, told)
    return 0


def _tell_export(out: CommandOutput, told: Exported) -> None:
    if out.as_json:
        out.json(msgspec.structs.asdict(told))
        return
    out.line(
        clean(
            f"{told.path}: agent {told.agent}, {size(told.bytes)}, {_counts(told.entries, told.objects, told.archives)}"
        )
    )
    out.line(f"contents {told.contents}{'' if told.signed else '; not signed: the private key is not on this machine'}")
    _tell_notes(out, told.notes)
    if told.dry_run:
        out.line("nothing was written")
    elif told.moved:
        out.line(clean(f"{told.agent} can no longer write here; it continues where the file is imported"))
        if not told.private_key:
            out.line("its private key stays here, so heads will be unsigned there (--private-key includes it)")
    else:
        out.line("an import of this file creates a child of this agent, with its own key")


def _counts(entries: int, objects: int, archives: int) -> str:
    also = f" and {format_count(archives, 'archive')}" if archives else ""
    comma = "," if archives else " and"
    return f"{format_count(entries, 'entry', 'entries')}{comma} {format_count(objects, 'object')}{also}"


def _tell_notes(out: CommandOutput, notes: Sequence[str]) -> None:
    for note in notes:
        out.line(clean(f"note: {note}"))


@click.command(name="import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="The agent's name in this store. Default: its name in the file.")
@click.option("--take-back", is_flag=True, help="Undo a move in the original store, if nobody has imported the file.")
@click.option(
    "--origin",
    metavar="URL",
    help="The original store, if it can be reached: it registers the import and refuses later ones.",
)
@click.option(
    "--accept-unsigned",
    is_flag=True,
    help="Import a file that its agent did not sign, so that anybody may have written it. Not with a private key.",
)
@click.option("--check", "only_check", is_flag=True, help="Only verify the file, and show which agent it has.")
@_passphrase
@add_common_options
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
    """Import the agent of an export file, or the data of another tool.

    `perdure import claude-code|chatgpt|mem0|letta|markdown PATH` imports from another tool; each has its own --help.
    A file with such a name: ./chatgpt.

    The whole file is verified first: every chain, signature and large value. Then the agent becomes visible in one
    commit, and is read back and compared. An interrupted import leaves nothing behind: run it again. The store is
    created if it does not exist.
    """
    out = CommandOutput(as_json)
    if only_check:
        return _check_only(out, file, accept_unsigned)
    passphrase = _read_passphrase(file, secret, take_back)
    with closing(Engine(name or header_of(file).agent, store=url)) as engine, out.progress("importing") as progress:
        tell = partial(_show_progress, progress)
        asked = {"passphrase": passphrase, "origin": origin}
        told = import_agent(engine, str(file), **asked, take_back=take_back, accept_unsigned=accept_unsigned, tell=tell)
    _tell_import(out, told)
    return 0


def _show_progress(progress: Callable[[int, int], None], _: str, done: int, total: int) -> None:
    progress(done, total)


def _check_only(out: CommandOutput, file: Path, accept_unsigned: bool) -> int:
    try:
        with out.progress("checking") as progress:
            found = check(file, progress)
    except ExportDamaged as error:
        if out.as_json:
            out.json({"file": str(file), "ok": False, "text": error.message})
        else:
            out.line(clean(f"damaged: {error.message}"))
        return 1
    refused = find_refusal(found, accept_unsigned)
    _tell_check(out, found, refused)
    return int(refused is not None)


def _tell_check(out: CommandOutput, found: VerifiedExport, refused: ExportUnsigned | None) -> None:
    header, end = found.header, found.end
    key = header.public_key.hex()
    if out.as_json:
        counts = {"streams": end.streams, "entries": end.entries, "objects": end.objects}
        about = {"agent": header.agent, "public_key": key, "move": header.move, "at": format_time(header.at)}
        more = {"signed": found.signed, "private_key": found.key is not None, "contents": end.contents.hex()}
        stays = {"archives": found.archives, "notes": found.notes, "refused": refused.message if refused else ""}
        out.json({"file": found.path, "ok": True, **about, **counts, **more, **stays})
        return
    how = "moved out" if header.move else "copied"
    out.line(clean(f"{found.path}: agent {header.agent}, {how} on {format_time(header.at)}"))
    out.line(f"{_counts(end.entries, end.objects, found.archives)}, all verified")
    out.line(f"contents {end.contents.hex()}")
    out.line(f"{'signed by' if found.signed else 'NOT signed by'} key {key}")
    _tell_notes(out, found.notes)
    if refused:
        out.line(clean(f"refused: `perdure import` does not accept this file; {refused.hint}"))


def _tell_import(out: CommandOutput, told: Imported) -> None:
    if out.as_json:
        out.json(msgspec.structs.asdict(told))
        return
    out.line(clean(f"{told} in {told.store}"))
    out.line(f"contents {told.contents}, the same as in the file")
    if told.how == "moved":
        out.line(f"arrival {told.number}: another arrival number of this file means that the agent was imported twice")
    if told.archives:
        out.line(f"{format_count(told.archives, 'archive')} next to the store: keep them")
    _tell_notes(out, told.notes)
    if not told.signed:
        out.line("the file was not signed: its origin is not proven")
    if not told.private_key:
        out.line("the private key is not here: heads stay unsigned, and `perdure verify` reports it")


def _read_passphrase(file: Path, secret: Path | None, take_back: bool) -> str | None:
    """Return the passphrase if the file's private key is needed. A child has its own key; `take_back` still has it."""
    header = header_of(file)
    wanted = header.private_key and header.move and not take_back
    return _prompt_secret(secret) if secret is not None or wanted else None


def _prompt_secret(secret: Path | None, *, confirm: bool = False) -> str:
    if secret is not None:
        return secret.read_text(encoding="utf-8").rstrip("\r\n")
    if said := os.environ.get(ASKED):
        return said
    if not sys.stdin.isatty():
        raise click.UsageError(f"the private key needs a passphrase: --passphrase-file FILE, or {ASKED}")
    asked: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)
    return asked
