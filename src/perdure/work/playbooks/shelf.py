"""Where playbooks live: agent state in namespaces of their own, so that they are journalled, moved and verified.

The newest version of a playbook is one value; the history of that key has the earlier ones. The statistics of a version
are values of their own, counted inside the commit of each attempt.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data import state
from perdure.errors import PlaybookNotFound
from perdure.journal import objects
from perdure.journal.agent_writes import SetKey, StateKey
from perdure.journal.retention_rules import OURS
from perdure.kernel.protocol import Protocol, Read
from perdure.values.hints import name_hint
from perdure.work.playbooks.choice import StepEvidence, TierChoice
from perdure.work.playbooks.definition import Playbook
from perdure.work.playbooks.statistics import AttemptOutcome, TierStatistics, make_counter, read_statistics

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

SHELF = f"{OURS}playbooks"
"""The namespace with a key for each playbook."""
_RECORD = f"{OURS}playbook:"
"""The prefix of the namespace with the statistics of a playbook."""
_LESSONS = f"{OURS}playbook-lessons:"
"""The prefix of the namespace with what stronger tiers corrected."""
_DELETED = "deleted"
"""Marks a playbook that is deleted. Its key keeps the last version, so that a later one under its name goes on."""


class Lesson(msgspec.Struct, frozen=True):
    """A correction that a stronger tier made, offered as a pitfall of the step."""

    id: str
    step: str
    text: str


# -- playbooks --------------------------------------------------------------------------------------------------------


def save(engine: Engine, playbook: Playbook) -> Protocol[Playbook]:
    """Save a playbook as its next version; the same content stays the version that it is."""
    place, body = _place(engine, SHELF, playbook.name), _content(playbook)
    seen = yield from state.read_current(engine, place)
    if _is_kept(seen.value) and {**seen.value, "version": body["version"]} == body:
        return _read(playbook.name, seen.value)

    landed = yield from state.write_one(engine, ask_version(engine, playbook))
    return _read(playbook.name, landed.value)


def ask_version(engine: Engine, playbook: Playbook) -> SetKey:
    """Return the write that makes this content the next version of its playbook."""
    body = _content(playbook)

    def next_version(known: Any) -> Any:
        return {**body, "version": 1 if known is None else known["version"] + 1}

    return state.ask_update(engine, _place(engine, SHELF, playbook.name), next_version, None)


def _is_kept(value: Any) -> bool:
    return value is not None and _DELETED not in value


def _content(playbook: Playbook) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(playbook)
    del body["name"]
    return body


def _read(name: str, value: Any) -> Playbook:
    return msgspec.convert({**value, "name": name}, Playbook)


def get(engine: Engine, name: str, version: int | None = None) -> Protocol[Playbook]:
    """Return a playbook, by default its newest version. Raises `PlaybookNotFound`."""
    if version is None:
        seen = yield from state.read_current(engine, _place(engine, SHELF, name))
        if _is_kept(seen.value):
            return _read(name, seen.value)
    else:
        for book in (yield from versions(engine, name)):
            if book.version == version:
                return book
        raise PlaybookNotFound(f"playbook {name!r} has no version {version}")
    there = [book.name for book in (yield from list_playbooks(engine))]
    raise PlaybookNotFound(f"agent {engine.name!r} has no playbook {name!r}", hint=name_hint(name, there))


def _place(engine: Engine, space: str, key: str) -> StateKey:
    engine.ensure_agent()
    return (engine.stream, space, key)


def list_playbooks(engine: Engine) -> Protocol[list[Playbook]]:
    """Return all playbooks, sorted by name."""
    found: list[Playbook] = yield Read(read_playbooks, (engine,))
    return found


def read_playbooks(engine: Engine) -> list[Playbook]:
    """Read all playbooks, sorted by name."""
    found = sorted(_read_namespace(engine, SHELF).items())
    return [_read(name, value) for name, value in found if _is_kept(value)]


def versions(engine: Engine, name: str) -> Protocol[list[Playbook]]:
    """Return every version of a playbook since it was last deleted, oldest first."""
    history: list[state.StateVersion] = yield Read(state.history, (engine, SHELF, name))
    found: list[Playbook] = []
    for one in history:
        found = [*found, _read(name, one.value)] if _is_kept(one.value) else []
    return found


def delete(engine: Engine, name: str) -> Protocol[None]:
    """Delete a playbook with its statistics. Runs that follow it go on: they have recorded what they need.

    Such a run counts for its own version, so a playbook of the same name gets the version after the deleted one.
    """
    yield from get(engine, name)
    gone = [state.ask_update(engine, _place(engine, SHELF, name), _mark_deleted, None)]
    for space in (_RECORD + name, _LESSONS + name):
        gone += [SetKey((engine.stream, space, key)) for key in (yield from _values(engine, space))]
    yield from state.change(engine, gone)


def _mark_deleted(known: Any) -> Any:
    return known and {"version": known["version"], _DELETED: True}


def _values(engine: Engine, space: str) -> Protocol[dict[str, Any]]:
    found: dict[str, Any] = yield Read(_read_namespace, (engine, space))
    return found


def _read_namespace(engine: Engine, space: str) -> dict[str, Any]:
    if not engine.is_known():
        return {}
    now = engine.store.clock.wall_ms()
    rows = engine.store.read("agent_state_page", (engine.stream, space, now, "", 0, 1 << 60))
    return {key: objects.unpack(engine.store, value) for key, value, *_ in rows}


# -- statistics -------------------------------------------------------------------------------------------------------


def _key(version: int, *parts: str) -> str:
    return json.dumps([version, *parts], ensure_ascii=False)


class VersionRecord(msgspec.Struct, frozen=True):
    """Everything counted about one version of a playbook."""

    plays: int = 0
    explored: dict[str, int] = {}
    """How often each step was tried with another tier than the best known one."""
    tiers: dict[str, dict[str, TierStatistics]] = {}
    """The statistics by step and tier."""
    order: tuple[str, ...] = ()
    """The tiers of the last play, from cheap to strong."""

    def evidence(self, step: str) -> StepEvidence:
        """Return what is known about a step."""
        return StepEvidence(self.tiers.get(step, {}), self.plays, self.explored.get(step, 0))


def read_record(engine: Engine, playbook: Playbook) -> Protocol[VersionRecord]:
    """Return the statistics of this version. Another version starts anew."""
    found = yield from _values(engine, _RECORD + playbook.name)
    tiers: dict[str, dict[str, TierStatistics]] = {}
    for key, value in found.items():
        version, *parts = json.loads(key)
        if version == playbook.version and len(parts) == 2:
            tiers.setdefault(parts[0], {})[parts[1]] = read_statistics(value)
    whole = found.get(_key(playbook.version), {})
    return VersionRecord(whole.get("plays", 0), whole.get("explored", {}), tiers, tuple(whole.get("order", ())))


def count_play(engine: Engine, playbook: Playbook, tiers: tuple[str, ...], choices: list[TierChoice]) -> Protocol[None]:
    """Count a play and its explorations, with the step that plans it."""
    explored = [choice.step for choice in choices if choice.explores]

    def count(value: Any) -> Any:
        known = value or {"plays": 0, "explored": {}}
        more = {step: known["explored"].get(step, 0) + 1 for step in explored}
        return {"plays": known["plays"] + 1, "explored": {**known["explored"], **more}, "order": list(tiers)}

    yield from _update(engine, playbook, _key(playbook.version), count)


def count_attempt(engine: Engine, playbook: Playbook, step: str, tier: str, attempt: AttemptOutcome) -> Protocol[None]:
    """Count an attempt, with the step that made it."""
    yield from _update(engine, playbook, _key(playbook.version, step, tier), make_counter(attempt))


def _update(engine: Engine, playbook: Playbook, key: str, make: Callable[[Any], Any]) -> Protocol[None]:
    place = _place(engine, _RECORD + playbook.name, key)
    yield from state.change(engine, [state.ask_update(engine, place, make, None)])


# -- lessons ----------------------------------------------------------------------------------------------------------


def offer(engine: Engine, playbook: Playbook, lesson: Lesson) -> Protocol[None]:
    """Offer a pitfall. It becomes part of the playbook when somebody accepts it."""
    place = _place(engine, _LESSONS + playbook.name, lesson.id)
    yield from state.change(engine, [state.ask_set(engine, place, [lesson.step, lesson.text], None, None)])


def lessons(engine: Engine, name: str) -> Protocol[list[Lesson]]:
    """Return the offered pitfalls of a playbook."""
    found = yield from _values(engine, _LESSONS + name)
    return [Lesson(key, *value) for key, value in sorted(found.items())]


def accept(engine: Engine, name: str, wanted: str | None) -> Protocol[Playbook]:
    """Make one offered pitfall, or all, part of the playbook: its next version."""
    book = yield from get(engine, name)
    offered = yield from lessons(engine, name)
    chosen = [one for one in offered if wanted in (None, one.id)]
    if wanted is not None and not chosen:
        hint = name_hint(wanted, [one.id for one in offered])
        raise PlaybookNotFound(f"playbook {name!r} has no lesson {wanted!r}", hint=hint)
    steps = tuple(
        msgspec.structs.replace(step, pitfalls=_merge(step.pitfalls, [one for one in chosen if one.step == step.name]))
        for step in book.steps
    )
    made = yield from save(engine, msgspec.structs.replace(book, steps=steps))
    yield from state.change(engine, [SetKey((engine.stream, _LESSONS + name, one.id)) for one in chosen])
    return made


def _merge(known: tuple[str, ...], more: list[Lesson]) -> tuple[str, ...]:
    return (*known, *dict.fromkeys(one.text for one in more if one.text not in known))
