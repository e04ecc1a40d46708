"""Hashes the contents of an agent independently of its store.

Streams are numbered by order, objects are named by content, and the agent's name, key and chains are left out. So the
origin, the file and the imported agent can be compared by 32 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from struct import Struct

import msgspec

from perdure import records as r
from perdure.journal import objects
from perdure.platform.process import Holder, strip_boot_prefix
from perdure.store.spill import ScratchTable
from perdure.transfer.file_format import (
    ExportDocument,
    ExportEntry,
    ExportObject,
    ExportPiece,
    ExportStream,
    ExportUse,
    ExportVector,
)
from perdure.transfer.translate import RecordTranslator, object_key

_PLACE = Struct(">QQQ")
_ENCODER = msgspec.msgpack.Encoder()
_NOT_COUNTED = (r.EntryKind.AGENT_LEFT, r.EntryKind.AGENT_ARRIVED)
"""Moves are not part of the contents."""


class ContentDigests(msgspec.Struct, frozen=True):
    """The hashes of an agent."""

    contents: bytes
    """The hash of the journal and the large values."""
    index: bytes
    """The hash of the indexes, which another model may recreate at any time."""


class ContentHasher:
    """Hashes the lines of a file in order."""

    def __init__(self, agent: str, streams: Mapping[int, int]) -> None:
        self._running, self._beside = sha256(b"perdure contents 1\n"), sha256(b"perdure index 1\n")
        self._known = ScratchTable()
        self._translator = RecordTranslator(streams, self._name_of, (agent, ""), _strip_holder)

    def close(self) -> None:
        """Delete the temporary table."""
        self._known.close()

    def take(self, line: object) -> None:
        """Add one line."""
        if isinstance(line, ExportStream):
            self._add(b"stream", line.kind.encode())
        elif isinstance(line, ExportObject):
            self._object(line)
        elif isinstance(line, ExportDocument | ExportPiece | ExportVector | ExportUse):
            self._beside.update(_ENCODER.encode(msgspec.structs.astuple(line)))
        elif isinstance(line, ExportEntry) and line.kind not in _NOT_COUNTED:
            # An erased body counts as empty: its digest depends on the store.
            body = b"" if line.body is None else self._body(line.kind, line.body)
            self._add(b"entry", _PLACE.pack(line.seq, line.kind, line.at) + body)

    def digests(self) -> ContentDigests:
        """Return the hashes of everything added."""
        return ContentDigests(self._running.digest(), self._beside.digest())

    def _add(self, kind: bytes, data: bytes) -> None:
        self._running.update(b"%s %d\n" % (kind, len(data)))
        self._running.update(data)

    def _object(self, stored_object: ExportObject) -> None:
        if stored_object.node:
            digest = sha256(self._translator.node(objects.decompress_object(stored_object.size, stored_object.data)))
        else:
            digest = sha256()
            for piece in objects.pieces(stored_object.size, stored_object.data):
                digest.update(piece)
        self._known.put(object_key(stored_object.id, stored_object.node), digest.digest())

    def _name_of(self, identity: bytes, node: bool) -> bytes:
        # An unknown object belongs to a dropped version: it may be collected in one store and not in another.
        return self._known.get(object_key(identity, node)) or bytes(objects.ID_BYTES)

    def _body(self, kind: int, body: bytes) -> bytes:
        record = self._translator.record(r.decode(kind, body))
        return body[: r.SALT_BYTES] + _ENCODER.encode(_strip_store_keys(record))


def _strip_holder(holder: Holder) -> Holder:
    return msgspec.structs.replace(holder, boot=strip_boot_prefix(holder.boot))


def _strip_store_keys(record: r.Record) -> r.Record:
    """Return a record without data that depends on the store: links, keyed digests, and the agent's key."""
    if isinstance(record, r.AgentCreated):
        return r.AgentCreated("", b"")
    if isinstance(record, r.Forked):
        return msgspec.structs.replace(record, head=b"")
    if isinstance(record, r.StreamCompacted):
        return msgspec.structs.replace(record, head=b"", kept=b"", archive="")
    if "sketch" in record.__struct_fields__:
        return msgspec.structs.replace(record, sketch=b"")
    return record
