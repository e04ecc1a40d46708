"""Compares a new memory with existing ones: is it a repetition, or possibly a contradiction?

Two texts are equal if they differ only in case, white space, articles, commas and the final full stop. Comparing words
is not enough: "Alice manages Bob" has all the words of "Bob manages Alice". A repetition is only counted if it adds
nothing: no metadata or tag, no longer validity, no other day or conversation, no memory that it supersedes. One that
says when the first stops being valid supersedes it.

Words cannot prove a contradiction, so possible ones are shown to a person. Both memories have the same subject, and one
of these holds: they use much the same words with a different value ("lives in Paris", "lives in Rome"); the newer one
signals a change ("moved", "no longer"); or the subject is so narrow that it has one value ("alice.city").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from hashlib import blake2b

import msgspec

from perdure import records as r
from perdure.journal.memory_writes import MemoryVerdict, SimilarMemory
from perdure.journal.objects import reference
from perdure.memory.arguments import MemoryRequest
from perdure.memory.recall.terms import terms, words
from perdure.records.memories import TRUSTED
from perdure.values import codec
from perdure.values.clock import moment
from perdure.values.lazy import lazy
from perdure.values.limits import CONTRADICTIONS_MAX

ALIKE_SHARE = 1 / 3
"""From this share of common terms on, two texts are about the same thing and may contradict each other."""

SKETCH_BYTES = 12
_FORM = re.compile(r"\b(?:an?|the)\s+|[,;](?=\s)|[.!…\s]+$")
"""Differences in form that do not change what a text says."""

_CHANGED = frozenset(
    "now longer anymore instead moved changed switched quit stopped became renamed replaced former formerly".split()
)
_NARROW = re.compile(r"[\w\])][./:#>][\w\[(]")


class TextMeaning(msgspec.Struct, frozen=True):
    """The parts of a text that are compared."""

    terms: frozenset[str]
    changes: bool


def sense_of(text: str) -> TextMeaning:
    """Extract the parts of a text that are compared."""
    return TextMeaning(frozenset(terms(text)), not _CHANGED.isdisjoint(words(text)))


def sketch_of(secret: bytes, text: str) -> bytes:
    """Return a keyed digest that is equal for texts that differ only in form. It reveals nothing without the key."""
    plain = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    form = " ".join(_FORM.sub("", " ".join(plain.split())).split())
    return blake2b(form.encode("utf-8", "surrogatepass"), key=secret, digest_size=SKETCH_BYTES).digest()


class FactJudge:
    """Compares a new memory with similar ones."""

    def __init__(self, wish: MemoryRequest, kept: r.MemoryKept) -> None:
        self._narrow = bool(_NARROW.search(wish.about))
        self._wish = wish
        self._kept = kept

    @lazy
    def _sense(self) -> TextMeaning:
        """What the new memory says. Parsed on first use: events are compared with nothing."""
        return sense_of(self._wish.text)

    @lazy
    def _topic(self) -> frozenset[str]:
        return frozenset(terms(self._wish.about))

    def __call__(self, near: Sequence[SimilarMemory]) -> MemoryVerdict:
        """Return the memory that the new one repeats; if there is none, those that it may contradict."""
        about, sketch, against = self._kept.about, self._kept.sketch, list[str]()
        for one in near:
            # Large texts are not read inside a commit: for them, only the sketches are compared.
            sense = _sense_in(one.text) if about else None
            shared = len(self._sense.terms & sense.terms) if sense is not None else 0
            if one.sketch == sketch:
                if self._is_ended_by_new(one):
                    return MemoryVerdict(None, tuple(against), one)
                if self._is_covered(one):
                    return MemoryVerdict(one)
            elif sense is not None and len(against) < CONTRADICTIONS_MAX and self._against(sense, shared):
                against += [one.id] if self._overlaps_in_time(one) else []
        return MemoryVerdict(None, tuple(against))

    def _is_ended_by_new(self, one: SimilarMemory) -> bool:
        """Return whether the new memory ends the validity of the other. A less trusted one never ends a trusted one."""
        new = self._kept
        longer = new.valid_to and (not one.valid_to or one.valid_to > new.valid_to)
        return bool(longer) and new.kind != "episodic" and not new.trust < TRUSTED <= one.trust

    def _overlaps_in_time(self, one: SimilarMemory) -> bool:
        """Return whether both are valid at some time."""
        new = self._kept
        return _ends_no_earlier(new.valid_to, one.valid_from + 1) and _ends_no_earlier(one.valid_to, new.valid_from + 1)

    def _is_covered(self, one: SimilarMemory) -> bool:
        """Return whether the old memory already covers the new one, so that the new one is only counted."""
        new, wish = self._kept, self._wish
        if new.supersedes or new.derived or (wish.thread and wish.thread != one.thread):
            return False
        # A more trusted repetition is stored separately: counting it must not raise the trust of the old one.
        if new.trust > one.trust or new.importance > one.importance or (new.meta and new.meta != one.meta):
            return False
        if one.valid_from > new.valid_from or (wish.valid_from and _day(wish.valid_from) != _day(one.valid_from)):
            return False
        lasts = _ends_no_earlier(one.valid_to, new.valid_to) and _ends_no_earlier(one.expires, new.expires)
        return lasts and set(new.tags) <= set(msgspec.json.decode(one.tags, type=list[str]))

    def _against(self, sense: TextMeaning, shared: int) -> bool:
        if self._narrow or not shared:
            return self._narrow
        if self._sense.changes:
            return True
        mine, theirs = self._sense.terms, sense.terms
        # The common subject itself is not evidence.
        both = sum(term in mine and term in theirs for term in self._topic)
        either = sum(term in mine or term in theirs for term in self._topic)
        return 0 < shared - both >= ALIKE_SHARE * (len(mine) + len(theirs) - shared - either)


@lru_cache(maxsize=1024)
def _sense_in(text: bytes) -> TextMeaning | None:
    """Parse a stored text unless it is large. Cached: every new memory is compared with the newest of its subject."""
    return sense_of(codec.decode(text[1:])) if not reference(text) else None


def drop_cached_senses() -> None:
    """Forget the texts that this process has parsed: one of them may have been erased."""
    _sense_in.cache_clear()


def _day(ms: int) -> date:
    return moment(ms).date()


def _ends_no_earlier(one: int, other: int) -> bool:
    """Return whether one end is not before another; 0 means no end."""
    return not one or bool(other and other <= one)
