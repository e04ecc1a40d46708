"""`perdure checkpoints [NAME]`: the named snapshots of agents, what is in one, and what changed between two."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from .. import trees
from ..checkpoints import delete as delete_versions
from ..errors import CheckpointNotFound
from ..hints import meant
from ..journal.landing import landed_at
from ..records import CheckpointMade
from ..run.requests import drive_sync
from .output import Output, ago, clean, counted, is_terminal, shown, spelled, when
from .partly import marked, partly, reader
from .stores import acting_as, agent_option, agents_meant, common, existing_store, must_be_one, said_again, url_of

if TYPE_CHECKING:
    from ..store.base import Store

T = TypeVar("T")
VERSIONS_SHOWN = 10
NAMES_SHOWN = CHANGES_SHOWN = 50
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}


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


class _NamesToo(click.Group):
    """A group that takes what is none of its commands for the name of a checkpoint: `checkpoints 30pct`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        return super().parse_args(context, args)


@click.group(cls=_NamesToo)
def checkpoints() -> None:
    """Show the checkpoints of agents: named snapshots, and what is in one.

    `perdure checkpoints [NAME]` is `perdure checkpoints show [NAME]`.
    """


@checkpoints.command()
@click.argument("name", required=False)
@click.option("--version", "number", type=click.IntRange(min=1), help="Of a NAME: which one. Default: the newest.")
@click.option("--limit", type=click.IntRange(min=0), help="How many names, or versions of one; 0: all.")
@agent_option
@common
def show(
    name: str | None, number: int | None, limit: int | None, agent: str | None, url: str | None, as_json: bool
) -> int:
    """List the checkpoints, the one that was made last at the end; or show what is in one."""
    out = Output(as_json)
    with existing_store(url) as store:
        found = _all(store, agent)
        now = store.clock.wall_ms()
        if name is None:
            _print_list(out, store, found, limit, now)
            return 0
        named = _one_of(found, name)
        version = _meant(named, number)
        made, unpack = _made(store, named, version), reader(store)
        if as_json:
            versions = [_in_full(store, named, it) for it in _last(named.versions, limit, 0)]
            about = {"agent": named.agent, "name": named.name, **_in_full(store, named, version)}
            out.json({**about, "value": marked(unpack(made.value)), "versions": versions})
        else:
            meta = unpack(made.meta) if made.meta else None
            _print_one(out, named, version, made, unpack(made.value), meta, now, limit)
    return 0


@checkpoints.command()
@click.argument("name")
@click.argument("before", metavar="[VERSION]", type=click.IntRange(min=1), required=False)
@click.argument("after", metavar="[VERSION]", type=click.IntRange(min=1), required=False)
@click.option("--to", metavar="NAME", help="The second version is of this checkpoint. Default: of the same one.")
@click.option("--limit", type=click.IntRange(min=0), help="How many changes; 0: all.")
@agent_option
@common
def diff(
    name: str,
    before: int | None,
    after: int | None,
    to: str | None,
    limit: int | None,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Say what changed from one version to another, path by path.

    Without the second VERSION it is the newest; without both, of one NAME, the last two.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        found = _all(store, agent)
        old = _one_of(found, name)
        new = _one_of([it for it in found if it.agent == old.agent], to) if to is not None else old
        if before is None and to is None and len(old.versions) > 1:
            before = old.versions[-2].number
        ends = [(old, _meant(old, before)), (new, _meant(new, after))]
        one, other = (_made(store, *end).value for end in ends)
        changes = list(trees.diff(store, one, other, decode=partly))
    if as_json:
        a, b = ({"name": it.name, **_about(version)} for it, version in ends)
        out.json({"agent": old.agent, "from": a, "to": b, "changes": [_change(it) for it in changes[: limit or None]]})
        return 0
    _print_changes(out, ends, changes, CHANGES_SHOWN if limit is None else limit)
    return 0


@checkpoints.command()
@click.argument("name")
@click.option("--version", "number", type=click.IntRange(min=1), help="Which one. Default: all of them.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@agent_option
@common
def delete(name: str, number: int | None, yes: bool, agent: str | None, url: str | None, as_json: bool) -> int:
    """Delete one version, or all of a name. What other checkpoints share with it stays.

    Shows what would go, and asks. Where there is nobody to ask, it only shows, unless you say --yes.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        named = _one_of(_all(store, agent), name)
    meant_ones = named.versions if number is None else [_meant(named, number)]
    going = [it.number for it in meant_ones]
    told = f"{counted(len(going), 'version')} of {name}: {_numbers(meant_ones[-VERSIONS_SHOWN:], meant_ones)}"
    if not yes and not _agreed(out, told, url, agent):
        if as_json:
            out.json({"agent": named.agent, "name": name, "versions": going, "deleted": 0})
        return 0
    with acting_as(named.agent, url_of(url)) as engine:
        deleted = drive_sync(engine.store, delete_versions(engine, name, number))
    if as_json:
        out.json({"agent": named.agent, "name": name, "versions": going, "deleted": deleted})
    else:
        out.line(clean(f"deleted {counted(deleted, 'version')} of {name}"))
    return 0


def _agreed(out: Output, told: str, url: str | None, agent: str | None) -> bool:
    if out.as_json:
        return False
    out.line(clean(f"would delete {told}"))
    if not (is_terminal(sys.stdout) and sys.stdin.isatty()):
        out.line(clean(f"nothing was done; add --yes{said_again(url, agent)} to delete"))
        return False
    return click.confirm("delete?", default=False)


# -- reading ----------------------------------------------------------------------------------------------------------


def _all(store: Store, agent: str | None) -> list[Named]:
    found: dict[tuple[str, str], Named] = {}
    for whose, owner in agents_meant(store, agent).items():
        for name, *place in store.read("checkpoints_of", (owner,)):
            found.setdefault((whose, name), Named(whose, owner, name, [])).versions.append(Version(*place))
    return sorted(found.values(), key=lambda it: it.versions[-1].at)


def _one_of(found: list[Named], name: str) -> Named:
    named = must_be_one({it.agent: it for it in found if it.name == name}, "checkpoint")
    if named is None:
        hint = meant(name, [it.name for it in found], "programs make them with agent.checkpoint.create(name, data)")
        raise CheckpointNotFound(clean(f"there is no checkpoint {name!r}"), hint=clean(hint))
    return named


def _last(found: list[T], limit: int | None, default: int) -> list[T]:
    """The newest of them, which come last; 0 is all."""
    return found[-(default if limit is None else limit) :]


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


# -- printing ---------------------------------------------------------------------------------------------------------


def _print_list(out: Output, store: Store, found: list[Named], limit: int | None, now: int) -> None:
    shown = _last(found, limit, 0 if out.as_json else NAMES_SHOWN)
    if out.as_json:
        each = [(it, [_in_full(store, it, version) for version in it.versions]) for it in shown]
        out.json([{"agent": it.agent, "name": it.name, "versions": versions} for it, versions in each])
    elif not found:
        out.line("no checkpoints; programs make them with agent.checkpoint.create(name, data)")
    else:
        rows = [
            (clean(it.name), clean(it.agent), str(it.versions[-1].number), str(len(it.versions)), _made_ago(it, now))
            for it in shown
        ]
        out.table(("CHECKPOINT", "AGENT", "NEWEST", "KEPT", "MADE"), rows)
        if len(shown) < len(found):
            out.line(f"{len(found) - len(shown)} older; --limit 0 shows all")


def _made_ago(named: Named, now: int) -> str:
    return ago(named.versions[-1].at, now)


def _about(version: Version) -> dict[str, Any]:
    return {"version": version.number, "made_at": when(version.at)}


def _in_full(store: Store, named: Named, version: Version) -> dict[str, Any]:
    made = _made(store, named, version)
    meta = marked(reader(store)(made.meta)) if made.meta else None
    return {**_about(version), "labels": list(made.labels), "meta": meta}


def _print_one(
    out: Output,
    named: Named,
    version: Version,
    made: CheckpointMade,
    value: Any,
    meta: Any,
    now: int,
    limit: int | None,
) -> None:
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
        out.line(f"versions {_numbers(_last(named.versions, limit, VERSIONS_SHOWN), named.versions)}", style="dim")


def _numbers(some: list[Version], of: list[Version]) -> str:
    return ("…, " if len(some) < len(of) else "") + ", ".join(str(it.number) for it in some)


def _change(it: trees.Change) -> dict[str, Any]:
    return {"path": it.path, "kind": it.kind, "before": marked(it.before), "after": marked(it.after)}


def _print_changes(out: Output, ends: list[tuple[Named, Version]], changes: list[trees.Change], limit: int) -> None:
    a, b = (f"{clean(named.name)} version {version.number}" for named, version in ends)
    out.line(f"{a} -> {b}: {counted(len(changes), 'change') if changes else 'nothing has changed'}", style="bold")
    for change in islice(changes, limit or None):
        out.line(clean(str(change)), style=_STYLES[change.kind])
    if limit and len(changes) > limit:
        out.line(f"{len(changes) - limit} more; --limit 0 shows all")
