"""Retention rules for memories, which `gc` applies: dropped memories are archived first, then erased."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.data import checkpoints
from perdure.journal.retention_rules import MEMORIES, RetentionRule
from perdure.kernel.protocol import Protocol, drive_sync
from perdure.memory.erasure.find import SUFFIX
from perdure.memory.erasure.forget import forget_some
from perdure.memory.lifecycle.usage import ALWAYS, DAY_MS, read_last_use, worth, write_uses
from perdure.memory.read import MemoryRow, build_memories, rows_of
from perdure.memory.results import KINDS, Memory, MemoryQuery
from perdure.platform.files import atomic_write, make_folder
from perdure.values.codec.decoder import decode_as_dicts
from perdure.values.limits import GC_BATCH

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

ALL = "*"
"""The rule for every kind without one of its own."""
LET_GO = "not kept by the rules"
"""The recorded reason for erasing an archived memory."""
MemoryGcProgress = Callable[[str, int, int], None]


class MemoryRetention(msgspec.Struct, frozen=True):
    """A rule of `agent.memory.retention()` for one kind; None means no limit."""

    kind: str
    keep_days: float | None = None
    max_items: int | None = None


def retain(engine: Engine, kind: str, keep_days: float | None, max_items: int | None) -> Protocol[None]:
    """Set the rule of a kind. Without limits, the rule is removed."""
    yield from checkpoints.retain(
        engine, kind, RetentionRule(max_items or 0, round((keep_days or 0) * DAY_MS)), MEMORIES
    )


def retention(engine: Engine) -> list[MemoryRetention]:
    """Return the rules by kind."""
    rules = sorted(checkpoints.rules_of(engine, MEMORIES).items())
    return [MemoryRetention(kind, keep.milliseconds / DAY_MS or None, keep.last or None) for kind, keep in rules]


class OutdatedMemories(msgspec.Struct, frozen=True):
    """Memories that the rules do not keep."""

    expired: tuple[MemoryRow, ...] = ()
    """Memories past their expiry. They are not archived."""
    old: tuple[MemoryRow, ...] = ()

    @property
    def count(self) -> int:
        return len(self.expired) + len(self.old)


def find_outdated(engine: Engine) -> OutdatedMemories:
    """Return what `gc` would drop now. Memories of importance 1 stay unless they have expired."""
    rules = {rule.kind: rule for rule in retention(engine)}
    now = engine.store.clock.wall_ms()
    there = [MemoryRow(*row) for row in rows_of(engine, MemoryQuery(all=True))]
    expired = tuple(memory for memory in there if 0 < memory.expires <= now)
    left = [memory for memory in there if not 0 < memory.expires <= now and memory.importance < ALWAYS]
    if not rules:
        return OutdatedMemories(expired)
    gone: dict[str, MemoryRow] = {}
    for rule, kinds in _scopes(rules):
        gone.update(
            (memory.id, memory)
            for memory in _iterate_beyond_rule(rule, [memory for memory in left if memory.kind in kinds], now)
        )
    return OutdatedMemories(expired, tuple(gone.values()))


def _scopes(rules: dict[str, MemoryRetention]) -> Iterator[tuple[MemoryRetention, Sequence[str]]]:
    own = [kind for kind in KINDS if kind in rules]
    for kind in own:
        yield rules[kind], [kind]
    if ALL in rules:
        yield rules[ALL], [kind for kind in KINDS if kind not in own]


def _iterate_beyond_rule(rule: MemoryRetention, there: Sequence[MemoryRow], now: int) -> Iterator[MemoryRow]:
    """Yield memories unused for too long; then, above the maximum number, those of least worth."""
    oldest = now - int(rule.keep_days * DAY_MS) if rule.keep_days is not None else 0
    young = []
    for memory in there:
        if read_last_use(memory) < oldest:
            yield memory
        else:
            young.append(memory)
    if rule.max_items is not None and len(young) > rule.max_items:
        young.sort(key=lambda recalled: (-worth(recalled, now), -recalled.recorded, recalled.id))
        yield from young[rule.max_items :]


def apply_retention(engine: Engine, folder: str, tell: MemoryGcProgress) -> tuple[int, tuple[str, ...]]:
    """Apply the rules. Returns the number of dropped memories, and the archives."""
    write_uses(engine)
    found = find_outdated(engine)
    files, done = list[str](), 0
    for batch, archived in [*_batches(found.expired, archived=False), *_batches(found.old, archived=True)]:
        if archived:
            files.append(archive_memories(folder, read_memories(engine, batch)))
        reason = LET_GO if archived else "its time has run out"
        drive_sync(engine.store, forget_some(engine, [memory.id for memory in batch], reason))
        done += len(batch)
        tell("old memories", done, found.count)
    return done, tuple(files)


def _batches(found: Sequence[MemoryRow], *, archived: bool) -> list[tuple[Sequence[MemoryRow], bool]]:
    return [(found[start : start + GC_BATCH], archived) for start in range(0, len(found), GC_BATCH)]


def read_memories(engine: Engine, kept: Sequence[MemoryRow]) -> list[Memory]:
    """Return the memories of some rows."""
    with decode_as_dicts():
        return build_memories(engine, [msgspec.structs.astuple(memory) for memory in kept])


def archive_memories(folder: str, memories: Sequence[Memory]) -> str:
    """Write memories to a file, durably. Idempotent: repeated, it writes the same file."""
    make_folder(os.path.abspath(folder))
    path = os.path.join(os.path.abspath(folder), min(recalled.id for recalled in memories) + SUFFIX)
    with atomic_write(path) as file:
        for memory in sorted(memories, key=lambda recalled: recalled.id):
            file.write(msgspec.json.encode(memory, enc_hook=_to_plain) + b"\n")
    return path


def _to_plain(value: Any) -> Any:
    return repr(value)
