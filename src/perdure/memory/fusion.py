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

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date

import msgspec

from perdure.memory.times import Span, closeness, spans
from perdure.memory.words import LENGTH, SATURATION, asking, rarity, terms
from perdure.memory.words import pieces as cut

COMMON = 0.3
COMMON_FROM = 10
"""A term that more than this share of the memories have, and so many, is common: a speaker's name, mostly."""

COMMON_WEIGHT = 1.5
AFTER = (0.5, 0.4, 0.3, 0.2)
BEFORE = (0.4, 0.3, 0.2)
"""What a memory lends to the next ones after it, and to those before it."""

LENDS_TERMS = 40
"""Longer ones neither lend nor are lent to: they speak for themselves, and would have something for everybody."""

ASKING_LENDS = 0.5
"""So much more does a question lend to what comes next."""

ASKING_LOSES = 0.3

REST = 0.2
"""So much of the rest of a long text counts to the length of each of its parts."""

NEAR = 0.25
"""Words less near than this have nothing to do with each other, whatever the table says."""

STANDS_IN = 0.8
STAND_INS = 20
"""What a word with the very same meaning would be worth, and how many may stand in for one."""

TIME = 0.4
MEANING = 0.8
MEANING_OF_TABLE = 0.3
"""A network's vectors, and those of the table in the box, which stands in for single words already."""

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
        return self.having.get(term, 0) > max(COMMON * self.total, COMMON_FROM)


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


def pieces(text: str, *, memory: int, place: int, day: date, thread: int = 0) -> list[tuple[str, Piece]]:
    """Takes a memory apart: the texts that it is cut into, which are embedded, and what is known of each."""
    parts = [(part, Counter(terms(part))) for part in cut(text)]
    whole = sum(found.total() for _, found in parts)
    made = []
    for n, (part, found) in enumerate(parts):
        # A part of a long text has more chances than a short text of its own, and pays for them.
        length = round(found.total() + REST * (whole - found.total()))
        told = tuple(spans(part, day))
        made.append((part, Piece(memory, place + n, thread, found, length, asking(part), day, told)))
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
    board = _Board(asked, sorted(among, key=_in_order), scope)
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


class _Board:
    """The pieces in their order, and what each term of a question gives to each of them."""

    def __init__(self, asked: Question, pieces: Sequence[Piece], scope: Scope) -> None:
        self.pieces = pieces
        self._asked = asked
        self._scope = scope
        self._reached: dict[int, list[tuple[int, float]]] = {}
        wanted = asked.wanted
        self._places: dict[str, list[int]] = {}
        for at, piece in enumerate(pieces):
            for term in piece.counts.keys() & wanted:
                self._places.setdefault(term, []).append(at)
        self.own = {term: self._own(term) for term in asked.terms}
        self.best = {term: self._best(term) for term in asked.terms}

    def by_words(self) -> list[float]:
        """The sum over the terms. The most that any piece has is 1: time and meaning are weighed against it."""
        got = [0.0] * len(self.pieces)
        for best in self.best.values():
            for at, value in best.items():
                got[at] += value * (1 - ASKING_LOSES * self.pieces[at].asks)
        most = max(got, default=0.0) or 1.0
        return [value / most for value in got]

    def found(self, at: int, score: float) -> Found:
        """What is said of a piece that was chosen."""
        piece, asked = self.pieces[at], self._asked
        own = tuple(term for term, has in self.own.items() if at in has)
        lent = tuple(term for term, has in self.best.items() if at in has and at not in self.own[term])
        time = closeness(asked.spans, piece.day, piece.told) if asked.spans else 0.0
        return Found(piece.memory, score, own, lent, time, piece.likeness)

    def _own(self, term: str) -> dict[int, float]:
        """What each piece has of a term itself, or of what stands in for it."""
        own: dict[int, float] = {}
        scope, pieces = self._scope, self.pieces
        rare = rarity(scope.total, scope.having.get(term, 0))
        for other, share in [(term, 1.0), *self._stand_ins(term)]:
            # A stand-in is worth no more than what it stands in for, and a common word does not become rare by it.
            worth = share * min(rare, rarity(scope.total, scope.having.get(other, 0))) * (SATURATION + 1)
            for at in self._places.get(other, ()):
                piece = pieces[at]
                times = piece.counts[other]
                size = SATURATION * (1 - LENGTH + LENGTH * piece.length / (scope.mean or 1.0))
                value = worth * times / (times + size)
                if value > own.get(at, 0.0):
                    own[at] = value
        return own

    def _stand_ins(self, term: str) -> list[tuple[str, float]]:
        if self._scope.common(term):
            return []
        return [it for it in self._asked.alike.get(term, ()) if it[0] in self._places][:STAND_INS]

    def _best(self, term: str) -> dict[int, float]:
        """The best of what each piece has itself and what it is lent."""
        own = self.own[term]
        if self._scope.common(term):
            return {at: COMMON_WEIGHT * value for at, value in own.items()}
        best = dict(own)
        for at, value in own.items():
            for other, share in self._reach(at):
                lent = value * share
                if lent > best.get(other, 0.0):
                    best[other] = lent
        return best

    def _reach(self, at: int) -> list[tuple[int, float]]:
        """To whom a piece lends, and how much; worked out once, for all terms."""
        reached = self._reached.get(at)
        if reached is None:
            reached = self._reached[at] = list(_reach(self.pieces, at))
        return reached


def _reach(pieces: Sequence[Piece], at: int) -> Iterator[tuple[int, float]]:
    here = pieces[at]
    if here.length > LENDS_TERMS:
        return
    for step, share in enumerate(AFTER, 1):
        if at + step < len(pieces) and _joined(here, pieces[at + step], step):
            yield at + step, share + ASKING_LENDS * here.asks * (step == 1)
    for step, share in enumerate(BEFORE, 1):
        if at >= step and _joined(here, pieces[at - step], -step):
            yield at - step, share


def _joined(here: Piece, there: Piece, step: int) -> bool:
    return there.length <= LENDS_TERMS and here.thread == there.thread and there.place - here.place == step
