"""`agent.checkpoint`: named snapshots of a whole value. Snapshots share what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import CheckpointNotFound, PerdureError, WrongType, WrongValue
from perdure.journal import objects, trees
from perdure.journal.agent_writes import SetKey, read_changes_at
from perdure.journal.checkpoint_writes import NEVER, BaseVersionGone, CheckpointCache, SaveCheckpoint, WrittenCheckpoint
from perdure.journal.retention_rules import EVERYTHING, RetentionRule, policies_in, to_state_value
from perdure.journal.retention_rules import SPACE as RULES
from perdure.journal.trees.read import content
from perdure.journal.trees.split import INLINE
from perdure.kernel.names import check_storable_name
from perdure.kernel.open_stream import is_recalling
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import WriteBuffer, frame_of, list_buffered_writes
from perdure.kernel.write_routing import enclosing_buffer, land, write
from perdure.platform.failpoints import Site
from perdure.run.core import PROCEED, RunCore
from perdure.run.replay_difference import handle_difference
from perdure.run.wait import NO_DEFAULT
from perdure.values import codec
from perdure.values.clock import Clock, moment
from perdure.values.codec.restored import Restored
from perdure.values.durations import Duration, seconds_of
from perdure.values.hints import name_hint
from perdure.values.limits import NUMBER_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

CheckpointRef = str | tuple[str, int]
"""A name, meaning its newest version, or a name and a version."""
AutosaveInterval = int | timedelta | str
"""A number of ticks, or a time."""


class CheckpointInfo(msgspec.Struct, frozen=True):
    """One entry of `agent.checkpoint.list()`."""

    name: str
    version: int
    at: datetime
    labels: tuple[str, ...]
    meta: Any


class _BufferedCheckpoint(SaveCheckpoint, frozen=True):
    """A checkpoint that lands with the enclosing body or item. Until then only the caller sees it."""

    seen: r.CheckpointMade = r.CheckpointMade(0, "", 0, b"")
    """The checkpoint as it will be, in one piece. It gets its version number when it lands."""


class AutosavePace:
    """Decides when an autosave is due: after a number of ticks, or after a time."""

    def __init__(self, every: AutosaveInterval, clock: Clock) -> None:
        if isinstance(every, float):  # 2 means ticks, but 2.0 may be ticks or seconds: refuse to guess
            raise WrongType(f'every={every!r}: pass an int for ticks, or a duration such as "{every:g}s"')
        self._ticks_max = every if type(every) is int else 0
        self._milliseconds = int(seconds_of(every, "every") * 1000)
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Restart the count: the state was just saved."""
        self._ticks, self._since = 0, self._clock.boot_ms()

    @property
    def has_ticks(self) -> bool:
        """Return whether a tick came since the last save."""
        return self._ticks > 0

    def count_tick(self) -> bool:
        """Count a tick and return whether a save is due."""
        self._ticks += 1
        if self._ticks_max:
            return self._ticks >= self._ticks_max
        return self._clock.boot_ms() - self._since >= self._milliseconds


# -- making -----------------------------------------------------------------------------------------------------------


class CheckpointRequest(msgspec.Struct, frozen=True):
    """The checked arguments of `create`."""

    name: str
    data: Any
    labels: tuple[str, ...] = ()
    meta: Any = None
    keep: RetentionRule | None = None

    @classmethod
    def read(
        cls, name: str, data: Any, labels: Iterable[str], meta: Any, keep_last: int | None, keep_for: Duration | None
    ) -> CheckpointRequest:
        """Check the arguments of `create`."""
        if isinstance(labels, str):
            raise WrongType(f"labels={labels!r}: pass a list of labels")
        labelled = tuple(check_storable_name(label, "a label") for label in labels)
        keep = None if keep_last is None and keep_for is None else parse_retention(keep_last, keep_for)
        return cls(check_new_name(name), data, labelled, meta, keep)


def check_new_name(name: str) -> str:
    """Check the name of a new checkpoint."""
    return check_storable_name(name, "the name of a checkpoint", empty=False)


CommitWrites = Callable[[Sequence[SetKey | SaveCheckpoint]], Protocol[Sequence[r.AgentChange]]]


def create(engine: Engine, wanted: CheckpointRequest) -> Protocol[int]:
    """Create a checkpoint: now, or with the enclosing body. Returns its version, or 0 while it is buffered."""
    room = enclosing_buffer(engine)
    if room is not None:
        yield from _wait(engine, wanted, room)
        return 0
    return (yield from _make(engine, wanted, lambda asks: land(engine, Site.CHECKPOINT, asks)))


def create_in_run(run: RunCore, wanted: CheckpointRequest) -> Protocol[None]:
    """`run.checkpoint`: an operation recorded by the run, so a resumed run does not repeat it."""
    frame, name = frame_of(run), wanted.name
    if frame.buffer is not None:
        run.check_not_left()
        yield from _wait(run.engine, wanted, frame.buffer)
        return
    counted = f"\0write {r.WriteOp.CHECKPOINT}", name.encode()
    nth = frame.count(*counted)
    [digest, _], instead = run.pack(codec.digest(wanted.data, f"checkpoint {name!r}"), name), 0
    recorded = run.ledger.find_write(frame.path, r.WriteOp.CHECKPOINT, name, nth)
    if recorded is not None:
        try:
            if (yield from _can_stand(run, wanted, recorded, digest)):
                return
        except PerdureError:
            frame.uncount(*counted)
            raise
        instead = nth + 1
    if run.begin("checkpoint", f"checkpoint {name!r}") is not PROCEED:
        return
    wrote = r.Wrote(frame.path, r.RunWrite(r.WriteOp.CHECKPOINT, name, digest), instead=instead)
    yield from _make(run.engine, wanted, lambda asks: run.commit_with(Site.CHECKPOINT, [wrote], asks))


def _can_stand(run: RunCore, wanted: CheckpointRequest, recorded: r.RunWrite, digest: bytes) -> Protocol[bool]:
    """Whether the recorded checkpoint stands for this one, which may have other data."""
    if recorded.value in (b"", digest) or run.head.erased or run.rehearsed:
        return True
    known = yield Read(_read_recorded_data, (run.engine, wanted.name, recorded.position))
    return handle_difference(run, f"checkpoint {wanted.name!r}", known, wanted.data)


def _read_recorded_data(engine: Engine, name: str, version: int) -> Any:
    """Return what a checkpoint was made of, for a message."""
    try:
        return restore(engine, name, version)
    except CheckpointNotFound:
        return "<deleted since>"


def _wait(engine: Engine, wanted: CheckpointRequest, room: WriteBuffer) -> Protocol[None]:
    """Buffer a checkpoint, so that it lands with the enclosing body."""
    rule = yield Read(_change_rule, (engine, wanted))
    # Write the whole tree: an older version that it could share with may be deleted before the body ends.
    mark, _ = yield Read(_mark, (engine, None, wanted))
    room.asks += [_make_buffered(mark, wanted), *rule]


def _make_buffered(mark: SaveCheckpoint, wanted: CheckpointRequest) -> _BufferedCheckpoint:
    value, meta = INLINE + codec.encode(wanted.data), mark.meta and INLINE + codec.encode(wanted.meta)
    seen = r.CheckpointMade(mark.owner, mark.name, 0, value, mark.labels, meta)
    return _BufferedCheckpoint(**{name: getattr(mark, name) for name in mark.__struct_fields__}, seen=seen)


def _make(engine: Engine, wanted: CheckpointRequest, commit: CommitWrites) -> Protocol[int]:
    """Commit a checkpoint without what an earlier one already stores. Returns its version."""
    rule = (yield Read(_change_rule, (engine, wanted))) if wanted.keep is not None else []
    cache = engine.session.get(CheckpointCache)
    while True:
        base = yield Read(cache.base_of, (wanted.name, wanted.data))
        mark, written = yield Read(_mark, (engine, base, wanted))
        try:
            landed = yield from commit([mark, *rule])
        except BaseVersionGone:
            cache.forget(base.name)
            continue
        [made] = [landing for landing in landed if isinstance(landing, r.CheckpointMade)]
        if not is_recalling():  # else the earlier commit may have written it in another way
            cache.remember(wanted.name, made.version, written)
        return made.version


def _mark(
    engine: Engine, known: WrittenCheckpoint | None, wanted: CheckpointRequest
) -> tuple[SaveCheckpoint, WrittenCheckpoint]:
    engine.ensure_agent()
    name, meta, before = wanted.name, wanted.meta, known or NEVER
    tree, memo = _pack(engine, wanted, known)
    noted, also = objects.pack(engine.store, meta, "meta") if meta is not None else (b"", ())
    made = (*tree.objects, *also)
    base = (before.version, before.name)
    mark = SaveCheckpoint(engine.stream, name, tree.packed, made, wanted.labels, noted, *base, keep=wanted.keep)
    ids = before.ids if memo is not None and memo is before.memo else tree.ids
    return mark, WrittenCheckpoint(name, 0, ids, memo)


def _pack(
    engine: Engine, wanted: CheckpointRequest, known: WrittenCheckpoint | None
) -> tuple[trees.ObjectTree, trees.TreeMemo | None]:
    """Return the tree of the value, and for a list the memo that the next version is compared with."""
    path, before = f"checkpoint {wanted.name!r}", known or NEVER
    if known is None:
        return trees.pack(engine.store, wanted.data, path, before.ids), None
    tree, memo = trees.pack_again(engine.store, wanted.data, path, before.ids, before.memo)
    # For a list that has only grown, just the new objects were examined. The memo knows the others. Older objects are
    # left out: they may be collected when their versions are deleted.
    return msgspec.structs.replace(tree, ids=tree.ids | trees.ids_of(memo)), memo


def delete(engine: Engine, name: str, version: int | None) -> Protocol[int]:
    """Delete one version, or all versions of a name; returns how many. Version numbers are never reused."""
    drops: tuple[int, ...] = yield Read(_versions, (engine, check_storable_name(name, "a checkpoint's name"), version))
    if not drops:
        return 0
    mark = SaveCheckpoint(engine.stream, name, drops=drops)
    engine.session.get(CheckpointCache).forget(name)
    yield from write(engine, Site.CHECKPOINT, [mark])
    return len(drops)


def _versions(engine: Engine, name: str, version: int | None) -> tuple[int, ...]:
    """Return the existing versions of a name, or only the given one if it exists."""
    rows = engine.store.read("checkpoint_versions", (engine.stream, name)) if engine.is_known() else []
    gone = {number for mark in _list_buffered(engine) if mark.name == name for number in mark.drops}
    return tuple(found for (found,) in rows if version in (None, found) and found not in gone)


def _list_buffered(engine: Engine) -> list[SaveCheckpoint]:
    """Return the buffered checkpoint operations, which only the caller sees."""
    marks = [ask for ask in list_buffered_writes(engine.store) if isinstance(ask, SaveCheckpoint)]
    return [mark for mark in marks if mark.owner == engine.stream] if marks else []


# -- how long they are kept -------------------------------------------------------------------------------------------


class CheckpointRetention(msgspec.Struct, frozen=True):
    """A rule of `agent.checkpoint.retention()`: a pattern of names and what to keep. None sets no limit."""

    name: str
    keep_last: int | None
    keep_for: timedelta | None


def parse_retention(keep_last: int | None, keep_for: Duration | None) -> RetentionRule:
    """Check the arguments of a retention rule."""
    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise WrongValue(f"keep_last={keep_last!r}: must be an int from 1; the newest version always stays")
    milliseconds = 0 if keep_for is None else max(1, int(seconds_of(keep_for, "keep_for") * 1000))
    return RetentionRule(keep_last or 0, milliseconds)


def _change_rule(engine: Engine, wanted: CheckpointRequest) -> list[SetKey]:
    """Return the write that stores the retention rule of a checkpoint, if it differs from the stored rule."""
    if wanted.keep is None:
        return []
    engine.ensure_agent()
    return [] if rules_of(engine).get(wanted.name) == wanted.keep else [_rule(engine, wanted.name, wanted.keep)]


def _rule(engine: Engine, pattern: str, keep: RetentionRule | None, space: str = RULES) -> SetKey:
    place = (engine.stream, space, check_storable_name(pattern, "a pattern of names"))
    if keep is None:
        return SetKey(place)
    packed, made = objects.pack(engine.store, to_state_value(keep), "retention")
    return SetKey(place, packed, made)


def rules_of(engine: Engine, space: str = RULES) -> dict[str, RetentionRule]:
    """Return the retention rules of an agent, by name pattern."""
    if not engine.is_known():
        return {}
    return policies_in(engine.store.read("agent_state_of", (engine.stream, space, engine.store.clock.wall_ms())))


def retain(engine: Engine, pattern: str, keep: RetentionRule, space: str = RULES) -> Protocol[None]:
    """Set the retention rule for a name or a pattern. A rule without limits removes the stored rule."""
    yield Read(engine.ensure_agent)
    yield from write(engine, Site.STATE, [_rule(engine, pattern, None if keep == EVERYTHING else keep, space)])


def is_pinned(engine: Engine, name: str, version: int) -> bool:
    """Return whether a checkpoint has a label, which exempts it from retention."""
    [(stream, seq, _, _)] = engine.store.read("get_checkpoint", (engine.stream, name, version))
    return bool(_entry(engine, stream, seq, name, version).labels)


def retention(engine: Engine) -> list[CheckpointRetention]:
    """Return the retention rules, sorted by name."""
    return [
        CheckpointRetention(
            name, keep.last or None, timedelta(milliseconds=keep.milliseconds) if keep.milliseconds else None
        )
        for name, keep in sorted(rules_of(engine).items())
    ]


# -- reading ----------------------------------------------------------------------------------------------------------


def restore(engine: Engine, which: CheckpointRef, version: int | None = None, default: Any = NO_DEFAULT) -> Any:
    """Return the value of a checkpoint, or the default. The keys of a dict are available as attributes too."""
    try:
        value = trees.unpack(engine.store, _find_checkpoint(engine, which, version).value)
    except CheckpointNotFound:
        if default is NO_DEFAULT:
            raise
        value = default
    return Restored(value) if type(value) is dict else value


def list_checkpoints(engine: Engine, label: str | None) -> list[CheckpointInfo]:
    """Return all checkpoints, oldest first. Buffered ones come last and have no version number yet."""
    if not engine.is_known():
        return []
    marks = _list_buffered(engine)
    gone = {(mark.name, number) for mark in marks for number in mark.drops}
    rows = [row for row in engine.store.read("checkpoints_of", (engine.stream,)) if row[:2] not in gone]
    found = [_info(engine, _entry(engine, stream, seq, name, version), at) for name, version, stream, seq, at in rows]
    now = engine.store.clock.wall_ms()
    found += [_info(engine, mark.seen, now) for mark in marks if isinstance(mark, _BufferedCheckpoint)]
    return [checkpoint for checkpoint in found if label is None or label in checkpoint.labels]


def _info(engine: Engine, made: r.CheckpointMade, at: int) -> CheckpointInfo:
    meta = objects.unpack(engine.store, made.meta) if made.meta else None
    return CheckpointInfo(made.name, made.version, moment(at), made.labels, meta)


def diff(engine: Engine, a: CheckpointRef, b: CheckpointRef) -> list[trees.Change]:
    """Return the changes from one checkpoint to another, path by path."""
    before, after = (_find_checkpoint(engine, which) for which in (a, b))
    one, other = before.value, after.value
    if not (before.version and after.version):  # a buffered checkpoint is in one piece: expand the other one too
        one, other = (data if data[:1] == INLINE else INLINE + content(engine.store, data) for data in (one, other))
    return list(trees.diff(engine.store, one, other))


def _find_checkpoint(engine: Engine, which: CheckpointRef, version: int | None = None) -> r.CheckpointMade:
    name, wanted = _name_and_version(which, version)
    if marks := [mark for mark in _list_buffered(engine) if mark.name == name]:
        promised = [mark.seen for mark in marks if isinstance(mark, _BufferedCheckpoint)]
        if not wanted and promised:
            return promised[-1]
        if not (there := _versions(engine, name, wanted)):
            raise _not_found_error(engine, name, wanted)
        wanted = there[-1]
    rows: Sequence[tuple[Any, ...]] = []
    if engine.is_known() and wanted is None:
        rows = engine.store.read("newest_checkpoint", (engine.stream, check_storable_name(name, "a checkpoint's name")))
    elif engine.is_known() and wanted is not None and 0 < wanted <= NUMBER_MAX:
        found = engine.store.read(
            "get_checkpoint", (engine.stream, check_storable_name(name, "a checkpoint's name"), wanted)
        )
        rows = [(wanted, stream, seq, at) for stream, seq, at, dropped in found if not dropped]
    if not rows:
        raise _not_found_error(engine, name, wanted)
    number, stream, seq, _ = rows[0]
    return _entry(engine, stream, seq, name, number)


def _name_and_version(which: Any, version: int | None) -> tuple[str, int | None]:
    if not isinstance(which, str) and (not isinstance(which, tuple | list) or len(which) != 2):
        raise WrongType(f"a checkpoint is named by a str or by (name, version), not by {which!r}")
    name, wanted = (which, version) if isinstance(which, str) else which
    if wanted is not None and type(wanted) is not int:
        raise WrongType(f"version={wanted!r} must be an int, not {type(wanted).__name__}")
    return name, wanted


def _not_found_error(engine: Engine, name: str, version: int | None) -> CheckpointNotFound:
    made = list_checkpoints(engine, None)
    if version is not None and (
        numbers := [checkpoint.version for checkpoint in made if checkpoint.name == name and checkpoint.version]
    ):
        text = f"checkpoint {name!r} has no version {version}"
        return CheckpointNotFound(text, hint=f"existing versions: {', '.join(map(str, numbers[-5:]))}")
    names = sorted({checkpoint.name for checkpoint in made})
    text = f"agent {engine.name!r} has no checkpoint {name!r}"
    return CheckpointNotFound(text, hint=name_hint(name, names, "create one with agent.checkpoint.create"))


def _entry(engine: Engine, stream: int, seq: int, name: str, version: int) -> r.CheckpointMade:
    made = read_changes_at(engine.store, stream, seq, r.CheckpointMade)
    return {(record.owner, record.name, record.version): record for record in made}[engine.stream, name, version]
