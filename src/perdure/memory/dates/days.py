"""Parses days as people name them: "last Tuesday", "in May", "two weeks ago", "5/11/2026".

Each rule reads one form, in English or in digits, and requires some word or digit: most texts have none of them and are
skipped. Combinations ("before October", "from Monday to Friday") are in `times.py`.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from functools import cache

import msgspec

from perdure.errors import WrongValue

MONTHS = {name.casefold(): n for n, name in enumerate(calendar.month_name) if n}
MONTHS |= {name[:3]: n for name, n in MONTHS.items()} | {"sept": 9}
WEEKDAYS = {name.casefold(): n for n, name in enumerate(calendar.day_name)}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "q1": 1, "q2": 4, "q3": 7, "q4": 10}
_FEASTS = {
    "christmas eve": (12, 24),
    "christmas day": (12, 25),
    "christmas": (12, 25),
    "new year's eve": (12, 31),
    "new year's day": (1, 1),
    "new year": (1, 1),
    "halloween": (10, 31),
    "valentine's day": (2, 14),
}
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve".split()
_NUMBERS: dict[str, float] = {word: n for n, word in enumerate(_COUNTED)}
_NUMBERS |= {"half a": 0.5, "a": 1, "an": 1, "couple": 2, "few": 3, "several": 4}
_ORDINALS = """first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth
fifteenth sixteenth seventeenth eighteenth nineteenth twentieth""".split()
_ORDINALS += [f"twenty-{word}" for word in _ORDINALS[:9]] + ["thirtieth", "thirty-first"]
UNITS = {"day": 1, "week": 7, "fortnight": 14, "month": 30, "year": 365}
_STEPS = {"before last": -2, "last": -1, "past": -1, "previous": -1, "this": 0, "the": 0, "next": 1, "after next": 2}
_NEAR = {"the day before yesterday": -2, "yesterday": -1, "last night": -1, "tomorrow": 1, "the day after tomorrow": 2}

_SLACK = {"day": 0, "week": 1, "fortnight": 1, "month": 7, "year": 90}
""""Two months ago" is not exact to the day: this many days on either side."""


class DateSpan(msgspec.Struct, frozen=True):
    """A range of days that a text mentions, both ends included."""

    first: date
    last: date
    text: str
    yearly: bool = False
    """No year was given: the same days of any other year match too."""
    fixed: bool = False
    """An absolute date ("8 May 2023"), independent of the day it is read on; "yesterday" is not."""
    bounded: bool = False
    """The end was given ("before October", "from May 1 to May 10"), so what was told soon after hardly matches."""

    @property
    def open(self) -> bool:
        """Whether it has no beginning or no end. Many days match then, so a match says little."""
        return self.first == date.min or self.last == date.max

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


class DateMention(msgspec.Struct, frozen=True):
    """The position of a span in a text."""

    start: int
    end: int
    span: DateSpan


def hits(text: str, today: date) -> list[DateMention]:
    """Return the days that a text names, in order."""
    there, free, found = set(_WORD.findall(text.casefold())), text, list[DateMention]()
    if _NEEDED.isdisjoint(there):
        return found
    for needs, pattern, reader in _RULES:
        if needs.isdisjoint(there):
            continue
        for match in compile_pattern(pattern).finditer(free):
            span = _apply_reader(reader, match, today)
            if span is not None:
                start, end = match.span("core")
                found.append(DateMention(start, end, span))
                # Blank out what a rule has read, so that no later rule reads it or matches across it: "May 8" is not
                # May.
                free = free[:start] + "\0" * (end - start) + free[end:]
    return sorted(found, key=lambda hit: hit.start)


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use, so that importing this module is cheap."""
    return re.compile(pattern, re.IGNORECASE)


def move_to_year(span: DateSpan, year: int) -> DateSpan:
    """Return the same days in another year. The end of February stays the end of February."""
    first = date(year, span.first.month, min(span.first.day, _days_in(year, span.first.month)))
    last, then = span.last, span.last.year + year - span.first.year
    if last.day < _days_in(last.year, last.month):
        return msgspec.structs.replace(span, first=first, last=first + (last - span.first))
    return msgspec.structs.replace(span, first=first, last=date(then, last.month, _days_in(then, last.month)))


def months_from(first: date, count: int) -> date:
    """Return the first day of the month `count` months after another."""
    number = first.year * 12 + first.month - 1 + count
    return date(number // 12, number % 12 + 1, 1)


def number_of(text: str) -> float:
    """Parse a number word or digits."""
    return int(text) if text.isdigit() else _NUMBERS[_normalize(text)]


def _day_of(text: str) -> int:
    """Parse a day of a month: 10, or the tenth."""
    return int(text) if text.isdigit() else _ORDINALS.index(text.casefold()) + 1


def _days_in(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


_DateReader = Callable[[re.Match[str], date], DateSpan | None]


def _apply_reader(reader: _DateReader, match: re.Match[str], today: date) -> DateSpan | None:
    try:
        return reader(match, today)
    except (ValueError, OverflowError):
        return None  # the 31st of June, or a day before the calendar begins


def _span(
    match: re.Match[str], first: date, last: date | None = None, *, yearly: bool = False, fixed: bool = False
) -> DateSpan:
    return DateSpan(first, last or first, match["core"], yearly, fixed)


def _months(
    match: re.Match[str], first: date, count: int = 1, *, yearly: bool = False, fixed: bool = False
) -> DateSpan:
    return _span(match, first, months_from(first, count) - timedelta(1), yearly=yearly, fixed=fixed)


def _figures(match: re.Match[str], today: date) -> DateSpan:
    """Parse 2026-05-11, 5/11/2026, 11.05.2026. With slashes the month comes first, as in the US; otherwise the day."""
    year, one, other = int(match["year"]), int(match["one"]), int(match["other"])
    month, day = (one, other) if match["sep"] == "/" or match["core"].startswith(match["year"]) else (other, one)
    if month > 12:
        month, day = day, month
    return _span(match, date(year if year > 99 else 2000 + year, month, day), fixed=True)


def _parse_named_date(match: re.Match[str], today: date) -> DateSpan:
    """Parse 8 May 2023, May 8, May 8 to 12, the tenth of May, May 2023, 2023-05, May."""
    parts, named = match.groupdict(), match["month"]
    month, day, year = MONTHS.get(named.casefold()) or int(named), parts.get("day"), parts.get("year")
    known = int(year) if year else today.year - (month > today.month)
    if not day:
        return _months(match, date(known, month, 1), yearly=not year, fixed=True)
    first = date(known, month, _day_of(day))
    last = date(known, month, _day_of(match["until"])) if parts.get("until") else first
    if last < first:
        raise WrongValue("ends before it begins")
    return _span(match, first, last, yearly=not year, fixed=True)


def _years_ago(match: re.Match[str], today: date) -> DateSpan:
    """Parse "in May two years ago", "on May 8 a year ago", "two years ago in May"."""
    years, month, day = number_of(match["number"]), MONTHS[match["month"].casefold()], match["day"]
    if years < 1:
        raise WrongValue("half a year ago is in another month")
    first = date(today.year - int(years), month, int(day or 1))
    return _span(match, first, fixed=True) if day else _months(match, first, fixed=True)


def _parse_month_range(match: re.Match[str], today: date) -> DateSpan:
    """Parse "June to August", "from November to February 2024". The year is that of the end."""
    first, last, year = MONTHS[match["month"].casefold()], MONTHS[match["until"].casefold()], match["year"]
    count = (last - first) % 12 + 1
    known = int(year) - (first > last) if year else today.year - (first > today.month)
    return _months(match, date(known, first, 1), count, yearly=not year, fixed=True)


def _parse_year(match: re.Match[str], today: date) -> DateSpan:
    return _months(match, date(int(match["year"]), 1, 1), 12, fixed=True)


def _parse_near_day(match: re.Match[str], today: date) -> DateSpan:
    return _span(match, today + timedelta(_NEAR.get(_normalize(match["core"]), 0)))


def _normalize(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split())


def _feast(match: re.Match[str], today: date) -> DateSpan:
    """Parse "last Christmas", "New Year's Eve 2023"."""
    parts, (month, day) = match.groupdict(), _FEASTS[_normalize(match["feast"])]
    which, named = _read_relative_word(match), parts.get("year")
    year = int(named) if named else today.year
    if not named and which not in {"this", "next"} and date(year, month, day) >= today:
        year -= 1
    if which == "next" and date(year, month, day) <= today:
        year += 1
    return _span(match, date(year, month, day), yearly=not named and not which, fixed=True)


def _parse_ago(match: re.Match[str], today: date) -> DateSpan:
    """Parse "two weeks ago", "in three days", "half a year ago"."""
    number, unit = number_of(match["number"]), match["unit"].casefold()
    sign = -1 if match["ago"] else 1
    # "A few" is less exact than "two", and half a unit needs half the slack.
    slack = _SLACK[unit] * (2 if match["number"].casefold() in {"few", "several", "couple"} else min(number, 1))
    day = today + timedelta(sign * number * UNITS[unit])
    return _span(match, day - timedelta(slack), day + timedelta(slack))


def _lately(match: re.Match[str], today: date) -> DateSpan:
    """Parse "the last two weeks", "within the last week": up to today."""
    reach = number_of(match.groupdict().get("number") or "a") * UNITS[match["unit"].casefold()]
    return _span(match, today - timedelta(reach), today)


def _weekday_of(match: re.Match[str], today: date) -> DateSpan:
    """Parse "last Tuesday", "on Tuesday of last week". "Next Tuesday" is the first one after today."""
    wanted = WEEKDAYS[match["weekday"].casefold()]
    if (match.groupdict().get("which") or "").casefold() == "next":
        return _span(match, today + timedelta((wanted - today.weekday() - 1) % 7 + 1))
    return _span(match, _find_weekday(wanted, match, today))


def _find_weekday(weekday: int, match: re.Match[str], today: date) -> date:
    """Return the weekday of the named week, or the latest one before today."""
    week = match.groupdict().get("week") or match.groupdict().get("other")
    if week:
        return today + timedelta(weekday - today.weekday() + 7 * _STEPS[_normalize(week)])
    return today - timedelta((today.weekday() - weekday - 1) % 7 + 1)


def _parse_weekday_range(match: re.Match[str], today: date) -> DateSpan:
    """Parse "from Monday to Wednesday", "of last week": the latest ones that are over."""
    first, last = WEEKDAYS[match["weekday"].casefold()], WEEKDAYS[match["until"].casefold()]
    end = _find_weekday(last, match, today)
    return _span(match, end - timedelta((last - first) % 7), end)


def _unit_of(match: re.Match[str], today: date) -> DateSpan:
    """Parse "last week", "this month", "the year after next": by the calendar, weeks from Monday."""
    step, unit = _STEPS[_normalize(match["which"])], match["unit"].casefold()
    if unit in {"week", "weekend"}:
        first = today - timedelta(today.weekday()) + timedelta(7 * step)
        return _span(match, first + timedelta(5 if unit == "weekend" else 0), first + timedelta(6))
    first = today.replace(day=1) if unit == "month" else date(today.year, 1, 1)
    count = 1 if unit == "month" else 12
    return _months(match, months_from(first, step * count), count)


def _weekend(match: re.Match[str], today: date) -> DateSpan:
    """Parse "over the weekend" (the latest one that has begun) and "two weekends ago"."""
    number = match.groupdict().get("number")
    first = today - timedelta((today.weekday() - 5) % 7 + 7 * (number_of(number) - 1 if number else 0))
    return _span(match, first, first + timedelta(1))


def _season_of(match: re.Match[str], today: date) -> DateSpan:
    """Parse "last summer", "in winter 2023", "in Q3": three months, in northern seasons."""
    parts = match.groupdict()
    which, named = _read_relative_word(match), parts.get("year")
    first = date(int(named) if named else today.year, _SEASONS[match["season"].casefold()], 1)
    if not named and which in {"last", ""} and first > today:
        first = months_from(first, -12)
    if which == "last" and first <= today < months_from(first, 3):
        first = months_from(first, -12)
    if which == "next" and first <= today:
        first = months_from(first, 12)
    return _months(match, first, 3, yearly=not named and not which, fixed=bool(named))


def _month_of(match: re.Match[str], today: date) -> DateSpan:
    """Parse "last May", "this past May", "this May", "next June"."""
    month, step = MONTHS[match["month"].casefold()], _read_relative_word(match)
    year = today.year
    if step == "last" and month >= today.month:
        year -= 1
    elif step == "next" and month <= today.month:
        year += 1
    return _months(match, date(year, month, 1))


def _read_relative_word(match: re.Match[str]) -> str:
    """Return "last", "this", "next" or an empty text. "this past" means "last"."""
    which = _normalize(match.groupdict().get("which") or "")
    return "last" if which.endswith("past") else which


def _match_any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def _rule(needs: Iterable[str], core: str, lead: str = "", *, then: str = "") -> tuple[frozenset[str], str]:
    """Build a rule: `core` is the part that is read; it must follow `lead`, or it means something else."""
    head = rf"(?<![\w-])(?:{lead}) (?:the )?" if lead else r"(?<![\w-])"
    return frozenset(needs), _allow_spaces(rf"{head}(?P<core>{core})(?!\w){then}")


def _allow_spaces(pattern: str) -> str:
    return pattern.replace(" ", r"\s+").replace("'", "['’]")


_WORD = re.compile(r"\d|[a-z]+[1-4]?")
"""A word, a quarter of a year, or a digit: what the rules require."""

_FIGURES = "0123456789"
_FEAST = ("christmas", "year", "halloween", "valentine")
_HOURS = ("yesterday", "today", "tonight", "tomorrow", "night", "morning", "afternoon", "evening")
_month, _weekday, _season, _feasts = _match_any(MONTHS), _match_any(WEEKDAYS), _match_any(_SEASONS), _match_any(_FEASTS)
_clear, _ordinal = _match_any(MONTHS.keys() - {"may", "mar", "march"}), _match_any(_ORDINALS)
_day = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_to_day = r"(?P<until>\d{1,2})(?:st|nd|rd|th)?"
_year = r"(?P<year>(?:19|20)\d\d)"
_to = r"(?:\s*[-–—]\s*| (?:to|through|until|till) (?:the )?)"
_and = r" and (?:the )?"
_tenth = rf"(?P<day>{_ordinal})(?:(?:{_to}|{_and})(?P<until>{_ordinal}))?"
NUMBER = rf"(\d{{1,3}}|{_match_any(_NUMBERS)})"
_number = rf"(?P<number>(?<!\d[.,])\d{{1,3}}|{_match_any(_NUMBERS)})(?: of)?"
_units = [*UNITS, *(f"{unit}s" for unit in UNITS)]
_WEEKS = ("weekend", *UNITS)
_unit = r"(?P<unit>day|week|fortnight|month|year)s?"
_week = r"(?:the )?(?:(?P<week>last|previous|this|next) week|week (?P<other>before last|after next))"
_of_week = rf"(?: of| in)? {_week}"
_past = "(?:this )?past"
_which = rf"(?P<which>last|{_past}|this|next)"
_nearby = rf"{_match_any(_NEAR)}|today|tonight|this (?:morning|afternoon|evening)"

_bound = r"since|until|till|before|after|by|from|between|up to|prior to"
_in = rf"in|during|of|around|throughout|{_bound}"
_in_season = _in.replace("|by|", "|")  # one may be inspired by spring
_part = r"early|late|mid"
_not_a_verb = r"(?:(?-i:M)(?:ay|AY)|mar(?:ch)?)"
"""After "late" and the like, "may" must be capitalized: "late may" can be many things."""

_no_feast = r"(?! (?:tree|present|gift|part|card|song|light|dinner|market|decoration|movie|cookie|list|shopping)\w*)"
_no_verb = r"(?! (?:be|have|not|also|well|help|take|seem|need|mean|sound|come)\b)"  # This May Be a Title
_bare, _no_more = r"(?<![./])", r"(?![./-]?\d)"

_RULES: tuple[tuple[frozenset[str], str, _DateReader], ...] = (
    (
        *_rule(
            _FIGURES, rf"{_bare}{_year}(?P<sep>[-/.])(?P<one>\d\d?)(?P=sep)(?P<other>\d\d?)(?:T[\d:.]+Z?)?{_no_more}"
        ),
        _figures,
    ),
    (*_rule(_FIGURES, rf"{_bare}(?P<one>\d\d?)(?P<sep>[-/.])(?P<other>\d\d?)(?P=sep){_year}{_no_more}"), _figures),
    (*_rule(_FIGURES, rf"{_bare}(?P<one>\d\d?)(?P<sep>/)(?P<other>\d\d?)/(?P<year>\d\d){_no_more}"), _figures),
    (*_rule(_FIGURES, rf"{_bare}{_year}[-/.](?P<month>0[1-9]|1[0-2]){_no_more}"), _parse_named_date),
    (*_rule(_FIGURES, rf"{_bare}(?P<month>0?[1-9]|1[0-2])[-/.]{_year}{_no_more}"), _parse_named_date),
    (
        *_rule(
            _FIGURES, rf"{_bare}(?P<month>0?[1-9]|1[0-2])/{_day}{_no_more}", "on|since|until|till", then=r"(?! of\b)"
        ),
        _parse_named_date,
    ),
    (*_rule(MONTHS, rf"(?P<month>{_month})\.?(?: {_day})?,? (?:of )?{_number} years? ago"), _years_ago),
    (*_rule(MONTHS, rf"{_number} years? ago,? (?:in|on) (?P<month>{_month})(?: {_day})?"), _years_ago),
    (*_rule(MONTHS, rf"{_tenth} of (?P<month>{_month})(?:\.?,?\s*{_year})?", rf"the|on|{_bound}"), _parse_named_date),
    (
        *_rule(MONTHS, rf"(?P<month>{_month}) (?:the )?(?P<day>{_ordinal})(?:,?\s*{_year})?", rf"on|{_bound}"),
        _parse_named_date,
    ),
    (*_rule(MONTHS, rf"{_day}{_to}{_to_day} (?:of )?(?P<month>{_month})(?:\.?,?\s*{_year})?"), _parse_named_date),
    (
        *_rule(MONTHS, rf"{_day}{_and}{_to_day} (?:of )?(?P<month>{_month})(?:\.?,?\s*{_year})?", "between"),
        _parse_named_date,
    ),
    (*_rule(MONTHS, rf"(?P<month>{_month})\.? {_day}{_to}{_to_day}(?:,?\s*{_year})?"), _parse_named_date),
    (*_rule(MONTHS, rf"(?P<month>{_month})\.? {_day}{_and}{_to_day}(?:,?\s*{_year})?", "between"), _parse_named_date),
    (*_rule(MONTHS, rf"{_day} (?:of )?(?P<month>{_month})\.?,?\s*{_year}"), _parse_named_date),
    (*_rule(MONTHS, rf"(?P<month>{_month})\.? {_day},?\s*{_year}"), _parse_named_date),
    (*_rule(MONTHS, rf"{_day} (?:of )?(?P<month>{_month})"), _parse_named_date),
    (*_rule(MONTHS, rf"(?P<month>{_month})\.? {_day}"), _parse_named_date),
    (*_rule(MONTHS, rf"(?P<month>{_month}){_to}(?P<until>{_month})(?:,?\s*{_year})?", "from"), _parse_month_range),
    (*_rule(MONTHS, rf"(?P<month>{_month}){_and}(?P<until>{_month})(?:,?\s*{_year})?", "between"), _parse_month_range),
    (*_rule(MONTHS, rf"(?P<month>{_clear}){_to}(?P<until>{_clear})(?:,?\s*{_year})?"), _parse_month_range),
    (*_rule(MONTHS, rf"(?P<month>{_month})\.?,?\s*(?:of )?{_year}"), _parse_named_date),
    (*_rule(MONTHS, rf"(?P<which>last|next) (?P<month>{_month})"), _month_of),
    (*_rule(MONTHS, rf"(?P<which>{_past}|this) (?P<month>{_clear}|(?-i:May|March))", then=_no_verb), _month_of),
    (*_rule(_SEASONS, rf"(?P<season>{_season}) (?:of )?{_year}"), _season_of),
    (*_rule(_SEASONS, rf"{_which} (?P<season>{_season})"), _season_of),
    (*_rule(_SEASONS, rf"(?P<season>{_season})", rf"{_in_season}|{_part}|that|over"), _season_of),
    (*_rule(_FEAST, rf"(?P<feast>{_feasts})(?:'s)? {_year}"), _feast),
    (*_rule(_FEAST, rf"{_which} (?P<feast>{_feasts})(?:'s)?", then=_no_feast), _feast),
    (*_rule(_FEAST, rf"(?P<feast>{_feasts})(?:'s)?", rf"{_bound}|at|on|around|over", then=_no_feast), _feast),
    (*_rule(_HOURS, _nearby), _parse_near_day),
    (*_rule(_units, rf"{_number} {_unit} (?P<ago>ago|back|earlier)"), _parse_ago),
    (*_rule(_units, rf"(?P<ago>(?!))?in {_number} {_unit}"), _parse_ago),
    (*_rule(_units, rf"(?:last|past) {_number} {_unit}"), _lately),
    (*_rule(_units, rf"(?:last|past) {_unit}", "within"), _lately),
    (*_rule({"fortnight"}, r"(?:last|past) (?P<unit>fortnight)"), _lately),
    (
        *_rule(WEEKDAYS, rf"(?P<weekday>{_weekday}){_to}(?P<until>{_weekday})(?:{_of_week})?", "from"),
        _parse_weekday_range,
    ),
    (
        *_rule(WEEKDAYS, rf"(?P<weekday>{_weekday}){_and}(?P<until>{_weekday})(?:{_of_week})?", "between"),
        _parse_weekday_range,
    ),
    (*_rule(WEEKDAYS, rf"(?P<weekday>{_weekday}){_of_week}"), _weekday_of),
    (*_rule(WEEKDAYS, rf"{_week}(?:,? on)? (?P<weekday>{_weekday})"), _weekday_of),
    (*_rule(WEEKDAYS, rf"(?P<which>last|past|this|next|previous) (?P<weekday>{_weekday})"), _weekday_of),
    (*_rule(WEEKDAYS, rf"(?P<weekday>{_weekday})", rf"on|{_bound}"), _weekday_of),
    (*_rule(_WEEKS, r"the (?P<unit>weekend|week|month|year) (?P<which>before last|after next)"), _unit_of),
    (
        *_rule(
            _WEEKS,
            r"(?:the )?(?P<which>last|past|previous|this|next) (?P<unit>weekend|week|month|year)",
            then=r"(?! of\b)",
        ),
        _unit_of,
    ),
    (*_rule(UNITS, r"(?P<which>the) (?P<unit>week|month|year)", "beginning of|start of|middle of|end of"), _unit_of),
    (*_rule({"weekend"}, "the weekend", "over|on|at|during"), _weekend),
    (*_rule({"weekend", "weekends"}, rf"{_number} weekends? ago"), _weekend),
    (*_rule(MONTHS, rf"(?P<month>{_month})", _in), _parse_named_date),
    (*_rule(MONTHS, rf"(?P<month>{_not_a_verb})", _part), _parse_named_date),
    (*_rule(MONTHS, rf"(?P<month>{_clear})"), _parse_named_date),
    (*_rule(_FIGURES, _year), _parse_year),
)
"""From the most to the least specific."""

_NEEDED = frozenset[str]().union(*(needs for needs, _, _ in _RULES))
"""A text with none of these names no day."""
