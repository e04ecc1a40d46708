"""Times as people name them: read to the day, and nothing is a time that is none."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.memory.dates.days import DateSpan
from perdure.memory.dates.times import closeness, find_mentioned_times, parse_question_times, spans

TODAY = date(2026, 11, 16)
"""A Monday."""

DAY = timedelta(1)
EVER, NEVER = date.min, date.max

CLOSED = {
    "last Tuesday": ("2026-11-10", "2026-11-10"),
    "on Monday": ("2026-11-09", "2026-11-09"),
    "next Friday": ("2026-11-20", "2026-11-20"),
    "in May": ("2026-05-01", "2026-05-31"),
    "in December": ("2025-12-01", "2025-12-31"),
    "two weeks ago": ("2026-11-01", "2026-11-03"),
    "three days ago": ("2026-11-13", "2026-11-13"),
    "in the last two weeks": ("2026-11-02", "2026-11-16"),
    "over the past few days": ("2026-11-13", "2026-11-16"),
    "yesterday": ("2026-11-15", "2026-11-15"),
    "the day before yesterday": ("2026-11-14", "2026-11-14"),
    "the day after tomorrow": ("2026-11-18", "2026-11-18"),
    "this morning": ("2026-11-16", "2026-11-16"),
    "last weekend": ("2026-11-14", "2026-11-15"),
    "over the weekend": ("2026-11-14", "2026-11-15"),
    "the weekend before last": ("2026-11-07", "2026-11-08"),
    "two weekends ago": ("2026-11-07", "2026-11-08"),
    "last weekend before April 10, 2023": ("2023-04-03", "2023-04-09"),
    "last week": ("2026-11-09", "2026-11-15"),
    "the week before last": ("2026-11-02", "2026-11-08"),
    "earlier this month": ("2026-11-01", "2026-11-16"),
    "last month": ("2026-10-01", "2026-10-31"),
    "last summer": ("2026-06-01", "2026-08-31"),
    "winter 2023": ("2023-12-01", "2024-02-29"),
    "in the summer of 2025": ("2025-06-01", "2025-08-31"),
    "in Q3": ("2026-07-01", "2026-09-30"),
    "Q4 2025": ("2025-10-01", "2025-12-31"),
    "in the third quarter of 2025": ("2025-07-01", "2025-09-30"),
    "in 2021": ("2021-01-01", "2021-12-31"),
    "on the 8th of May, 2023": ("2023-05-08", "2023-05-08"),
    "May 8, 2023": ("2023-05-08", "2023-05-08"),
    "2023-05-08": ("2023-05-08", "2023-05-08"),
    "on 2023-05-08T10:11:12Z": ("2023-05-08", "2023-05-08"),
    "2026/5/11": ("2026-05-11", "2026-05-11"),
    "5/11/2026": ("2026-05-11", "2026-05-11"),
    "5/11/26": ("2026-05-11", "2026-05-11"),
    "on 5/11": ("2026-05-11", "2026-05-11"),
    "11.05.2026": ("2026-05-11", "2026-05-11"),
    "11-05-2026": ("2026-05-11", "2026-05-11"),
    "25/12/2026": ("2026-12-25", "2026-12-25"),
    "12.25.2026": ("2026-12-25", "2026-12-25"),
    "last Christmas": ("2025-12-25", "2025-12-25"),
    "on New Year’s Eve": ("2025-12-31", "2025-12-31"),
    "in early October": ("2026-10-01", "2026-10-10"),
    "mid-June": ("2026-06-11", "2026-06-20"),
    "in late May": ("2026-05-21", "2026-05-31"),
    "late last year": ("2025-09-01", "2025-12-31"),
    "at the end of last month": ("2026-10-21", "2026-10-31"),
    "at the beginning of the year": ("2026-01-01", "2026-04-30"),
    "in the first week of June": ("2026-06-01", "2026-06-07"),
    "in the last week of May": ("2026-05-25", "2026-05-31"),
    "on the first Monday in June": ("2026-06-01", "2026-06-01"),
    "on the last weekend of October": ("2026-10-31", "2026-11-01"),
    "in the second half of 2025": ("2025-07-01", "2025-12-31"),
    "the week before 16 November 2023": ("2023-11-09", "2023-11-15"),
    "the day before May 3": ("2026-05-02", "2026-05-02"),
    "two days after 3 May": ("2026-05-05", "2026-05-05"),
    "in the days after May 3": ("2026-05-04", "2026-05-06"),
    "between May 1 and May 10": ("2026-05-01", "2026-05-10"),
    "between May 1 and 10": ("2026-05-01", "2026-05-10"),
    "from May 1 to May 10": ("2026-05-01", "2026-05-10"),
    "1-10 May 2025": ("2025-05-01", "2025-05-10"),
    "may 5-may 9": ("2026-05-05", "2026-05-09"),
    "between August 11 and August 15, 2023": ("2023-08-11", "2023-08-15"),
    "from December 20 to January 5, 2024": ("2023-12-20", "2024-01-05"),
    "from June to August": ("2026-06-01", "2026-08-31"),
    "between April and May": ("2026-04-01", "2026-05-31"),
    "from November 2023 to February": ("2023-11-01", "2024-02-29"),
    "from Tuesday to Thursday": ("2026-11-10", "2026-11-12"),
    "between early June and last week": ("2026-06-01", "2026-11-15"),
    "in May of this year": ("2026-05-01", "2026-05-31"),
    "in November last year": ("2025-11-01", "2025-11-30"),
    "on the 8th of May last year": ("2025-05-08", "2025-05-08"),
    "in early May of the year before last": ("2024-05-01", "2024-05-10"),
    "on the first Monday in June last year": ("2025-06-02", "2025-06-02"),
    "from May 1 to May 10 last year": ("2025-05-01", "2025-05-10"),
    "in the winter of last year": ("2025-12-01", "2026-02-28"),
    "on Christmas Day of 2024": ("2024-12-25", "2024-12-25"),
    "Tuesday last week": ("2026-11-10", "2026-11-10"),
    "on Sunday of last week": ("2026-11-15", "2026-11-15"),
    "last week on Friday": ("2026-11-13", "2026-11-13"),
    "Friday of the week before last": ("2026-11-06", "2026-11-06"),
    "from Monday to Friday of last week": ("2026-11-09", "2026-11-13"),
    "between Monday and Wednesday the week before last": ("2026-11-02", "2026-11-04"),
    "from the tenth to the twelfth of May": ("2026-05-10", "2026-05-12"),
    "between the tenth and twenty-first of May 2025": ("2025-05-10", "2025-05-21"),
    "half a year ago": ("2026-04-02", "2026-07-01"),
    "a fortnight ago": ("2026-11-01", "2026-11-03"),
    "in the last fortnight": ("2026-11-02", "2026-11-16"),
    "within the last week": ("2026-11-09", "2026-11-16"),
    "in 05/2026": ("2026-05-01", "2026-05-31"),
    "2026-11": ("2026-11-01", "2026-11-30"),
    "in 5.2026": ("2026-05-01", "2026-05-31"),
    "this May": ("2026-05-01", "2026-05-31"),
    "this past May": ("2026-05-01", "2026-05-31"),
    "this past December": ("2025-12-01", "2025-12-31"),
    "this past summer": ("2026-06-01", "2026-08-31"),
    "this past autumn": ("2025-09-01", "2025-11-30"),
    "this past Christmas": ("2025-12-25", "2025-12-25"),
    "this past weekend": ("2026-11-14", "2026-11-15"),
    "this past Tuesday": ("2026-11-10", "2026-11-10"),
    "in May two years ago": ("2024-05-01", "2024-05-31"),
    "in May of two years ago": ("2024-05-01", "2024-05-31"),
    "on May 8 a year ago": ("2025-05-08", "2025-05-08"),
    "two years ago in May": ("2024-05-01", "2024-05-31"),
    "in December a year ago": ("2025-12-01", "2025-12-31"),
    "this December": ("2026-12-01", "2026-12-31"),
    "on the tenth of May": ("2026-05-10", "2026-05-10"),
    "the twenty-first of June, 2025": ("2025-06-21", "2025-06-21"),
    "on May the thirty-first": ("2026-05-31", "2026-05-31"),
    "in the first third of June": ("2026-06-01", "2026-06-10"),
}

OPEN = {
    "before October": (EVER, date(2026, 9, 30)),
    "before May 2024": (EVER, date(2024, 4, 30)),
    "before December": (EVER, date(2026, 11, 30)),
    "before last Friday": (EVER, date(2026, 11, 12)),
    "until last week": (EVER, date(2026, 11, 15)),
    "until 5/11/2026": (EVER, date(2026, 5, 11)),
    "by the end of the year": (EVER, date(2026, 12, 31)),
    "since Tuesday": (date(2026, 11, 10), TODAY),
    "since the end of May": (date(2026, 5, 21), TODAY),
    "since December": (date(2025, 12, 1), TODAY),
    "from May 3 on": (date(2026, 5, 3), TODAY),
    "after May 3": (date(2026, 5, 4), NEVER),
    "after last week": (date(2026, 11, 16), NEVER),
    "since tomorrow": (date(2026, 11, 17), NEVER),
    "since May last year": (date(2025, 5, 1), TODAY),
    "until Tuesday of last week": (EVER, date(2026, 11, 10)),
    "more than a year ago": (EVER, date(2025, 11, 16)),
    "over half a year ago": (EVER, date(2026, 5, 17)),
    "less than a week ago": (date(2026, 11, 9), TODAY),
    "no more than two weeks ago": (date(2026, 11, 2), TODAY),
}

NONE = """I may come|may I|they march on|we fall down|the 40th of Juni|room 2101|wait a second|before you go
I will be late|being late may hurt|since you ask|after all|from A to B|between you and me|the first half of the film
24/7|3.14.15|99/99/2026|version 11.05.2026.1|a Christmas present|at the Christmas market|by and by|inspired by autumn
on and on|this may be|This May Be It|this march was long|may the fourth be with you|a third of it|half a loaf
the first of many|over a year|more than a week|Tuesday the week|over 5/8|1.5 years ago
on 3/4 of them|by 1/2|on 13/5|in the past may be lost|This past may have been"""


@pytest.mark.parametrize("text", CLOSED)
def test_a_time_is_read_as_people_mean_it(text: str) -> None:
    first, last = map(date.fromisoformat, CLOSED[text])
    for found in (spans, find_mentioned_times):
        [span] = found(f"what was it {text}?", TODAY)
        assert (span.first, span.last) == (first, last)
        assert span.text in text


@pytest.mark.parametrize("text", OPEN)
def test_a_time_may_be_open_at_one_end(text: str) -> None:
    [span] = spans(f"what was it {text}?", TODAY)
    assert (span.first, span.last) == OPEN[text]
    assert span.text == text
    assert not span.yearly


def test_before_october_refers_to_october() -> None:
    [span] = find_mentioned_times("I want to be done before October", TODAY)
    assert (span.first, span.last) == (date(2026, 10, 1), date(2026, 10, 31))


@pytest.mark.parametrize("text", NONE.replace("\n", "|").split("|"))
def test_what_is_no_time_is_none(text: str) -> None:
    assert [span for span in spans(text, TODAY) if span.text != "2026"] == []


def test_two_times_are_two() -> None:
    found = spans("in May 2025 and on 8 June 2025, or since Monday", TODAY)
    assert [str(span) for span in found] == ["2025-05-01 to 2025-05-31", "2025-06-08", "2026-11-09 to 2026-11-16"]


BOTH = {
    "after May 1 and before May 11, 2026": "2026-05-02 to 2026-05-10",
    "after May 1 and before May 11, 2024": "2024-05-02 to 2024-05-10",
    "before March and after November 2024": "2024-12-01 to 2025-02-28",
    "before October 2026 and after August 2026": "2026-09-01 to 2026-09-30",
    "before October and after August": "2026-09-01 to 2026-09-30",
    "last year in May": "2025-05-01 to 2025-05-31",
    "in May about the trip last year": "2025-05-01 to 2025-05-31",
    "this week, that is today": "2026-11-16",
    "in November in the last three days": "2026-11-13 to 2026-11-16",
    "in May, since 2020": "2026-05-01 to 2026-05-31",
}


@pytest.mark.parametrize("text", BOTH)
def test_of_two_times_that_overlap_what_is_in_both_is_asked_for(text: str) -> None:
    [span] = spans(f"what was it {text}?", TODAY)
    assert str(span) == BOTH[text]
    assert span.text in text


def test_times_that_do_not_overlap_are_all_asked_for() -> None:
    def found(text: str) -> list[str]:
        return sorted(str(span) + "*" * span.yearly for span in spans(text, TODAY))

    assert found("in May and in June") == ["2026-05-01 to 2026-05-31*", "2026-06-01 to 2026-06-30*"]
    assert found("last month and yesterday") == ["2026-10-01 to 2026-10-31", "2026-11-15"]
    months = ["2025-05-01 to 2025-05-31", "2025-06-01 to 2025-06-30"]
    for text in ("in May and in June last year", "last year in May and in June", "in May or June 2025"):
        assert found(text) == months
    assert found("before 2020 and after 2024") == ["0001-01-01 to 2019-12-31", "2025-01-01 to 9999-12-31"]


def test_what_is_asked_without_its_time_is_the_rest() -> None:
    found, rest = parse_question_times("In May, what did Maya say about the trip last year, or may she go?", TODAY)
    assert [str(span) for span in found] == ["2025-05-01 to 2025-05-31"]
    assert rest.split() == [",", *"what did Maya say about the trip , or may she go?".split()]


def test_a_memory_tells_of_every_time_that_it_names() -> None:
    found = find_mentioned_times("It was in May, as I said this week: yesterday I was tired", date(2026, 11, 18))
    assert [str(span) for span in found] == ["2026-05-01 to 2026-05-31", "2026-11-16 to 2026-11-22", "2026-11-17"]


@settings(max_examples=60)
@given(st.text(), st.dates())
def test_any_text_can_be_read_for_times(text: str, today: date) -> None:
    assert all(span.first <= span.last for span in spans(text, today))


WORDS = """before since until early late mid the end of first week day last next this between from to and on in May
March June Tuesday weekend month year summer Q3 2025 5/11/2026 12 3rd two days ago after Christmas yesterday - ,
mid-June February 29 of half a third more than over within fortnight 05/2026 and before or after""".split()


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=9), st.dates())
def test_any_words_of_time_can_be_read(words: list[str], today: date) -> None:
    text = " ".join(words)
    for found in (spans(text, today), find_mentioned_times(text, today)):
        assert all(span.first <= span.last and span.text in text for span in found)


DATES = st.dates(date(1950, 1, 1), date(2090, 1, 1))
SHAPES = ("{0:%Y-%m-%d}", "{0.month}/{0.day}/{0.year}", "{0:%d.%m.%Y}", "{0:%d-%m-%Y}", "{0:%B} {0.day}, {0.year}")
SHAPE = st.sampled_from((*SHAPES, "{0.day} {0:%b} {0.year}", "the {0.day}th of {0:%B} {0.year}"))


@given(DATES, SHAPE, DATES)
def test_a_date_is_that_day_on_whatever_day_it_is_read(day: date, shape: str, today: date) -> None:
    [span] = spans(f"what was on {shape.format(day)}?", today)
    assert (span.first, span.last, span.fixed, span.yearly) == (day, day, True, False)


@given(DATES, SHAPE, DATES, SHAPE)
def test_from_one_day_to_another_is_all_between(one: date, shape: str, two: date, other: str) -> None:
    first, last = sorted((one, two))
    for text in ("from {} to {}", "between {} and {}", "{} until {}"):
        [span] = spans(text.format(shape.format(first), other.format(last)), TODAY)
        assert (span.first, span.last) == (first, last)


@given(DATES, SHAPE)
def test_what_is_open_ends_at_the_day(day: date, shape: str) -> None:
    [[before], [until], [since], [after]] = (
        spans(f"{word} {shape.format(day)}", NEVER) for word in ("before", "until", "since", "after")
    )
    assert (before.first, before.last + DAY, since.first, since.last) == (EVER, day, day, NEVER)
    assert (until.first, until.last, after.first - DAY, after.last) == (EVER, day, day, NEVER)


@given(st.integers(1, 12), st.integers(1950, 2090))
def test_early_mid_and_late_are_the_whole_month(month: int, year: int) -> None:
    named = f"{date(year, month, 1):%B} {year}"
    [[whole], [early], [mid], [late]] = (spans(f"{part}{named}", TODAY) for part in ("", "early ", "mid-", "late "))
    assert (early.first, early.last + DAY, mid.last + DAY, late.last) == (
        whole.first,
        mid.first,
        late.first,
        whole.last,
    )


def test_a_month_without_a_year_is_that_of_any_year_to_its_end() -> None:
    [february] = spans("in February", TODAY)
    assert [closeness([february], date(2024, 2, day)) for day in (1, 29)] == [1, 1]
    assert closeness([february], date(2024, 3, 1)) < 1


def test_what_happened_is_told_soon_after() -> None:
    may = DateSpan(date(2023, 5, 1), date(2023, 5, 31), "in May")
    near = [closeness([may], may.last + timedelta(days)) for days in (0, 5, 10, 100)]
    assert near[0] == 1 and near == sorted(near, reverse=True) and near[-1] < 0.01
    [ended] = spans("until 31 May 2023", TODAY)
    assert closeness([ended], date(2023, 6, 5)) < near[1] / 2
    said = find_mentioned_times("we went there last month", date(2023, 6, 30))
    assert closeness([may], date(2023, 6, 30), said) == 1
    [day] = spans("on May 8, 2023", TODAY)
    assert closeness([day], date(2023, 4, 1), find_mentioned_times("in May 2023", TODAY)) == pytest.approx(1 / 31)
    assert closeness([may], date(2023, 4, 1), find_mentioned_times("on May 8, 2023", TODAY)) == 1
