"""What a new memory is beside those that are there: the same once more, or perhaps the opposite.

Two texts are the same when they are so to the letter, but for case, white space, articles, commas and the full stop:
"Alice manages Bob" has all the words of "Bob manages Alice", and "load > 5" nearly all signs of "load < 5". A second
one is only counted when it adds nothing: no meta or tag that the first has not, no longer life, no other day or
conversation, nothing that it takes the place of. One that says when the first is over takes its place.

Nobody can tell for sure from words that two texts contradict each other. So what is surfaced is what a person should
look at: both are about the same thing, and either say it in much the same words with something else in its place
("lives in Paris", "lives in Rome"), or the newer one says that something is different now ("moved", "no longer"), or
what they are about is so narrow that it has one value ("alice.city").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from hashlib import blake2b

import msgspec

from .. import codec
from .. import records as r
from ..clock import moment
from ..journal.memories import Near, Verdict
from ..limits import CONTRADICTIONS_MAX
from ..memory_records import TRUSTED
from ..objects import reference
from .given import Wish
from .terms import terms, words

ALIKE_SHARE = 1 / 3
"""From here on they speak of the same, and what differs may be against each other."""

SKETCH_BYTES = 12
_FORM = re.compile(r"\b(?:an?|the)\s+|[,;](?=\s)|[.!…\s]+$")
"""What a text may have or not, and says the same."""

_CHANGED = frozenset(
    "now longer anymore instead moved changed switched quit stopped became renamed replaced former formerly".split()
)
_NARROW = re.compile(r"[\w\])][./:#>][\w\[(]")


class Sense(msgspec.Struct, frozen=True):
    """A text as it is compared."""

    terms: frozenset[str]
    changes: bool


def sense_of(text: str) -> Sense:
    """Take a text apart."""
    return Sense(frozenset(terms(text)), not _CHANGED.isdisjoint(words(text)))


def sketch_of(secret: bytes, text: str) -> bytes:
    """The same for texts that are the same but for their form; it tells nothing to others."""
    plain = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    form = " ".join(_FORM.sub("", " ".join(plain.split())).split())
    return blake2b(form.encode("utf-8", "surrogatepass"), key=secret, digest_size=SKETCH_BYTES).digest()


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
        about, sketch, mine, against = self._kept.about, self._kept.sketch, self._sense.terms, list[str]()
        for one in near:
            # What is large is not read inside a commit: it is the same as another when their sketches are.
            sense = _sense_in(one.text) if about else None
            shared = len(mine & sense.terms) if sense is not None else 0
            if one.sketch == sketch:
                if self._ends(one):
                    return Verdict(None, tuple(against), one)
                if self._adds_nothing(one):
                    return Verdict(one)
            elif sense is not None and len(against) < CONTRADICTIONS_MAX and self._against(sense, shared):
                against += [one.id] if self._meets(one) else []
        return Verdict(None, tuple(against))

    def _ends(self, one: Near) -> bool:
        """Whether it says of the same fact when it is over; what is trusted less does not end what is trusted."""
        new = self._kept
        longer = new.valid_to and (not one.valid_to or one.valid_to > new.valid_to)
        return bool(longer) and new.kind != "episodic" and not new.trust < TRUSTED <= one.trust

    def _meets(self, one: Near) -> bool:
        """Whether there is a time at which both hold."""
        new = self._kept
        return _lasts(new.valid_to, one.valid_from + 1) and _lasts(one.valid_to, new.valid_from + 1)

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

    def _against(self, sense: Sense, shared: int) -> bool:
        if self._narrow or not shared:
            return self._narrow
        if self._sense.changes:
            return True
        mine, theirs = self._sense.terms, sense.terms
        # What both are about says nothing.
        both = sum(term in mine and term in theirs for term in self._topic)
        either = sum(term in mine or term in theirs for term in self._topic)
        return 0 < shared - both >= ALIKE_SHARE * (len(mine) + len(theirs) - shared - either)


@lru_cache(maxsize=1024)
def _sense_in(text: bytes) -> Sense | None:
    """Of a text as it is kept, unless it is large: the newest about something are compared with every new one."""
    return sense_of(codec.decode(text[1:])) if not reference(text) else None


def _day(ms: int) -> date:
    return moment(ms).date()


def _lasts(one: int, other: int) -> bool:
    """Whether one end is not before another; 0 is never."""
    return not one or bool(other and other <= one)
