"""Texts that can be searched, written by the commit of what they belong to. See `search/` for who looks for them.

They are no view. What a rebuild makes, it makes of the journal alone, and a vector can only be made again by the model
that has made it; to carry vectors in the journal would keep those of every old version for ever. So they lie beside it,
as uploads do: a rebuild leaves them alone, backups and copies take them along, and since each names the version of what
it belongs to, one that is not up to date is never found, whatever has happened to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ..store.base import Statement
from ..words import spaced

Belongs = tuple[int, str, str, str]
"""Owner, kind, namespace and key of what a document belongs to."""

STATE = "state"
"""The kind of those that belong to a key of an agent's state."""


class Document(msgspec.Struct, frozen=True):
    """One text, and what a model has made of it."""

    part: str
    """Where in the value it was."""
    text: str
    embedder: str = ""
    vector: bytes = b""
    """Floats of four bytes each, of length 1 together; none without an embedder."""
    words: bool = True
    """Whether it is found by its words."""


def state_place(place: tuple[int, str, str]) -> Belongs:
    """What belongs to a key of state."""
    owner, space, key = place
    return owner, STATE, space, key


def documents_dropped(it: Belongs) -> list[Statement]:
    """Remove the documents of a place, their words first."""
    return [Statement("drop_document_words", it), Statement("drop_documents", it)]


def documents_of(it: Belongs, version: int, documents: Sequence[Document]) -> Iterator[Statement]:
    """What writes them."""
    for one in documents:
        text = one.text.encode("utf-8", "surrogatepass")
        yield Statement("put_document", (*it, one.part, version, text, one.embedder, one.vector))
        words = spaced(one.text) if one.words else ""
        if words:
            yield Statement("put_words", (*it, one.part, words))
