"""Ranks memories for a question: words, neighbours, time and meaning in one score.

    >>> from datetime import date
    >>> today = date(2026, 11, 16)
    >>> texts = ["Ann: Where did you go?", "Bo: To Lisbon, by train.", "Ann: I stay at home."]
    >>> found = [piece for n, text in enumerate(texts) for _, piece in pieces(text, memory=n, place=n, day=today)]
    >>> statistics = IndexStatistics.from_pieces(found)
    >>> [hit.memory for hit in rank(question("Where did Bo go?", today), found, statistics, k=2)]
    [1, 0]

The parameters were tuned on conversations with known evidence and checked on long texts (`bench/recall`):

- **Words** count as in BM25: rare words more, repeated words less each time.
- **Neighbours lend**: for each word asked for, a memory gets the better of its own score and that of its neighbours,
  reduced with distance. "By train." answers "How did you go to Lisbon?" without any of its words. A question lends its
  full score to the next memory. Common words are not lent: they do not distinguish memories.
- **Questions contain few answers**, so the share of a memory that asks lowers its score.
- **Related words** stand in for a word that is asked for, by their similarity, if there is a table: `trip` for
  `travel`. They are lent like any other.
- **Time** adds to the score if the question names one, and **meaning** if there is an embedder.

Scores are added, not ranks: a rank loses whether the best matched one word or all of them.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date

from perdure.memory.dates.times import closeness, find_mentioned_times, parse_question_times
from perdure.memory.recall.lexical import IndexStatistics, MemoryPiece, RecallMatch, RecallQuestion, TermIndex, board_of
from perdure.memory.recall.terms import pieces as cut
from perdure.memory.recall.terms import question_share, terms

REMAINDER_SHARE = 0.2
"""The share of the rest of a long text that counts towards the length of each part."""

NEAR = 0.25
"""The minimum similarity of related words."""

STANDS_IN = 0.8
"""The weight of a word with exactly the same meaning."""

TIME = 0.4
"""The weight of a matching time."""

MEANING = 0.8
"""The weight of similar vectors that a neural network made."""

MEANING_OF_TABLE = 0.3
"""The weight of similar vectors from the bundled table, which already supplies related words."""

_OF_ANY_TIME = frozenset({"happen", "last", "next", "time", "dai"})
"""Words that a question about a time contains anyway: what happened last Tuesday?"""

RelatedTerms = Callable[[str], Iterable[tuple[str, float]]]
"""Maps a term to related terms with their similarity, nearest first."""

_CAPITALISED = re.compile(r"(?<=\S )[^\W\d_a-z][\w]+(?:['’]s?)?")
_ONE_WORD = re.compile(r"\w+(?:['’]s\b)?")


def question(text: str, today: date, alike: RelatedTerms | None = None) -> RecallQuestion:
    """Parse a question. Words that were understood as a time are not searched as terms."""
    found, rest = parse_question_times(text, today)
    asked = tuple(dict.fromkeys(terms(rest)))
    if found:
        asked = tuple(term for term in asked if term not in _OF_ANY_TIME)
    others = {term: _find_stand_ins(term, alike) for term in asked} if alike else {}
    wanted = frozenset(asked).union(*others.values())
    for term, near in others.items():
        # Terms of the question itself count in full, and once.
        if not near.keys().isdisjoint(asked):
            others[term] = {other: worth for other, worth in near.items() if other not in asked}
    return RecallQuestion(text, asked, tuple(found), others, wanted)


@functools.lru_cache(maxsize=4096)
def _find_stand_ins(term: str, alike: RelatedTerms) -> Mapping[str, float]:
    """Return the stand-ins of a term. They are the same for every question."""
    return {other: STANDS_IN * (near - NEAR) / (1 - NEAR) for other, near in alike(term) if near > NEAR}


def pieces(
    text: str, *, memory: int, place: int, day: date, thread: int = 0, names: tuple[str, ...] = ()
) -> list[tuple[str, MemoryPiece]]:
    """Split a memory into pieces: the texts to embed, and the index data of each.

    Names are terms of every piece, once each, and do not add to its length.
    """
    named = Counter({term: 1 for name in names for term in terms(name)})
    parts = [(part, Counter(terms(part))) for part in cut(text)]
    whole = sum(found.total() for _, found in parts)
    made = []
    for n, (part, found) in enumerate(parts):
        # A part of a long text has more chances to match than a short text, so it counts as longer.
        length = round(found.total() + REMAINDER_SHARE * (whole - found.total()))
        days = tuple(find_mentioned_times(part, day))
        made.append(
            (part, MemoryPiece(memory, place + n, thread, found | named, length, question_share(part), day, days))
        )
    return made


def make_embedding_query(asked: RecallQuestion, scope: IndexStatistics) -> str:
    """Return the question for the embedder: without names and common words.

    A model takes a name for the topic of a sentence and finds the person, not the statement. Words match names well;
    here they only hide the rest. If nothing else would remain, nothing is removed.
    """

    def keep_word(match: re.Match[str]) -> str:
        return " " if any(scope.is_common(term) for term in terms(match.group())) else match.group()

    bare = _ONE_WORD.sub(keep_word, _CAPITALISED.sub(" ", asked.text))
    return " ".join(bare.split()) if terms(bare) else asked.text


def rank(
    asked: RecallQuestion,
    among: Sequence[MemoryPiece],
    scope: IndexStatistics,
    k: int,
    *,
    meaning: float = MEANING,
    terms: TermIndex | None = None,
) -> list[RecallMatch]:
    """Return the k memories that best match a question, best first. If `terms` is given, the pieces are in order."""
    board = board_of(asked, sorted(among, key=_sort_key) if terms is None else among, scope, terms)
    best: dict[int, tuple[float, int]] = {}
    for at, (piece, words) in enumerate(zip(board.pieces, board.sum_terms(), strict=True)):
        score = words + meaning * piece.likeness
        if asked.spans:
            score += TIME * closeness(asked.spans, piece.day, piece.told)
        if score > best.get(piece.memory, (0.0, 0))[0]:
            best[piece.memory] = (score, at)
    # Of two equal matches, the later one wins: newer facts are more likely still true.
    chosen = sorted(best.values(), key=lambda pair: (-pair[0], -pair[1]))[:k]
    return [board.explain_match(at, score) for score, at in chosen]


def _sort_key(piece: MemoryPiece) -> tuple[int, int]:
    return piece.thread, piece.place
