"""Confidence of a match, from 0 to 1: how much of the question a memory covers, for questions without an answer.

A score ranks memories, but the best one has a high score even if it hardly matches. Here every word of the question
counts by its rarity, and a word that no memory has counts most: a memory that covers half of them gets 0.5. A time
counts as much as the rarest word, or as the least rare word if it has an open end, because much is before October.
Above-average similarity of meaning reduces what is missing.

Tuned and measured on conversations with known evidence, and on questions about other conversations (`docs`).
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.memory.recall.lexical import IndexStatistics, MemoryPiece, RecallMatch, RecallQuestion

LENT = 0.3
"""The weight of a word that only neighbours have."""


def confidence(hit: RecallMatch, asked: RecallQuestion, scope: IndexStatistics, middle: float) -> float:
    """Return the confidence of a match. `middle` is the average similarity of the pieces that were compared."""
    return 1 - (1 - _compute_coverage(hit, asked, scope)) * (1 - _rescale_meaning(hit.meaning, middle))


def _compute_coverage(hit: RecallMatch, asked: RecallQuestion, scope: IndexStatistics) -> float:
    """Return the share of the question that the words of a memory cover."""
    worth = {term: scope.rarity(term) for term in asked.terms}
    has = {**dict.fromkeys(hit.lent, LENT), **dict.fromkeys(hit.own, 1.0)}
    has.update((term, asked.alike[term].get(other, 0.0)) for term, other in hit.alike)
    narrow = any(not span.open for span in asked.spans)
    time = (max if narrow else min)(worth.values(), default=1.0) if asked.spans else 0.0
    total = sum(worth.values()) + time
    got = sum(worth[term] * share for term, share in has.items()) + time * hit.time
    return min(1.0, got / total) if total else 0.0


def _rescale_meaning(meaning: float, middle: float) -> float:
    return min(1.0, max(0.0, meaning - middle) / (1 - middle)) if middle < 1 else 0.0


def middle_of(pieces: Sequence[MemoryPiece]) -> float:
    """Return the average similarity of pieces. Models differ in their scale."""
    return sum(piece.likeness for piece in pieces) / max(len(pieces), 1)
