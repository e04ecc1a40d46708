"""Which memories a question is about: words, neighbours, time and meaning in one score.

    >>> from datetime import date
    >>> today = date(2026, 11, 16)
    >>> texts = ["Ann: Where did you go?", "Bo: To Lisbon, by train.", "Ann: I stay at home."]
    >>> all_of_it = [it for n, text in enumerate(texts) for _, it in pieces(text, memory=n, place=n, day=today)]
    >>> [found.memory for found in rank(question("Where did Bo go?", today), all_of_it, Scope.of(all_of_it), k=2)]
    [1, 0]

The recipe was chosen on conversations with known evidence, and looked at on long texts (`bench/recall`):

- **Words** count as in BM25: rare ones more, and again less for each time that they come again.
- **Neighbours lend**: of each word that is asked for, a memory gets the best of what it has itself and what those
  around it have, less with every step. "By train." answers "How did you go to Lisbon?" and has none of these words.
  A question lends all it has to what comes next. Words that most memories have are not lent: they tell nobody apart.
- **Questions hold few answers**, so that a memory counts less by the share of it that asks.
- **Words that mean much the same** stand in for one that is asked for, by how near they are, when there is a table of
  them: `trip` for `travel`. They are lent like any other.
- **Time** adds when the question names one, **meaning** as a whole when there is an embedder.

Scores are added, not ranks: a rank forgets whether the best was found by one word or by all of them.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import date

from .boards import Found, Piece, Question, Scope, board_of
from .terms import asking, terms
from .terms import pieces as cut
from .times import asked as times_asked
from .times import closeness, told

REST = 0.2
"""So much of the rest of a long text counts to the length of each of its parts."""

NEAR = 0.25
"""Words less near than this have nothing to do with each other, whatever the table says."""

STANDS_IN = 0.8
"""What a word with the very same meaning would be worth."""

TIME = 0.4
MEANING = 0.8
MEANING_OF_TABLE = 0.3
"""A network's vectors, and those of the table in the box, which stands in for single words already."""

_OF_ANY_TIME = frozenset({"happen", "last", "next", "time", "dai"})
"""What is asked of a time says nothing more than that: what happened last Tuesday?"""

Alike = Callable[[str], Iterable[tuple[str, float]]]
"""From a term to others and how near they are, the nearest first."""

_WRITTEN_LARGE = re.compile(r"(?<=\S )[^\W\d_a-z][\w]+(?:['’]s?)?")
_ONE_WORD = re.compile(r"\w+(?:['’]s\b)?")


def question(text: str, today: date, alike: Alike | None = None) -> Question:
    """Takes a question apart. What is understood as a time is not looked for as words too."""
    found, rest = times_asked(text, today)
    asked = tuple(dict.fromkeys(terms(rest)))
    if found:
        asked = tuple(term for term in asked if term not in _OF_ANY_TIME)
    others = {term: _near(term, alike) for term in asked} if alike else {}
    wanted = frozenset(asked).union(*others.values())
    for term, near in others.items():
        # What is asked for itself counts in full, and once.
        if not near.keys().isdisjoint(asked):
            others[term] = {other: worth for other, worth in near.items() if other not in asked}
    return Question(text, asked, tuple(found), others, wanted)


@functools.lru_cache(maxsize=4096)
def _near(term: str, alike: Alike) -> Mapping[str, float]:
    """What may stand in for a term: the same for every question."""
    return {other: STANDS_IN * (near - NEAR) / (1 - NEAR) for other, near in alike(term) if near > NEAR}


def pieces(
    text: str, *, memory: int, place: int, day: date, thread: int = 0, names: tuple[str, ...] = ()
) -> list[tuple[str, Piece]]:
    """Takes a memory apart: the texts that it is cut into, which are embedded, and what is known of each.

    Names are words of every part, once each, and make none longer.
    """
    named = Counter({term: 1 for name in names for term in terms(name)})
    parts = [(part, Counter(terms(part))) for part in cut(text)]
    whole = sum(found.total() for _, found in parts)
    made = []
    for n, (part, found) in enumerate(parts):
        # A part of a long text has more chances than a short text of its own, and pays for them.
        length = round(found.total() + REST * (whole - found.total()))
        days = tuple(told(part, day))
        made.append((part, Piece(memory, place + n, thread, found | named, length, asking(part), day, days)))
    return made


def meant(asked: Question, scope: Scope) -> str:
    """The question as it is embedded: without names, and without words that most memories have.

    A model takes a name for what a sentence is about, and finds whoever is called, not what was said. Names are what
    words are good at; here they only hide the rest. Nothing is left out when nothing would be left.
    """

    def kept(match: re.Match[str]) -> str:
        return " " if any(scope.common(term) for term in terms(match.group())) else match.group()

    bare = _ONE_WORD.sub(kept, _WRITTEN_LARGE.sub(" ", asked.text))
    return " ".join(bare.split()) if terms(bare) else asked.text


def rank(asked: Question, among: Iterable[Piece], scope: Scope, k: int, *, meaning: float = MEANING) -> list[Found]:
    """The k memories that a question is most likely about, the best first."""
    board = board_of(asked, sorted(among, key=_in_order), scope)
    best: dict[int, tuple[float, int]] = {}
    for at, (piece, words) in enumerate(zip(board.pieces, board.by_words(), strict=True)):
        score = words + meaning * piece.likeness
        if asked.spans:
            score += TIME * closeness(asked.spans, piece.day, piece.told)
        if score > best.get(piece.memory, (0.0, 0))[0]:
            best[piece.memory] = (score, at)
    # Of two that fit as well, the later one: what is newer is more likely still true.
    chosen = sorted(best.values(), key=lambda pair: (-pair[0], -pair[1]))[:k]
    return [board.found(at, score) for score, at in chosen]


def _in_order(piece: Piece) -> tuple[int, int]:
    return piece.thread, piece.place
