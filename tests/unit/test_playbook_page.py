"""The page of a playbook: written, edited, read back; and the prompt of a step."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import WrongValue
from perdure.work.playbooks.definition import DISTILLED, LISTS, Playbook, PlaybookStep, mark_added, read_steps
from perdure.work.playbooks.page import from_markdown, render_step, to_markdown, to_skill

WORDS = st.lists(st.from_regex(r"[a-z{}',.:]{1,8}", fullmatch=True), min_size=1, max_size=5).map(" ".join)
LINES = st.lists(WORDS, max_size=3).map(tuple)
NAMES = st.from_regex(r"[a-z][a-z_]{0,8}[a-z]", fullmatch=True)
STEP = st.builds(PlaybookStep, NAMES, WORDS | st.just(""), **dict.fromkeys(LISTS, LINES))
STEPS = st.lists(STEP, min_size=1, max_size=4, unique_by=lambda step: step.name).map(tuple)
INPUTS = st.lists(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), max_size=3, unique=True).map(tuple)


@given(st.builds(Playbook, st.just("book"), st.just(1), WORDS | st.just(""), INPUTS, STEPS))
def test_a_page_reads_back_as_the_playbook_that_it_shows(book: Playbook) -> None:
    assert from_markdown(book, to_markdown(book)) == book


EDITED = """# Any title

Why we do it.

## 1. search
Look twice.
**Pitfalls**
- the cache
  is stale
- no
## 2. sum up
"""


def test_people_edit_pages_loosely() -> None:
    book = Playbook("book", steps=read_steps(["search", "write"]))
    edited = from_markdown(book, EDITED)
    assert edited.purpose == "Why we do it."
    assert edited.steps == (
        PlaybookStep("search", "Look twice.", pitfalls=("the cache is stale", "no")),
        PlaybookStep("sum up"),
    )


@pytest.mark.parametrize("text", ["", "# Title\n\nno steps\n", "## 1. a\n\n## 2. a\n"])
def test_a_page_without_steps_or_with_two_of_one_name_is_refused(text: str) -> None:
    with pytest.raises(WrongValue):
        from_markdown(Playbook("book"), text)


def test_prompts_begin_the_same_for_every_input_and_keep_to_their_budget() -> None:
    lessons = tuple(f"lesson {number} about a thing that went wrong" for number in range(40))
    book = Playbook(
        "book", 1, "Find out.", ("company",), read_steps([{"name": "search", "pitfalls": lessons, "checks": ["cited"]}])
    )
    one, other = (render_step(book, book.steps[0], 200, {"company": name}) for name in ("Acme", "Globex"))
    stable = one.text[: one.text.index("**Given**")]
    assert other.text.startswith(stable)
    assert one.tokens <= 200 and "cited" in one.text and "lesson 39" not in one.text
    assert "Acme" in one.text and "Acme" not in other.text


def test_a_skill_has_the_front_matter_that_coding_agents_read() -> None:
    text = to_skill(Playbook("book", purpose='Say "hi"', steps=read_steps(["greet"])))
    assert text.startswith('---\nname: book\ndescription: "Say \\"hi\\""\n---\n')


def test_lines_that_a_model_added_are_marked_once() -> None:
    before = Playbook("book", steps=read_steps([{"name": "search", "pitfalls": ["old"]}]))
    after = msgspec.structs.replace(before, steps=read_steps([{"name": "search", "pitfalls": ["old", "new"]}, "extra"]))
    marked = mark_added(before, after)
    assert marked.steps[0].pitfalls == ("old", f"new{DISTILLED}")
    assert mark_added(before, marked) == marked


@given(st.integers(1, 200), st.lists(st.text("ab ", max_size=200), min_size=2, max_size=2))
def test_a_prompt_that_was_cut_begins_like_the_longer_one(budget: int, values: list[str]) -> None:
    lists = {field: [f"{field} {number} of several" for number in range(4)] for field in LISTS}
    book = Playbook("book", 1, "Find out.", ("x",), read_steps([{"name": "search", **lists}]))
    texts = [
        render_step(book, book.steps[0], budget, {"x": value}).text.partition("\n**Given**")[0] for value in values
    ]
    shorter, longer = sorted(texts, key=len)
    assert longer.startswith(shorter)


def test_a_skill_has_a_name_and_a_description_that_coding_agents_accept() -> None:
    lines = to_skill(Playbook("Market Analysis_2", 1, "x" * 2000, steps=read_steps(["a"]))).splitlines()
    assert lines[1] == "name: market-analysis-2"
    assert len(lines[2]) == len('description: ""') + 1024
