"""Parses times such as "last Tuesday", "before October" or "from May 1 to May 10", as seen from a given day.

    >>> from datetime import date
    >>> for found in spans("What did I say last Tuesday about the trip in early May?", date(2026, 11, 16)):
    ...     print(found.text, found.first, found.last)
    last Tuesday 2026-11-10 2026-11-10
    in early May 2026-05-01 2026-05-10

A question is read from the day it is asked, a memory from its own day: "yesterday" in a memory of 8 May is 7 May. A
month or day without a year matches any year (`yearly`). Supports English, and dates in digits.

First the named days are parsed (`days.py`). Then the words before and between them refine the result: a part of a span,
a range from one to another, an open end. Each stage works on the result of the previous one, so "since the end of May"
and "between early June and last week" need no rules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta

import msgspec

from perdure.memory.dates.days import (
    NUMBER,
    UNITS,
    WEEKDAYS,
    DateMention,
    DateSpan,
    compile_pattern,
    hits,
    months_from,
    move_to_year,
    number_of,
)

_DAY = timedelta(1)
_YEAR = timedelta(364)
"""The distance from the first to the last day of a year."""

_THIRDS = {"early": 1, "beginning": 1, "start": 1, "mid": 2, "middle": 2, "late": 3, "end": 3}
_SHARES = {"half": 2, "third": 3, "quarter": 4}
_NTH = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "last": 0}
_FEW = 3
_BESIDE = 2.0
"""Half-life in days for memories from just outside the time asked for."""

_PLANNED = timedelta(60)
""""Before Christmas" means the next one in November, and the last one in May."""

_REACH = 40
"""How many characters before a time are examined."""


def _precede_pattern(pattern: str) -> str:
    """Return a pattern for the words just before a time."""
    return rf"(?<![\w-])(?:{pattern})(?: the)?\s*$".replace(" ", r"\s+")


_FROM, _BETWEEN = _precede_pattern("from|between"), _precede_pattern("between")
_TO = r"\s*(?:[-–—]|\b(?:to|through|until|till)\b)\s*(?:the\s+)?"
_AND = r"\s+and\s+(?:the\s+)?"
_OF = r"\s+(?:of\s+)?"
_TILL = "before|prior to|until|till|up to|by"
_BOUND = _precede_pattern(f"{_TILL}|since|after")
_AND_BOUND = rf"\s*,?\s*(?:(?:and|but)\s+)?(?:{_TILL}|since|after)(?:\s+the)?\s+".replace(" ", r"\s+")
_AND_IN = r"\s+(?:and|or)\s+(?:(?:in|on)\s+)?(?:the\s+)?"
_AGO = ("ago", "back", "earlier")
_ON = r"\s+on(?:wards?)?(?=\s*(?:[.,;:!?)]|$))"
_PLAIN = _precede_pattern("in|on|at|during|of|by|around|from|over|throughout|that|within")
_HYPHEN = r"(?:(?<=\bmid)|(?<=\bearly)|(?<=\blate))-(?=\w)"
_DASH = r"(?<=\d)-(?=[a-z]{3})"


def spans(text: str, today: date) -> list[DateSpan]:
    """Return the times that a question asks for, in order, as read on the day `today`."""
    return parse_question_times(text, today)[0]


def parse_question_times(text: str, today: date) -> tuple[list[DateSpan], str]:
    """Return the times that a question asks for, and the text without their words."""
    found = _share_year_between(_find_spans(text, today), text)
    found, rest = [_extend_by_preposition(_open_span(hit, text, today), text) for hit in found], text
    for hit in found:
        rest = rest[: hit.start] + " " * (hit.end - hit.start) + rest[hit.end :]
    return [_attach_words(hit, text) for hit in _intersect_all(found)], rest


def find_mentioned_times(text: str, today: date) -> list[DateSpan]:
    """Return the times that a text mentions. "Before October" mentions October, not everything before it."""
    return [_attach_words(_extend_by_preposition(hit, text), text) for hit in _find_spans(text, today)]


def closeness(asked: Iterable[DateSpan], day: date, told: Iterable[DateSpan] = (), *, late: float = 10.0) -> float:
    """Return how well a memory matches the times asked for, from 0 to 1.

    `day` is the day of the memory, and `told` are the times it mentions. People tell of things after they happened, so
    a memory from soon after matches too, with a half-life of `late` days. If the end was given, the half-life is as
    short as for memories from before. A time that a memory mentions counts by the share of it that is asked for: a
    memory about all of November says little about one day.
    """
    told = [span for span in told if (span.last - span.first).days <= 62]
    best = 0.0
    for span in asked:
        best = max(best, _score_nearness(span, day, late), *(_overlap(span, other) for other in told), 0.0)
    return best


def _score_nearness(span: DateSpan, day: date, late: float) -> float:
    moved = _place_in_year(span, day.year)
    if moved.first <= day <= moved.last:
        return 1.0
    if day > moved.last:
        return float(0.5 ** ((day - moved.last).days / (_BESIDE if span.bounded else late)))
    return float(0.5 ** ((moved.first - day).days / _BESIDE))


def _overlap(span: DateSpan, told: DateSpan) -> float:
    moved = _place_in_year(span, told.first.year)
    shared = (min(moved.last, told.last) - max(moved.first, told.first)).days + 1
    return max(shared, 0) / ((told.last - told.first).days + 1)


def _place_in_year(span: DateSpan, year: int) -> DateSpan:
    return move_to_year(span, year) if span.yearly and span.first.year != year else span


def _find_spans(text: str, today: date) -> list[DateMention]:
    """Return the closed spans. `Mid-June` is read as two words, and `1-June` as two times."""
    plain = compile_pattern(_DASH).sub("–", compile_pattern(_HYPHEN).sub(" ", text)) if "-" in text else text
    found = _attach_years(hits(plain, today), plain)
    return _join_ranges([_part(hit, plain, today) for hit in found], plain) if found else []


def _attach_words(hit: DateMention, text: str) -> DateSpan:
    """Attach the words that a span was read from."""
    return msgspec.structs.replace(hit.span, text=text[hit.start : hit.end].strip())


def _extend_by_preposition(hit: DateMention, text: str) -> DateMention:
    """Extend a span by the preposition that leads to it."""
    return DateMention(
        _start(hit, compile_pattern(_PLAIN).search(_read_words_before(hit, text)), text), hit.end, hit.span
    )


def _read_words_before(hit: DateMention, text: str) -> str:
    return text[max(hit.start - _REACH, 0) : hit.start]


def _start(hit: DateMention, match: re.Match[str] | None, text: str) -> int:
    return max(hit.start - _REACH, 0) + match.start() if match else hit.start


_SpanMaker = Callable[[re.Match[str], DateSpan, date], DateSpan | None]


def _apply_makers(makers: Iterable[tuple[str, _SpanMaker]], hit: DateMention, text: str, today: date) -> DateMention:
    """Apply the first maker that matches the words before a time."""
    before = _read_words_before(hit, text)
    for pattern, maker in makers:
        match = compile_pattern(pattern).search(before)
        span = _safely(maker, match, hit.span, today) if match else None
        if span is not None:
            return DateMention(_start(hit, match, text), hit.end, span)
    return hit


def _safely(maker: _SpanMaker, match: re.Match[str], span: DateSpan, today: date) -> DateSpan | None:
    try:
        return maker(match, span, today)
    except (ValueError, OverflowError):
        return None  # beyond the calendar


def _part(hit: DateMention, text: str, today: date) -> DateMention:
    return _apply_makers(_PARTS, hit, text, today)


def _part_of_span(match: re.Match[str], span: DateSpan, today: date) -> DateSpan | None:
    """Parse "early May", "the end of last year". "Late on Tuesday" is Tuesday."""
    return _share(span, _THIRDS[match[1].split()[0].casefold()], 3) if (span.last - span.first).days > 4 else None


def _share(span: DateSpan, which: int, of: int) -> DateSpan:
    """Return one of several equal parts. Uses whole months if possible, else days; the last part has the rest."""
    first, end = span.first, span.last + _DAY
    months = (end.year - first.year) * 12 + end.month - first.month if first.day == end.day == 1 else 0
    if months and months % of == 0:
        step = months // of
        return _clip_span(span, months_from(first, step * (which - 1)), months_from(first, step * which) - _DAY)
    days = (end - first).days // of * _DAY
    return _clip_span(span, first + (which - 1) * days, span.last if which == of else first + which * days - _DAY)


def _clip_span(span: DateSpan, first: date, last: date) -> DateSpan:
    return msgspec.structs.replace(span, first=first, last=last)


def _parse_numbered_part(match: re.Match[str], span: DateSpan, today: date) -> DateSpan | None:
    """Parse "the first week of June", "the last Monday in May", "the second half of 2025"."""
    which, what = _NTH[match[1].casefold()], match[2].casefold()
    if what in _SHARES:
        return _share(span, which or _SHARES[what], _SHARES[what]) if which <= _SHARES[what] else None
    length = {"week": 7, "weekend": 2}.get(what, 1) * _DAY
    stride, first, last = 7 * _DAY, span.first, span.last - length + _DAY
    if what == "day":
        stride = _DAY
    elif what != "week":
        wanted = 5 if what == "weekend" else WEEKDAYS[what]
        first += (wanted - first.weekday()) % 7 * _DAY
        last = span.last - (span.last.weekday() - wanted) % 7 * _DAY
        span = msgspec.structs.replace(span, yearly=False)  # the weekday is another day in each year
    start = first + (which - 1) * stride if which else last
    fits = span.first <= start <= span.last and span.last - span.first >= length
    return _clip_span(span, start, start + length - _DAY) if fits else None


def _part_until_now(match: re.Match[str], span: DateSpan, today: date) -> DateSpan | None:
    """Parse "earlier this week", "later this year"."""
    if not span.first <= today <= span.last:
        return None
    return (
        _clip_span(span, span.first, today) if match[1].casefold() == "earlier" else _clip_span(span, today, span.last)
    )


def _relative_span(match: re.Match[str], span: DateSpan, today: date) -> DateSpan:
    """Parse "the week before 9 June 2023", "two days after last Monday"."""
    number, what, many, side = match.groups()
    count = max(number_of(number), 1) if number else _FEW if many else 1
    # The weekend or the Friday before is within the week before.
    reach = count * UNITS.get(what.casefold(), 7) * _DAY
    first, last = (
        (span.first - reach, span.first - _DAY)
        if side.casefold() == "before"
        else (span.last + _DAY, span.last + reach)
    )
    if what.casefold() == "day" and (number or not many):
        return _clip_span(span, first, first) if first < span.first else _clip_span(span, last, last)
    return _clip_span(span, first, last)


_nth = "|".join(_NTH)
_what = "|".join([*_SHARES, "day", "weekend", "week", *WEEKDAYS])
_PARTS: tuple[tuple[str, _SpanMaker], ...] = (
    (_precede_pattern(rf"({_nth}) ({_what}) (?:of|in)"), _parse_numbered_part),
    (_precede_pattern(r"(early|mid|late|(?:beginning|start|middle|end) of)(?: in)?"), _part_of_span),
    (_precede_pattern(r"(earlier|later)(?: in)?"), _part_until_now),
    (
        _precede_pattern(rf"(?:{NUMBER} )?(day|weekend|week|month|{'|'.join(WEEKDAYS)})(s?) (before|after)"),
        _relative_span,
    ),
)


def _join_ranges(found: list[DateMention], text: str) -> list[DateMention]:
    """Join two times with "from ... to ..." into one span."""
    made: list[DateMention] = []
    for hit in found:
        if made and made[-1].end > hit.start:
            made.pop()  # "the last weekend before May 3" is not last weekend
        both = _join(made[-1], hit, text) if made else None
        made[-1:] = [both] if both else [*made[-1:], hit]
    return made


def _join(one: DateMention, other: DateMention, text: str) -> DateMention | None:
    between, before = text[one.end : other.start], _read_words_before(one, text)
    if not compile_pattern(_TO).fullmatch(between) and not (
        compile_pattern(_AND).fullmatch(between) and compile_pattern(_BETWEEN).search(before)
    ):
        return None
    try:
        first, last = _share_year(one.span, other.span)
    except ValueError:
        return None
    if last.last < first.first:
        return None
    span = DateSpan(first.first, last.last, "", first.yearly and last.yearly, first.fixed and last.fixed, True)
    return DateMention(_start(one, compile_pattern(_FROM).search(before), text), other.end, span)


def _share_year(first: DateSpan, last: DateSpan) -> tuple[DateSpan, DateSpan]:
    """Give both spans the year that only one of them has. The end is not before the beginning."""
    if first.yearly and not last.yearly:
        year = last.last.year
        return move_to_year(first, year if move_to_year(first, year).first <= last.last else year - 1), last
    if last.yearly:
        year = first.first.year
        last = move_to_year(last, year if move_to_year(last, year).last >= first.first else year + 1)
    return first, last


def _attach_years(found: list[DateMention], text: str) -> list[DateMention]:
    """Give days without a year the year that follows them: "in May of last year", "at Christmas this year"."""
    made: list[DateMention] = []
    for hit in found:
        one, year = made[-1] if made else None, hit.span.last - hit.span.first >= _YEAR
        beside = one is not None and one.span.yearly and compile_pattern(_OF).fullmatch(text[one.end : hit.start])
        both = _meet(one, hit) if one is not None and beside and year else None
        made[-1:] = [both] if both else [*made[-1:], hit]
    return made


def _share_year_between(found: list[DateMention], text: str) -> list[DateMention]:
    """Share a year between two times: "after May 1 and before May 11, 2026", "in May and in June 2025"."""
    made = found[:1]
    for hit in found[1:]:
        one, bound = made[-1], compile_pattern(_BOUND).search(_read_words_before(made[-1], text))
        glue = compile_pattern(_AND_BOUND if bound else _AND_IN).fullmatch(text[one.end : hit.start])
        if glue and one.span.yearly != hit.span.yearly and _is_part_of_year(one.span) and _is_part_of_year(hit.span):
            made[-1], hit = _put_in_same_year(
                one, hit, bound is not None and bool(compile_pattern(_TILL).match(bound[0]))
            )
        made.append(hit)
    return made


def _is_part_of_year(span: DateSpan) -> bool:
    """Return whether a span is an absolute part of a year."""
    return span.fixed and span.last - span.first < _YEAR


def _put_in_same_year(one: DateMention, other: DateMention, later: bool) -> tuple[DateMention, DateMention]:
    try:
        first, last = _share_year(other.span, one.span) if later else _share_year(one.span, other.span)
    except (ValueError, OverflowError):
        return one, other
    first, last = msgspec.structs.replace(first, yearly=False), msgspec.structs.replace(last, yearly=False)
    mine, its = (last, first) if later else (first, last)
    return DateMention(one.start, one.end, mine), DateMention(other.start, other.end, its)


def _intersect_all(found: list[DateMention]) -> list[DateMention]:
    """Intersect overlapping times, shortest first: "this year" intersects both "May" and "June"."""
    made: list[DateMention] = []
    for hit in sorted(found, key=lambda match: match.span.last - match.span.first):
        both = [_meet(match, hit) for match in made]
        made = [new or old for new, old in zip(both, made, strict=True)] if any(both) else [*made, hit]
    return sorted(made, key=lambda match: match.start)


def _meet(one: DateMention, other: DateMention) -> DateMention | None:
    try:
        span = _intersection(one.span, other.span)
    except (ValueError, OverflowError):
        return None  # beyond the calendar
    return DateMention(min(one.start, other.start), max(one.end, other.end), span) if span else None


def _intersection(one: DateSpan, other: DateSpan) -> DateSpan | None:
    """Intersect two times. Of a yearly span, the occurrence that begins within the other one counts."""
    if other.yearly and not one.yearly:
        one, other = other, one
    if one.yearly and not other.yearly:
        if other.last - other.first > _YEAR + _DAY:
            return one  # "in May, since 2020" covers several years
        one = msgspec.structs.replace(_find_latest_occurrence(one, other.last), yearly=False)
        if other.first <= one.first:
            return one  # winter of last year continues into this year
    first, last = max(one.first, other.first), min(one.last, other.last)
    bounded = any(span.bounded for span in (one, other) if span.last == last)
    return msgspec.structs.replace(one, first=first, last=last, bounded=bounded) if first <= last else None


def _open_span(hit: DateMention, text: str, today: date) -> DateMention:
    """Open a span at one end if the words ask for it."""
    onwards = compile_pattern(_ON).match(text, hit.end)
    made = _apply_makers(_ONWARDS if onwards else _OPEN, hit, text, today)
    return DateMention(made.start, onwards.end(), made.span) if onwards and made is not hit else made


def _parse_before(match: re.Match[str], span: DateSpan, today: date) -> DateSpan:
    """Parse "before October", "until last week".

    Of a yearly span the latest counts, or the next if it is near: a plan.
    """
    if span.yearly:
        span = _find_latest_occurrence(span, today + _PLANNED)
    last = span.first - _DAY if match[1].casefold().startswith(("before", "prior")) else span.last
    return DateSpan(date.min, last, "", bounded=True)


def _parse_since(match: re.Match[str], span: DateSpan, today: date) -> DateSpan:
    """Parse "since Tuesday", "from May 3 on": until today."""
    span = _find_latest_occurrence(span, today)
    return DateSpan(span.first, max(today, span.last) if span.first <= today else date.max, "")


def _parse_after(match: re.Match[str], span: DateSpan, today: date) -> DateSpan:
    return DateSpan(_find_latest_occurrence(span, today).last + _DAY, date.max, "")


def _longer_ago(match: re.Match[str], span: DateSpan, today: date) -> DateSpan | None:
    """Parse "more than a year ago". "Over the weekend" does not count."""
    return DateSpan(date.min, _middle(span), "", bounded=True) if span.text.casefold().endswith(_AGO) else None


def _parse_less_than(match: re.Match[str], span: DateSpan, today: date) -> DateSpan | None:
    return DateSpan(_middle(span), today, "") if span.text.casefold().endswith(_AGO) else None


def _middle(span: DateSpan) -> date:
    return span.first + (span.last - span.first) // 2


def _find_latest_occurrence(span: DateSpan, today: date) -> DateSpan:
    """Return the latest occurrence of a yearly span that has begun."""
    return move_to_year(span, today.year - (move_to_year(span, today.year).first > today)) if span.yearly else span


_OPEN: tuple[tuple[str, _SpanMaker], ...] = (
    (_precede_pattern(f"({_TILL})"), _parse_before),
    (_precede_pattern("(?:ever )?since"), _parse_since),
    (_precede_pattern("after"), _parse_after),
    (_precede_pattern("less than|at most|(?:no|not) more than"), _parse_less_than),
    (_precede_pattern("more than|over|at least"), _longer_ago),
)
_ONWARDS: tuple[tuple[str, _SpanMaker], ...] = ((_FROM, _parse_since), *_OPEN)
