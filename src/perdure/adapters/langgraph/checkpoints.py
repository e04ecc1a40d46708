"""Converts between LangGraph checkpoints and Perdure threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.types import ERROR, TASKS

from perdure.adapters.langgraph import known_types
from perdure.adapters.langgraph.serializers import CodecForm, SerdeForm
from perdure.errors import WrongType, WrongValue
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol
from perdure.records.threads import ThreadChannel, ThreadWrite
from perdure.work.threads import read, write
from perdure.work.threads.read import PendingWrite, StoredCheckpoint
from perdure.work.threads.write import TaskWrite

_CHOSEN_MAX = 1024
_COUNTERS = "counters_since_delta_snapshot"


class SaverCheckpoints:
    """The checkpoints of one saver."""

    def __init__(
        self, engine: Engine, form: CodecForm | SerdeForm, next_version: Callable[[Any, None], Any], *, refuses: bool
    ) -> None:
        self._engine = engine
        self._form = form
        self._next_version = next_version
        self._refuses = refuses
        self._chosen: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        """Checkpoints requested by id. Continuing from one of them is time travel, which forks the thread."""

    def with_form(self, form: SerdeForm) -> SaverCheckpoints:
        """Return a copy with another serialization."""
        return SaverCheckpoints(self._engine, form, self._next_version, refuses=self._refuses)

    # -- writing ------------------------------------------------------------------------------------------------------

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new: ChannelVersions
    ) -> Protocol[RunnableConfig]:
        """Store a checkpoint."""
        thread, ns, parent = _locate(config)
        told: dict[str, Any] = dict(get_checkpoint_metadata(config, metadata))
        values = checkpoint["channel_values"]
        head = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
        wanted = write.NewThreadCheckpoint(
            thread,
            ns,
            checkpoint["id"],
            parent or "",
            self._form.dump(head),
            self._form.dump(told),
            {name: self._form.dump(value) for name, value in values.items()},
            checkpoint["channel_versions"],
            frozenset(new),
            run=str(told.get("run_id", "")),
            since=tuple(name for name in told.get(_COUNTERS) or () if name not in values),
            on_head=self._refuses and (thread, ns, parent or "") not in self._chosen,
        )
        yield from known_types.storing(lambda: write.put_checkpoint(self._engine, wanted))
        return config_at(config["configurable"]["thread_id"], ns, wanted.id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Protocol[None]:
        """Store the writes of a task."""
        thread, ns, point = _locate(config)
        if point is None:
            raise WrongValue("put_writes needs the checkpoint_id that the writes follow")
        made = [
            TaskWrite(WRITES_IDX_MAP.get(channel, number), channel, self._form.dump(_error_as_text(channel, value)))
            for number, (channel, value) in enumerate(writes)
        ]
        yield from known_types.storing(lambda: write.write(self._engine, (thread, ns, point), task, path, made))

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names."""
        thread, ns, point = _locate(config)
        if point is None:
            found = read.find_newest(self._engine, thread, ns)
            if found is not None:
                self._chosen.pop((thread, ns, found.put.id), None)
        else:
            found = read.point_at(self._engine, thread, ns, point)
            self._choose(thread, ns, point)
        return self._tuple(found) if found is not None else None

    def _choose(self, thread: str, ns: str, point: str) -> None:
        if self._refuses:
            self._chosen[thread, ns, point] = None
            while len(self._chosen) > _CHOSEN_MAX:
                self._chosen.popitem(last=False)

    def list_checkpoints(
        self,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first."""
        wanted = _filter(filter)
        if limit is not None and limit <= 0:
            return iter(())
        return self._iterate_checkpoints(config, wanted, before, limit)

    def _iterate_checkpoints(
        self, config: RunnableConfig | None, wanted: Mapping[str, Any], before: RunnableConfig | None, limit: int | None
    ) -> Iterator[CheckpointTuple]:
        thread = ns = point = None
        if config is not None:
            thread = str(config["configurable"]["thread_id"])
            ns = config["configurable"].get("checkpoint_ns")
            point = get_checkpoint_id(config)
        until = (get_checkpoint_id(before) or "") if before is not None else ""
        count = limit if limit is not None and not wanted and point is None and thread is not None else None
        left = limit
        for place in read.places(self._engine, thread, ns, until, count or read.EVERYTHING):
            if point is not None and place.id != point:
                continue
            found = read.read_checkpoint(self._engine, place)
            meta = self._decode(found.put.meta, found.put.form)
            if any((key not in meta and value is not None) or meta.get(key) != value for key, value in wanted.items()):
                continue
            if until:
                self._choose(place.thread, place.ns, place.id)
            yield self._tuple(found)
            if left is not None:
                left -= 1
                if left == 0:
                    return

    def _tuple(self, point: StoredCheckpoint) -> CheckpointTuple:
        put = point.put
        head = self._decode(put.heading, put.form)
        values = {channel.name: self._value(channel) for channel in put.channels}
        checkpoint: Any = {**head, "id": put.id, "channel_values": values}
        if head.get("v", 0) < 4 and put.parent:
            self._bring_sends(checkpoint, put.thread, put.ns, put.parent)
        return CheckpointTuple(
            config_at(put.thread, put.ns, put.id),
            checkpoint,
            self._decode(put.meta, put.form),
            config_at(put.thread, put.ns, put.parent) if put.parent else None,
            self._decode_pending_writes(read.read_writes(self._engine, put.thread, put.ns, put.id).get(put.id, ())),
        )

    def _bring_sends(self, checkpoint: Any, thread: str, ns: str, parent: str) -> None:
        """Add sends from the parent's writes, where checkpoints before version 4 keep them."""
        written = read.read_writes(self._engine, thread, ns, parent).get(parent, ())
        sends = [value for _, _, value in self._decode_writes(written, {TASKS})]
        if sends:
            versions = checkpoint["channel_versions"]
            checkpoint["channel_values"][TASKS] = sends
            versions[TASKS] = max(versions.values()) if versions else self._next_version(None, None)

    def _decode(self, packed: bytes, form: str) -> Any:
        return self._form.load(known_types.reading(lambda: read.unpack_value(self._engine, packed, form)))

    def _value(self, record: ThreadChannel | ThreadWrite) -> Any:
        return self._form.load(known_types.reading(lambda: read.value_of(self._engine, record)))

    def _decode_pending_writes(self, written: Sequence[PendingWrite]) -> list[tuple[str, str, Any]]:
        return [(pending.task, pending.write.channel, self._value(pending.write)) for pending in written]

    def deltas(self, config: RunnableConfig, channels: Sequence[str]) -> dict[str, DeltaChannelHistory]:
        """Return the writes to channels up to a checkpoint, since the last checkpoint with their full value."""
        if not channels:
            return {}
        thread, ns, point = _locate(config)
        if point is None:
            target = read.find_newest(self._engine, thread, ns)
            point = target.put.id if target is not None else ""
        found: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        remaining = set(channels)
        on_the_way = read.line(self._engine, thread, ns, point)
        next(on_the_way, None)  # writes after the checkpoint itself are pending
        page: list[StoredCheckpoint] = []
        for one in on_the_way:
            page.append(one)
            if len(page) == read.LINE or not remaining:
                self._collect(page, remaining, found)
                page = []
            if not remaining:
                break
        self._collect(page, remaining, found)
        for history in found.values():
            history["writes"].reverse()
        return found

    def _collect(
        self, page: Sequence[StoredCheckpoint], remaining: set[str], found: dict[str, DeltaChannelHistory]
    ) -> None:
        """Process checkpoints of a lineage, nearest first. Collects writes newest first."""
        if not page or not remaining:
            return
        put = page[0].put
        ids = [one.put.id for one in page]
        written = read.read_writes(self._engine, put.thread, put.ns, min(ids), max(ids))
        for one in page:
            for channel, task, value in reversed(self._decode_writes(written.get(one.put.id, ()), remaining)):
                found[channel]["writes"].append((task, channel, value))
            for item in one.put.channels:
                if item.name in remaining:
                    found[item.name]["seed"] = self._value(item)
                    remaining.discard(item.name)
            if not remaining:
                return

    def _decode_writes(self, written: Sequence[PendingWrite], channels: set[str]) -> list[tuple[str, str, Any]]:
        return [
            (pending.write.channel, pending.task, self._value(pending.write))
            for pending in written
            if pending.write.channel in channels
        ]


def _error_as_text(channel: str, value: Any) -> Any:
    """Store the error of a task as text, as every LangGraph saver does: programs search it for words."""
    return repr(value) if channel == ERROR and isinstance(value, BaseException) else value


def _locate(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return the thread, namespace and checkpoint of a config."""
    about = config["configurable"]
    return str(about["thread_id"]), about.get("checkpoint_ns", "") or "", get_checkpoint_id(config) or None


def config_at(thread: str, ns: str, point: str = "") -> RunnableConfig:
    """Return the config of a checkpoint; without an id, of the newest one."""
    about = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": about | ({"checkpoint_id": point} if point else {})}


def _filter(filter: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check a metadata filter. Values are compared here and never become part of a query."""
    wanted = dict(filter or {})
    for key, value in wanted.items():
        if not isinstance(key, str):
            raise WrongType(f"filter: a metadata key must be a str, not {key!r}")
        if isinstance(value, Mapping) and any(isinstance(part, str) and part.startswith("$") for part in value):
            raise WrongValue(f"filter[{key!r}]: operators are not supported, only equality: {value!r}")
    return wanted
