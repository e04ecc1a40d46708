"""What people mean by "last Tuesday", "in May" or "two weeks ago": days, as seen from a given one.

    >>> from datetime import date
    >>> for found in spans("What did I say last Tuesday about the trip in May?", date(2026, 11, 16)):
    ...     print(found.text, found.first, found.last)
    last Tuesday 2026-11-10 2026-11-10
    in May 2026-05-01 2026-05-31

A question is read from the day on which it is asked, a memory from its own day: "yesterday" in a memory of the 8th of
May is the 7th. A month or a day without a year is meant in any year (`yearly`). English, and dates in figures.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta

import msgspec

_MONTHS = {name.casefold(): n for n, name in enumerate(calendar.month_name) if n}
_MONTHS |= {name[:3]: n for name, n in _MONTHS.items()} | {"sept": 9}
_DAYS = {name.casefold(): n for n, name in enumerate(calendar.day_name)}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_NUMBERS = {w: n for n, w in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())}
_NUMBERS |= {"a": 1, "an": 1, "couple": 2, "few": 3, "several": 4}
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}

_SLACK = {"day": 0, "week": 1, "month": 7, "year": 90}
""""Two months ago" is not meant to the day: this much on either side."""

_month = "|".join(sorted(_MONTHS, key=len, reverse=True))
_clear_month = "|".join(sorted(_MONTHS.keys() - {"may", "mar", "march"}, key=len, reverse=True))
_day = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_year = r"(?P<year>(?:19|20)\d\d)"
_weekday = "|".join(_DAYS)
_season = "|".join(_SEASONS)
_number = r"(?P<number>\d{1,3}|" + "|".join(_NUMBERS) + r")(?: of)?"
_unit = r"(?P<unit>day|week|month|year)s?"


class Span(msgspec.Struct, frozen=True):
    """Some days that a text speaks of, both ends included."""

    first: date
    last: date
    text: str
    yearly: bool = False
    """No year was said: the same days of any other year are meant as well."""
    fixed: bool = False
    """The calendar names it ("8 May 2023"), whatever day it is read on; "yesterday" it does not."""

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def spans(text: str, today: date) -> list[Span]:
    """The times that a text speaks of, in its order, read on the day `today`."""
    found: list[tuple[int, Span]] = []
    free = text
    for pattern, reader in _RULES:
        for match in pattern.finditer(free):
            span = _read(reader, match, today)
            if span is not None:
                found.append((match.start(), span))
                # What one rule has read is nothing for the next: "May 8" is not May as well.
                free = free[: match.start()] + " " * len(match.group()) + free[match.end() :]
    return [span for _, span in sorted(found, key=lambda pair: pair[0])]


def closeness(asked: Iterable[Span], day: date, told: Iterable[Span] = (), *, late: float = 10.0) -> float:
    """How well a memory of a day, which tells of some others, fits the times asked for: 0 to 1.

    People tell of things after they happened, so that a memory from soon after fits too, less by half every `late`
    days. What a memory says of its time itself counts in full, unless it says so much that it says nothing.
    """
    told = [span for span in told if (span.last - span.first).days <= 62]
    best = 0.0
    for span in asked:
        best = max(best, _near(span, day, late), *(_overlap(span, other) for other in told), 0.0)
    return best


def _near(span: Span, day: date, late: float) -> float:
    moved = _in_year(span, day.year)
    if moved.first <= day <= moved.last:
        return 1.0
    if day > moved.last:
        return float(0.5 ** ((day - moved.last).days / late))
    return float(0.5 ** ((moved.first - day).days / 2.0))


def _overlap(span: Span, told: Span) -> float:
    moved = _in_year(span, told.first.year)
    return 1.0 if moved.first <= told.last and told.first <= moved.last else 0.0


def _in_year(span: Span, year: int) -> Span:
    if not span.yearly or span.first.year == year:
        return span
    first = _safe(year, span.first.month, span.first.day)
    return Span(first, first + (span.last - span.first), span.text, True, span.fixed)


def _read(reader: Callable[[re.Match[str], date], Span | None], match: re.Match[str], today: date) -> Span | None:
    try:
        return reader(match, today)
    except (ValueError, OverflowError):
        return None  # the 31st of June, or a day before the calendar begins: no time at all


def _safe(year: int, month: int, day: int) -> date:
    return date(year, month, min(day, calendar.monthrange(year, month)[1]))


def _span(
    match: re.Match[str], first: date, last: date | None = None, *, yearly: bool = False, fixed: bool = False
) -> Span:
    return Span(first, last or first, match.group().strip(), yearly, fixed)


def _of_month(match: re.Match[str], year: int, month: int, *, yearly: bool = False, fixed: bool = False) -> Span:
    last = date(year, month, calendar.monthrange(year, month)[1])
    return _span(match, date(year, month, 1), last, yearly=yearly, fixed=fixed)


def _figures(match: re.Match[str], today: date) -> Span:
    return _span(match, date(int(match["year"]), int(match["month"]), int(match["day"])), fixed=True)


def _named(match: re.Match[str], today: date) -> Span:
    """8 May 2023, May 8, May 2023, in May."""
    parts = match.groupdict()
    month, day, year = _MONTHS[match["month"].casefold()], parts.get("day"), parts.get("year")
    known = int(year) if year else today.year - (month > today.month)
    if day:
        return _span(match, date(known, month, int(day)), yearly=not year, fixed=True)
    return _of_month(match, known, month, yearly=not year, fixed=True)


def _whole_year(match: re.Match[str], today: date) -> Span:
    return _span(match, date(int(match["year"]), 1, 1), date(int(match["year"]), 12, 31), fixed=True)


def _near_day(match: re.Match[str], today: date) -> Span:
    away = {"the day before yesterday": -2, "yesterday": -1, "last night": -1, "tomorrow": 1}
    day = today + timedelta(away.get(" ".join(match.group().casefold().split()), 0))
    return _span(match, day)


def _ago(match: re.Match[str], today: date) -> Span:
    """Two weeks ago, in three days."""
    number, unit = _count(match["number"]), match["unit"].casefold()
    sign = -1 if match["ago"] else 1
    # People who say "a few" are less exact than people who say "two".
    slack = _SLACK[unit] * 2 if match["number"].casefold() in {"few", "several", "couple"} else _SLACK[unit]
    day = today + timedelta(sign * number * _UNITS[unit])
    return _span(match, day - timedelta(slack), day + timedelta(slack))


def _count(text: str) -> int:
    return int(text) if text.isdigit() else _NUMBERS[text.casefold()]


def _weekday_of(match: re.Match[str], today: date) -> Span:
    """Last Tuesday, on Tuesday: the latest one before today. Next Tuesday: the first one after it."""
    wanted = _DAYS[match["weekday"].casefold()]
    if (match["which"] or "").casefold() == "next":
        return _span(match, today + timedelta((wanted - today.weekday() - 1) % 7 + 1))
    return _span(match, today - timedelta((today.weekday() - wanted - 1) % 7 + 1))


def _unit_of(match: re.Match[str], today: date) -> Span:
    """Last week, this month, next year: by the calendar, weeks from Monday."""
    step = {"last": -1, "past": -1, "previous": -1, "this": 0, "next": 1}[match["which"].casefold()]
    unit = match["unit"].casefold()
    if unit == "week":
        first = today - timedelta(today.weekday()) + timedelta(7 * step)
        return _span(match, first, first + timedelta(6))
    if unit == "weekend":
        first = today - timedelta(today.weekday()) + timedelta(5 + 7 * step)
        return _span(match, first, first + timedelta(1))
    if unit == "month":
        months = today.year * 12 + today.month - 1 + step
        return _of_month(match, months // 12, months % 12 + 1)
    year = today.year + step
    return _span(match, date(year, 1, 1), date(year, 12, 31))


def _season_of(match: re.Match[str], today: date) -> Span:
    """Last summer, in winter 2023: three months, as the northern half of the world has them."""
    which, month = (match["which"] or "").casefold(), _SEASONS[match["season"].casefold()]
    year = int(match["year"]) if match["year"] else today.year
    if not match["year"] and which in {"last", ""} and date(year, month, 1) > today:
        year -= 1
    if which == "last" and date(year, month, 1) <= today < date(year, month, 1) + timedelta(92):
        year -= 1
    if which == "next" and date(year, month, 1) <= today:
        year += 1
    last = year * 12 + month + 1
    end = date(last // 12, last % 12 + 1, calendar.monthrange(last // 12, last % 12 + 1)[1])
    named = bool(match["year"])
    return _span(match, date(year, month, 1), end, yearly=not named and not which, fixed=named)


def _month_of(match: re.Match[str], today: date) -> Span:
    """Last May, next June."""
    month, step = _MONTHS[match["month"].casefold()], match["which"].casefold()
    year = today.year
    if step == "last" and month >= today.month:
        year -= 1
    elif step == "next" and month <= today.month:
        year += 1
    return _of_month(match, year, month)


def _before(match: re.Match[str], today: date) -> Span | None:
    """The week before 9 June 2023, two days after 3 May."""
    anchors = spans(match["anchor"], today)
    if not anchors:
        return None
    number = _count(match["number"]) if match["number"] else 1
    reach = _UNITS.get(match["what"].casefold(), 7)  # the weekend or the Friday before: within the week before
    if match["side"].casefold() == "before":
        return _span(match, anchors[0].first - timedelta(number * reach), anchors[0].first - timedelta(1), fixed=True)
    return _span(match, anchors[0].last + timedelta(1), anchors[0].last + timedelta(number * reach), fixed=True)


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(r"(?<![\w-])" + pattern.replace(" ", r"\s+") + r"(?![\w])", re.IGNORECASE)


_th = r"(?:st|nd|rd|th)?"
_comma = r",?\s*"
_dated = rf"(?:\d{{1,2}}{_th}\s+(?:of\s+)?(?:{_month})|(?:{_month})\s+\d{{1,2}}{_th})(?:,?\s*(?:19|20)\d\d)?"
_in = r"(?:in|during|since|until|till|of|by|around|early|late|mid|before|after|from|throughout)"
_counted = rf"(?:(?P<number>\d+|{'|'.join(_NUMBERS)}) )?(?P<what>day|week|weekend|month|{_weekday})s?"
_nearby = r"the day before yesterday|yesterday|today|tonight|last night|this (?:morning|afternoon|evening)|tomorrow"
_when = r"(?:(?P<which>last|this|next)|in|during|that|over)(?: the)?"

_Reader = Callable[[re.Match[str], date], Span | None]
_RULES: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (_rule(rf"(?:the )?{_counted} (?P<side>before|after) (?P<anchor>{_dated})"), _before),
    (_rule(r"(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)-(?P<day>\d\d)(?:T[\d:.]+Z?)?"), _figures),
    (_rule(rf"(?:on )?(?:the )?{_day} (?:of )?(?P<month>{_month})\.?{_comma}{_year}"), _named),
    (_rule(rf"(?:on )?(?P<month>{_month})\.? {_day}{_comma}{_year}"), _named),
    (_rule(rf"(?:on )?(?:the )?{_day} (?:of )?(?P<month>{_month})"), _named),
    (_rule(rf"(?:on )?(?P<month>{_month})\.? {_day}"), _named),
    (_rule(rf"(?:{_in} )?(?P<month>{_month})\.?{_comma}(?:of )?{_year}"), _named),
    (_rule(rf"(?P<which>last|next) (?P<month>{_month})"), _month_of),
    (_rule(rf"{_when} (?P<season>{_season})(?: {_year})?"), _season_of),
    (_rule(rf"(?P<which>(?!))?(?P<season>{_season}) (?:of )?{_year}"), _season_of),
    (_rule(rf"(?:{_nearby})"), _near_day),
    (_rule(rf"{_number} {_unit} (?P<ago>ago|back|earlier)"), _ago),
    (_rule(rf"(?P<ago>(?!))?in {_number} {_unit}"), _ago),
    (_rule(rf"(?P<which>last|past|this|next|on|previous) (?P<weekday>{_weekday})"), _weekday_of),
    (_rule(r"(?:the )?(?P<which>last|past|previous|this|next) (?P<unit>weekend|week|month|year)"), _unit_of),
    (_rule(rf"{_in} (?P<month>{_month})"), _named),
    (_rule(rf"(?P<month>{_clear_month})"), _named),
    (_rule(_year), _whole_year),
)
"""From the most to the least particular."""
