"""Recall as pure code: what is found, in which order, and why. The quality on real conversations is `bench/recall`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.memory.recall import lexical, ranking, terms
from perdure.memory.recall.confidence import confidence

TODAY = date(2026, 11, 16)  # a Monday


def recall_positions(
    texts: Sequence[str], question: str, *, days: Sequence[date] = (), threads: Sequence[int] = ()
) -> list[int]:
    made: list[lexical.MemoryPiece] = []
    for n, text in enumerate(texts):
        day, thread = (days or [TODAY] * len(texts))[n], (threads or [0] * len(texts))[n]
        made += [piece for _, piece in ranking.pieces(text, memory=n, place=len(made), day=day, thread=thread)]
    return [
        hit.memory
        for hit in ranking.rank(ranking.question(question, TODAY), made, lexical.IndexStatistics.from_pieces(made), 10)
    ]


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
    assert terms.terms(one) == terms.terms(other)


def test_writing_without_spaces_is_found_by_a_part_of_it() -> None:
    assert recall_positions(["東京に行きました", "大阪で食べました", "京都のお寺"], "大阪")[0] == 1
    assert terms.terms("हिन्दी में") == ["हिन्दी", "में"]
    assert recall_positions(["Я живу в Москве", "Она любит чай"], "Кто любит чай?")[0] == 1


def test_small_words_are_no_terms_unless_they_are_names() -> None:
    assert terms.terms("will you be there") == []
    assert terms.terms("I met Will there") == ["meet", "will"]


@settings(max_examples=40)
@given(st.text())
def test_any_text_has_terms_and_sentences(text: str) -> None:
    assert all(term and not any(c.isspace() for c in term) for term in terms.terms(text))
    assert 0 <= terms.question_share(text) <= 1
    assert "".join("".join(terms.pieces(text)).split()) == "".join(text.split())


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["so", "it", "went", "on.", "Why?", "\n", "東京" * 30]), min_size=1, max_size=400))
def test_pieces_are_short_and_nothing_is_lost(parts: list[str]) -> None:
    text = " ".join(parts)
    cut = terms.pieces(text)
    assert "".join("".join(cut).split()) == "".join(text.split())
    assert all(len(piece.split()) <= terms.PIECE_WORDS for piece in cut)


def test_only_short_questions_ask() -> None:
    assert terms.question_share("Really? I went by train.") == pytest.approx(1 / 5)
    assert terms.question_share(" ".join(["word"] * 40) + "?") == 0


# All together


def test_rare_words_count_for_more_than_frequent_ones() -> None:
    texts = ["the trip was long", "a trip to Porto", "another trip", "trip again", "Porto is nice"]
    assert recall_positions(texts, "trip Porto")[0] == 1


def test_an_answer_is_found_by_the_question_before_it() -> None:
    texts = ["Ann: I cook rice.", "Ann: How did you travel to Lisbon?", "Bo: By train.", "Bo: My cat sleeps."]
    assert recall_positions(texts, "How did Bo travel to Lisbon?")[:2] == [2, 1]
    assert 2 not in recall_positions(texts, "travel to Lisbon", threads=[0, 0, 1, 1])


def test_long_texts_lend_nothing() -> None:
    long = "Lisbon " + "and many other things besides happened then there " * 20
    assert recall_positions([long, "By train."], "Lisbon") == [0]


def test_a_long_text_is_found_by_any_part_of_it_and_once() -> None:
    long = " ".join(f"Chapter {n} speaks of things. " * 9 for n in range(9)) + " The password is swordfish."
    assert recall_positions([long, "Nothing here.", "A password is needed."], "swordfish password")[:1] == [0]
    assert recall_positions([long], "chapter") == [0]


def test_a_named_time_decides_between_like_things() -> None:
    days = [date(2023, 3, 2), date(2023, 5, 8), date(2023, 9, 1)]
    assert recall_positions(["We had dinner."] * 3, "Who had dinner in May 2023?", days=days)[0] == 1


def test_it_says_why() -> None:
    texts = ["Where is Lisbon?", "By train in May."]
    made = [
        piece
        for n, text in enumerate(texts)
        for _, piece in ranking.pieces(text, memory=n, place=n, day=date(2026, 5, 3))
    ]
    asked = ranking.question("a train to Lisbon in May", TODAY)
    best = next(
        hit
        for hit in ranking.rank(asked, made, lexical.IndexStatistics(100, 3.0, {"train": 1, "lisbon": 1}), 2)
        if hit.memory
    )
    assert (best.own, best.lent, best.time) == (("train",), ("lisbon",), 1.0)


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        ("before October", {0, 1}),
        ("until the end of September", {0, 1}),
        ("in early October", {2}),
        ("in late October", {3}),
        ("between September 1 and October 5", {1, 2}),
        ("on 10/25/2026", {3}),
        ("after October 5", {3, 4}),
        ("since last week", {4}),
        ("in the last week of September", {1}),
        ("in Q2", {0}),
    ],
)
def test_what_is_of_a_time_comes_before_what_is_not(asked: str, right: set[int]) -> None:
    days = [date(2026, *day) for day in ((5, 2), (9, 28), (10, 4), (10, 25), (11, 10))]
    order = recall_positions(["We played chess"] * len(days), f"What did we play {asked}?", days=days)
    assert set(order[: len(right)]) == right


def test_of_two_alike_the_later_one_comes_first() -> None:
    assert recall_positions(["Bo lives in Porto", "Bo lives in Porto"], "Where does Bo live?", threads=[0, 1]) == [1, 0]


@pytest.mark.parametrize("question", ["", "?", "who are you", "\x00", "zzz"])
def test_a_question_that_nothing_fits_finds_nothing(question: str) -> None:
    assert recall_positions(["I like tea", "I like rice"], question) == []
    assert recall_positions([], question) == []


def test_what_stands_in_counts_less_than_the_word_itself() -> None:
    made = [
        piece
        for n, t in enumerate(["a journey", "a trip", "a stone"])
        for _, piece in ranking.pieces(t, memory=n, place=9 * n, day=TODAY)
    ]
    asked = ranking.question("trip", TODAY, lambda term: [(terms.stem("journey"), 0.8), ("ston", 0.1)])
    assert [hit.memory for hit in ranking.rank(asked, made, lexical.IndexStatistics.from_pieces(made), 9)] == [1, 0]


def test_confidence_is_how_much_of_the_question_is_spoken_of() -> None:
    texts = ["Bo has a cat", "Bo went to Lisbon by train", "Ann likes rice", "Ann went out", "Bo likes tea"]
    made = [
        piece for n, text in enumerate(texts) for _, piece in ranking.pieces(text, memory=n, place=9 * n, day=TODAY)
    ]
    scope = lexical.IndexStatistics.from_pieces(made)

    def best(question: str) -> float:
        asked = ranking.question(question, TODAY)
        return confidence(ranking.rank(asked, made, scope, 1)[0], asked, scope, 0.0)

    assert best("Lisbon by train") == 1.0
    assert 0.3 < best("Lisbon by ship") < 0.7, "what nobody knows counts most of all"
    assert best("Bo and the quarterly invoice") < 0.25 < best("Did Bo go to Lisbon in 1999?") < 1.0
    assert best("Bo's invoice until 2030") < 0.4 < best("Bo's invoice of today"), "much is before 2030"
    found, asked = lexical.RecallMatch(0, 1.0, (), (), 0.0, 0.9), ranking.question("an invoice", TODAY)
    assert confidence(found, asked, scope, 0.9) == 0 < confidence(found, asked, scope, 0.5) == pytest.approx(0.8)


# With numpy and without it


@st.composite
def boards_of(draw: st.DrawFn) -> tuple[lexical.RecallQuestion, list[lexical.MemoryPiece]]:
    terms = st.sampled_from(["ann", "bo", "trip", "train", "rice", "cat"])
    made, place = [], 0
    for n in range(draw(st.integers(0, 30))):
        place += draw(st.sampled_from([1, 1, 1, 2, 9]))
        counts = draw(st.dictionaries(terms, st.integers(1, 3), max_size=4))
        length, asks = draw(st.sampled_from([1, 5, 40, 41])), draw(st.sampled_from([0.0, 0.3, 1.0]))
        made.append(lexical.MemoryPiece(n, place, draw(st.integers(0, 1)), counts, length, asks, TODAY))
    asked = ranking.question(draw(st.sampled_from(["Ann", "a trip by train", "Bo's cat and rice", "?"])), TODAY)
    alike = {"trip": {"train": 0.7, "cat": 0.2}, "cat": {"trip": 0.4}}
    wanted = asked.wanted.union(*(alike[term] for term in asked.terms if term in alike))
    asked = msgspec.structs.replace(asked, alike=alike, wanted=wanted)
    return asked, sorted(made, key=lambda piece: (piece.thread, piece.place))


@settings(max_examples=50)
@given(boards_of())
def test_with_numpy_it_is_the_same_to_the_last_bit(
    given: tuple[lexical.RecallQuestion, list[lexical.MemoryPiece]],
) -> None:
    asked, made = given
    scope = lexical.IndexStatistics.from_pieces(made)
    for hit in ranking.rank(asked, made, scope, 9):
        assert 0 <= confidence(hit, asked, scope, 0.2) <= 1
    plain, fast = lexical.PlainTermScores(asked, made, scope), lexical.NumpyTermScores(asked, made, scope, numpy)
    assert plain.sum_terms() == fast.sum_terms()
    assert [plain.explain_match(at, 1.0) for at in range(len(made))] == [
        fast.explain_match(at, 1.0) for at in range(len(made))
    ]


def test_length_counts_where_texts_are_long_and_hardly_among_short_ones() -> None:
    short, long = (
        terms.length_normalization(2 * mean, mean) / terms.length_normalization(mean, mean) for mean in (12, 90)
    )
    assert short < 1.35 and long > 1.8
    assert terms.length_normalization(30, 30) == pytest.approx(terms.SATURATION)
