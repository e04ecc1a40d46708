"""Reads what a program has left in its stores, as leaves that can be compared one by one."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from perdure import records as r
from perdure.data.events.positions import BEGINNING, END
from perdure.data.events.read import EventReader
from perdure.data.events.schemas import EventKinds
from perdure.errors import PerdureError, StoreBusy, ValueProblem
from perdure.journal import objects, trees
from perdure.journal.agent_writes import read_changes_at
from perdure.journal.append import read_events
from perdure.run.listing import RunInfo, get_run, list_runs
from perdure.store import Store, open_store
from perdure.store.sqlite.file import schema_of

LEAVES_MAX = 20_000
TIMES_DONE = ": times that step "
UNREADABLE = "<a value of a type that is not known here>"


class JournaledEffect(msgspec.Struct, frozen=True):
    """An effect in the journal of a run: an intent and its outcome."""

    run: str
    name: str
    key: str
    again: tuple[str, ...] = ()
    """Why its body was started again, each time."""
    done: bool = False
    adopted: bool = False
    """Its check says that it happened. What the body returned and wrote died with the process."""
    asked: bool = False
    """The outcome is unknown, and the run says so."""
    failed: bool = False
    """It is recorded that nothing happened."""
    wrote: bool = False
    """Its body wrote something that landed with it."""
    result: str = ""
    finished: bool = False
    """Its run has ended."""
    timeout_ms: int = 0


class StoreSnapshot(msgspec.Struct, frozen=True):
    """The contents of the stores of a program."""

    leaves: dict[str, str]
    """Leaves such as `run trip-42: result.price`, each with the text of its value."""
    lists: dict[str, tuple[str, ...]]
    """Messages of a run and events of a kind: compared by content and count, not by order."""
    effects: tuple[JournaledEffect, ...]
    open_writes: frozenset[str]
    """Leaves that were written outside of steps, effects and items."""
    unfinished: tuple[str, ...]
    """Runs that did not finish, with their status."""
    waits: tuple[str, ...]
    """What runs wait for, other than an effect in doubt."""

    @property
    def asked(self) -> tuple[str, ...]:
        """Effects in doubt."""
        return tuple(f"{one.name} of run {one.run}" for one in self.effects if one.asked)


def stores_in(folder: Path) -> list[str]:
    """Return the URLs of all stores in files of a folder."""
    found = []
    for top, folders, names in os.walk(folder):
        folders.sort()
        found += [os.path.join(top, name) for name in sorted(names) if _is_store(os.path.join(top, name))]
    return [f"sqlite:///{path}" for path in found]


def _is_store(path: str) -> bool:
    if not looks_like_sqlite(path):
        return False
    try:
        schema_of(path)
    except PerdureError:
        return False
    return True


def looks_like_sqlite(path: str) -> bool:
    """Return whether a file is an SQLite database, by its first bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def take_snapshot(urls: list[str]) -> StoreSnapshot:
    """Read everything in these stores."""
    leaves: dict[str, str] = {}
    lists: dict[str, list[str]] = defaultdict(list)
    effects: list[JournaledEffect] = []
    written: set[str] = set()
    unfinished: list[str] = []
    waits: list[str] = []
    for url in urls:
        store = open_store(url, create=False)
        try:
            for summary in list_runs(store):
                run = get_run(store, summary.agent, summary.id, unpack=_tolerant(store))
                leaves |= dict(_run_leaves(run))
                lists[f"run {run.id}: messages"] += map(repr, run.messages)
                effects += _effects(run, _tolerant(store))
                if not run.finished:
                    unfinished.append(f"{run.id} ({run.status.value})")
                waits += [f"run {run.id}: {one.text}" for one in run.questions if one.kind != "in_doubt"]
            leaves |= dict(_agent_leaves(store))
            for path, payload in _events(store):
                lists[path].append(payload)
            written |= set(_find_unbuffered_writes(store))
        finally:
            store.close()
    return StoreSnapshot(
        leaves, {path: tuple(texts) for path, texts in lists.items()}, tuple(effects), frozenset(written),
        tuple(sorted(unfinished)), tuple(waits),
    )  # fmt: skip


def has_waiting_doubt(urls: list[str]) -> bool:
    """Return whether some run visibly waits for a person to settle an effect."""
    with suppress(StoreBusy):  # the next call may see it
        return any(map(_has_waiting_doubt, urls))
    return False


def _has_waiting_doubt(url: str) -> bool:
    with closing(open_store(url, create=False)) as store:
        waiting = list_runs(store, status=r.RunStatus.WAITING)
        return any(get_run(store, run.agent, run.id, unpack=_tolerant(store)).in_doubt for run in waiting)


def has_interrupted(urls: list[str]) -> bool:
    """Return whether some run was interrupted by a signal and must be continued."""
    for url in urls:
        with closing(open_store(url, create=False)) as store:
            if list_runs(store, status=r.RunStatus.INTERRUPTED):
                return True
    return False


def _tolerant(store: Store, reading: Any = objects.unpack) -> Any:
    def unpack(packed: bytes) -> Any:
        try:
            return reading(store, packed)
        except ValueProblem:
            return UNREADABLE

    return unpack


def _run_leaves(run: RunInfo) -> Iterator[tuple[str, str]]:
    title = f"run {run.id}"
    yield f"{title}: status", run.status.value
    yield from _flatten(f"{title}: result", run.result)
    yield from _flatten(f"{title}: state", run.state)
    steps = Counter(event.record.call.name for event in run.events if isinstance(event.record, r.StepDone))
    for name, count in steps.items():
        yield f"{title}{TIMES_DONE}{name} was done", str(count)


def _agent_leaves(store: Store) -> Iterator[tuple[str, str]]:
    names = {stream: name for name, stream, *_ in store.read("all_agents")}
    unpack = _tolerant(store)
    for owner, space, key, value, *_ in store.read("all_agent_state"):
        if value:
            yield from _flatten(_state_leaf(names[owner], space, key), unpack(value))
    for owner, name, version, step, _, status, *_ in store.read("all_workflow_steps"):
        yield f"agent {names[owner]}: workflow {name} version {version} step {step}", str(status)
    for (owner, name), made in _read_newest(store, "all_checkpoints", r.CheckpointMade).items():
        yield from _flatten(f"agent {names[owner]}: checkpoint {name}", _tolerant(store, trees.unpack)(made.value))
    for (owner, name), saved in _read_newest(store, "all_artifacts", r.ArtifactSaved).items():
        contents = f"{saved.size} bytes with the digest {saved.digest.hex()[:16]}"
        yield f"agent {names[owner]}: artifact {name}", contents


def _read_newest(store: Store, query: str, kind: type[Any]) -> dict[tuple[int, str], Any]:
    """Return the last version of each name: a resumed program may make a version twice."""
    found = {}
    for owner, name, version, stream, seq, _, dropped in store.read(query):
        if not dropped:
            made = read_changes_at(store, stream, seq, kind)
            found[owner, name] = {(record.owner, record.name, record.version): record for record in made}[
                owner, name, version
            ]
    return found


def _events(store: Store) -> Iterator[tuple[str, str]]:
    for agent, owner, *_ in store.read("all_agents"):
        book = EventReader(store, owner, agent, EventKinds(), _tolerant(store))
        for event in book.events(book.rows((), 0, BEGINNING, END, LEAVES_MAX), typed=False):
            yield f"agent {agent}: events {event.kind}", repr(event.payload)


def _state_leaf(agent: str, space: str, key: str) -> str:
    return f"agent {agent}: state {space}/{key}"


def _find_unbuffered_writes(store: Store) -> Iterator[str]:
    names = {stream: name for name, stream, *_ in store.read("all_agents")}
    for stream, kind, *_ in store.read("all_streams"):
        if kind != "process":
            continue
        events, _ = read_events(store.identity, stream, store.read("journal_of", (stream, 0)))
        for event in events:
            for landing in event.record.landed if isinstance(event.record, r.Landed) else ():
                if isinstance(landing, r.StateChange):
                    yield _state_leaf(names[landing.owner], landing.space, landing.key)
                elif isinstance(landing, r.EventAppended):
                    yield f"agent {names[landing.owner]}: events {landing.kind}"


def _effects(run: RunInfo, unpack: Any) -> list[JournaledEffect]:
    found: dict[int, JournaledEffect] = {}
    for event in run.events:
        record = event.record
        if isinstance(record, r.EffectIntended):
            found[event.seq] = JournaledEffect(run.id, record.call.name, record.key, timeout_ms=record.timeout_ms)
        elif isinstance(record, r.EffectAgain):
            one = found[record.intent]
            found[record.intent] = msgspec.structs.replace(one, again=(*one.again, record.reason))
        elif isinstance(record, r.EffectDone):
            found[record.intent] = msgspec.structs.replace(
                found[record.intent], done=True, adopted=record.how == "check", result=repr(unpack(record.result)),
                wrote=bool(record.writes or record.landed),
            )  # fmt: skip
        elif isinstance(record, r.EffectFailed):
            found[record.intent] = msgspec.structs.replace(found[record.intent], failed=True)
    # A run that has crashed or failed otherwise asks nobody.
    asks = run.status == r.RunStatus.WAITING or (run.status == r.RunStatus.FAILED and "InDoubt" in run.error)
    asked = {one.key for one in run.in_doubt if asks}
    return [msgspec.structs.replace(one, asked=one.key in asked, finished=run.finished) for one in found.values()]


def _flatten(path: str, value: Any, left: int = 6) -> Iterator[tuple[str, str]]:
    """Split a value into leaves: often only a part of it differs between starts."""
    if left and isinstance(value, dict) and value:
        for key, item in list(value.items())[:LEAVES_MAX]:
            yield from _flatten(f"{path}.{key}", item, left - 1)
    elif left and isinstance(value, list | tuple) and value:
        for number, item in enumerate(value[:LEAVES_MAX]):
            yield from _flatten(f"{path}[{number}]", item, left - 1)
    else:
        yield path, repr(value)
