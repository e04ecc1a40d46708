"""`perdure artifacts ls|get|put|rm`: the artifacts of agents."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_age, format_count, format_time, size
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    open_existing_store,
    repeat_options,
    select_agents,
    url_of,
)
from perdure.data import artifacts as nouns
from perdure.errors import ArtifactNotFound
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import drive_sync
from perdure.store.base import Store
from perdure.values.limits import NUMBER_MAX

if TYPE_CHECKING:
    from perdure.data.artifacts import ArtifactInfo, ArtifactUsage

STREAM = "-"
"""Stands for standard input or output."""

version_option = click.option(
    "--version", "number", type=click.IntRange(1, NUMBER_MAX), help="Which version. Default: the newest."
)


class InspectedAgent(msgspec.Struct, frozen=True):
    """An agent whose artifacts are read without opening the agent."""

    name: str
    store: Store
    stream: int

    def is_known(self) -> bool:
        """Whether the store has this agent."""
        return True


@click.group()
def artifacts() -> None:
    """List, get, put and remove artifacts: files and model weights of agents."""


@artifacts.command()
@agent_option
@add_common_options
def ls(agent: str | None, url: str | None, as_json: bool) -> int:
    """List every version with its size and the bytes it adds to earlier ones.

    Versions share equal content. ADDED is the compressed size of the content that no version above it in the list has.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        found = [(owner.name, usage) for owner in _owners(store, agent) for usage in nouns.usage(owner)]
        now = store.clock.wall_ms()
    if as_json:
        out.json([{"agent": name, **_as_json(usage.info), "added": usage.added} for name, usage in found])
        return 0
    if not found:
        out.line("no artifacts")
        return 0
    out.table(
        ("ARTIFACT", "VERSION", "AGENT", "KIND", "SIZE", "ADDED", "SAVED", "NOTE"),
        [_make_cells(name, usage, now) for name, usage in found],
    )
    logical, stored = (
        sum(sizes) for sizes in zip(*((usage.info.size, usage.added) for _, usage in found), strict=True)
    )
    out.line(f"{format_count(len(found), 'version')}, {size(logical)}, stored in {size(stored)}")
    return 0


@artifacts.command()
@click.argument("name")
@click.argument("target", metavar="[PATH]", required=False)
@version_option
@click.option("--force", is_flag=True, help="Replace an existing file.")
@agent_option
@add_common_options
def get(
    name: str, target: str | None, number: int | None, force: bool, agent: str | None, url: str | None, as_json: bool
) -> int:
    """Verify an artifact and write it to a file.

    PATH defaults to the last part of its name; - is standard output. The file is written atomically. Arrays become a
    safetensors file.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        owner = _owner_of(store, name, agent)
        if target == STREAM:
            _pour(owner, name, number)
            return 0
        path = Path(target) if target is not None else _path_for(name)
        if not force and (path.exists() or path.is_symlink()):
            raise click.UsageError(f"{path} exists; replace it with --force, or name another PATH")
        with out.progress(clean(f"getting {name}")) as progress:
            saved = nouns.export_artifact(owner, name, number, path, progress)
    if as_json:
        out.json({"name": name, "version": saved.version, "path": str(path), "size": saved.size})
    else:
        out.line(clean(f"wrote {path}: {name}, version {saved.version}, {size(saved.size)}, verified"))
    return 0


@artifacts.command()
@click.argument("name")
@click.argument("source", metavar="PATH", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--note", default="", help="A description.")
@click.option("--label", "labels", multiple=True, help="A label to find it by; repeatable.")
@agent_option
@add_common_options
def put(
    name: str, source: str, note: str, labels: tuple[str, ...], agent: str | None, url: str | None, as_json: bool
) -> int:
    """Save a file as the next version of an artifact; - is standard input.

    After an interrupt, run it again: content that is already in the store is not written again.
    """
    out = CommandOutput(as_json)
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
@add_common_options
def rm(name: str, number: int | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Delete one version, or all versions of a name. Content shared with others stays."""
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        whose = _owner_of(store, name, agent).name
    with closing(_engine(url, whose)) as engine:
        deleted = drive_sync(engine.store, nouns.delete(engine, name, number))
        if not deleted:
            raise ArtifactNotFound(f"{name!r} has no version {number}", hint="`perdure artifacts ls` lists artifacts")
    if as_json:
        out.json({"agent": whose, "name": name, "deleted": deleted})
    else:
        out.line(clean(f"deleted {format_count(deleted, 'version')} of {name}"))
    return 0


def _owners(store: Store, agent: str | None) -> list[InspectedAgent]:
    return [InspectedAgent(name, store, stream) for name, stream in select_agents(store, agent).items()]


def _owner_of(store: Store, artifact: str, agent: str | None) -> InspectedAgent:
    """Return the agent that has the artifact."""
    owners = _owners(store, agent)
    having = [owner for owner in owners if nouns.versions(owner, artifact)]
    if len(having) > 1:
        names = ", ".join(clean(owner.name) for owner in having)
        raise click.UsageError(f"several agents have an artifact of that name: {names}; choose one with --agent")
    if having:
        return having[0]
    if len(owners) == 1:
        raise nouns.not_found_error(owners[0], artifact, None)
    raise ArtifactNotFound(f"no agent has an artifact {artifact!r}", hint="`perdure artifacts ls` lists artifacts")


def _engine(url: str | None, agent: str | None) -> Engine:
    """Open the agent that writes: the named one, else the only one in the store."""
    located = url_of(url)
    if agent is None:
        with open_existing_store(url) as store:
            names = [owner.name for owner in _owners(store, None)]
        if len(names) != 1:
            there = f"there are {', '.join(map(clean, names))}" if names else "there is none yet"
            raise click.UsageError(f"choose the agent with --agent NAME{repeat_options(url)}: {there}")
        agent = names[0]
    return Engine(agent, store=located)


def _path_for(name: str) -> Path:
    last = name.replace("\\", "/").rpartition("/")[2]
    if last in ("", ".", ".."):
        raise click.UsageError(f"{clean(name)} cannot be used as a file name; give a PATH")
    return Path(last)


def _pour(owner: InspectedAgent, name: str, number: int | None) -> None:
    for block in nouns.open_artifact(owner, name, number):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _make_cells(agent: str, usage: ArtifactUsage, now: int) -> tuple[str, ...]:
    info = usage.info
    about = "; ".join(part for part in (", ".join(info.labels), info.note) if part)
    saved = format_age(int(info.at.timestamp() * 1000), now)
    cells = (clean(info.name), str(info.version), clean(agent), info.kind, size(info.size), size(usage.added), saved)
    return *cells, clean(about if len(about) <= 60 else about[:59] + "…")


def _as_json(info: ArtifactInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "version": info.version,
        "kind": info.kind,
        "size": info.size,
        "digest": info.digest,
        "saved_at": format_time(int(info.at.timestamp() * 1000)),
        "labels": list(info.labels),
        "note": info.note,
    }
