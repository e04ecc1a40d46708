"""Texts of a workspace, without files: merging, PROGRESS.md, the budget of a bootstrap."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.handoff.progress import Progress, said
from perdure.handoff.progress_text import edits, parse, read_page, render
from perdure.tokens import estimated
from perdure.workspace.boot import bootstrap, sections_of
from perdure.workspace.documents import Document, Shelf, with_more
from perdure.workspace.layout import checked_path, is_active
from perdure.workspace.merging import BETWEEN, OURS, THEIRS, Merged, is_marked, merge, merge_notes

LINES = st.lists(st.sampled_from("abcdefgh"), max_size=10)
MARKS = {OURS, BETWEEN, THEIRS}


def joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@settings(max_examples=100)
@given(base=LINES, ours=LINES, theirs=LINES, ended=st.booleans())
def test_what_one_side_has_added_is_there(base: list[str], ours: list[str], theirs: list[str], ended: bool) -> None:
    texts = [joined(lines) if ended else joined(lines)[:-1] for lines in (base, ours, theirs)]
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
    assert merge("a\nb\n", "a\nB", "a\nB\n") == Merged("a\nB\n"), "both say the same"
    assert is_marked(merged.text) and is_marked(merged.text.replace("\n", "\r\n")) and not is_marked(OURS + THEIRS)
    assert with_more("a\r\nb", "c\nd") == "a\r\nb\r\nc\r\nd\r\n"
    long = joined([str(number) for number in range(5000)])
    assert merge(long, "first\n" + long, long + "last\n").text == "first\n" + long + "last\n"


MARKED = ["- [ ] a", "- [x] b", "# Goal", "## Next action", "Blockers: none of ours", "\\# c", "\\", "\\d+", "Goal:"]
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)
SAID = TEXT.filter(lambda it: it.strip().rstrip(".").casefold() not in ("", "none", "nothing", "n/a", "-"))
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
def test_progress_is_read_back(it: Progress) -> None:
    assert parse(render([it])) == [it]


def test_edits_of_progress() -> None:
    page = render([Progress("r", "Fly", ("chose",), ("book",), (), "book")])
    edited = page.replace("- [ ] book", "- [x] book\n- [ ] pay").replace("None.", "no money").replace("Fly", "Fly home")
    assert edits(parse(page), parse(page)) == []
    said = {"goal": "Fly home", "blockers": ["no money"], "done": ["book"], "left": ["pay"]}
    assert edits(parse(page), parse(edited)) == [("r", said)]
    told = Progress("r", "Fly", ("chose",), ("book",)).changed(said)
    assert (told.goal, told.done, told.left, told.blockers) == ("Fly home", ("chose", "book"), ("pay",), ("no money",))


@pytest.mark.parametrize("name", ["done", "blockers"])
@pytest.mark.parametrize("wrong", [5, 1.5, True, [5], ["a", None], b"bytes", object()])
def test_what_is_no_text_is_refused_by_name(name: str, wrong: object) -> None:
    given = dict.fromkeys(("goal", "done", "blockers", "next_action", "context")) | {name: wrong}
    with pytest.raises(TypeError, match=f"{name}= is a text or several, not "):
        said(**given)  # type: ignore[arg-type]
    assert said(**{**given, name: iter(["a", ""])}) == {name: ["a"]}  # type: ignore[arg-type]


NAMES = {"r": "r", "workflow w": "workflow w"}
OWN = st.lists(st.sampled_from(["## Ideas", "### Next", "# Mine", "- [ ] call Bob", "text", "", "  * [x] paid", "```"]))
PAGES = st.lists(
    st.builds(Progress, st.sampled_from(["", *NAMES]), SAID, ITEMS, ITEMS), max_size=3, unique_by=lambda it: it.run
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
    page = read_page(put_in(render(made), own, place), NAMES)
    notes = page.notes
    assert "\n".join(notes.values()) == "\n".join(own).rstrip("\n")
    again = read_page(render(made, notes), NAMES)
    assert again.notes == notes
    told = {it.run: it for it in page.sections}
    assert [(told[it.run].goal, told[it.run].blockers) for it in made] == [(it.goal, it.blockers) for it in made]
    shown = render(made, notes)
    assert render(made, read_page(shown, NAMES).notes) == shown


def test_the_file_of_other_harnesses_is_read() -> None:
    page = "Session 3\n\nCompleted:\n- login page\n2. [x] tests\n\n## In progress\n- docs\n- [x] icons\n"
    [told] = parse(f"{page}\nNext steps: fix the logout\n\n**Blockers:** none\n")
    assert (told.done, told.left) == (("login page", "tests", "icons"), ("docs",))
    assert (told.next_action, told.blockers) == ("fix the logout", ())
    assert told.context == "Session 3"


def test_the_identity_comes_first_and_a_long_memory_pushes_nothing_out() -> None:
    documents = {path: Document(f"{path} says this.\n") for path in ("SOUL.md", "USER.md", "AGENTS.md", "PROGRESS.md")}
    documents["MEMORY.md"] = Document("a fact that I know\n" * 5000)
    documents["memory/2026-05-02.md"] = Document("".join(f"- {number} happened\n" for number in range(2000)))
    documents |= {"memory/2026-05-01.md": Document("yesterday\n"), "memory/2026-04-30.md": Document("too old\n")}
    documents |= {"tasks/a.md": Document("- [ ] to do\n"), "tasks/b.md": Document("- [x] over\n")}
    woken = bootstrap(sections_of(Shelf(1, documents, "", ""), date(2026, 5, 2)), 1000)
    assert woken.tokens <= 1000
    assert [it.path for it in woken.sections] == [
        "SOUL.md", "USER.md", "AGENTS.md", "MEMORY.md", "memory/2026-05-01.md", "memory/2026-05-02.md", "tasks/a.md",
        "PROGRESS.md",
    ]  # fmt: skip
    assert "- 1999 happened" in woken.text, "of a log the newest"
    assert [line.split(":")[0] for line in woken.dropped] == ["MEMORY.md", "memory/2026-05-02.md"]
    assert sum(it.tokens for it in woken.sections) > 900, "what one does not need, others get"


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
    with pytest.raises(ValueError, match="no file of a workspace"):
        checked_path(path)


def test_small_things() -> None:
    assert [is_active(it) for it in ("", "- [x] a\n- [ ] b", "status: done\n- [ ] a", "- [x] a\n")] == [
        True,
        True,
        False,
        False,
    ]
    assert estimated("") == 0
    assert 8 <= estimated("The agent wakes up and reads who it is.") <= 12
