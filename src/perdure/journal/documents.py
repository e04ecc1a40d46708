"""Search documents: texts and vectors, written in the commit of the value that they belong to (see `data/search/`).

They are not a view: only the embedding model could rebuild a vector, and vectors in the journal would keep those of
every old version forever. A rebuild leaves documents alone; backups and copies include them. Each names the version of
its value, so search ignores outdated ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.store.base import Statement
from perdure.values.words import space_words

DocumentKey = tuple[int, str, str, str]
"""Owner, kind, namespace and key of the value that a document belongs to."""

STATE = "state"
"""The kind of documents that belong to a key of agent state."""


class IndexedDocument(msgspec.Struct, frozen=True):
    """One text and its embedding."""

    part: str
    """The path of the text within the value."""
    text: str
    embedder: str = ""
    vector: bytes = b""
    """32-bit floats, normalized to length 1; empty without an embedder."""
    words: bool = True
    """Whether word search finds it."""


def state_place(place: tuple[int, str, str]) -> DocumentKey:
    """The document key of a state key."""
    owner, space, key = place
    return owner, STATE, space, key


def documents_dropped(owner: DocumentKey) -> list[Statement]:
    """Remove the documents of a place, their words first."""
    return [Statement("drop_document_words", owner), Statement("drop_documents", owner)]


def documents_of(owner: DocumentKey, version: int, documents: Sequence[IndexedDocument]) -> Iterator[Statement]:
    """Write the documents of a value and their words."""
    for one in documents:
        text = one.text.encode("utf-8", "surrogatepass")
        yield Statement("put_document", (*owner, one.part, version, text, one.embedder, one.vector))
        words = space_words(one.text) if one.words else ""
        if words:
            yield Statement("put_document_words", (*owner, one.part, words))
