"""Recall as pure code: what is found, in which order, and why. The quality on real conversations is `bench/recall`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

import msgspec
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.memory import boards, fusion, words
from perdure.memory.times import Span, closeness, spans

TODAY = date(2026, 11, 16)  # a Monday


def found(texts: Sequence[str], question: str, *, days: Sequence[date] = (), threads: Sequence[int] = ()) -> list[int]:
    made: list[boards.Piece] = []
    for n, text in enumerate(texts):
        day, thread = (days or [TODAY] * len(texts))[n], (threads or [0] * len(texts))[n]
        made += [it for _, it in fusion.pieces(text, memory=n, place=len(made), day=day, thread=thread)]
    return [it.memory for it in fusion.rank(fusion.question(question, TODAY), made, boards.Scope.of(made), 10)]


# Words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Melanie's paintings", "melanie painted"),
        ("the children ran", "a child runs"),
        ("CAFÉ Zürich Straße", "cafe zurich strasse"),
        ("getUserName", "get_user_name"),
        ("studies happily", "study happy"),
    ],
)
def test_forms_of_one_word_are_one_term(one: str, other: str) -> None:
    assert words.terms(one) == words.terms(other)


def test_writing_without_spaces_is_found_by_a_part_of_it() -> None:
    assert found(["東京に行きました", "大阪で食べました", "京都のお寺"], "大阪")[0] == 1
    assert words.terms("हिन्दी में") == ["हिन्दी", "में"]
    assert found(["Я живу в Москве", "Она любит чай"], "Кто любит чай?")[0] == 1


def test_small_words_are_no_terms_unless_they_are_names() -> None:
    assert words.terms("will you be there") == []
    assert words.terms("I met Will there") == ["meet", "will"]


@settings(max_examples=40)
@given(st.text())
def test_any_text_has_terms_and_sentences(text: str) -> None:
    assert all(term and not any(c.isspace() for c in term) for term in words.terms(text))
    assert 0 <= words.asking(text) <= 1
    assert "".join("".join(words.pieces(text)).split()) == "".join(text.split())


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["so", "it", "went", "on.", "Why?", "\n", "東京" * 30]), min_size=1, max_size=400))
def test_pieces_are_short_and_nothing_is_lost(parts: list[str]) -> None:
    text = " ".join(parts)
    cut = words.pieces(text)
    assert "".join("".join(cut).split()) == "".join(text.split())
    assert all(len(piece.split()) <= words.PIECE_WORDS for piece in cut)


def test_only_short_questions_ask() -> None:
    assert words.asking("Really? I went by train.") == pytest.approx(1 / 5)
    assert words.asking(" ".join(["word"] * 40) + "?") == 0


# Times


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("last Tuesday", "2026-11-10", "2026-11-10"),
        ("on Monday", "2026-11-09", "2026-11-09"),
        ("next Friday", "2026-11-20", "2026-11-20"),
        ("in May", "2026-05-01", "2026-05-31"),
        ("in December", "2025-12-01", "2025-12-31"),
        ("two weeks ago", "2026-11-01", "2026-11-03"),
        ("yesterday", "2026-11-15", "2026-11-15"),
        ("last weekend", "2026-11-14", "2026-11-15"),
        ("last week", "2026-11-09", "2026-11-15"),
        ("last month", "2026-10-01", "2026-10-31"),
        ("last summer", "2026-06-01", "2026-08-31"),
        ("winter 2023", "2023-12-01", "2024-02-29"),
        ("on the 8th of May, 2023", "2023-05-08", "2023-05-08"),
        ("May 8, 2023", "2023-05-08", "2023-05-08"),
        ("2023-05-08", "2023-05-08", "2023-05-08"),
        ("the week before 16 November 2023", "2023-11-09", "2023-11-15"),
        ("in 2021", "2021-01-01", "2021-12-31"),
    ],
)
def test_a_time_is_read_as_people_mean_it(text: str, first: str, last: str) -> None:
    [span] = spans(f"what was it {text}", TODAY)
    assert (span.first, span.last) == (date.fromisoformat(first), date.fromisoformat(last))


@pytest.mark.parametrize("text", ["I may come", "they march on", "we fall down", "the 40th of Juni", "room 2101", ""])
def test_what_is_no_time_is_none(text: str) -> None:
    assert spans(text, TODAY) == []


@settings(max_examples=60)
@given(st.text(), st.dates())
def test_any_text_can_be_read_for_times(text: str, today: date) -> None:
    assert all(span.first <= span.last for span in spans(text, today))


def test_what_happened_is_told_soon_after() -> None:
    may = Span(date(2023, 5, 1), date(2023, 5, 31), "in May")
    near = [closeness([may], may.last + timedelta(days)) for days in (0, 5, 10, 100)]
    assert near[0] == 1 and near == sorted(near, reverse=True) and near[-1] < 0.01
    told = spans("we went there last month", date(2023, 6, 30))
    assert closeness([may], date(2023, 6, 30), told) == 1


# All together


def test_rare_words_count_for_more_than_frequent_ones() -> None:
    texts = ["the trip was long", "a trip to Porto", "another trip", "trip again", "Porto is nice"]
    assert found(texts, "trip Porto")[0] == 1


def test_an_answer_is_found_by_the_question_before_it() -> None:
    texts = ["Ann: I cook rice.", "Ann: How did you travel to Lisbon?", "Bo: By train.", "Bo: My cat sleeps."]
    assert found(texts, "How did Bo travel to Lisbon?")[:2] == [2, 1]
    assert 2 not in found(texts, "travel to Lisbon", threads=[0, 0, 1, 1])


def test_long_texts_lend_nothing() -> None:
    long = "Lisbon " + "and many other things besides happened then there " * 20
    assert found([long, "By train."], "Lisbon") == [0]


def test_a_long_text_is_found_by_any_part_of_it_and_once() -> None:
    long = " ".join(f"Chapter {n} speaks of things. " * 9 for n in range(9)) + " The password is swordfish."
    assert found([long, "Nothing here.", "A password is needed."], "swordfish password")[:1] == [0]
    assert found([long], "chapter") == [0]


def test_a_named_time_decides_between_like_things() -> None:
    days = [date(2023, 3, 2), date(2023, 5, 8), date(2023, 9, 1)]
    assert found(["We had dinner."] * 3, "Who had dinner in May 2023?", days=days)[0] == 1


def test_it_says_why() -> None:
    texts = ["Where is Lisbon?", "By train in May."]
    made = [
        it for n, text in enumerate(texts) for _, it in fusion.pieces(text, memory=n, place=n, day=date(2026, 5, 3))
    ]
    asked = fusion.question("a train to Lisbon in May", TODAY)
    best = next(
        it for it in fusion.rank(asked, made, boards.Scope(100, 3.0, {"train": 1, "lisbon": 1}), 2) if it.memory
    )
    assert (best.own, best.lent, best.time) == (("train",), ("lisbon",), 1.0)


def test_of_two_alike_the_later_one_comes_first() -> None:
    assert found(["Bo lives in Porto", "Bo lives in Porto"], "Where does Bo live?", threads=[0, 1]) == [1, 0]


@pytest.mark.parametrize("question", ["", "?", "who are you", "\x00", "zzz"])
def test_a_question_that_nothing_fits_finds_nothing(question: str) -> None:
    assert found(["I like tea", "I like rice"], question) == []
    assert found([], question) == []


def test_what_stands_in_counts_less_than_the_word_itself() -> None:
    made = [
        it
        for n, t in enumerate(["a journey", "a trip", "a stone"])
        for _, it in fusion.pieces(t, memory=n, place=9 * n, day=TODAY)
    ]
    asked = fusion.question("trip", TODAY, lambda term: [(words.stem("journey"), 0.8), ("ston", 0.1)])
    assert [it.memory for it in fusion.rank(asked, made, boards.Scope.of(made), 9)] == [1, 0]


# With numpy and without it


@st.composite
def boards_of(draw: st.DrawFn) -> tuple[boards.Question, list[boards.Piece]]:
    terms = st.sampled_from(["ann", "bo", "trip", "train", "rice", "cat"])
    made, place = [], 0
    for n in range(draw(st.integers(0, 30))):
        place += draw(st.sampled_from([1, 1, 1, 2, 9]))
        counts = draw(st.dictionaries(terms, st.integers(1, 3), max_size=4))
        length, asks = draw(st.sampled_from([1, 5, 40, 41])), draw(st.sampled_from([0.0, 0.3, 1.0]))
        made.append(boards.Piece(n, place, draw(st.integers(0, 1)), counts, length, asks, TODAY))
    asked = fusion.question(draw(st.sampled_from(["Ann", "a trip by train", "Bo's cat and rice", "?"])), TODAY)
    alike = {"trip": (("train", 0.7), ("cat", 0.2)), "cat": (("trip", 0.4),)}
    return msgspec.structs.replace(asked, alike=alike), sorted(made, key=lambda it: (it.thread, it.place))


@settings(max_examples=50)
@given(boards_of())
def test_with_numpy_it_is_the_same_to_the_last_bit(given: tuple[boards.Question, list[boards.Piece]]) -> None:
    asked, made = given
    scope = boards.Scope.of(made)
    plain, fast = boards.PlainBoard(asked, made, scope), boards.FastBoard(asked, made, scope, numpy)
    assert plain.by_words() == fast.by_words()
    assert [plain.found(at, 1.0) for at in range(len(made))] == [fast.found(at, 1.0) for at in range(len(made))]
