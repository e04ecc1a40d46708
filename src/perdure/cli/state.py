"""`perdure state [NS [KEY]]`: what agents keep in `agent.state`. Only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..hints import meant
from ..journal.keeping import OURS
from ..journal.landing import landed_at
from ..records import StateChange
from ..trees.tolerant import tolerant
from .output import Output, ago, clean, counted, shown, spelled, when
from .stores import agent_option, agents_meant, common, existing_store, must_be_one

if TYPE_CHECKING:
    from ..store.base import Store

KEYS_SHOWN = 50
ALL = (1 << 62) - 1


class Space(msgspec.Struct, frozen=True):
    """A namespace of an agent."""

    agent: str
    owner: int
    name: str
    revision: int
    keys: int
    at: int


class Entry(msgspec.Struct, frozen=True):
    """A key, or one version of it."""

    key: str
    value: Any
    version: int
    at: int
    deleted: bool = False


@click.command()
@click.argument("namespace", required=False)
@click.argument("key", required=False)
@click.option("--history", is_flag=True, help="Of a KEY: every value that it has had, oldest first.")
@click.option("--limit", type=click.IntRange(min=0), default=KEYS_SHOWN, show_default=True, help="How many; 0: all.")
@agent_option
@common
def state(
    namespace: str | None,
    key: str | None,
    history: bool,
    limit: int,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Show what agents keep in `agent.state`: namespaces, keys, values and their history.

    Without a NAMESPACE it lists them, with one its keys, with a KEY its value. The state of a run is in `perdure show`.
    """
    if history and key is None:
        raise click.UsageError("--history is of one key: perdure state NAMESPACE KEY --history")
    out = Output(as_json)
    with existing_store(url) as store:
        spaces = _spaces(store, agent, ours=namespace is not None)
        now = store.clock.wall_ms()
        if namespace is None:
            _print_spaces(out, spaces, now)
            return 0
        space = _meant(spaces, namespace)
        if key is None:
            _print_keys(out, space, _keys(store, space, limit or ALL), now)
        elif history:
            _print_history(out, _history(store, space, key), space, key, now)
        else:
            _print_value(out, _value(store, space, key), space, now)
    return 0


# -- reading ----------------------------------------------------------------------------------------------------------


def _spaces(store: Store, agent: str | None, ours: bool) -> list[Space]:
    now = store.clock.wall_ms()
    return [
        Space(name, owner, *row)
        for name, owner in agents_meant(store, agent).items()
        for row in store.read("spaces_in_use", (owner, now))
        if ours or not row[0].startswith(OURS)
    ]


def _meant(spaces: list[Space], name: str) -> Space:
    found = must_be_one({space.agent: space for space in spaces if space.name == name}, "namespace")
    if found is None:
        raise _nothing(f"there is no namespace {name!r} with keys in it", name, [space.name for space in spaces])
    return found


def _nothing(text: str, name: str, there: list[str]) -> click.UsageError:
    maybe = meant(name, there)
    return click.UsageError(clean(f"{text}; {maybe}" if maybe else text))


def _keys(store: Store, space: Space, count: int) -> list[Entry]:
    unpack = tolerant(store)
    rows = store.read("entries_page", (space.owner, space.name, store.clock.wall_ms(), "", 0, count))
    return [Entry(key, unpack(value), version, at) for key, value, version, at in rows]


def _value(store: Store, space: Space, key: str) -> Entry:
    for value, version, _, at, expires, *_ in store.read("get_entry", (space.owner, space.name, key)):
        if value and not 0 < expires <= store.clock.wall_ms():
            return Entry(key, tolerant(store)(value), version, at)
    there = [entry.key for entry in _keys(store, space, 1000)]
    raise _nothing(f"namespace {space.name!r} of {space.agent!r} has no key {key!r}", key, there)


def _history(store: Store, space: Space, key: str) -> list[Entry]:
    unpack, found = tolerant(store), list[Entry]()
    for revision, version, stream, seq, at in store.read("history_of", (space.owner, space.name, key)):
        for it in landed_at(store, stream, seq, StateChange):
            ours = (it.owner, it.space, it.key, it.revision) == (space.owner, space.name, key, revision)
            if ours and (not found or found[-1].version != version):  # what was only kept longer is the same version
                value = unpack(it.value) if it.value else None
                found.append(Entry(key, value, version, it.since or at, not it.value))
    if not found:
        _value(store, space, key)  # which says that there is no such key
    return found


# -- printing ---------------------------------------------------------------------------------------------------------


def _print_spaces(out: Output, spaces: list[Space], now: int) -> None:
    if out.as_json:
        names = ("agent", "name", "revision", "keys")
        out.json([{**{name: getattr(it, name) for name in names}, "changed_at": when(it.at)} for it in spaces])
    elif not spaces:
        out.line("no state; programs keep it with agent.state.set(namespace, key, value)")
    else:
        rows = [(clean(it.name), clean(it.agent), f"{it.keys:,}", f"{it.revision:,}", ago(it.at, now)) for it in spaces]
        out.table(("NAMESPACE", "AGENT", "KEYS", "CHANGES", "LAST CHANGE"), rows)


def _print_keys(out: Output, space: Space, entries: list[Entry], now: int) -> None:
    if out.as_json:
        rows = [{"key": it.key, "value": it.value, "version": it.version, "changed_at": when(it.at)} for it in entries]
        out.json({"agent": space.agent, "namespace": space.name, "revision": space.revision, "keys": rows})
        return
    cells = [(clean(it.key), str(it.version), ago(it.at, now), shown(it.value)) for it in entries]
    out.table(("KEY", "VERSION", "CHANGED", "VALUE"), cells)
    if space.keys > len(entries):
        out.line(f"{space.keys - len(entries)} more; --limit 0 shows all")


def _print_value(out: Output, entry: Entry, space: Space, now: int) -> None:
    if out.as_json:
        about = {"agent": space.agent, "namespace": space.name, "key": entry.key}
        out.json({**about, "value": entry.value, "version": entry.version, "changed_at": when(entry.at)})
        return
    for line in spelled(entry.value, out.width):
        out.line(line)
    if out.rich:
        out.line(f"version {entry.version}, {ago(entry.at, now)}, of {clean(space.agent)}", style="dim")


def _print_history(out: Output, entries: list[Entry], space: Space, key: str, now: int) -> None:
    if out.as_json:
        rows = [
            {"version": it.version, "changed_at": when(it.at), "value": it.value, "deleted": it.deleted}
            for it in entries
        ]
        out.json({"agent": space.agent, "namespace": space.name, "key": key, "history": rows})
        return
    cells = [(str(it.version), ago(it.at, now), "(deleted)" if it.deleted else shown(it.value)) for it in entries]
    out.table(("VERSION", "CHANGED", "VALUE"), cells)
    out.line(f"{counted(len(entries), 'version')} of {clean(key)}", style="dim")
