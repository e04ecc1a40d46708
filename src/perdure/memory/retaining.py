"""How long memories are kept: rules that `gc` applies. What they let go is archived first, then erased."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .. import checkpoints
from ..codec.read import plainly
from ..files import make_folder, written_aside
from ..journal.keeping import MEMORIES, Keep
from ..limits import GC_BATCH
from ..run.requests import Protocol, drive_sync
from .forgetting import forget_some
from .found import KINDS, Memory, Query
from .reading import Kept, made, rows_of
from .traces import SUFFIX
from .using import ALWAYS, DAY_MS, Uses, touched, worth

if TYPE_CHECKING:
    from ..engine import Engine

ALL = "*"
"""The rule for every kind that has none of its own."""
LET_GO = "not kept by the rules"
"""Why a memory was erased that is in an archive."""
Tell = Callable[[str, int, int], None]


class MemoryRetention(msgspec.Struct, frozen=True):
    """A rule of `agent.memory.retention()`: of which kind, and what is kept. None says nothing."""

    kind: str
    keep_days: float | None = None
    max_items: int | None = None


def retain(engine: Engine, kind: str, keep_days: float | None, max_items: int | None) -> Protocol[None]:
    """Set the rule of a kind; one that says nothing takes it back."""
    yield from checkpoints.retain(engine, kind, Keep(max_items or 0, round((keep_days or 0) * DAY_MS)), MEMORIES)


def retention(engine: Engine) -> list[MemoryRetention]:
    """The rules, by kind."""
    rules = sorted(checkpoints.rules_of(engine, MEMORIES).items())
    return [MemoryRetention(kind, keep.milliseconds / DAY_MS or None, keep.last or None) for kind, keep in rules]


class Outdated(msgspec.Struct, frozen=True):
    """What the rules do not keep."""

    expired: tuple[Kept, ...] = ()
    """Whose time has run out: nobody wants it archived."""
    old: tuple[Kept, ...] = ()

    @property
    def count(self) -> int:
        return len(self.expired) + len(self.old)


def outdated(engine: Engine) -> Outdated:
    """What would go now. What is of importance 1 stays, unless its time has run out."""
    rules = {rule.kind: rule for rule in retention(engine)}
    now = engine.store.clock.wall_ms()
    there = [Kept(*row) for row in rows_of(engine, Query(all=True))]
    expired = tuple(it for it in there if 0 < it.expires <= now)
    left = [it for it in there if not 0 < it.expires <= now and it.importance < ALWAYS]
    if not rules:
        return Outdated(expired)
    gone: dict[str, Kept] = {}
    for rule, kinds in _scopes(rules):
        gone.update((it.id, it) for it in _beyond(rule, [it for it in left if it.kind in kinds], now))
    return Outdated(expired, tuple(gone.values()))


def _scopes(rules: dict[str, MemoryRetention]) -> Iterator[tuple[MemoryRetention, Sequence[str]]]:
    own = [kind for kind in KINDS if kind in rules]
    for kind in own:
        yield rules[kind], [kind]
    if ALL in rules:
        yield rules[ALL], [kind for kind in KINDS if kind not in own]


def _beyond(rule: MemoryRetention, there: Sequence[Kept], now: int) -> Iterator[Kept]:
    """Those that are too old, counted from when they were last of use; and beyond the number, those of least worth."""
    oldest = now - int(rule.keep_days * DAY_MS) if rule.keep_days is not None else 0
    young = []
    for it in there:
        if touched(it) < oldest:
            yield it
        else:
            young.append(it)
    if rule.max_items is not None and len(young) > rule.max_items:
        young.sort(key=lambda it: (-worth(it, now), -it.recorded, it.id))
        yield from young[rule.max_items :]


def let_go(engine: Engine, folder: str, tell: Tell) -> tuple[int, tuple[str, ...]]:
    """Apply the rules; returns how many went, and the archives."""
    if engine.recalled:
        engine.store.submit(Uses(engine))
    found = outdated(engine)
    files, done = list[str](), 0
    for batch, archived in [*_batches(found.expired, archived=False), *_batches(found.old, archived=True)]:
        if archived:
            files.append(put_away(folder, made_from(engine, batch)))
        reason = LET_GO if archived else "its time has run out"
        drive_sync(engine.store, forget_some(engine, [it.id for it in batch], reason))
        done += len(batch)
        tell("old memories", done, found.count)
    return done, tuple(files)


def _batches(found: Sequence[Kept], *, archived: bool) -> list[tuple[Sequence[Kept], bool]]:
    return [(found[start : start + GC_BATCH], archived) for start in range(0, len(found), GC_BATCH)]


def made_from(engine: Engine, kept: Sequence[Kept]) -> list[Memory]:
    """The memories of some rows."""
    with plainly():
        return made(engine, [msgspec.structs.astuple(it) for it in kept])


def put_away(folder: str, memories: Sequence[Memory]) -> str:
    """Write memories to a file that is durable when it returns; done again, it makes the same file again."""
    make_folder(os.path.abspath(folder))
    path = os.path.join(os.path.abspath(folder), min(it.id for it in memories) + SUFFIX)
    with written_aside(path) as file:
        for it in sorted(memories, key=lambda it: it.id):
            file.write(msgspec.json.encode(it, enc_hook=_plain) + b"\n")
    return path


def _plain(value: Any) -> Any:
    return repr(value)
