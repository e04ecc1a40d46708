"""How much of a question a memory speaks of, from 0 to 1: what one asks when there may be no answer at all.

A score says which of the memories fits best, and the best one always has a good one, however little it fits. Here
every word of the question counts by how rare it is, one that no memory has most of all: what speaks of half of them
has 0.5, whatever else there is. A time counts as much as the rarest word, or as
the least rare if it is open at one end: much is before October. How much nearer the meaning is than that of
the others takes away from what is missing.

Chosen and measured on conversations with known evidence, beside questions about other conversations (`docs`).
"""

from __future__ import annotations

from collections.abc import Sequence

from .boards import Found, Piece, Question, Scope

LENT = 0.3
"""Of a word that only those around it have."""


def confidence(it: Found, asked: Question, scope: Scope, middle: float) -> float:
    """Of one that was found; `middle` is how near those are that were looked at, on the average."""
    return 1 - (1 - _covered(it, asked, scope)) * (1 - _nearer(it.meaning, middle))


def _covered(it: Found, asked: Question, scope: Scope) -> float:
    """The share of the question that it has the words of."""
    worth = {term: scope.rarity(term) for term in asked.terms}
    has = {**dict.fromkeys(it.lent, LENT), **dict.fromkeys(it.own, 1.0)}
    has.update((term, asked.alike[term].get(other, 0.0)) for term, other in it.alike)
    narrow = any(not span.open for span in asked.spans)
    time = (max if narrow else min)(worth.values(), default=1.0) if asked.spans else 0.0
    total = sum(worth.values()) + time
    got = sum(worth[term] * share for term, share in has.items()) + time * it.time
    return min(1.0, got / total) if total else 0.0


def _nearer(meaning: float, middle: float) -> float:
    return min(1.0, max(0.0, meaning - middle) / (1 - middle)) if middle < 1 else 0.0


def middle_of(pieces: Sequence[Piece]) -> float:
    """How near pieces are, on the average: models differ in what they call near."""
    return sum(piece.likeness for piece in pieces) / max(len(pieces), 1)
