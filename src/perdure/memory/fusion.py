"""Which memories a question is about: words, neighbours, time and meaning in one score.

    >>> from datetime import date
    >>> today = date(2026, 11, 16)
    >>> texts = ["Ann: Where did you go?", "Bo: To Lisbon, by train.", "Ann: I stay at home."]
    >>> pieces = [piece(text, memory=n, place=n, day=today) for n, text in enumerate(texts)]
    >>> scope = Scope.of(pieces)
    >>> [found.memory for found in rank(question("Where did Bo go?", today), pieces, scope, k=2)]
    [1, 0]

The recipe was chosen on conversations with known evidence, and on long texts that it was not tuned for (`bench/recall`):

- **Words** count as in BM25: rare ones more, and again less for each time that they come again.
- **Neighbours lend**: of each word that is asked for, a memory gets the best of what it has itself and what those
  around it have, less with every step. "By train." answers "How did you go to Lisbon?" though it has none of these words.
  A question lends all it has to what comes next. Words that most memories have are not lent: they would tell nobody apart.
- **Questions hold few answers**, so that a memory counts less by the share of it that asks.
- **Words that mean much the same** stand in for one that is asked for, by how near they are, when there is a table of
  them: `trip` for `travel`. They are lent like any other.
- **Time** adds when the question names one, **meaning** as a whole when there is an embedder.

Scores are added, not ranks: a rank forgets whether the best was found by one word or by all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date

import msgspec

from perdure.memory.times import Span, closeness, spans
from perdure.memory.words import asking, rarity, terms, weight

COMMON = 0.3
"""A term that more than this share of the memories have is common: a speaker's name, mostly."""

COMMON_WEIGHT = 1.5
AFTER = (0.5, 0.4, 0.3, 0.2)
BEFORE = (0.4, 0.3, 0.2)
"""What a memory lends to the next ones after it, and to those before it."""

ASKING_LENDS = 0.5
"""So much more does a question lend to what comes next."""

ASKING_LOSES = 0.3

NEAR = 0.25
"""Words less near than this have nothing to do with each other, whatever the table says."""

STANDS_IN = 0.8
STAND_INS = 20
"""What a word with the very same meaning would be worth, and how many may stand in for one."""

TIME = 0.4
MEANING = 0.8

Alike = Callable[[str], Iterable[tuple[str, float]]]
"""From a term to others and how near they are, the nearest first."""

_WRITTEN_LARGE = re.compile(r"(?<=\S )[^\W\d_a-z][\w]+(?:['’]s?)?")
_ONE_WORD = re.compile(r"\w+(?:['’]s\b)?")


class Question(msgspec.Struct, frozen=True):
    """What somebody wants to know, taken apart."""

    text: str
    terms: tuple[str, ...]
    spans: tuple[Span, ...]
    alike: Mapping[str, tuple[tuple[str, float], ...]]
    """For each term, others that may stand in for it, and how near they are."""

    @property
    def wanted(self) -> frozenset[str]:
        """Every term that a memory may be found by."""
        return frozenset(self.terms).union(other for others in self.alike.values() for other, _ in others)


class Piece(msgspec.Struct, frozen=True):
    """A memory, or a part of a long one, as recall sees it."""

    memory: int
    place: int
    """Pieces at places that follow each other are neighbours, when they are of one thread."""
    thread: int
    counts: Mapping[str, int]
    """How often it has each term; those that are not asked for may be left out."""
    length: int
    asks: float
    day: date
    told: tuple[Span, ...] = ()
    likeness: float = 0.0
    """The cosine with the question, when there is an embedder."""


class Scope(msgspec.Struct, frozen=True):
    """What is known of all pieces among which is looked: rarity is seen from here."""

    total: int
    mean: float
    having: Mapping[str, int]

    @staticmethod
    def of(pieces: Sequence[Piece]) -> Scope:
        """Counted from the pieces themselves."""
        having = Counter(term for piece in pieces for term in piece.counts)
        return Scope(len(pieces), sum(piece.length for piece in pieces) / max(len(pieces), 1), having)

    def common(self, term: str) -> bool:
        """Whether so many have it that it tells nobody apart."""
        return self.having.get(term, 0) > COMMON * self.total


class Found(msgspec.Struct, frozen=True):
    """A memory that a question may be about, and why."""

    memory: int
    score: float
    own: tuple[str, ...]
    """Terms that it has itself."""
    lent: tuple[str, ...]
    """Terms that those around it have."""
    time: float
    meaning: float


def question(text: str, today: date, alike: Alike | None = None) -> Question:
    """Takes a question apart. What the calendar names is looked for as a time, and not as words too."""
    found = spans(text, today)
    rest = text
    for span in found:
        if span.fixed:
            rest = rest.replace(span.text, " ", 1)
    asked = tuple(dict.fromkeys(terms(rest)))
    others = {term: tuple(_near(term, alike, asked)) for term in asked} if alike else {}
    return Question(text, asked, tuple(found), others)


def _near(term: str, alike: Alike, asked: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for other, near in alike(term):
        # What is asked for itself counts in full, and once.
        if near > NEAR and other not in asked:
            yield other, STANDS_IN * (near - NEAR) / (1 - NEAR)


def piece(text: str, *, memory: int, place: int, day: date, thread: int = 0) -> Piece:
    """Takes a memory apart, or a piece of one."""
    found = Counter(terms(text))
    return Piece(memory, place, thread, found, found.total(), asking(text), day, tuple(spans(text, day)))


def meant(asked: Question, scope: Scope) -> str:
    """The question as it is embedded: without names, and without words that most memories have.

    A model takes a name for what a sentence is about, and finds whoever is called, not what was said. Names are what
    words are good at; here they only hide the rest. Nothing is left out when nothing would be left.
    """

    def kept(match: re.Match[str]) -> str:
        return " " if any(scope.common(term) for term in terms(match.group())) else match.group()

    bare = _ONE_WORD.sub(kept, _WRITTEN_LARGE.sub(" ", asked.text))
    return " ".join(bare.split()) if terms(bare) else asked.text


def rank(asked: Question, pieces: Sequence[Piece], scope: Scope, k: int) -> list[Found]:
    """The k memories that a question is most likely about, the best first."""
    pieces = sorted(pieces, key=lambda piece: (piece.thread, piece.place))
    table = _table(asked, pieces, scope)
    by_words = [0.0] * len(pieces)
    for term in table:
        for at, value in term.best.items():
            by_words[at] += value * (1 - ASKING_LOSES * pieces[at].asks)
    most = max(by_words, default=0.0) or 1.0
    best: dict[int, tuple[float, int]] = {}
    for at, piece in enumerate(pieces):
        score = by_words[at] / most + MEANING * piece.likeness
        if asked.spans:
            score += TIME * closeness(asked.spans, piece.day, piece.told)
        if score > best.get(piece.memory, (0.0, 0))[0]:
            best[piece.memory] = (score, at)
    # Of two that fit as well, the later one: what is newer is more likely still true.
    chosen = sorted(best.values(), key=lambda pair: (-pair[0], -pair[1]))[:k]
    return [_found(asked, pieces[at], score, at, table) for score, at in chosen]


class _Term:
    """What one term of a question gives to each piece: its own, or the best of what it is lent."""

    def __init__(self, term: str, own: Mapping[int, float], pieces: Sequence[Piece], common: bool) -> None:
        self.term = term
        self.own = own
        if common:
            self.best = {at: COMMON_WEIGHT * value for at, value in own.items()}
        else:
            self.best = dict(own)
            self._lend(pieces)

    def _lend(self, pieces: Sequence[Piece]) -> None:
        for at, value in self.own.items():
            for other, share in _reach(pieces, at):
                if value * share > self.best.get(other, 0.0):
                    self.best[other] = value * share


def _table(asked: Question, pieces: Sequence[Piece], scope: Scope) -> list[_Term]:
    wanted = asked.wanted
    places: dict[str, list[int]] = {}
    for at, piece in enumerate(pieces):
        for term in piece.counts.keys() & wanted:
            places.setdefault(term, []).append(at)
    return [_Term(term, _own(term, asked, pieces, scope, places), pieces, scope.common(term)) for term in asked.terms]


def _own(
    term: str, asked: Question, pieces: Sequence[Piece], scope: Scope, places: Mapping[str, Sequence[int]]
) -> dict[int, float]:
    """What each piece has of a term itself, or of what stands in for it."""
    own: dict[int, float] = {}
    rare = rarity(scope.total, scope.having.get(term, 0))
    others = [] if scope.common(term) else [it for it in asked.alike.get(term, ()) if it[0] in places][:STAND_INS]
    for other, share in [(term, 1.0), *others]:
        # A stand-in is worth no more than what it stands in for, and a common word does not become rare by it.
        worth = share * min(rare, rarity(scope.total, scope.having.get(other, 0)))
        for at in places.get(other, ()):
            value = worth * weight(pieces[at].counts[other], pieces[at].length, scope.mean)
            if value > own.get(at, 0.0):
                own[at] = value
    return own


def _reach(pieces: Sequence[Piece], at: int) -> Iterator[tuple[int, float]]:
    """To whom a piece lends, and how much."""
    here = pieces[at]
    for step, share in enumerate(AFTER, 1):
        if at + step < len(pieces) and _joined(here, pieces[at + step], step):
            yield at + step, share + ASKING_LENDS * here.asks * (step == 1)
    for step, share in enumerate(BEFORE, 1):
        if at >= step and _joined(pieces[at - step], here, step):
            yield at - step, share


def _joined(first: Piece, second: Piece, step: int) -> bool:
    return first.thread == second.thread and second.place - first.place == step


def _found(asked: Question, piece: Piece, score: float, at: int, table: Iterable[_Term]) -> Found:
    own = tuple(term.term for term in table if at in term.own)
    lent = tuple(term.term for term in table if at in term.best and at not in term.own)
    time = closeness(asked.spans, piece.day, piece.told) if asked.spans else 0.0
    return Found(piece.memory, score, own, lent, time, piece.likeness)
