"""`perdure checkpoints [NAME]`: the named snapshots of agents. Only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import CheckpointNotFound
from ..hints import meant
from ..journal.landing import landed_at
from ..records import CheckpointMade
from ..trees.tolerant import tolerant
from .output import Output, ago, clean, shown, spelled, when
from .stores import agent_option, agents_meant, common, existing_store, must_be_one

if TYPE_CHECKING:
    from ..store.base import Store

VERSIONS_SHOWN = 10


class Version(msgspec.Struct, frozen=True):
    """Where a version of a checkpoint is."""

    number: int
    stream: int
    seq: int
    at: int


class Named(msgspec.Struct, frozen=True):
    """A checkpoint of an agent, with its versions, oldest first."""

    agent: str
    owner: int
    name: str
    versions: list[Version]


@click.command()
@click.argument("name", required=False)
@click.option("--version", "number", type=click.IntRange(min=1), help="Of a NAME: which one. Default: the newest.")
@agent_option
@common
def checkpoints(name: str | None, number: int | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show the checkpoints of agents: named snapshots, and what is in one.

    Without a NAME it lists them, the one that was made last at the end.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        found = _all(store, agent)
        now = store.clock.wall_ms()
        if name is None:
            _print_list(out, found, now)
            return 0
        named = must_be_one({it.agent: it for it in found if it.name == name}, "checkpoint")
        if named is None:
            hint = meant(name, [it.name for it in found], "programs make them with agent.checkpoint.create(name, data)")
            raise CheckpointNotFound(clean(f"there is no checkpoint {name!r}"), hint=clean(hint))
        version = _meant(named, number)
        made = _made(store, named, version)
        unpack = tolerant(store)
        _print_one(out, named, version, made, unpack(made.value), unpack(made.meta) if made.meta else None, now)
    return 0


def _all(store: Store, agent: str | None) -> list[Named]:
    found: dict[tuple[str, str], Named] = {}
    for whose, owner in agents_meant(store, agent).items():
        for name, *place in store.read("checkpoints_of", (owner,)):
            found.setdefault((whose, name), Named(whose, owner, name, [])).versions.append(Version(*place))
    return sorted(found.values(), key=lambda it: it.versions[-1].at)


def _meant(named: Named, number: int | None) -> Version:
    for version in named.versions if number is not None else named.versions[-1:]:
        if number in (None, version.number):
            return version
    newest = ", ".join(str(version.number) for version in named.versions[-5:])
    raise CheckpointNotFound(
        clean(f"checkpoint {named.name!r} has no version {number}"), hint=f"it has version {newest}"
    )


def _made(store: Store, named: Named, version: Version) -> CheckpointMade:
    made = landed_at(store, version.stream, version.seq, CheckpointMade)
    return {(it.owner, it.name, it.version): it for it in made}[named.owner, named.name, version.number]


def _print_list(out: Output, found: list[Named], now: int) -> None:
    if out.as_json:
        out.json(
            [{"agent": it.agent, "name": it.name, "versions": [_about(one) for one in it.versions]} for it in found]
        )
    elif not found:
        out.line("no checkpoints; programs make them with agent.checkpoint.create(name, data)")
    else:
        rows = [
            (clean(it.name), clean(it.agent), str(it.versions[-1].number), str(len(it.versions)), _made_ago(it, now))
            for it in found
        ]
        out.table(("CHECKPOINT", "AGENT", "NEWEST", "KEPT", "MADE"), rows)


def _made_ago(named: Named, now: int) -> str:
    return ago(named.versions[-1].at, now)


def _about(version: Version) -> dict[str, Any]:
    return {"version": version.number, "made_at": when(version.at)}


def _print_one(
    out: Output, named: Named, version: Version, made: CheckpointMade, value: Any, meta: Any, now: int
) -> None:
    if out.as_json:
        about = {"agent": named.agent, "name": named.name, **_about(version), "labels": list(made.labels), "meta": meta}
        out.json({**about, "value": value, "versions": [_about(it) for it in named.versions]})
        return
    labels = f", labelled {', '.join(map(clean, made.labels))}" if made.labels else ""
    out.line(
        f"checkpoint {clean(named.name)} of {clean(named.agent)}, version {version.number}, "
        f"{ago(version.at, now)}{labels}",
        style="bold",
    )
    if meta is not None:
        out.line(f"meta {shown(meta)}")
    for line in spelled(value, out.width):
        out.line(line)
    if len(named.versions) > 1:
        kept = ", ".join(str(it.number) for it in named.versions[-VERSIONS_SHOWN:])
        more = "…, " if len(named.versions) > VERSIONS_SHOWN else ""
        out.line(f"versions {more}{kept}", style="dim")
