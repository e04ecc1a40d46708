"""`claude-progress.txt` in the shapes that people and other harnesses give it: read by words, and no line is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.handoff.foreign import known, read_foreign
from perdure.handoff.progress import Progress
from perdure.handoff.progress_text import edits, parse, render

DONE = [
    "## Completed (5)",
    "## Done:",
    "### What was done this session",
    "**Done**",
    "Completed:",
    "## ✅ Completed",
    "DONE",
]
DONE += ["## What we've finished so far", "# Tasks completed - 3/10", "Finished\n--------", "## 1. Completed steps ##"]
NEXT = ["## Next", "## Next steps", "Next steps:", "### Next session should", "## Next actions (2)", "**Next:**"]
LEFT = ["## todo".upper(), "## To do", "## Remaining", "Upcoming:", "## Features remaining (7)", "## In progress"]
BLOCKED = ["## Blockers", "Blocker(s):", "## Current blocker", "Blocked on:", "### Known issues", "## 🚧 Blocked"]
ITEMS = ["- a\n- b", "* a\n* b", "1. a\n2. b", "• a\n• b", "- a\n\n- b", "  - a\n  - b"]
TICKED = ["✅ a\n☑ b", "[x] a\n[X] b", "- [x] a\n* [x] b", "1. [x] a\n2. [x] b", "- ✅ a\n- ✔️ b"]
OPEN = ["[ ] a\n[ ] b", "- [ ] a\n* [ ] b", "1. [ ] a\n2. [] b", "☐ a\n⬜ b"]


@pytest.mark.parametrize("items", [*ITEMS, *TICKED])
@pytest.mark.parametrize("heading", DONE)
def test_what_is_done(heading: str, items: str) -> None:
    assert parse(f"{heading}\n{items}\n") == [Progress(done=("a", "b"))]


@pytest.mark.parametrize("items", [*ITEMS, *OPEN])
@pytest.mark.parametrize("heading", [*NEXT, *LEFT])
def test_what_is_left_and_its_first_is_next(heading: str, items: str) -> None:
    assert parse(f"{heading}\n\n{items}\n") == [Progress(left=("a", "b"), next_action="a")]


@pytest.mark.parametrize("heading", BLOCKED)
def test_what_blocks(heading: str) -> None:
    for items in ITEMS:
        assert parse(f"{heading}\n{items}\n") == [Progress(blockers=("a", "b"))]
    assert parse(f"{heading}\n\nno key\n") == [Progress(blockers=("no key",))]
    assert parse(f"{heading}\nNone.\n") == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Blocked on: a key", Progress(blockers=("a key",))),
        ("Blocker(s): a key", Progress(blockers=("a key",))),
        ("- **Blocked on**: a key", Progress(blockers=("a key",))),
        ("## Blocked by: a key", Progress(blockers=("a key",))),
        ("Next: pay", Progress(next_action="pay")),
        ("## Next action\n\npay\nat once", Progress(next_action="pay\nat once")),
        ("## Goal: fly", Progress(goal="fly")),
        ("**Objective:** fly", Progress(goal="fly")),
        ("Current task: fly", Progress(goal="fly")),
        ("✅ Done: a", Progress(done=("a",))),
        ("Completed: 3/10\n- a", Progress(done=("a",))),
        ("- Done: a\n- Next: b\n- Blocked: c", Progress(done=("a",), next_action="b", blockers=("c",))),
        ("## Next\n- b\n\n## Next action\npay", Progress(left=("b",), next_action="pay")),
        ("## In progress\n- b\n## Next\n- c", Progress(left=("b", "c"), next_action="c")),
        (
            "## Done\n❌ a\n- [~] b\n- c\n  and d",
            Progress(left=("❌ a", "[~] b"), done=("c and d",), next_action="❌ a"),
        ),
        ("## Status: 3/10 features passing", Progress(context="## Status: 3/10 features passing")),
        ("Owner: Ann", Progress(context="Owner: Ann")),
        ("## Done\n- a\nOwner: Ann\nBob", Progress(done=("a",), context="Owner: Ann\nBob")),
        ("## Done\n- a\n\nSession 2\n- b", Progress(done=("a",), context="Session 2\n- b")),
        ("Done:\n- a\nSession 2 (May)\n=====\n- b", Progress(done=("a",), context="Session 2 (May)\n=====\n- b")),
        ("## Next.js\n- b", Progress(context="## Next.js\n- b")),
        ("## Done by Ann in May\n- a", Progress(done=("a",), context="## Done by Ann in May")),
        ("# Progress\n\n## A\n\n## B", Progress(context="## A\n\n## B")),
        ("I have done a thing: it works", Progress(context="I have done a thing: it works")),
        ("```\n## Done\n- a\n```\n## Done\n- b", Progress(done=("b",), context="```\n## Done\n- a\n```")),
    ],
)
def test_usual_lines(line: str, told: Progress) -> None:
    assert parse(f"{line}\n") == parse(line.replace("\n", "\r\n")) == [told]


def test_several_sessions_in_one_file() -> None:
    [told] = parse(
        "Session 1 (2026-11-01)\n=====\nCompleted:\n- scaffolding\n\nIn progress: payment form\nBlocked on: a key\n"
        "Next steps:\n1. Finish it\n2. Write tests\n\nSession 2\n- fixed login bug\n"
    )
    assert (told.done, told.left) == (("scaffolding",), ("payment form", "Finish it", "Write tests"))
    assert (told.blockers, told.next_action) == (("a key",), "Finish it")
    assert told.context == "Session 1 (2026-11-01)\n=====\n\nSession 2\n- fixed login bug"


HEADINGS = [*DONE, *NEXT, *LEFT, *BLOCKED, "## Goal", "Notes:", "## Status: 3/10 passing", "Session 2", "# Progress: x"]
SHAPES = [
    "{}",
    "- {}",
    "- [x] {}",
    "[ ] {}",
    "✅ {}",
    "1. {}",
    "  {}",
    "## {}",
    "{}:",
    "Owner: {}",
    "Blocked on: {}",
    "**{}**",
]
SHAPES += [
    "Next: {}",
    "- Next: {}",
    "❌ {}",
    "- [~] {}",
    "\\{}",
    "| {} |",
    "> {}",
    "# Progress: {}",
    "Done {}: {}",
    "\t{}",
]
WORDS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["done", "next", "blocked", "pay 5 of 9"])
LINES = st.builds(str.format, st.sampled_from(SHAPES), WORDS, WORDS) | st.sampled_from(
    [*HEADINGS, "", "---", "===", "```"]
)
TEXTS = st.lists(LINES | WORDS, max_size=12).map("\n".join)


def words(text: str) -> set[str]:
    return {*re.findall(r"[^\W_]+", text.casefold())}


def content(line: str) -> str:
    """Without number and box of an item; nothing of a heading that all know, or of a list that says it is empty."""
    text = re.sub(r"^\s*([-*+•‣◦–]|\d{1,4}[.)])\s", "", line).strip()
    text = re.sub(r"^\[[xX]\]( |$)", "", text)
    if re.sub(r"[^a-z/]", "", text.casefold()) in ("none", "noneyet", "nothing", "n/a"):
        return ""
    label, _, rest = text.strip(" #*_✅🚧").partition(":")
    it = known(label)
    return text if it is None or not it.plain else "" if re.fullmatch(r"[\W\d]*(of)?[\W\d]*", rest) else rest


@settings(max_examples=300)
@given(TEXTS)
@example("## Ideas\n## Plans\n\n- [x]\n")
@example("Foo: bar\nBlocked on: a\nBaz: qux")
def test_no_line_is_lost(text: str) -> None:
    page = render([*parse(text)] or [Progress()])
    shown = words(page)
    for line in re.split(r"[\r\n]", text.removeprefix("\ufeff")):
        assert words(content(line)) <= shown, line


@settings(max_examples=200)
@given(TEXTS)
def test_the_page_that_is_made_of_it_says_the_same(text: str) -> None:
    it = read_foreign(text)
    [again] = parse(render([it]))
    assert again == it
    told = Progress()
    for _, said in edits([], parse(text), removes=False):
        told = told.changed(said)
    assert words(render([told])) >= words(render([it])) - {"x"}, "of a box that is there twice, one is not ticked"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "piece", ["# a{} b", "## {}x", "Done:{}5{}x", "- {}- x", "5 {}5", "**{}**a", "-{}- x", "session 2{}."]
)
def test_a_long_line_takes_no_longer_than_others(piece: str) -> None:
    """What reads such a line again and again for every space in it takes hours."""
    parse("\n".join([piece.format(" " * 1_000_000, " " * 1_000_000)] * 5))
