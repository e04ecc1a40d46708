"""Entries in the words of another store: its numbers of streams, its ids of objects, the name of the agent there.

What a field is goes by its name, in all records alike: a new record needs no rule here, as long as it calls a stream
`owner`, `stream`, `parent`, `origin` or `run`, and a packed value as `objects.PACKED_FIELDS` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from .. import codec
from .. import records as r
from ..errors import CorruptValue
from ..journal.keeping import REPLAYS
from ..objects import PACKED_FIELDS, reference
from ..process import Holder
from ..task_records import awaited_run, run_awaited
from ..trees import TREE
from ..trees.nodes import ENCODE, Link, Ref, read_node

STREAM_FIELDS = frozenset({"owner", "stream", "parent", "origin", "run"})
"""Fields that name a stream, where they hold a number."""

PLACES = "/place"
"""The end of the keys under which replays of events keep where they are."""

_ENCODER = msgspec.msgpack.Encoder()

Objects = Callable[[bytes, bool], bytes]
"""The id of an object there, from its id here and whether it is a node."""


def object_key(identity: bytes, node: bool) -> bytes:
    """Under which an object is noted: the same bytes may be a leaf here and a node there, and mean another thing."""
    return (b"n" if node else b"l") + identity


class Translator:
    """From one store to another."""

    def __init__(
        self,
        streams: Mapping[int, int],
        objects: Objects,
        names: tuple[str, str],
        holder: Callable[[Holder], Holder] = lambda it: it,
    ) -> None:
        self._streams = streams
        self._objects = objects
        self._name, self._named = names
        self._holder = holder

    def body(self, kind: int, body: bytes) -> tuple[r.Record, bytes]:
        """An entry's record there, and its body with the same salt."""
        record = self.record(r.decode(kind, body))
        return record, body[: r.SALT_BYTES] + _ENCODER.encode(record)

    def record(self, it: Any) -> Any:
        """A record, or a part of one."""
        changed = {}
        for name in it.__struct_fields__:
            old = getattr(it, name)
            new = self._field(name, old)
            if new is not old:
                changed[name] = new
        if isinstance(it, r.StateChange) and it.space == REPLAYS and it.key.endswith(PLACES) and it.value:
            changed["value"] = self._cut(it.value)
        elif isinstance(it, r.WaitBegan) and it.kind == "run":
            changed["call"] = msgspec.structs.replace(it.call, ident=self._awaited(it))
        elif isinstance(it, r.Standing):
            # Who is at a step is a process of one store, and works there: here nobody does.
            changed |= {"holder": 0, "by": self._named if it.by == self._name else it.by}
        return msgspec.structs.replace(it, **changed) if changed else it

    def _field(self, name: str, value: Any) -> Any:
        if type(value) is int:
            return self._streams.get(value, 0) if name in STREAM_FIELDS and value else value
        if isinstance(value, bytes):
            return self.packed(value) if name in PACKED_FIELDS and value else value
        if isinstance(value, r.Record):
            return self.record(value)
        if isinstance(value, tuple):
            return self._several(name, value)
        if isinstance(value, Holder):
            return self._holder(value)
        return self._named if name == "agent" and value == self._name else value

    def _awaited(self, it: r.WaitBegan) -> bytes:
        """What a wait for a run is known by: it has the name of the agent in it, which may be this one."""
        agent, run = awaited_run(it.call.ident, it.text) or ("", "")
        return run_awaited(self._named, run)[0] if agent and agent == self._name else it.call.ident

    def _several(self, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if name == "erased":  # pairs of a stream and an entry
            return tuple((self._streams.get(stream, 0), seq) for stream, seq in values)
        if not any(isinstance(value, r.Record) for value in values):
            return values
        return tuple(self.record(value) for value in values)

    def packed(self, value: bytes) -> bytes:
        """A packed value there."""
        if value[:1] == TREE:
            return TREE + self.node(value[1:])
        identity = reference(value)
        return value[:1] + self._objects(identity, False) if identity else value

    def node(self, data: bytes) -> bytes:
        """A node of a tree there."""
        parts: list[int | bytes | Ext] = []
        for items, body in read_node(data):
            parts.append(items)
            if isinstance(body, Link):
                parts.append(Ext(int(body.kind), self._objects(body.identity, body.kind != Ref.LEAF)))
            else:
                parts.append(body)
        return ENCODE(parts)

    def _cut(self, value: bytes) -> bytes:
        """Where a replay was, which is a value of state: the only one of ours that names a stream."""
        try:
            at, stream, *rest = codec.decode(value[1:])
            there = self._streams.get(stream, 0)
        except (TypeError, ValueError) as error:
            raise CorruptValue(f"the place of a replay is none: {error}") from error
        return value[:1] + codec.encode([at, there, *rest], "the place of a replay")
