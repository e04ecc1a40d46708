"""Packed values: small ones inline, large ones as objects that are content-addressed, compressed and stored once.

The first byte of a packed value says which. The id of an object is a keyed hash of its content, so an id does not
reveal the content to somebody who can guess it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from perdure.errors import CorruptValue, JournalDamaged
from perdure.platform.bounded_lines import PIECE_BYTES
from perdure.records import ArtifactSaved, CheckpointMade, Record, ThreadPut, ThreadWrote
from perdure.store.base import Rows, Script, Statement, Store
from perdure.values import codec
from perdure.values.limits import FILE_WINDOW_BYTES_MAX, INLINE_BYTES_MAX, VALUE_BYTES_MAX

_INLINE, _REFERENCE = b"\x00", b"\x01"
_RAW, _ZSTD = b"\x00", b"\x01"
ID_BYTES = 32
_ASKED_MAX = 512
"""Objects per query."""
_PROBED_BYTES = 16 * 1024
"""From this size on, a sample decides whether compression is tried."""
_SAMPLE_BYTES, _SAMPLES = 512, 4
_SUSPECTS_MAX = 10_000
_suspects: set[bytes] = set()
"""Objects that could not be read in this process. They are always written again: see `select_trusted`.

An id depends on the key of its store, so ids of several stores do not collide.
"""


def pack(store: Store, value: Any, path: str) -> tuple[bytes, Sequence[Statement]]:
    """Encode a value. Returns the packed form, and the statements that must be part of the same commit."""
    data = codec.encode(value, path)
    if len(data) <= INLINE_BYTES_MAX:
        return _INLINE + data, ()
    # Write the object even if it exists: a garbage collector may remove it before this commit refers to it.
    identity = identify(store, data)
    return _REFERENCE + identity, (Statement("put_object", (identity, len(data), compress(data))),)


def unpack(store: Store, packed: bytes) -> Any:
    """Return a copy of the value."""
    if packed[:1] == _INLINE:
        return codec.decode(packed[1:])
    return codec.decode(fetch(store, reference(packed)))


def decode_packed(packed: bytes, made: Sequence[Statement]) -> Any:
    """Decode a value that was just packed and is not stored yet."""
    if not reference(packed):
        return codec.decode(packed[1:])
    size, stored = made[0].args[1:]
    return codec.decode(_decompress(stored, size))


def reference(packed: bytes) -> bytes:
    """Return the id of the object that a packed value refers to; empty for an inline value."""
    if packed[:1] == _INLINE:
        return b""
    if packed[:1] != _REFERENCE or len(packed) != 1 + ID_BYTES:
        raise CorruptValue
    return packed[1:]


def identify(store: Store, data: bytes | memoryview) -> bytes:
    """Return the id of an object with this content."""
    return blake2b(data, key=store.content_key, digest_size=ID_BYTES).digest()


def hasher(store: Store) -> blake2b:
    """Return a keyed hasher; copy it for each object. See `identify`."""
    return blake2b(key=store.content_key, digest_size=ID_BYTES)


def compress(data: bytes | memoryview) -> bytes:
    """Return the stored form of an object's content."""
    if len(data) >= _PROBED_BYTES and not _seems_compressible(data):
        return b"".join((_RAW, data))
    small = _zstd().by.compress(data)
    return _ZSTD + small if len(small) < len(data) else b"".join((_RAW, data))


def _seems_compressible(data: bytes | memoryview) -> bool:
    """Return whether a sample of a large object becomes smaller: media and archives do not, and trying takes time."""
    between = (len(data) - _SAMPLE_BYTES) // (_SAMPLES - 1)
    sample = b"".join([data[at : at + _SAMPLE_BYTES] for at in range(0, between * _SAMPLES, between)])
    return len(_zstd().by.compress(sample)) < len(sample)


def fetch(store: Store, identity: bytes) -> bytes:
    """Return the content of an object."""
    return content(store, identity, store.read("get_object", (identity,)))


def fetch_many(store: Store, identities: Collection[bytes], most: int = VALUE_BYTES_MAX) -> dict[bytes, bytes]:
    """Return the contents of many objects of at most `most` bytes each, with few queries."""
    found = rows_of(store, identities)
    return {identity: content(store, identity, found.get(identity, []), most) for identity in identities}


def rows_of(store: Store, identities: Collection[bytes]) -> dict[bytes, Rows]:
    """Return the stored rows of objects, without those that are missing."""
    found: dict[bytes, Rows] = {}
    wanted = list(identities)
    for start in range(0, len(wanted), _ASKED_MAX):
        rows = store.read("get_objects", (b"".join(wanted[start : start + _ASKED_MAX]),))
        found.update({identity: [(size, data)] for identity, size, data in rows})
    return found


def unpack_within(store: Store, packed: bytes) -> Script[Any]:
    """Unpack a value inside a transaction, which sees its own writes."""
    identity = reference(packed)
    if not identity:
        return codec.decode(packed[1:])
    [rows] = yield [Statement("get_object", (identity,))]
    return codec.decode(content(store, identity, rows))


def content(store: Store, identity: bytes, rows: Rows, most: int = VALUE_BYTES_MAX) -> bytes:
    """Return the content of a `get_object` row, verified against its id; refuse more than `most` bytes."""
    try:
        data = _compare_copies(store, identity, rows, most)
    except (JournalDamaged, CorruptValue):
        if len(_suspects) < _SUSPECTS_MAX:
            _suspects.add(identity)
        raise
    if _suspects:
        _suspects.discard(identity)
    return data


def unverified_content(rows: Rows, most: int) -> bytes | memoryview:
    """Return the content of a `get_object` row without comparing it with its id, and without copying it."""
    size, stored = rows[0] if rows else (-1, b"")
    if type(size) is not int or type(stored) is not bytes or not 0 <= size <= most:
        raise CorruptValue("an object is missing or has been changed")
    if stored[:1] == _RAW and len(stored) == 1 + size:
        return memoryview(stored)[1:]
    return _decompress(stored, size)


def _compare_copies(store: Store, identity: bytes, rows: Rows, most: int) -> bytes:
    if not rows:
        raise JournalDamaged(f"object {identity.hex()[:12]} is missing", hint=_HINT)
    size, stored = rows[0]
    if type(size) is not int or type(stored) is not bytes:
        raise JournalDamaged(f"object {identity.hex()[:12]} has been changed", hint=_HINT)
    if most < VALUE_BYTES_MAX and size > most:
        raise CorruptValue("a stored piece is larger than any that Perdure writes")
    data = _decompress(stored, size)
    if identify(store, data) != identity:
        raise JournalDamaged(f"object {identity.hex()[:12]} has been changed", hint=_HINT)
    return data


_HINT = "run `perdure verify` to see what else is damaged, and restore from a backup, or write the same value again"


def is_sound(rows: Rows, data: bytes | memoryview) -> bool:
    """Return whether a `get_object` row holds this content. Cheaper than computing the id."""
    try:
        return unverified_content(rows, len(data)) == data
    except CorruptValue:
        return False


def select_trusted(known: Collection[bytes]) -> Collection[bytes]:
    """Return the known objects that need not be written again.

    If one of them was found damaged, none is trusted: the reader stopped there and has not seen the others.
    """
    return known if not _suspects or _suspects.isdisjoint(known) else frozenset()


def has_suspects() -> bool:
    """Return whether this process has met damage that is not repaired yet."""
    return bool(_suspects)


def decompress_object(size: int, stored: bytes) -> bytes:
    """Return the content of an object from a row or an archive, without verifying its id."""
    return _decompress(stored, size)


def pieces(size: int, stored: bytes) -> Iterator[bytes]:
    """Yield the content of an object from a file in pieces, so that a large one is never in memory as a whole."""
    if stored[:1] != _ZSTD or size <= PIECE_BYTES:
        yield _decompress(stored, size)
        return
    import zstandard

    left = _check_claimed_size(stored, size)
    back = zstandard.ZstdDecompressor(max_window_size=FILE_WINDOW_BYTES_MAX)
    try:
        with back.stream_reader(memoryview(stored)[1:]) as plain:
            while left > 0 and (piece := plain.read(PIECE_BYTES)):
                left -= len(piece)
                yield piece
    except zstandard.ZstdError as error:
        raise CorruptValue(str(error)) from error
    if left:
        raise CorruptValue(f"an object of {size} bytes holds another number of them")


class _Zstd(threading.local):
    """A compressor and decompressor per thread: creating them takes longer than using them on a small value."""

    def __init__(self) -> None:
        import zstandard  # needed only for large values

        self.by = zstandard.ZstdCompressor(level=3)
        self.back = zstandard.ZstdDecompressor()


_zstd = cache(_Zstd)


def _decompress(stored: bytes, size: int) -> bytes:
    if stored[:1] == _RAW and len(stored) == 1 + size:
        return stored[1:]
    if stored[:1] != _ZSTD:
        raise CorruptValue(f"an object of {size} bytes is stored in an unknown form")
    import zstandard

    try:
        _check_claimed_size(stored, size)
        return _zstd().back.decompress(stored[1:], max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptValue(str(error)) from error


def _check_claimed_size(stored: bytes, size: int) -> int:
    """Return the size if the compressed frame states the same: a forged size must not cause a large allocation."""
    import zstandard

    try:
        claimed = zstandard.frame_content_size(stored[1:])
    except zstandard.ZstdError as error:
        raise CorruptValue(str(error)) from error
    if claimed != size or not 0 <= size <= VALUE_BYTES_MAX:
        raise CorruptValue(f"an object of {size} bytes claims to hold {claimed}")
    return size


# -- what entries refer to --------------------------------------------------------------------------------------------

PACKED_FIELDS = frozenset({"input", "result", "error", "arguments", "value", "meta", "choices", "heading"})
"""Fields of records that hold packed values."""


DroppedVersion = tuple[str | int, ...]
"""Identifies a dropped version: its record type, owner, name and number.

For a thread it has the id, and for a checkpoint of a thread the namespace and the id too.
"""


class DroppedVersions:
    """The dropped versions according to the views. Test records or `DroppedVersion` tuples with `in`."""

    def __init__(self, store: Store, also: Iterable[DroppedVersion] = ()) -> None:
        self._versions = set(also)
        for kind, query in (("CheckpointMade", "all_checkpoints"), ("ArtifactSaved", "all_artifacts")):
            rows = store.read(query)
            self._versions.update((kind, owner, name, version) for owner, name, version, *_, gone in rows if gone)
        self._lives = {(owner, thread): whole for owner, thread, _, whole, _ in store.read("all_thread_generations")}
        self._points = {tuple(place): dropped for *place, dropped in store.read("dropped_thread_checkpoints")}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DroppedVersions) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, which: object) -> bool:
        if isinstance(which, ThreadPut | ThreadWrote):
            point = (which.owner, which.thread, which.ns, which.id)
            if which.life < max(self._lives.get(point[:2], 0), self._points.get(point, 0)):
                return True
            return ("Thread", *point) in self._versions or ("Thread", *point[:2]) in self._versions
        return which in self._versions


def is_dropped(record: Record, dropped: Container[object]) -> bool:
    """Return whether a record belongs to a dropped version."""
    if isinstance(record, ThreadPut | ThreadWrote):
        return record in dropped
    if isinstance(record, CheckpointMade | ArtifactSaved):
        return (type(record).__name__, record.owner, record.name, record.version) in dropped
    return False


def iterate_packed(record: Record, dropped: Container[object] = frozenset()) -> Iterator[bytes]:
    """Yield every packed value in a record that refers to objects, except those of a dropped version."""
    if is_dropped(record, dropped):
        return
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name in PACKED_FIELDS and value:
            if value[:1] != _INLINE:
                yield value
        elif isinstance(value, Record):
            yield from iterate_packed(value, dropped)
        elif isinstance(value, tuple):
            for inner in value:
                if isinstance(inner, Record):
                    yield from iterate_packed(inner, dropped)
