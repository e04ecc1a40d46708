"""Texts of a workspace, without files: merging, PROGRESS.md, the budget of a bootstrap."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.presence.handoff.progress import Progress, validate_report
from perdure.presence.handoff.progress_text import edits, parse, parse_page, render
from perdure.presence.workspace.bootstrap import bootstrap, sections_of
from perdure.presence.workspace.documents import DocumentSet, WorkspaceDocument, append_lines
from perdure.presence.workspace.layout import check_path, is_active
from perdure.presence.workspace.merge import BETWEEN, OURS, THEIRS, MergedText, is_marked, merge, merge_notes
from perdure.values.tokens import estimate_tokens

LINES = st.lists(st.sampled_from("abcdefgh"), max_size=10)
MARKS = {OURS, BETWEEN, THEIRS}


def join_lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@settings(max_examples=100)
@given(base=LINES, ours=LINES, theirs=LINES, ended=st.booleans())
def test_what_one_side_has_added_is_there(base: list[str], ours: list[str], theirs: list[str], ended: bool) -> None:
    texts = [join_lines(lines) if ended else join_lines(lines)[:-1] for lines in (base, ours, theirs)]
    merged = merge(*texts)
    there = merged.text.splitlines()
    new = {*ours, *theirs} - {*base}
    assert new <= {*there}
    once = {line for line in base if all(lines.count(line) == 1 for lines in (base, ours, theirs))}
    assert once <= {*there}, "what nobody has removed stays"
    assert {*there} <= {*base, *ours, *theirs, *(mark.strip() for mark in MARKS)}, "nothing is made up"
    assert merged.conflict == (OURS in merged.text)
    alone = merge(None, *texts[1:])
    assert {*ours, *theirs} <= {*alone.text.splitlines()}, "without a base nothing is taken for removed"
    assert merge(texts[0], texts[1], texts[0]).text == texts[1]
    assert merge(texts[0], texts[0], texts[2]).text == texts[2]
    assert new & {*theirs} <= {*merge_notes(*texts).splitlines()}
    assert {*ours} <= {*merge_notes(*texts).splitlines()} or base == ours


def test_both_versions_are_kept_where_they_contradict_each_other() -> None:
    merged = merge("a\nb\nc\n", "a\nB\nc\n", "a\nX\nc\nd\n")
    assert merged.text == f"a\n{OURS}B\n{BETWEEN}X\n{THEIRS}c\nd\n"
    assert merge("a\n", "a\nb\n", "a\nc\n").text == "a\nb\nc\n", "two additions are no contradiction"
    assert merge("a\nb\nc\n", "b\nc\n", "a\nb\nc\nd\n").text == "b\nc\nd\n", "what one has removed is gone"
    assert merge("a\nb\n", "a\nb\nc\n", "A\r\nb\r\n").text == "A\r\nb\r\nc\r\n", "an editor of another system"
    assert merge("a\r\n", "a\r\nb\r\n", "a\nc\n").text == "a\nb\nc\n"
    assert merge("a\nb\n", "a\nB", "a\nB\n") == MergedText("a\nB\n"), "both say the same"
    assert is_marked(merged.text) and is_marked(merged.text.replace("\n", "\r\n")) and not is_marked(OURS + THEIRS)
    assert append_lines("a\r\nb", "c\nd") == "a\r\nb\r\nc\r\nd\r\n"
    long = join_lines([str(number) for number in range(5000)])
    assert merge(long, "first\n" + long, long + "last\n").text == "first\n" + long + "last\n"


MARKED = ["- [ ] a", "- [x] b", "# Goal", "## Next action", "Blockers: none of ours", "\\# c", "\\", "\\d+", "Goal:"]
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)
SAID = TEXT.filter(lambda text: text.strip().rstrip(".").casefold() not in ("", "none", "nothing", "n/a", "-"))
LINE = SAID | st.sampled_from(MARKED)
ITEMS = st.lists(SAID, max_size=3).map(tuple)
ALL = st.builds(
    Progress,
    TEXT,
    LINE,
    ITEMS,
    ITEMS,
    blockers=ITEMS,
    next_action=LINE,
    context=st.lists(LINE, max_size=3).map("\n".join),
    status=st.sampled_from(["", "finished", "cancelled", "failed", "interrupted", "crashed", "waiting"]),
)


@settings(max_examples=60)
@given(ALL)
def test_progress_is_read_back(text: Progress) -> None:
    assert parse(render([text])) == [text]


def test_edits_of_progress() -> None:
    page = render([Progress("r", "Fly", ("chose",), ("book",), (), "book")])
    edited = page.replace("- [ ] book", "- [x] book\n- [ ] pay").replace("None.", "no money").replace("Fly", "Fly home")
    assert edits(parse(page), parse(page)) == []
    said = {"goal": "Fly home", "blockers": ["no money"], "done": ["book"], "left": ["pay"]}
    assert edits(parse(page), parse(edited)) == [("r", said)]
    told = Progress("r", "Fly", ("chose",), ("book",)).apply_report(said)
    assert (told.goal, told.done, told.left, told.blockers) == ("Fly home", ("chose", "book"), ("pay",), ("no money",))


@pytest.mark.parametrize("name", ["done", "blockers"])
@pytest.mark.parametrize("wrong", [5, 1.5, True, [5], ["a", None], b"bytes", object()])
def test_what_is_no_text_is_refused_by_name(name: str, wrong: object) -> None:
    given = dict.fromkeys(("goal", "done", "blockers", "next_action", "context")) | {name: wrong}
    with pytest.raises(TypeError, match=f"{name}= is a text or several, not "):
        validate_report(**given)  # type: ignore[arg-type]
    assert validate_report(**{**given, name: iter(["a", ""])}) == {name: ["a"]}  # type: ignore[arg-type]


NAMES = {"r": "r", "workflow w": "workflow w"}
OWN = st.lists(st.sampled_from(["## Ideas", "### Next", "# Mine", "- [ ] call Bob", "text", "", "  * [x] paid", "```"]))
PAGES = st.lists(
    st.builds(Progress, st.sampled_from(["", *NAMES]), SAID, ITEMS, ITEMS), max_size=3, unique_by=lambda text: text.run
)


def put_in(page: str, lines: list[str], place: int) -> str:
    """As somebody with an editor does, before one of the headings, or at the end."""
    there = page.split("\n")
    places = [number for number, line in enumerate(there) if line.startswith("#")] + [len(there)]
    at = places[place % len(places)]
    return "\n".join([*there[:at], *lines, *there[at:]])


@settings(max_examples=80)
@given(PAGES, OWN, st.integers(0, 20))
def test_what_people_add_stays_as_they_wrote_it(made: list[Progress], lines: list[str], place: int) -> None:
    """Through any number of pages, once, however often it is read back; and nothing of ours is taken for theirs."""
    own = ["## Ideas", *lines]
    page = parse_page(put_in(render(made), own, place), NAMES)
    notes = page.notes
    assert "\n".join(notes.values()) == "\n".join(own).rstrip("\n")
    again = parse_page(render(made, notes), NAMES)
    assert again.notes == notes
    told = {text.run: text for text in page.sections}
    assert [(told[text.run].goal, told[text.run].blockers) for text in made] == [
        (text.goal, text.blockers) for text in made
    ]
    shown = render(made, notes)
    assert render(made, parse_page(shown, NAMES).notes) == shown


@given(st.lists(st.sampled_from(["Done:", "- [x] login", "## Next", "# Progress: Billing", "", "1. tests"])))
def test_no_line_of_another_harness_is_lost(lines: list[str]) -> None:
    text = "\n".join(lines).strip()
    assert [told.context for told in parse(f"\ufeff{text}\n")] == ([text] if text else [])


def test_the_identity_comes_first_and_a_long_memory_pushes_nothing_out() -> None:
    documents = {
        path: WorkspaceDocument(f"{path} says this.\n") for path in ("SOUL.md", "USER.md", "AGENTS.md", "PROGRESS.md")
    }
    documents["MEMORY.md"] = WorkspaceDocument("a fact that I know\n" * 5000)
    documents["memory/2026-05-02.md"] = WorkspaceDocument("".join(f"- {number} happened\n" for number in range(2000)))
    documents |= {
        "memory/2026-05-01.md": WorkspaceDocument("yesterday\n"),
        "memory/2026-04-30.md": WorkspaceDocument("too old\n"),
    }
    documents |= {"tasks/a.md": WorkspaceDocument("- [ ] to do\n"), "tasks/b.md": WorkspaceDocument("- [x] over\n")}
    woken = bootstrap(sections_of(DocumentSet(1, documents, "", ""), date(2026, 5, 2)), 1000)
    assert woken.tokens <= 1000
    assert [text.path for text in woken.sections] == [
        "SOUL.md", "USER.md", "AGENTS.md", "MEMORY.md", "memory/2026-05-01.md", "memory/2026-05-02.md", "tasks/a.md",
        "PROGRESS.md",
    ]  # fmt: skip
    assert "- 1999 happened" in woken.text, "of a log the newest"
    assert [line.split(":")[0] for line in woken.dropped] == ["MEMORY.md", "memory/2026-05-02.md"]
    assert sum(text.tokens for text in woken.sections) > 900, "what one does not need, others get"


REFUSED = ["", ".", "..", "../SOUL.md", "/etc/passwd", "tasks/../SOUL.md", "tasks/.md", "tasks/a/b.md", "soul.md"]
REFUSED += [
    "tasks/.hidden.md",
    "memory/2026-02-31.md",
    "memory/notes.md",
    "contexts/a\0.md",
    "contexts/a\n.md",
    "SOUL.md/",
]


@pytest.mark.parametrize("path", REFUSED)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a workspace file"):
        check_path(path)


def test_small_things() -> None:
    assert [is_active(text) for text in ("", "- [x] a\n- [ ] b", "status: done\n- [ ] a", "- [x] a\n")] == [
        True,
        True,
        False,
        False,
    ]
    assert estimate_tokens("") == 0
    assert 8 <= estimate_tokens("The agent wakes up and reads who it is.") <= 12
