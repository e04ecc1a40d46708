"""The hash of an agent's contents, in a form that is the same in every store that it lives in.

Streams are counted, objects are named by what is in them, and the agent, its key and its chains are left out: so what
is in a file, what it came from and what it became can be compared by 32 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from struct import Struct

import msgspec

from .. import objects
from .. import records as r
from ..process import Holder, at_home
from ..store.notes import Notes
from .lines import Entry, Found, Indexed, Object, Stream, Used, Vector
from .translating import Translator, object_key

_PLACE = Struct(">QQQ")
_ENCODER = msgspec.msgpack.Encoder()
_NOT_COUNTED = (r.Kind.AGENT_LEFT, r.Kind.AGENT_ARRIVED)
"""Where it has lived is not what it is."""


class Digests(msgspec.Struct, frozen=True):
    """What it came to."""

    contents: bytes
    """Of the journal, with the large values."""
    index: bytes
    """Of what things are found by, which other models may make anew at any time."""


class Contents:
    """Takes what a file has in its order, and comes to a hash."""

    def __init__(self, agent: str, streams: Mapping[int, int]) -> None:
        self._running, self._beside = sha256(b"perdure contents 1\n"), sha256(b"perdure index 1\n")
        self._known = Notes()
        self._translator = Translator(streams, self._name_of, (agent, ""), _nobody)

    def close(self) -> None:
        """What was noted meanwhile is not needed any more."""
        self._known.close()

    def take(self, line: object) -> None:
        """One line more."""
        if isinstance(line, Stream):
            self._add(b"stream", line.kind.encode())
        elif isinstance(line, Object):
            self._object(line)
        elif isinstance(line, Found | Indexed | Vector | Used):
            self._beside.update(_ENCODER.encode(msgspec.structs.astuple(line)))
        elif isinstance(line, Entry) and line.kind not in _NOT_COUNTED:
            # Of what was erased nothing is left, and its digest is that of a body in one store.
            body = b"" if line.body is None else self._body(line.kind, line.body)
            self._add(b"entry", _PLACE.pack(line.seq, line.kind, line.at) + body)

    def digests(self) -> Digests:
        """Of all that was taken."""
        return Digests(self._running.digest(), self._beside.digest())

    def _add(self, kind: bytes, data: bytes) -> None:
        self._running.update(b"%s %d\n" % (kind, len(data)))
        self._running.update(data)

    def _object(self, it: Object) -> None:
        if it.node:
            digest = sha256(self._translator.node(objects.restored(it.size, it.data)))
        else:
            digest = sha256()
            for piece in objects.pieces(it.size, it.data):
                digest.update(piece)
        self._known.put(object_key(it.id, it.node), digest.digest())

    def _name_of(self, identity: bytes, node: bool) -> bytes:
        # One that was not told before is of a version that was dropped: it may be gone in one store and not in another.
        return self._known.get(object_key(identity, node)) or bytes(objects.ID_BYTES)

    def _body(self, kind: int, body: bytes) -> bytes:
        record = self._translator.record(r.decode(kind, body))
        return body[: r.SALT_BYTES] + _ENCODER.encode(_placeless(record))


def _nobody(holder: Holder) -> Holder:
    return msgspec.structs.replace(holder, boot=at_home(holder.boot))


def _placeless(record: r.Record) -> r.Record:
    """Without what only holds in one store: links, keys of hashes, and the key of the agent."""
    if isinstance(record, r.AgentCreated):
        return r.AgentCreated("", b"")
    if isinstance(record, r.Forked):
        return msgspec.structs.replace(record, head=b"")
    if isinstance(record, r.Folded):
        return msgspec.structs.replace(record, head=b"", kept=b"", archive="")
    if "sketch" in record.__struct_fields__:
        return msgspec.structs.replace(record, sketch=b"")
    return record
