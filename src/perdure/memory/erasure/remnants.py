"""What may remain of erased memories in a store file after their rows are gone. The file is searched for it.

The text itself, the words in the index, the vectors and the stored bytes of large values would all reveal a memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.journal import objects
from perdure.memory import pieces
from perdure.memory.arguments import SEARCHED_MIN
from perdure.memory.erasure.find import spellings
from perdure.memory.results import Memory

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_BEGINNING = 400
"""Number of bytes that are stored contiguously in a page, however long the value is."""


class RemnantSearch(msgspec.Struct, frozen=True):
    """The byte strings to look for."""

    rows: tuple[bytes, ...] = ()
    """From the rows of the memories and their index."""
    values: dict[bytes, bytes] = {}
    """The first bytes of large values that may be deleted, by object id."""

    def exclude_deleted(self, gone: Iterable[bytes]) -> list[bytes]:
        """Return what to look for once some of the values are deleted."""
        values = [self.values[identity] for identity in gone if identity in self.values]
        return [one for one in (*self.rows, *values) if len(one.strip(b"\0")) >= SEARCHED_MIN]


def remnants_of(
    engine: Engine, memories: Sequence[Memory], texts: Sequence[str], watched: Sequence[bytes]
) -> RemnantSearch:
    """Collect the byte strings before the commit deletes them; none on a server, whose files are out of reach."""
    if not engine.store.one_host:
        return RemnantSearch()
    rows = [one for text in texts for one in spellings(text)]
    cuts = pieces.split_all(
        None, [pieces.MemoryText(memory.text, 0, (memory.about, memory.user, *memory.tags)) for memory in memories]
    )
    rows += [part.terms.encode()[:_BEGINNING] for cut in cuts for part in cut.parts]
    rows += _vectors(engine, [memory.id for memory in memories])
    stored = objects.rows_of(engine.store, watched)
    values = {identity: bytes(body[:_BEGINNING]) for identity, [(_, body)] in stored.items()}
    return RemnantSearch(tuple(dict.fromkeys(rows)), values)


def _vectors(engine: Engine, ids: Sequence[str]) -> Iterator[bytes]:
    read, found = engine.store.read, dict[str, list[int]]()
    for piece, embedder in read("vectors_of_memories", (engine.stream, msgspec.json.encode(ids).decode())):
        found.setdefault(embedder, []).append(piece)
    for embedder, some in found.items():
        for _, vector in read("vectors_among", (embedder, msgspec.json.encode(some).decode())):
            yield bytes(vector)[:_BEGINNING]
