"""Ranks keys by words and by meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from perdure.data.namespaces import KeyFilter, KeyValue, NamespaceTree, find_buffered_below, read_keys
from perdure.data.search.vectors import EmbedderVectors, product
from perdure.journal.agent_writes import SetKey, StateKey
from perdure.journal.documents import STATE, IndexedDocument
from perdure.values.limits import CANDIDATES
from perdure.values.words import words_in

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

MEANING, WORDS = 0.7, 0.3
"""Weights when both are available. Both scores are at most 1.

A text with the very words comes before one that only means the same. Words alone do not beat a clearly nearer meaning.
"""

_ALL = 1 << 31
DocumentScores = dict[tuple[str, str, int], float]
"""Scores by namespace, key and version."""
RankedDocument = tuple[float, str, str, int]


class SearchQuery(msgspec.Struct, frozen=True):
    """A search query."""

    text: str = ""
    """Searched by words, unless empty."""
    embedder: str = ""
    vector: bytes = b""
    """Searched by meaning, unless empty."""


class SearchHit(msgspec.Struct, frozen=True):
    """A key that was found, with its score."""

    kept: KeyValue
    score: float


def find(
    engine: Engine, tree: NamespaceTree, question: SearchQuery, wanted: KeyFilter | None, skip: int, count: int
) -> list[SearchHit]:
    """Return the best matching keys of a tree that pass the filter, after skipping some."""
    if not engine.is_known() or count < 1:
        return []
    found = list[SearchHit]()
    for looked_at in (max(CANDIDATES, 4 * (skip + count)), _ALL):
        ranked, all_of_them = _rank_documents(engine, tree, question, looked_at)
        found = list(_filter_current(engine, ranked, wanted, skip + count))
        if all_of_them or len(found) >= skip + count:
            break
    return found[skip : skip + count]


def _filter_current(
    engine: Engine, ranked: list[RankedDocument], wanted: KeyFilter | None, most: int
) -> Iterator[SearchHit]:
    """Yield hits that still exist in the same version: the index may lag behind."""
    step, place, given = max(16, 2 * most), 0, 0
    while place < len(ranked) and given < most:
        chunk = ranked[place : place + step]
        there = read_keys(engine, list(dict.fromkeys((space, key) for _, space, key, _ in chunk)))
        for score, space, key, version in chunk:
            kept = there.get((space, key))
            if kept is not None and kept.version == version and (wanted is None or wanted(kept)) and given < most:
                given += 1
                yield SearchHit(kept, score)
        place += step
        step = min(4 * step, 1000)


def _rank_documents(
    engine: Engine, tree: NamespaceTree, question: SearchQuery, count: int
) -> tuple[list[RankedDocument], bool]:
    """Return the ranking, best first, and whether it is complete."""
    words, no_more_words = _score_words(engine, tree, question.text, count)
    best = max(words.values(), default=0.0) or 1.0
    meaning, no_more = _score_meaning(engine, tree, question, count, words)
    for place, asks in find_buffered_below(engine, tree).items():
        _score_buffered(engine, place, asks[-1], question, words, meaning, best)
    if not question.vector:
        scores = {found: score / best for found, score in words.items()}
    elif not question.text:
        scores = dict(meaning)
    else:
        scores = {
            found: MEANING * meaning.get(found, 0.0) + WORDS * words.get(found, 0.0) / best
            for found in meaning.keys() | words.keys()
        }
    ranked = [(score, *found) for found, score in scores.items()]
    return sorted(ranked, key=lambda found: (-found[0], *found[1:])), no_more_words and no_more


def _score_words(engine: Engine, tree: NamespaceTree, text: str, count: int) -> tuple[DocumentScores, bool]:
    words = " ".join(dict.fromkeys(words_in(text)))
    if not words:
        return {}, True
    found: DocumentScores = {}
    rows = engine.store.read("documents_with_words", (engine.stream, STATE, *tree.bounds, words, count))
    for space, key, version, score in rows:
        found[space, key, version] = max(found.get((space, key, version), 0.0), score)
    return found, len(rows) < count


def _score_meaning(
    engine: Engine, tree: NamespaceTree, question: SearchQuery, count: int, also: DocumentScores
) -> tuple[DocumentScores, bool]:
    if not question.vector:
        return {}, True
    vectors = vectors_of(engine, STATE, question.embedder)
    found = vectors.find_nearest(engine.store, question.vector, tree.holds, count, [document[:2] for document in also])
    return found, len(vectors) <= count


def vectors_of(engine: Engine, kind: str, embedder: str) -> EmbedderVectors:
    """Return the vector table of this process."""
    which = (engine.stream, kind, embedder)
    known: dict[tuple[int, str, str], EmbedderVectors] = engine.place.vectors
    # Two threads may create one at the same time; the first one stored wins.
    return known.get(which) or known.setdefault(which, EmbedderVectors(*which))


def _score_buffered(
    engine: Engine,
    place: StateKey,
    last: SetKey,
    question: SearchQuery,
    words: DocumentScores,
    meaning: DocumentScores,
    best: float,
) -> None:
    """Replace stored scores by those of buffered changes. By words, a change gets a share of the best score."""
    _, space, key = place
    for scores in (words, meaning):
        for found in [hit for hit in scores if hit[:2] == (space, key)]:
            del scores[found]
    kept = read_keys(engine, [(space, key)]).get((space, key))
    if kept is None:
        return
    found, asked = (space, key, kept.version), set(words_in(question.text))
    for document in last.documents or ():
        if question.vector and document.embedder == question.embedder:
            meaning[found] = max(meaning.get(found, -1.0), product(document.vector, question.vector))
        if share := _share(document, asked):
            words[found] = max(words.get(found, 0.0), share * best)


def _share(document: IndexedDocument, asked: set[str]) -> float:
    return len(asked.intersection(words_in(document.text))) / len(asked) if asked and document.words else 0.0
