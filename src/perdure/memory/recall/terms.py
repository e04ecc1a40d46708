"""Extracts the search terms of a text: its normalized words.

    >>> terms("Caroline's children were painting in the hotel at Zürich")
    ['carolin', 'child', 'paint', 'hotel', 'zurich']

Memories and questions use the same code on both stores, so a word always matches itself. English endings and irregular
forms are reduced (`ran` becomes `run`), and accents are removed. Scripts without spaces are split into pairs of
characters. An identifier in code is indexed whole and by its parts. Other languages pass through, apart from endings
that look English. Values of state are indexed as they are written: see `words.py`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterator
from typing import Any

from perdure.values.limits import WORD_CHARACTERS_MAX
from perdure.values.words import UNSPACED, normalize, pairs

PIECE_WORDS = 80
"""Longer texts are split into pieces of at most this many words.

A question is about one thing, a long text about many.
"""

QUESTION_WORDS = 16
"""Longer questions count as statements too."""

SATURATION = 0.9
"""BM25's k1."""

LENGTH, LENGTH_OF_LONG = 0.3, 0.9
SHORT, LONG = 20, 50
"""BM25's b. It depends on the average length of the texts, in terms.

In turns of a conversation (up to 20 terms), length means little. In long texts (from 50 terms), a longer text covers
more topics and contains any word more easily, so length counts more.
"""

_STOP = frozenset(
    """a about again against ain all also am an and any are aren as at be because been before being between both but by
    can could couldn d did didn do does doesn doing don done down during each few for from had hadn has hasn have haven
    having he her here hers him his how i if in into is isn it its just ll m may me might mine more most must my no nor
    not o of off on only or other our ours out over own re s same shall she should shouldn so some such t than that the
    their theirs them then there these they this those through to too under until up us ve very was wasn we were weren
    what when where which while who whom whose why will with won would wouldn y you your yours dont didnt doesnt isnt
    arent wasnt werent wont wouldnt couldnt shouldnt hasnt havent hadnt cant im ive id ill youre youve hes shes theyre
    weve thats whats after""".split()
)

_ODD = {
    form: word
    for item in """begin:began,begun bite:bit,bitten break:broke,broken bring:brought build:built burn:burnt buy:bought
    catch:caught choose:chose,chosen come:came deal:dealt dig:dug draw:drew,drawn dream:dreamt drink:drank,drunk
    drive:drove,driven eat:ate,eaten fall:fell,fallen feed:fed feel:felt fight:fought find:found fly:flew,flown
    forget:forgot,forgotten forgive:forgave,forgiven freeze:froze,frozen get:got,gotten give:gave,given go:went,gone
    grow:grew,grown hang:hung hear:heard hide:hid,hidden hold:held keep:kept know:knew,known lay:laid lead:led
    learn:learnt leave:left lend:lent lose:lost make:made mean:meant meet:met pay:paid ride:rode,ridden ring:rang,rung
    rise:rose,risen run:ran say:said see:saw,seen seek:sought sell:sold send:sent shake:shook,shaken shine:shone
    shoot:shot show:shown sing:sang,sung sink:sank,sunk sit:sat sleep:slept speak:spoke,spoken spend:spent stand:stood
    steal:stole,stolen stick:stuck strike:struck swear:swore,sworn swim:swam,swum swing:swung take:took,taken
    teach:taught tear:tore,torn tell:told think:thought throw:threw,thrown understand:understood wake:woke,woken
    wear:wore,worn win:won write:wrote,written child:children person:people man:men woman:women foot:feet tooth:teeth
    mouse:mice goose:geese wife:wives life:lives knife:knives leaf:leaves half:halves shelf:shelves wolf:wolves
    good:better,best bad:worse,worst""".split()
    for word, forms in [item.split(":")]
    for form in forms.split(",")
}

_VERB_ENDINGS = ("ingly", "edly", "ing", "ed", "ly")
_NOUN_ENDINGS = (
    ("iest", "y"), ("ier", "y"), ("ness", ""), ("ful", ""), ("ment", ""), ("ation", "at"), ("ition", "it"),
    ("tion", "t"), ("sion", "s"), ("er", ""), ("or", ""),
)  # fmt: skip
_NOUN_ENDS = tuple(ending for ending, _ in _NOUN_ENDINGS)

# Python's \w excludes the vowel signs of Arabic, the scripts of India, Thai, Lao, Burmese and Khmer.
_WORD = re.compile(
    r"[\w\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u0e00-\u0e4e\u0e50-\u0eff\u1000-\u1049\u1780-\u17d3]+"
)
_VOWEL = re.compile("[aeiouy]")
_POSSESSIVE = re.compile(r"['’](?:s\b|(?!\w)|(?<=\w['’])(?=\w))")  # begins with the quote, which is quickly found
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UNSPACED = re.compile(f"[{UNSPACED}\uac00-\ud7af]+")
"""Hangul too: it has spaces, but not between a word and its endings."""

_ASKS = ("?", "？", "؟")
_LARGE = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+\b|^[A-Z][a-z]+(?=:)")
_SENTENCE = re.compile(r".+?(?:[.!?。！？…]+[\"'”’)\]]*(?=\s|$)|[。！？]|\n|$)", re.DOTALL)


def words(text: str) -> list[str]:
    """Return every word in lower case and without accents, in order."""
    short = WORD_CHARACTERS_MAX
    return [word for whole in _wholes(text) for word in (_short_words if len(whole) <= short else _split_words)(whole)]


def terms(text: str) -> list[str]:
    """Return the terms of a memory or question: words without stop words and endings."""
    short = WORD_CHARACTERS_MAX
    found = [term for whole in _wholes(text) for term in (_short_terms if len(whole) <= short else _split_terms)(whole)]
    return found + [stem(word) for word in _names(text)]


def last_forms(text: str, stems: Collection[str]) -> dict[str, str]:
    """Return for each stem the last word of a text that has it."""
    found: dict[str, str] = {}
    for whole in dict.fromkeys(reversed(_wholes(text))):
        for word in reversed(_split_words(whole) if len(whole) > WORD_CHARACTERS_MAX else _short_words(whole)):
            if stem(word) in stems:
                found.setdefault(stem(word), word)
        if len(found) == len(stems):
            break
    return found


def drop_cached_words() -> None:
    """Forget the words that this process has seen: one of them may be what is being erased."""
    for cached in (_short_words, _short_terms, stem):
        cached.cache_clear()


def is_small(word: str) -> bool:
    """Return whether a word is a stop word, such as "the", "of", "is"."""
    return word in _STOP


def question_share(text: str) -> float:
    """Return the share of a text's words that are in questions: answers come after questions, not in them.

    Only short questions count. "My first sprint ends on the 29th and I have two more to plan, can you help me?" says a
    lot.
    """
    if not any(mark in text for mark in _ASKS):
        return 0.0
    total = within = 0
    for sentence in sentences(text):
        count = sentence.count(" ") + 1
        total += count
        if count <= QUESTION_WORDS and sentence.rstrip("\"'”’)]").endswith(_ASKS):
            within += count
    return within / total if total else 0.0


def sentences(text: str) -> list[str]:
    """Split a text into sentences. Line breaks end sentences too."""
    found = (match.group().strip() for match in _SENTENCE.finditer(text))
    return [sentence for sentence in found if sentence]


def pieces(text: str, most: int = PIECE_WORDS) -> list[str]:
    """Split a text at the ends of sentences, or inside long sentences. A short text stays whole."""
    if _size(text) <= most:
        return [text]
    made: list[str] = []
    room = 0
    for part in (part for sentence in sentences(text) for part in _halves(sentence, most)):
        size = _size(part)
        if made and size <= room:
            made[-1] += " " + part
            room -= size
        else:
            made.append(part)
            room = most - size
    return made


def length_normalization(length: Any, mean: float) -> Any:
    """Return BM25's length normalization for one text length, or for many with numpy."""
    long = min(max((mean - SHORT) / (LONG - SHORT), 0.0), 1.0)
    share = LENGTH + long * (LENGTH_OF_LONG - LENGTH)
    return SATURATION * (1 - share + share * length / (mean or 1.0))


@functools.lru_cache(maxsize=65536)
def rarity(total: int, having: int) -> float:
    """Return BM25's inverse document frequency, never negative."""
    return math.log1p((total - having + 0.5) / (having + 0.5))


@functools.lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a word without its endings. Not always a word, but the same for all forms of one."""
    word = _ODD.get(word, word)
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    word = _strip_plural(word)
    if word.endswith(_VERB_ENDINGS):  # asked at once: `embedding.py` stems its whole vocabulary
        word = _strip_verb_ending(word)
    for ending, instead in _NOUN_ENDINGS if word.endswith(_NOUN_ENDS) else ():
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word.endswith("e"):
        return word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


def _strip_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("es") and word[-3] in "sxzh":
        return word[:-2]
    return word[:-1] if word.endswith("s") and word[-2] not in "su" else word


def _strip_verb_ending(word: str) -> str:
    for ending in _VERB_ENDINGS:
        if not word.endswith(ending):
            continue
        rest = word[: -len(ending)]
        if len(rest) >= 3 and _VOWEL.search(rest):
            doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return rest[:-1] if doubled else rest
    return word


def _wholes(text: str) -> list[str]:
    """Return the runs of letters and digits, without possessive endings."""
    bare = normalize(text)
    return _WORD.findall(_POSSESSIVE.sub("", bare) if "'" in bare or "’" in bare else bare)


def _split_words(whole: str) -> tuple[str, ...]:
    return tuple(word[:WORD_CHARACTERS_MAX] for word in _split_run(whole))


def _split_terms(whole: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in _split_words(whole) if word not in _STOP)


# Words repeat, so most of a text was split before. Long runs are not kept: they are few, and would fill the memory.
_short_words = functools.lru_cache(maxsize=65536)(_split_words)
_short_terms = functools.lru_cache(maxsize=65536)(_split_terms)


def _split_run(whole: str) -> Iterator[str]:
    """Split a run of letters and digits: a word, an identifier with its parts, or script without spaces."""
    if whole.isascii():
        if "_" in whole or not (whole.islower() or whole[1:].islower() or whole.isupper() or whole.isdigit()):
            yield from _code(whole)
        else:
            yield whole.casefold()
        return
    last = 0
    for run in _UNSPACED.finditer(whole):
        yield from _rest(whole[last : run.start()])
        yield from pairs(run.group())
        last = run.end()
    yield from _rest(whole[last:])


def _rest(text: str) -> Iterator[str]:
    if text:
        yield text.casefold()


def _code(whole: str) -> Iterator[str]:
    """Split an identifier: `getUserName` and `get_user_name` give getusername, get, user and name; `4o` stays whole."""
    yield whole.replace("_", "").casefold() or whole
    parts = _PARTS.findall(whole)
    if len(parts) > 1 and not whole[0].isdigit():
        yield from (part.casefold() for part in parts if len(part) > 1)


def _names(text: str) -> Iterator[str]:
    """Yield stop words that are names, by a capital letter within a sentence or a colon: Will, May."""
    for match in _LARGE.finditer(text):
        if match.group().casefold() in _STOP:
            yield match.group().casefold()


def _size(text: str) -> int:
    """Count words. In scripts without spaces, two characters count as one word."""
    unspaced = 0 if text.isascii() else sum(len(run) for run in _UNSPACED.findall(text))
    return len(text.split()) + unspaced // 2


def _halves(sentence: str, most: int) -> Iterator[str]:
    """Split a long sentence between words, or between characters if it has no words."""
    if _size(sentence) <= most:
        yield sentence
        return
    parts = sentence.split()
    if len(parts) < 2:
        yield from (sentence[at : at + 2 * most] for at in range(0, len(sentence), 2 * most))
        return
    middle = len(parts) // 2
    yield from _halves(" ".join(parts[:middle]), most)
    yield from _halves(" ".join(parts[middle:]), most)
