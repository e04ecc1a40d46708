"""What may be left of memories in a file although their rows are gone: for this its bytes are looked through.

Not only the text: the words as the index has them, the vectors, and large values as they are stored tell it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from .. import objects
from . import pieces
from .found import Memory
from .given import SEARCHED_MIN
from .traces import spellings

if TYPE_CHECKING:
    from ..engine import Engine

_BEGINNING = 400
"""Bytes that stand together in a page, however long the whole is."""


class Remnants(msgspec.Struct, frozen=True):
    """What to look for."""

    rows: tuple[bytes, ...] = ()
    """Of the memories and their index."""
    values: dict[bytes, bytes] = {}
    """How large values begin that may go too, by the ids of their objects."""

    def after(self, gone: Iterable[bytes]) -> list[bytes]:
        """The same, of those values that are gone."""
        values = [self.values[identity] for identity in gone if identity in self.values]
        return [one for one in (*self.rows, *values) if len(one.strip(b"\0")) >= SEARCHED_MIN]


def remnants_of(engine: Engine, memories: Sequence[Memory], texts: Sequence[str], watched: Sequence[bytes]) -> Remnants:
    """Read before the commit: then it is gone. On a server nobody can look."""
    if not engine.store.one_host:
        return Remnants()
    rows = [one for text in texts for one in spellings(text)]
    cuts = pieces.cut_all(None, [pieces.Said(it.text, 0, (it.about, it.user, *it.tags)) for it in memories])
    rows += [part.terms.encode()[:_BEGINNING] for cut in cuts for part in cut.parts]
    rows += _vectors(engine, [it.id for it in memories])
    stored = objects.rows_of(engine.store, watched)
    values = {identity: bytes(found[0][1][:_BEGINNING]) for identity, found in stored.items()}
    return Remnants(tuple(dict.fromkeys(rows)), values)


def _vectors(engine: Engine, ids: Sequence[str]) -> Iterator[bytes]:
    read, found = engine.store.read, dict[str, list[int]]()
    for piece, embedder in read("vectors_of_memories", (engine.stream, msgspec.json.encode(ids).decode())):
        found.setdefault(embedder, []).append(piece)
    for embedder, some in found.items():
        for _, vector in read("vectors_among", (embedder, msgspec.json.encode(some).decode())):
            yield bytes(vector)[:_BEGINNING]
