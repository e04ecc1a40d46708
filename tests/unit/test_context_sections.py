"""Sections of a context: who gets which room, of the budget and within a section."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ContextTooSmall
from perdure.presence.context.fill import LEAST, SectionText, allot_room
from perdure.values.tokens import counter, estimate_tokens
from tests.unit.test_context import Stage, words

RULES = "".join(f"Rule {number}: be nice to customer {number}\n" for number in range(3000))
LONG, SHORT = (
    SectionText("identity", RULES, "SOUL.md"),
    SectionText("identity", "Never delete the database.\n", "AGENTS.md"),
)


@pytest.mark.parametrize("budget", [200, 1000, 2000, 8000, 20_000])
@pytest.mark.parametrize("pieces", [(LONG, SHORT), (SHORT, LONG)])
def test_a_long_document_is_cut_and_a_short_one_beside_it_is_not(budget: int, pieces: tuple[SectionText, ...]) -> None:
    stage = Stage()
    stage.say({"role": "user", "content": "hi"})
    context = stage.context(budget, pieces=pieces)
    assert "Never delete" in context.text and "Rule 0:" in context.text
    assert [dropped.what for dropped in context.dropped] == ["SOUL.md"]
    assert budget * 0.9 - 60 <= context.tokens <= budget, "what nobody else needs goes to the long one"
    names = [context.text.index(piece.name) for piece in pieces]
    assert names == sorted(names), "they stand in their order"


def test_a_document_of_one_long_line_leaves_its_room_to_another() -> None:
    stage = Stage()
    context = stage.context(1000, pieces=(LONG, SectionText("identity", words(3000, "line"), "AGENTS.md")))
    assert context.tokens > 850 and "Rule 20:" in context.text
    assert {dropped.what: dropped.why[:3] for dropped in context.dropped} == {"SOUL.md": "cut", "AGENTS.md": "no "}


@given(st.lists(st.tuples(st.integers(1, 500), st.booleans()), max_size=40), st.integers(-10, 3000))
def test_pieces_share_the_room_of_their_section(pieces: list[tuple[int, bool]], room: int) -> None:
    sizes, whole = [size for size, _ in pieces], [piece for _, piece in pieces]
    rooms = allot_room(sizes, whole, room)
    assert sum(rooms) <= max(0, room) and all(own <= size for own, size in zip(rooms, sizes, strict=True))
    assert all(own in (0, size) for own, (size, is_whole) in zip(rooms, pieces, strict=True) if is_whole)
    cut = {own for own, (size, is_whole) in zip(rooms, pieces, strict=True) if 0 < own < size and not is_whole}
    assert all(own >= LEAST for own in cut) and (not cut or max(cut) - min(cut) <= 1), "all long ones have the same"


@pytest.mark.parametrize("budget", [1000, 4000])
def test_a_document_that_is_cut_stays_as_it_is_while_others_grow(budget: int) -> None:
    stage, systems, log, rules = Stage(), list[str](), "", SectionText("identity", RULES[:20_000], "SOUL.md")
    for turn in range(120):
        stage.say({"role": "user" if turn % 2 else "assistant", "content": words(12, turn)})
        log += f"- 10:{turn % 60:02} something has happened\n"
        recalled = tuple(SectionText("recalled", words(6 + turn * 7 % 5, number), whole=True) for number in range(3))
        context = stage.context(
            budget, pieces=(rules, SHORT, SectionText("days", log, "logs/today.md", newest=True), *recalled)
        )
        assert context.tokens <= budget and "Never delete" in context.system
        systems += [] if systems[-1:] == [context.system] else [context.system]
    assert len(systems) <= 12, "it is cut anew when something has doubled, not in each turn"


def test_what_does_not_fit_is_called_what_it_is() -> None:
    stage = Stage()
    stage.say({"role": "system", "content": words(40, "s")}, {"role": "user", "content": words(500, "u")})
    with pytest.raises(
        ContextTooSmall, match="of them messages in their shortest form.* of them system messages"
    ) as error:
        stage.context(50)
    assert "pin" not in str(error.value), "nobody has pinned anything"


@pytest.mark.parametrize("budget", range(100, 300, 10))
def test_no_section_is_refused_that_would_fit(budget: int) -> None:
    stage = Stage()
    stage.say({"role": "system", "content": words(120, "s")}, {"role": "user", "content": words(500, "u")})
    refused = ""
    try:
        assert stage.context(budget, pieces=(LONG,)).tokens <= budget
    except ContextTooSmall as error:
        refused = str(error)
    assert all(int(tokens) > budget for tokens in re.findall(r"takes (\d+) tokens", refused))
    assert ("documents and memories" in refused) is ("layout=" in refused)


def test_a_long_text_is_counted_once() -> None:
    counted = list[str]()

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    once, _ = counter(count)
    assert [once("x" * 5000), once("x" * 5000), once("y" * 5000), once("z")] == [5000, 5000, 5000, 1]
    assert [len(text) for text in counted] == [5000, 5000, 1]
    assert counter(count)[0] is once is counter(once)[0], "another one would count everything anew"
    assert counter(estimate_tokens)[1] and counter(counter(estimate_tokens)[0])[1] and not counter(count)[1]
