"""`perdure checkpoints [NAME]`: list, show, compare and delete the checkpoints of agents."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from perdure.cli.output import (
    CommandOutput,
    clean,
    format_age,
    format_count,
    format_lines,
    format_time,
    format_value,
    is_terminal,
)
from perdure.cli.partial_values import mark_unreadable, partly, reader
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    open_engine,
    open_existing_store,
    repeat_options,
    require_one_agent,
    select_agents,
    url_of,
)
from perdure.data.checkpoints import delete as delete_versions
from perdure.errors import CheckpointNotFound
from perdure.journal import trees
from perdure.journal.agent_writes import read_changes_at
from perdure.kernel.protocol import drive_sync
from perdure.records import CheckpointMade
from perdure.values.hints import name_hint

if TYPE_CHECKING:
    from perdure.store.base import Store

T = TypeVar("T")
VERSIONS_SHOWN = 10
NAMES_SHOWN = CHANGES_SHOWN = 50
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}


class CheckpointVersion(msgspec.Struct, frozen=True):
    """One version of a checkpoint, and where it is stored."""

    number: int
    stream: int
    seq: int
    at: int


class CheckpointHistory(msgspec.Struct, frozen=True):
    """A checkpoint of an agent, with its versions, oldest first."""

    agent: str
    owner: int
    name: str
    versions: list[CheckpointVersion]


class _CheckpointGroup(click.Group):
    """A group that treats an unknown command as the name of a checkpoint: `checkpoints 30pct`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        return super().parse_args(context, args)


@click.group(cls=_CheckpointGroup)
def checkpoints() -> None:
    """List, show, compare and delete the checkpoints of agents.

    `perdure checkpoints [NAME]` is short for `perdure checkpoints show [NAME]`.
    """


@checkpoints.command()
@click.argument("name", required=False)
@click.option("--version", "number", type=click.IntRange(min=1), help="With NAME: the version. Default: the newest.")
@click.option("--limit", type=click.IntRange(min=0), help="How many names, or versions of a name; 0: all.")
@agent_option
@add_common_options
def show(
    name: str | None, number: int | None, limit: int | None, agent: str | None, url: str | None, as_json: bool
) -> int:
    """List the checkpoints, newest last, or show the value of one."""
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        found = _read_histories(store, agent)
        now = store.clock.wall_ms()
        if name is None:
            _print_list(out, store, found, limit, now)
            return 0
        named = _select_history(found, name)
        version = _find_version(named, number)
        made, unpack = _read_made(store, named, version), reader(store)
        if as_json:
            versions = [
                _describe_in_full(store, named, stored_version)
                for stored_version in _take_last(named.versions, limit, 0)
            ]
            about = {"agent": named.agent, "name": named.name, **_describe_in_full(store, named, version)}
            out.json({**about, "value": mark_unreadable(unpack(made.value)), "versions": versions})
        else:
            meta = unpack(made.meta) if made.meta else None
            _print_one(out, named, version, made, unpack(made.value), meta, now, limit)
    return 0


@checkpoints.command()
@click.argument("name")
@click.argument("before", metavar="[VERSION]", type=click.IntRange(min=1), required=False)
@click.argument("after", metavar="[VERSION]", type=click.IntRange(min=1), required=False)
@click.option("--to", metavar="NAME", help="Compare with a version of this checkpoint. Default: the same one.")
@click.option("--limit", type=click.IntRange(min=0), help="How many changes; 0: all.")
@agent_option
@add_common_options
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
    """Show what changed from one version to another, path by path.

    The second VERSION defaults to the newest. With only a NAME, the last two versions are compared.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        found = _read_histories(store, agent)
        old = _select_history(found, name)
        new = (
            _select_history([checkpoint for checkpoint in found if checkpoint.agent == old.agent], to)
            if to is not None
            else old
        )
        if before is None and to is None and len(old.versions) > 1:
            before = old.versions[-2].number
        ends = [(old, _find_version(old, before)), (new, _find_version(new, after))]
        one, other = (_read_made(store, *end).value for end in ends)
        changes = list(trees.diff(store, one, other, decode=partly))
    if as_json:
        a, b = ({"name": checkpoint.name, **_describe_version(version)} for checkpoint, version in ends)
        out.json(
            {
                "agent": old.agent,
                "from": a,
                "to": b,
                "changes": [_change(change) for change in changes[: limit or None]],
            }
        )
        return 0
    _print_changes(out, ends, changes, CHANGES_SHOWN if limit is None else limit)
    return 0


@checkpoints.command()
@click.argument("name")
@click.option("--version", "number", type=click.IntRange(min=1), help="The version. Default: all.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@agent_option
@add_common_options
def delete(name: str, number: int | None, yes: bool, agent: str | None, url: str | None, as_json: bool) -> int:
    """Delete one version, or all versions of a name. Content shared with other checkpoints stays.

    Shows what would be deleted and asks. Without a terminal nothing is deleted unless you pass --yes.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        named = _select_history(_read_histories(store, agent), name)
    meant_ones = named.versions if number is None else [_find_version(named, number)]
    going = [version.number for version in meant_ones]
    told = f"{format_count(len(going), 'version')} of {name}: {_numbers(meant_ones[-VERSIONS_SHOWN:], meant_ones)}"
    if not yes and not _confirm(out, told, url, agent):
        if as_json:
            out.json({"agent": named.agent, "name": name, "versions": going, "deleted": 0})
        return 0
    with open_engine(named.agent, url_of(url)) as engine:
        deleted = drive_sync(engine.store, delete_versions(engine, name, number))
    if as_json:
        out.json({"agent": named.agent, "name": name, "versions": going, "deleted": deleted})
    else:
        out.line(clean(f"deleted {format_count(deleted, 'version')} of {name}"))
    return 0


def _confirm(out: CommandOutput, told: str, url: str | None, agent: str | None) -> bool:
    if out.as_json:
        return False
    out.line(clean(f"would delete {told}"))
    if not (is_terminal(sys.stdout) and sys.stdin.isatty()):
        out.line(clean(f"nothing was deleted; add --yes{repeat_options(url, agent)} to delete"))
        return False
    return click.confirm("delete?", default=False)


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_histories(store: Store, agent: str | None) -> list[CheckpointHistory]:
    found: dict[tuple[str, str], CheckpointHistory] = {}
    for whose, owner in select_agents(store, agent).items():
        for name, *place in store.read("checkpoints_of", (owner,)):
            found.setdefault((whose, name), CheckpointHistory(whose, owner, name, [])).versions.append(
                CheckpointVersion(*place)
            )
    return sorted(found.values(), key=lambda checkpoint: checkpoint.versions[-1].at)


def _select_history(found: list[CheckpointHistory], name: str) -> CheckpointHistory:
    named = require_one_agent(
        {checkpoint.agent: checkpoint for checkpoint in found if checkpoint.name == name}, "checkpoint"
    )
    if named is None:
        hint = name_hint(
            name,
            [checkpoint.name for checkpoint in found],
            "programs create them with agent.checkpoint.create(name, data)",
        )
        raise CheckpointNotFound(clean(f"there is no checkpoint {name!r}"), hint=clean(hint))
    return named


def _take_last(found: list[T], limit: int | None, default: int) -> list[T]:
    """Return the newest ones, which come last; a limit of 0 means all."""
    return found[-(default if limit is None else limit) :]


def _find_version(named: CheckpointHistory, number: int | None) -> CheckpointVersion:
    for version in named.versions if number is not None else named.versions[-1:]:
        if number in (None, version.number):
            return version
    newest = ", ".join(str(version.number) for version in named.versions[-5:])
    raise CheckpointNotFound(
        clean(f"checkpoint {named.name!r} has no version {number}"), hint=f"it has version {newest}"
    )


def _read_made(store: Store, named: CheckpointHistory, version: CheckpointVersion) -> CheckpointMade:
    made = read_changes_at(store, version.stream, version.seq, CheckpointMade)
    return {(record.owner, record.name, record.version): record for record in made}[
        named.owner, named.name, version.number
    ]


# -- printing ---------------------------------------------------------------------------------------------------------


def _print_list(out: CommandOutput, store: Store, found: list[CheckpointHistory], limit: int | None, now: int) -> None:
    shown = _take_last(found, limit, 0 if out.as_json else NAMES_SHOWN)
    if out.as_json:
        each = [
            (checkpoint, [_describe_in_full(store, checkpoint, version) for version in checkpoint.versions])
            for checkpoint in shown
        ]
        out.json(
            [
                {"agent": checkpoint.agent, "name": checkpoint.name, "versions": versions}
                for checkpoint, versions in each
            ]
        )
    elif not found:
        out.line("no checkpoints; programs create them with agent.checkpoint.create(name, data)")
    else:
        rows = [
            (
                clean(checkpoint.name),
                clean(checkpoint.agent),
                str(checkpoint.versions[-1].number),
                str(len(checkpoint.versions)),
                _format_age(checkpoint, now),
            )
            for checkpoint in shown
        ]
        out.table(("CHECKPOINT", "AGENT", "NEWEST", "KEPT", "MADE"), rows)
        if len(shown) < len(found):
            out.line(f"{len(found) - len(shown)} older; --limit 0 shows all")


def _format_age(named: CheckpointHistory, now: int) -> str:
    return format_age(named.versions[-1].at, now)


def _describe_version(version: CheckpointVersion) -> dict[str, Any]:
    return {"version": version.number, "made_at": format_time(version.at)}


def _describe_in_full(store: Store, named: CheckpointHistory, version: CheckpointVersion) -> dict[str, Any]:
    made = _read_made(store, named, version)
    meta = mark_unreadable(reader(store)(made.meta)) if made.meta else None
    return {**_describe_version(version), "labels": list(made.labels), "meta": meta}


def _print_one(
    out: CommandOutput,
    named: CheckpointHistory,
    version: CheckpointVersion,
    made: CheckpointMade,
    value: Any,
    meta: Any,
    now: int,
    limit: int | None,
) -> None:
    labels = f", labelled {', '.join(map(clean, made.labels))}" if made.labels else ""
    out.line(
        f"checkpoint {clean(named.name)} of {clean(named.agent)}, version {version.number}, "
        f"{format_age(version.at, now)}{labels}",
        style="bold",
    )
    if meta is not None:
        out.line(f"meta {format_value(meta)}")
    for line in format_lines(value, out.width):
        out.line(line)
    if len(named.versions) > 1:
        out.line(f"versions {_numbers(_take_last(named.versions, limit, VERSIONS_SHOWN), named.versions)}", style="dim")


def _numbers(some: list[CheckpointVersion], of: list[CheckpointVersion]) -> str:
    return ("…, " if len(some) < len(of) else "") + ", ".join(str(item.number) for item in some)


def _change(change: trees.Change) -> dict[str, Any]:
    return {
        "path": change.path,
        "kind": change.kind,
        "before": mark_unreadable(change.before),
        "after": mark_unreadable(change.after),
    }


def _print_changes(
    out: CommandOutput, ends: list[tuple[CheckpointHistory, CheckpointVersion]], changes: list[trees.Change], limit: int
) -> None:
    a, b = (f"{clean(named.name)} version {version.number}" for named, version in ends)
    out.line(f"{a} -> {b}: {format_count(len(changes), 'change') if changes else 'nothing has changed'}", style="bold")
    for change in islice(changes, limit or None):
        out.line(clean(str(change)), style=_STYLES[change.kind])
    if limit and len(changes) > limit:
        out.line(f"{len(changes) - limit} more; --limit 0 shows all")
