"""`perdure artifacts ls|get|put|rm`: files and learned weights of agents."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from .. import artifacts as nouns
from ..engine import Engine
from ..errors import ArtifactNotFound
from ..limits import NUMBER_MAX
from ..run.requests import drive_sync
from ..store.base import Store
from .output import Output, ago, clean, counted, size, when
from .stores import agent_option, agents_meant, common, existing_store, said_again, url_of

if TYPE_CHECKING:
    from ..artifacts import ArtifactInfo, ArtifactUsage

STREAM = "-"
"""In place of a path: standard input or output."""

version_option = click.option(
    "--version", "number", type=click.IntRange(1, NUMBER_MAX), help="Which one; the newest else."
)


class Owner(msgspec.Struct, frozen=True):
    """An agent whose artifacts are looked at, without being at work here."""

    name: str
    store: Store
    stream: int

    def is_known(self) -> bool:
        """It is in the list of the store."""
        return True


@click.group()
def artifacts() -> None:
    """List, get, put and remove artifacts: files and learned weights of agents."""


@artifacts.command()
@agent_option
@common
def ls(agent: str | None, url: str | None, as_json: bool) -> int:
    """List every version, with its size and what it adds to those before it.

    Versions share what they have in common: ADDED is what the store keeps for a version, compressed, that none above
    it in the list needs.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        found = [(owner.name, it) for owner in _owners(store, agent) for it in nouns.usage(owner)]
        now = store.clock.wall_ms()
    if as_json:
        out.json([{"agent": name, **_as_json(it.info), "added": it.added} for name, it in found])
        return 0
    if not found:
        out.line("no artifacts")
        return 0
    out.table(
        ("ARTIFACT", "VERSION", "AGENT", "KIND", "SIZE", "ADDED", "SAVED", "NOTE"),
        [_as_cells(name, it, now) for name, it in found],
    )
    logical, stored = (sum(sizes) for sizes in zip(*((it.info.size, it.added) for _, it in found), strict=True))
    out.line(f"{counted(len(found), 'version')}, {size(logical)}, stored in {size(stored)}")
    return 0


@artifacts.command()
@click.argument("name")
@click.argument("target", metavar="[PATH]", required=False)
@version_option
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@agent_option
@common
def get(
    name: str, target: str | None, number: int | None, force: bool, agent: str | None, url: str | None, as_json: bool
) -> int:
    """Write an artifact into a file, verified; PATH is the last part of its name here, or - for standard output.

    The file is there as a whole or not at all. Arrays become a file that safetensors reads.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        owner = _owner_of(store, name, agent)
        if target == STREAM:
            _pour(owner, name, number)
            return 0
        path = Path(target) if target is not None else _path_for(name)
        if not force and (path.exists() or path.is_symlink()):
            raise click.UsageError(f"{path} exists; replace it with --force, or name another PATH")
        with out.progress(clean(f"getting {name}")) as progress:
            saved = nouns.exported(owner, name, number, path, progress)
    if as_json:
        out.json({"name": name, "version": saved.version, "path": str(path), "size": saved.size})
    else:
        out.line(clean(f"wrote {path}: {name}, version {saved.version}, {size(saved.size)}, verified"))
    return 0


@artifacts.command()
@click.argument("name")
@click.argument("source", metavar="PATH", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--note", default="", help="What it is.")
@click.option("--label", "labels", multiple=True, help="A word to find it by; may be given again.")
@agent_option
@common
def put(
    name: str, source: str, note: str, labels: tuple[str, ...], agent: str | None, url: str | None, as_json: bool
) -> int:
    """Save a file as the next version of an artifact; - is standard input.

    When it is interrupted, doing it again goes on: what is in the store is not written again.
    """
    out = Output(as_json)
    with closing(_engine(url, agent)) as engine, out.progress(clean(f"putting {name}")) as progress:
        data = sys.stdin.buffer if source == STREAM else Path(source)
        version = drive_sync(engine.store, nouns.save(engine, name, data, labels, note, progress))
        saved = nouns.versions(engine, name)[-1]
    if as_json:
        out.json({"agent": engine.name, **_as_json(saved)})
    else:
        out.line(clean(f"saved {name}, version {version}, {size(saved.size)}"))
    return 0


@artifacts.command()
@click.argument("name")
@version_option
@agent_option
@common
def rm(name: str, number: int | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Delete one version, or all of a name. What other versions share with it stays."""
    out = Output(as_json)
    with existing_store(url) as store:
        whose = _owner_of(store, name, agent).name
    with closing(_engine(url, whose)) as engine:
        deleted = drive_sync(engine.store, nouns.delete(engine, name, number))
        if not deleted:
            raise ArtifactNotFound(
                f"{name!r} has no version {number}", hint="`perdure artifacts ls` shows what there is"
            )
    if as_json:
        out.json({"agent": whose, "name": name, "deleted": deleted})
    else:
        out.line(clean(f"deleted {counted(deleted, 'version')} of {name}"))
    return 0


def _owners(store: Store, agent: str | None) -> list[Owner]:
    return [Owner(name, store, stream) for name, stream in agents_meant(store, agent).items()]


def _owner_of(store: Store, artifact: str, agent: str | None) -> Owner:
    """Whose artifact is meant."""
    owners = _owners(store, agent)
    having = [owner for owner in owners if nouns.versions(owner, artifact)]
    if len(having) > 1:
        names = ", ".join(clean(owner.name) for owner in having)
        raise click.UsageError(f"several agents have an artifact of that name: {names}; say which one with --agent")
    if having:
        return having[0]
    if len(owners) == 1:
        raise nouns.missing(owners[0], artifact, None)
    raise ArtifactNotFound(f"no agent has an artifact {artifact!r}", hint="`perdure artifacts ls` shows what there is")


def _engine(url: str | None, agent: str | None) -> Engine:
    """The agent that writes: the named one, else the only one there is."""
    located = url_of(url)
    if agent is None:
        with existing_store(url) as store:
            names = [owner.name for owner in _owners(store, None)]
        if len(names) != 1:
            there = f"there are {', '.join(map(clean, names))}" if names else "there is none yet"
            raise click.UsageError(f"say for which agent, with --agent NAME{said_again(url)}: {there}")
        agent = names[0]
    return Engine(agent, store=located)


def _path_for(name: str) -> Path:
    last = name.replace("\\", "/").rpartition("/")[2]
    if last in ("", ".", ".."):
        raise click.UsageError(f"{clean(name)} gives no name for a file; name a PATH")
    return Path(last)


def _pour(owner: Owner, name: str, number: int | None) -> None:
    for block in nouns.opened(owner, name, number):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _as_cells(agent: str, it: ArtifactUsage, now: int) -> tuple[str, ...]:
    info = it.info
    about = "; ".join(part for part in (", ".join(info.labels), info.note) if part)
    saved = ago(int(info.at.timestamp() * 1000), now)
    cells = (clean(info.name), str(info.version), clean(agent), info.kind, size(info.size), size(it.added), saved)
    return *cells, clean(about if len(about) <= 60 else about[:59] + "…")


def _as_json(info: ArtifactInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "version": info.version,
        "kind": info.kind,
        "size": info.size,
        "digest": info.digest,
        "saved_at": when(int(info.at.timestamp() * 1000)),
        "labels": list(info.labels),
        "note": info.note,
    }
