"""`perdure state [NS [KEY]]` shows `agent.state`; `perdure state set` sets a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.answers import json_or_text
from perdure.cli.output import CommandOutput, clean, format_age, format_count, format_lines, format_time, format_value
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    open_engine,
    open_existing_store,
    require_one_agent,
    select_agents,
    url_of,
)
from perdure.data import state as agent_state
from perdure.journal.agent_writes import read_changes_at
from perdure.journal.retention_rules import OURS
from perdure.journal.trees.tolerant_read import tolerant
from perdure.kernel.protocol import drive_sync, read_protocol
from perdure.records import StateChange
from perdure.values.hints import name_hint

if TYPE_CHECKING:
    from perdure.store.base import Store

KEYS_SHOWN = 50
ALL = (1 << 62) - 1


class NamespaceSummary(msgspec.Struct, frozen=True):
    """A namespace of an agent."""

    agent: str
    owner: int
    name: str
    revision: int
    keys: int
    at: int


class StateEntry(msgspec.Struct, frozen=True):
    """A key, or one version of it."""

    key: str
    value: Any
    version: int
    at: int
    deleted: bool = False


@click.command()
@click.argument("namespace", required=False)
@click.argument("key", required=False)
@click.option("--history", is_flag=True, help="With KEY: all of its values, oldest first.")
@click.option("--limit", type=click.IntRange(min=0), default=KEYS_SHOWN, show_default=True, help="How many; 0: all.")
@agent_option
@add_common_options
def state(
    namespace: str | None,
    key: str | None,
    history: bool,
    limit: int,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Show `agent.state`: namespaces, keys, values and their history.

    Lists all namespaces, the keys of a NAMESPACE, or the value of a KEY. The state of a run is in `perdure show`.
    """
    if history and key is None:
        raise click.UsageError("--history needs a key: perdure state NAMESPACE KEY --history")
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        spaces = _spaces(store, agent, ours=namespace is not None)
        now = store.clock.wall_ms()
        if namespace is None:
            _print_spaces(out, spaces, now)
            return 0
        space = _find_space(spaces, namespace)
        if key is None:
            _print_keys(out, space, _keys(store, space, limit or ALL), now)
        elif history:
            _print_history(out, _history(store, space, key), space, key, now)
        else:
            _print_value(out, _value(store, space, key), space, now)
    return 0


@click.command("state set")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@click.option("--if-version", type=click.IntRange(min=0), help="Refuse unless the key has this version; 0: is new.")
@click.option("--ttl", metavar="TIME", help="Let the key expire, for example after 2h.")
@click.option("--agent", metavar="NAME", help="Whose state. Needed if the store has several agents.")
@add_common_options
def set_state(
    namespace: str,
    key: str,
    value: str,
    if_version: int | None,
    ttl: str | None,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Set a key of `agent.state`. VALUE is JSON, otherwise text."""
    located = url_of(url)
    with open_existing_store(located) as store:
        whose = require_one_agent({name: name for name in select_agents(store, agent)}, "state")
    if whose is None:
        raise click.UsageError("the store has no agent yet")
    with open_engine(whose, located) as engine:
        at = drive_sync(engine.store, read_protocol(lambda: agent_state.place(engine, namespace, key)))
        ask = agent_state.ask_set(engine, at, json_or_text(value), ttl, if_version)
        landed = drive_sync(engine.store, agent_state.write_one(engine, ask))
    out = CommandOutput(as_json)
    if as_json:
        out.json({"agent": whose, "namespace": namespace, "key": key, "version": landed.version})
    else:
        out.line(f"set: {format_value(namespace)}, {format_value(key)}, version {landed.version}")
    return 0


# -- reading ----------------------------------------------------------------------------------------------------------


def _spaces(store: Store, agent: str | None, ours: bool) -> list[NamespaceSummary]:
    now = store.clock.wall_ms()
    return [
        NamespaceSummary(name, owner, space, *sizes)
        for name, owner in select_agents(store, agent).items()
        for space, *sizes in store.read("namespace_sizes", (owner, now))
        if ours or not space.startswith(OURS)
    ]


def _find_space(spaces: list[NamespaceSummary], name: str) -> NamespaceSummary:
    found = require_one_agent({space.agent: space for space in spaces if space.name == name}, "namespace")
    if found is None:
        raise _missing_key_error(
            f"there is no namespace {name!r} with keys in it", name, [space.name for space in spaces]
        )
    return found


def _missing_key_error(text: str, name: str, there: list[str]) -> click.UsageError:
    maybe = name_hint(name, there)
    return click.UsageError(clean(f"{text}; {maybe}" if maybe else text))


def _keys(store: Store, space: NamespaceSummary, count: int) -> list[StateEntry]:
    unpack = tolerant(store)
    rows = store.read("agent_state_page", (space.owner, space.name, store.clock.wall_ms(), "", 0, count))
    return [StateEntry(key, unpack(value), version, at) for key, value, version, at in rows]


def _value(store: Store, space: NamespaceSummary, key: str) -> StateEntry:
    for value, version, _, at, expires, *_ in store.read("get_agent_state", (space.owner, space.name, key)):
        if value and not 0 < expires <= store.clock.wall_ms():
            return StateEntry(key, tolerant(store)(value), version, at)
    there = [entry.key for entry in _keys(store, space, 1000)]
    raise _missing_key_error(f"namespace {space.name!r} of {space.agent!r} has no key {key!r}", key, there)


def _history(store: Store, space: NamespaceSummary, key: str) -> list[StateEntry]:
    unpack, found = tolerant(store), list[StateEntry]()
    for revision, version, stream, seq, at in store.read("state_history_of", (space.owner, space.name, key)):
        for change in read_changes_at(store, stream, seq, StateChange):
            ours = (change.owner, change.space, change.key, change.revision) == (space.owner, space.name, key, revision)
            if ours and (not found or found[-1].version != version):  # a longer ttl does not make a new version
                value = unpack(change.value) if change.value else None
                found.append(StateEntry(key, value, version, change.since or at, not change.value))
    if not found:
        _value(store, space, key)  # raises: there is no such key
    return found


# -- printing ---------------------------------------------------------------------------------------------------------


def _print_spaces(out: CommandOutput, spaces: list[NamespaceSummary], now: int) -> None:
    if out.as_json:
        names = ("agent", "name", "revision", "keys")
        out.json(
            [
                {**{name: getattr(space, name) for name in names}, "changed_at": format_time(space.at)}
                for space in spaces
            ]
        )
    elif not spaces:
        out.line("no state; programs set it with agent.state.set(namespace, key, value)")
    else:
        rows = [
            (clean(space.name), clean(space.agent), f"{space.keys:,}", f"{space.revision:,}", format_age(space.at, now))
            for space in spaces
        ]
        out.table(("NAMESPACE", "AGENT", "KEYS", "CHANGES", "LAST CHANGE"), rows)


def _print_keys(out: CommandOutput, space: NamespaceSummary, entries: list[StateEntry], now: int) -> None:
    if out.as_json:
        rows = [
            {"key": entry.key, "value": entry.value, "version": entry.version, "changed_at": format_time(entry.at)}
            for entry in entries
        ]
        out.json({"agent": space.agent, "namespace": space.name, "revision": space.revision, "keys": rows})
        return
    cells = [
        (clean(entry.key), str(entry.version), format_age(entry.at, now), format_value(entry.value))
        for entry in entries
    ]
    out.table(("KEY", "VERSION", "CHANGED", "VALUE"), cells)
    if space.keys > len(entries):
        out.line(f"{space.keys - len(entries)} more; --limit 0 shows all")


def _print_value(out: CommandOutput, entry: StateEntry, space: NamespaceSummary, now: int) -> None:
    if out.as_json:
        about = {"agent": space.agent, "namespace": space.name, "key": entry.key}
        out.json({**about, "value": entry.value, "version": entry.version, "changed_at": format_time(entry.at)})
        return
    for line in format_lines(entry.value, out.width):
        out.line(line)
    if out.rich:
        out.line(f"version {entry.version}, {format_age(entry.at, now)}, of {clean(space.agent)}", style="dim")


def _print_history(out: CommandOutput, entries: list[StateEntry], space: NamespaceSummary, key: str, now: int) -> None:
    if out.as_json:
        rows = [
            {
                "version": entry.version,
                "changed_at": format_time(entry.at),
                "value": entry.value,
                "deleted": entry.deleted,
            }
            for entry in entries
        ]
        out.json({"agent": space.agent, "namespace": space.name, "key": key, "history": rows})
        return
    cells = [
        (str(entry.version), format_age(entry.at, now), "(deleted)" if entry.deleted else format_value(entry.value))
        for entry in entries
    ]
    out.table(("VERSION", "CHANGED", "VALUE"), cells)
    out.line(f"{format_count(len(entries), 'version')} of {clean(key)}", style="dim")
