"""Stores byte streams as trees: chunked by content, written and read in constant memory.

The nodes are those of `nodes.py`, so following references works as for values. The item count of a piece is its length
in bytes, which allows seeking. Cuts depend only on the bytes, not on the blocks in which they arrive: two versions
share all pieces away from their differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias
from zlib import crc32

from msgspec.msgpack import Ext

from perdure.errors import CorruptValue
from perdure.journal import objects
from perdure.journal.trees.nodes import ENCODE, OBJECT_BYTES_MAX, PieceKind, PieceLink, TreePiece, parse_node
from perdure.journal.trees.split import TREE
from perdure.store.base import Rows, Store

CHUNK_LEAST: Final = 16 * 1024
CHUNK_MOST: Final = 128 * 1024
"""Size limits of a chunk; usually 32 KB. A change adds one or two chunks, and each costs a row."""

_CLASSES: Final = bytes((byte * 37 + (byte >> 4) * 37) % 256 >> 5 for byte in range(256))
_CANDIDATE: Final = b"\x07\x04\x00"
"""Three bytes of these classes, out of eight, may be a cut.

The table and the search run in C, so Python examines one position in 400. The numbers were chosen to give similar rates
in text, JSON, digits, base64, integers and floating point numbers.
"""

_SEARCHED_AT_ONCE: Final = 8 * 1024

_WINDOW: Final = 48
_CHANCE: Final = (400 << 32) // (16 * 1024)
"""A candidate is a cut if the hash of the bytes before it is below this."""

_GROUP_LEAST: Final = 16
_GROUP_MOST: Final = 128
_GROUP_CHANCE: Final = 8
"""Size limits of a node in pieces: after the minimum, one in 32 is the last."""

_ROOT_MOST: Final = 16
"""The maximum number of pieces in the entry itself."""

_LEVELS_MAX: Final = 16
_AHEAD_MAX: Final = 32
"""The maximum number of chunks that a sequential read fetches at once."""

PutChunk: TypeAlias = Callable[[bytes, bytes | memoryview], None]
"""Receives the id and the content of an object."""


class ChunkCutter:
    """Turns blocks of any length into chunks."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, block: bytes) -> Iterator[memoryview]:
        """Return the chunks that are certain so far. They are views of the block: copying them takes time."""
        data = self._rest + block if self._rest else block
        view, begin = memoryview(data), 0
        while (end := _find_chunk_end(data, begin)) or len(data) - begin > CHUNK_MOST:
            end = end or begin + CHUNK_MOST
            yield view[begin:end]
            begin = end
        self._rest = data[begin:]

    def finish(self) -> Iterator[memoryview]:
        """Return the last chunk, if anything is left."""
        rest, self._rest = self._rest, b""
        if rest:
            yield memoryview(rest)


def _find_chunk_end(data: bytes, begin: int) -> int:
    """Return the end of the chunk that starts at `begin`; 0 if these bytes do not determine it.

    Only the bytes between the shortest chunk and the cut are classified.
    """
    most = min(begin + CHUNK_MOST, len(data))
    for start in range(begin + CHUNK_LEAST, most, _SEARCHED_AT_ONCE):
        # A candidate may begin in one part and end in the next one.
        part = data[start : min(start + _SEARCHED_AT_ONCE + len(_CANDIDATE) - 1, most)].translate(_CLASSES)
        if end := _find_cut(data, part, start):
            return end
    return 0


def _find_cut(data: bytes, classes: bytes, start: int) -> int:
    """Return the first cut in a part that begins at `start`, given the classes of its bytes; 0 if there is none."""
    at, view = 0, memoryview(data)
    while (at := classes.find(_CANDIDATE, at)) >= 0:
        at += len(_CANDIDATE)
        end = start + at
        if crc32(view[end - _WINDOW : end]) < _CHANCE:
            return end
    return 0


class StreamBuilder:
    """The tree of a stream under construction: a few pieces on each level."""

    def __init__(self, store: Store, put: PutChunk) -> None:
        self._store = store
        self._put = put
        self._levels: list[list[tuple[int, PieceLink]]] = [[]]

    def add(self, chunk: memoryview) -> None:
        """Add a chunk."""
        self._link(0, len(chunk), PieceLink(PieceKind.LEAF, self._object(chunk)))

    def finish(self) -> bytes:
        """Return the packed form of the whole for a journal entry; empty for no bytes."""
        level = 0
        while level < len(self._levels) - 1 or len(self._levels[level]) > _ROOT_MOST:
            if self._levels[level]:
                self._close(level)
            level += 1
        return TREE + _node(self._levels[-1]) if self._levels[-1] else b""

    def _link(self, level: int, size: int, link: PieceLink) -> None:
        if level == len(self._levels):
            self._levels.append([])
        pieces = self._levels[level]
        pieces.append((size, link))
        last = len(pieces) >= _GROUP_LEAST and link.identity[0] < _GROUP_CHANCE
        if last or len(pieces) == _GROUP_MOST:
            self._close(level)

    def _close(self, level: int) -> None:
        pieces, self._levels[level] = self._levels[level], []
        identity = self._object(_node(pieces))
        self._link(level + 1, sum(size for size, _ in pieces), PieceLink(PieceKind.GROUP, identity))

    def _object(self, content: bytes | memoryview) -> bytes:
        identity = objects.identify(self._store, content)
        self._put(identity, content)
        return identity


def _node(pieces: Sequence[tuple[int, PieceLink]]) -> bytes:
    return ENCODE([part for size, link in pieces for part in (size, Ext(int(link.kind), link.identity))])


class StoredStream:
    """A stored stream, readable from any position. Nothing that is read is trusted."""

    def __init__(self, store: Store, packed: bytes, size: int) -> None:
        self._store = store
        self._pieces = parse_node(packed[1:]) if packed else []
        if packed and packed[:1] != TREE:
            raise CorruptValue("a stored stream is invalid")
        _require_size(self._pieces, size)
        self.at = 0
        """The current position, for error messages."""

    def chunks(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield each chunk with its position, beginning with the one that contains `start`."""
        leaves, ahead = self._leaves(self._pieces, 0, start, 0), 1
        while batch := list(islice(leaves, ahead)):
            yield from self._fetch(batch)
            ahead = min(2 * ahead, _AHEAD_MAX)

    def unverified_chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the chunks without comparing them with their ids: the caller compares the digest of the whole.

        Hashing every byte twice takes more time than anything else here.
        """
        leaves = self._leaves(self._pieces, 0, 0, 0)
        while batch := list(islice(leaves, _AHEAD_MAX)):
            wanted = {body.identity for _, (_, body) in batch if isinstance(body, PieceLink)}
            found = objects.rows_of(self._store, wanted)
            for at, (_, body) in batch:
                self.at = at
                yield _content_of(body, found)

    def _leaves(self, pieces: Sequence[TreePiece], at: int, start: int, level: int) -> Iterator[tuple[int, TreePiece]]:
        if level > _LEVELS_MAX:
            raise CorruptValue("a stored stream has more levels than Perdure ever writes")
        for size, body in pieces:
            end = at + size
            if end > start:
                self.at = at
                if isinstance(body, bytes) or body.kind == PieceKind.LEAF:
                    yield at, (size, body)
                else:
                    node = objects.fetch(self._store, body.identity)
                    if len(node) > OBJECT_BYTES_MAX:
                        raise CorruptValue("a stored node is larger than Perdure ever writes")
                    inner = parse_node(node)
                    _require_size(inner, size)
                    yield from self._leaves(inner, at, start, level + 1)
            at = end

    def _fetch(self, batch: Sequence[tuple[int, TreePiece]]) -> Iterator[tuple[int, bytes]]:
        wanted = {body.identity for _, (_, body) in batch if isinstance(body, PieceLink)}
        found = objects.rows_of(self._store, wanted)
        for at, (size, body) in batch:
            self.at = at
            if isinstance(body, PieceLink):
                body = objects.content(self._store, body.identity, found.get(body.identity, []), CHUNK_MOST)
            if len(body) != size:
                raise CorruptValue(f"a chunk has {len(body)} bytes instead of {size}")
            yield at, body


def _content_of(body: bytes | PieceLink, found: Mapping[bytes, Rows]) -> bytes | memoryview:
    """Return the unverified content of a chunk: inline, or an object among those found."""
    if isinstance(body, bytes):
        return body
    return objects.unverified_content(found.get(body.identity, []), CHUNK_MOST)


def _require_size(pieces: Sequence[TreePiece], size: int) -> None:
    if sum(length for length, _ in pieces) != size or not all(length for length, _ in pieces):
        raise CorruptValue("the pieces of a stored stream do not have the declared length")
