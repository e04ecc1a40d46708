"""What a new memory is beside those that are there: the same once more, or perhaps the opposite.

Two texts are the same when the words that count are the same, in whatever form and order, or nearly all of them are;
numbers and a `not` must be the same too. A second one is only counted when it adds nothing: no meta or tag that the
first has not, no longer life, no other day or conversation, nothing that it takes the place of.

Nobody can tell for sure from words that two texts contradict each other. So what is surfaced is what a person should
look at: both are about the same thing, and either say it in much the same words with something else in its place
("lives in Paris", "lives in Rome"), or the newer one says that something is different now ("moved", "no longer"), or
what they are about is so narrow that it has one value ("alice.city").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from hashlib import blake2b

import msgspec

from .. import codec
from .. import records as r
from ..clock import moment
from ..journal.memories import Near, Verdict
from ..objects import reference
from .given import Wish
from .words import terms, words

SAME_SHARE = 0.85
"""Of all words of two texts about the same thing: from here on they say the same."""

ALIKE_SHARE = 1 / 3
"""From here on they speak of the same, and what differs may be against each other."""

SKETCH_BYTES = 12
_NOT = frozenset(
    "not no never nor without isn aren wasn weren don doesn didn won wouldn can cannot couldn hasn".split()
)
_CHANGED = frozenset(
    "now longer anymore instead moved changed switched quit stopped became renamed replaced former formerly".split()
)
_NARROW = re.compile(r"[\w\])][./:#>][\w\[(]")


class Sense(msgspec.Struct, frozen=True):
    """A text as it is compared."""

    terms: frozenset[str]
    numbers: frozenset[str]
    negated: bool
    changes: bool

    def says_the_same(self, other: Sense, share: float) -> bool:
        """Whether two texts say the same, of which so many words are."""
        if (self.numbers, self.negated) != (other.numbers, other.negated) or not self.terms:
            return False
        return len(self.terms & other.terms) >= share * len(self.terms | other.terms)


def sense_of(text: str) -> Sense:
    """Take a text apart."""
    found = words(text)
    small = frozenset(found)
    numbers = frozenset(word for word in found if any(map(str.isdigit, word)))
    # "isn't" and "don't" have lost their apostrophe by now.
    negated = any(word in _NOT or (word.endswith("nt") and word[:-1] in _NOT) for word in small)
    return Sense(frozenset(terms(text)), numbers, negated, bool(small & _CHANGED))


def sketch_of(secret: bytes, text: str) -> bytes:
    """The same for texts that say the same in other forms or another order; it tells nothing to others."""
    sense = sense_of(text)
    parts = [*sorted(sense.terms or {text.casefold()}), "", *sorted(sense.numbers), "not" if sense.negated else ""]
    return blake2b("\n".join(parts).encode("utf-8", "surrogatepass"), key=secret, digest_size=SKETCH_BYTES).digest()


class Judge:
    """Compares a new memory with those that are near."""

    def __init__(self, wish: Wish, kept: r.MemoryKept) -> None:
        self._sense = sense_of(wish.text)
        self._topic = frozenset(terms(wish.about))
        self._narrow = bool(_NARROW.search(wish.about))
        self._wish = wish
        self._kept = kept

    def __call__(self, near: Sequence[Near]) -> Verdict:
        """The one that says the same, if any; else those that may say the opposite."""
        about = self._kept.about
        mine = [one for one in near if one.about == about]
        # What is large is not read inside a commit: it is the same as another when their sketches are.
        senses = {one.id: sense_of(codec.decode(one.text[1:])) for one in mine if not reference(one.text)}
        for one in mine:
            if self._repeats(one, senses.get(one.id)) and self._adds_nothing(one):
                return Verdict(one.id)
        against = [one.id for one in mine if one.id in senses and self._against(one, senses[one.id])]
        return Verdict("", tuple(against) if about else ())

    def _repeats(self, one: Near, sense: Sense | None) -> bool:
        if one.sketch == self._kept.sketch:
            return True
        return bool(self._kept.about) and sense is not None and self._sense.says_the_same(sense, SAME_SHARE)

    def _adds_nothing(self, one: Near) -> bool:
        """Whether all that the new one has is there when only the old one is: only then it is merely counted."""
        new, wish = self._kept, self._wish
        if new.supersedes or new.derived or (wish.thread and wish.thread != one.thread):
            return False
        # Who is trusted more does not merely repeat it: what is trusted less must not become more by that.
        if new.trust > one.trust or new.importance > one.importance or (new.meta and new.meta != one.meta):
            return False
        if one.valid_from > new.valid_from or (wish.valid_from and _day(wish.valid_from) != _day(one.valid_from)):
            return False
        lasts = _lasts(one.valid_to, new.valid_to) and _lasts(one.expires, new.expires)
        return lasts and set(new.tags) <= set(msgspec.json.decode(one.tags, type=list[str]))

    def _against(self, one: Near, sense: Sense) -> bool:
        if self._repeats(one, sense):
            return False
        if self._narrow or (self._sense.changes and self._sense.terms & sense.terms):
            return True
        mine, theirs = self._sense.terms - self._topic, sense.terms - self._topic
        return bool(mine & theirs) and len(mine & theirs) >= ALIKE_SHARE * len(mine | theirs)


def _day(ms: int) -> date:
    return moment(ms).date()


def _lasts(one: int, other: int) -> bool:
    """Whether one end is not before another; 0 is never."""
    return not one or bool(other and other <= one)
