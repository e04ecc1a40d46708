"""Translates entries for another store: stream numbers, object ids, and the name of the agent.

Fields are translated by name in all records alike. A new record needs no rule here if it names a stream `owner`,
`stream`, `parent`, `origin` or `run`, and a packed value as in `objects.PACKED_FIELDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from perdure import records as r
from perdure.errors import CorruptValue
from perdure.journal.objects import PACKED_FIELDS, reference
from perdure.journal.retention_rules import REPLAYS
from perdure.journal.trees import TREE
from perdure.journal.trees.nodes import ENCODE, PieceKind, PieceLink, parse_node
from perdure.platform.process import Holder
from perdure.records.tasks import decode_awaited_run, encode_awaited_run
from perdure.values import codec

STREAM_FIELDS = frozenset({"owner", "stream", "parent", "origin", "run"})
"""Fields that name a stream if they hold a number."""

PLACES = "/place"
"""The suffix of the keys under which event replays store their position."""

_ENCODER = msgspec.msgpack.Encoder()

ObjectTranslator = Callable[[bytes, bool], bytes]
"""Maps the id of an object, and whether it is a node, to its id in the other store."""


def object_key(identity: bytes, node: bool) -> bytes:
    """Return the key of an object: the same bytes may be a leaf and a node, with different meanings."""
    return (b"n" if node else b"l") + identity


class RecordTranslator:
    """Translates records from one store to another."""

    def __init__(
        self,
        streams: Mapping[int, int],
        objects: ObjectTranslator,
        names: tuple[str, str],
        holder: Callable[[Holder], Holder] = lambda holder: holder,
    ) -> None:
        self._streams = streams
        self._objects = objects
        self._name, self._named = names
        self._holder = holder

    def body(self, kind: int, body: bytes) -> tuple[r.Record, bytes]:
        """Return the translated record of an entry, and its body with the same salt."""
        record = self.record(r.decode(kind, body))
        return record, body[: r.SALT_BYTES] + _ENCODER.encode(record)

    def record(self, value: Any) -> Any:
        """Translate a record or a part of one."""
        changed = {}
        for name in value.__struct_fields__:
            old = getattr(value, name)
            new = self._field(name, old)
            if new is not old:
                changed[name] = new
        if isinstance(value, r.StateChange) and value.space == REPLAYS and value.key.endswith(PLACES) and value.value:
            changed["value"] = self._translate_cutoff(value.value)
        elif isinstance(value, r.WaitBegan) and value.kind == "run":
            changed["call"] = msgspec.structs.replace(value.call, ident=self._translate_wait(value))
        elif isinstance(value, r.StepState):
            # The holder of a step is a process of the other store: here there is none.
            changed |= {"holder": 0, "by": self._named if value.by == self._name else value.by}
        return msgspec.structs.replace(value, **changed) if changed else value

    def _field(self, name: str, value: Any) -> Any:
        if type(value) is int:
            return self._streams.get(value, 0) if name in STREAM_FIELDS and value else value
        if isinstance(value, bytes):
            return self.translate_packed(value) if name in PACKED_FIELDS and value else value
        if isinstance(value, r.Record):
            return self.record(value)
        if isinstance(value, tuple):
            return self._translate_values(name, value)
        if isinstance(value, Holder):
            return self._holder(value)
        return self._named if name == "agent" and value == self._name else value

    def _translate_wait(self, entry: r.WaitBegan) -> bytes:
        """Return the key of a wait for a run, which contains the name of the agent."""
        agent, run = decode_awaited_run(entry.call.ident, entry.text) or ("", "")
        return encode_awaited_run(self._named, run)[0] if agent and agent == self._name else entry.call.ident

    def _translate_values(self, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if name == "erased":  # pairs of a stream and an entry
            return tuple((self._streams.get(stream, 0), seq) for stream, seq in values)
        if not any(isinstance(value, r.Record) for value in values):
            return values
        return tuple(self.record(value) for value in values)

    def translate_packed(self, value: bytes) -> bytes:
        """Translate a packed value."""
        if value[:1] == TREE:
            return TREE + self.node(value[1:])
        identity = reference(value)
        return value[:1] + self._objects(identity, False) if identity else value

    def node(self, data: bytes) -> bytes:
        """Translate a node of a tree."""
        parts: list[int | bytes | Ext] = []
        for items, body in parse_node(data):
            parts.append(items)
            if isinstance(body, PieceLink):
                parts.append(Ext(int(body.kind), self._objects(body.identity, body.kind != PieceKind.LEAF)))
            else:
                parts.append(body)
        return ENCODE(parts)

    def _translate_cutoff(self, value: bytes) -> bytes:
        """Translate the position of a replay: the only value of state that names a stream."""
        try:
            at, stream, *rest = codec.decode(value[1:])
            there = self._streams.get(stream, 0)
        except (TypeError, ValueError) as error:
            raise CorruptValue(f"the position of a replay is malformed: {error}") from error
        return value[:1] + codec.encode([at, there, *rest], "the position of a replay")
