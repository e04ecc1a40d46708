"""PROGRESS.md and HANDOFF.md: made from the journal, read back, and with what people have written in them."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from perdure import Agent
from perdure.errors import RunCancelled
from perdure.platform.failpoints import CommitMoment, Site
from perdure.presence.handoff.pending import RUNS_TOLD, desk_of

from .kit import agent_at, die, kill_at, run_in_child
from .test_memory_lifecycle import Later
from .test_workspace import edit, text

MINE = "## Ideas\n\nAsk Ann: she knows.\n\n- [ ] call Bob\n  * [ ] buy a map\n\n### Next\n\n1. not ours\n"


def list_remaining(agent: Agent, run: str) -> tuple[str, ...]:
    return agent.runs.progress(run).left


@pytest.mark.parametrize("before", ["", "## Current blocker", "# Progress: trip"])
def test_a_section_of_a_persons_own_stays_as_it_was_written(store_url: str, tmp_path: Path, before: str) -> None:
    """Once, at its place, through any number of pages; and its boxes are read."""
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    search = agent.step(name="search")(lambda city: city)
    with agent.run("trip", input="Fly") as run:
        search("Oslo")
        run.progress(next_action="book it", context="May is full.")
        edit(
            home,
            "PROGRESS.md",
            lambda content: content.replace(before, f"{MINE}\n{before}") if before else f"{content}\n{MINE}",
        )
        for city in ("Rome", "Paris"):
            search(city)
            run.progress(done=f"saw {city}")
            workspace.sync()
    agent_at(store_url).workspace(tmp_path / "other")
    for page in (text(home, "PROGRESS.md"), text(tmp_path / "other", "PROGRESS.md")):
        assert page.count(MINE.strip()) == 1 and page.count("call Bob") == 1 and "\\" not in page
        assert [page.count(word) for word in ("saw Rome", "search (3 times)", "May is full.", "book it")] == [
            1,
            1,
            1,
            1,
        ]
        assert not before or page.index("## Ideas") < page.index(before), "where it was"
    whose = "trip" if before != "# Progress: trip" else ""
    [told] = [progress for progress in workspace.progress() if progress.run == whose]
    assert told.left == ("call Bob", "buy a map")
    assert str(workspace.sync()) == "nothing has changed"
    edit(home, "PROGRESS.md", lambda content: content.replace("Ask Ann: she knows.\n\n", ""))
    workspace.sync()
    with agent.run("another"):
        pass
    page = text(home, "PROGRESS.md")
    assert page.count(MINE.replace("Ask Ann: she knows.\n\n", "").strip()) == 1


def test_boxes_that_people_write_are_what_is_left(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    book = agent.step(name="book")(lambda: None)
    with agent.run("trip", input="Fly") as run:
        run.progress(done="chose the  flight", next_action="pay", context="May")
        edit(home, "PROGRESS.md", lambda content: content + "- [ ] in the context\n")
        assert list_remaining(agent, "trip") == ("in the context",)
        edit(home, "PROGRESS.md", lambda content: content.replace("- [x] chose", "- [ ] book\n* [ ] pay\n- [x] chose"))
        assert list_remaining(agent, "trip") == ("in the context", "book", "pay")
        edit(
            home,
            "PROGRESS.md",
            lambda content: content.replace("- [ ] in", "- [x] in").replace("[x] chose", "[ ] chose"),
        )
        told = agent.runs.progress("trip")
        assert (told.done, told.left) == (("in the context",), ("book", "pay", "chose the flight"))
        book()
        run.progress(done="chose the flight")
        edit(home, "PROGRESS.md", lambda content: content.replace("- [ ] pay\n", ""))
        told = agent.runs.progress("trip")
        assert (told.done, told.left) == (("in the context", "chose the flight", "book"), ())
        edit(home, "PROGRESS.md", lambda content: f"{content}\n## To do\n\n- [ ] call Bob\n")
        assert list_remaining(agent, "trip") == ("call Bob",)
        run.progress(done="call Bob")
        assert text(home, "PROGRESS.md").endswith("\n## To do\n\n- [x] call Bob\n"), "ticked where it stands"
    assert text(home, "PROGRESS.md").count("call Bob") == 1
    workspace.task("unrelated", "- [ ] elsewhere\n")
    assert list_remaining(agent, "trip") == ()


def test_what_is_left_of_a_run_that_is_over_is_not_lost(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    agent.workflows.create(name="move", steps=["pack", "drive"])
    search = agent.step(name="search")(lambda: None)
    with agent.run("trip", input={"goal": "Fly"}) as run:
        search()
        run.progress(done="chose")
        edit(
            home,
            "PROGRESS.md",
            lambda content: content.replace("# Progress: workflow", "- [ ] ask\n\n# Progress: workflow"),
        )
        edit(home, "PROGRESS.md", lambda content: f"{content}- [ ] sweep\n")
    with agent.run("next"):
        workspace.sync()
        told = {progress.run: progress.left for progress in workspace.progress()}
    assert told == {"next": (), "workflow move": ("1 pack", "2 drive", "sweep"), "trip": ("ask",)}
    [shown] = [progress for progress in workspace.progress() if progress.run == "trip"]
    assert shown == agent.runs.progress("trip"), "also what nobody has said of it"
    assert (shown.goal, shown.done) == ("Fly", ("chose", "search"))
    edit(home, "PROGRESS.md", lambda content: content[: content.index("# Progress: workflow")])
    assert {progress.run: progress.left for progress in workspace.progress()} == {
        "next": (),
        "workflow move": ("1 pack", "2 drive"),
    }


@pytest.mark.parametrize("ending", ["finished", "cancelled"])
@pytest.mark.parametrize("folder", [True, False])
def test_a_run_that_is_over_leaves_nothing_to_do(store_url: str, tmp_path: Path, ending: str, folder: bool) -> None:
    """What it had said of blockers and of what comes next is past, wherever it is read; an open box stays."""
    agent, home = agent_at(store_url), tmp_path / "home"
    if folder:
        agent.workspace(home)
    with suppress(RunCancelled), agent.run("trip", input={"goal": "Fly"}) as run:
        run.progress(done="chose", blockers="waiting for Ann", next_action="pay")
        if ending == "cancelled":
            agent.runs.cancel("trip")
            agent.step(name="search")(lambda: None)()
    told = agent.runs.progress("trip")
    past = f"nothing: run trip is {ending}; before that it had said: pay"
    assert (told.status, told.blockers, told.next_action, told.done[0]) == (ending, (), past, "chose")
    page = str(agent.bootstrap())
    page = page[page.index("# Progress: trip") :]
    assert f"\nThis run is {ending}.\n" in page and "Ann" not in page
    assert page.count("pay") == 1 and f"## Next action\n\n{past}\n" in page
    assert "Ann" not in str(agent.runs.handoff("trip"))


def test_a_run_that_can_be_resumed_keeps_what_it_has_said(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    for error, status, line in (
        (ValueError, "failed", "This run has failed, and can be resumed."),
        (KeyboardInterrupt, "interrupted", "This run was interrupted, and can be resumed."),
    ):
        with pytest.raises(error), agent.run("trip") as run:
            run.progress(blockers="waiting for Ann", next_action="pay")
            assert "This run" not in text(home, "PROGRESS.md"), "who is killed could not take it back"
            raise error
        workspace.sync()
        told = agent.runs.progress("trip")
        assert (told.status, told.blockers, told.next_action) == (status, ("waiting for Ann",), "pay")
        page = text(home, "PROGRESS.md")
        assert page.startswith(f"# Progress: trip\n\n{line}\n\n## Goal\n") and "- waiting for Ann\n" in page
    assert str(workspace.sync()) == "nothing has changed"


def test_what_people_say_of_a_run_that_is_over_stays(store_url: str, tmp_path: Path) -> None:
    """They know that it is; and what it had said itself does not come back with that."""
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    with agent.run("trip") as run:
        run.progress(blockers="waiting for Ann", next_action="pay")
    edit(home, "PROGRESS.md", lambda content: f"{content}\n- [ ] call Bob\n")
    assert agent.runs.progress("trip").blockers == ()
    page = text(home, "PROGRESS.md")
    [past] = [line for line in page.split("\n") if line.endswith("pay")]
    edit(home, "PROGRESS.md", lambda content: content.replace(past, "write the bill"))
    for _ in range(2):
        workspace.sync()
        told = agent.runs.progress("trip")
        assert (told.blockers, told.next_action, told.left) == ((), "write the bill", ("call Bob",))
        assert text(home, "PROGRESS.md") == page.replace(past, "write the bill")


def test_boxes_that_say_the_same_are_ticked_one_by_one(store_url: str, tmp_path: Path) -> None:
    """It is done when all of them are, and no tick contradicts another."""
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    with agent.run("trip") as run:
        workspace.sync()
        edit(home, "PROGRESS.md", lambda content: f"{content}\n## Ideas\n\n- [ ] call Bob\n- [ ] call Bob\n- [ ] ask\n")
        for open_box, other, ticks, of_bob in (
            ("- [ ] call Bob", "- [x] call Bob", "x  ", "left"),
            ("- [ ] call Bob", "- [x] call Bob", "xx ", "done"),
            ("- [x] call Bob", "- [ ] call Bob", " x ", "left"),
            ("- [ ] call Bob", "- [x] call Bob", "xx ", "done"),
        ):
            workspace.sync()
            edit(home, "PROGRESS.md", lambda content, old=open_box, new=other: content.replace(old, new, 1))
            for _ in range(2):
                assert workspace.sync().conflicts == ()
                assert text(home, "PROGRESS.md").endswith(
                    "\n- [{}] call Bob\n- [{}] call Bob\n- [{}] ask\n".format(*ticks)
                )
                assert "call Bob" in getattr(agent.runs.progress("trip"), of_bob)
        edit(home, "PROGRESS.md", lambda content: content.replace("- [ ] ask", "- [ ] ask\n- [ ] pay"))
        workspace.sync()
        edit(home, "PROGRESS.md", lambda content: content.replace("- [ ] pay", "- [x] pay"))
        run.progress(done="ask")  # the agent ticks one, and somebody the next
        assert text(home, "PROGRESS.md").endswith("\n- [x] ask\n- [x] pay\n")


@pytest.mark.parametrize("shape", ["crlf", "bom", "unended"])
def test_pages_in_the_shapes_that_editors_have(store_url: str, tmp_path: Path, shape: str) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    with agent.run("trip") as run:
        run.progress(goal="Fly", done="chose")
        page = text(home, "PROGRESS.md").replace("Fly", "Fly home") + "\n## Ideas\n\n- [ ] call Bob"
        data = page.encode() if shape == "unended" else f"\ufeff{page}".encode() if shape == "bom" else b""
        (home / "PROGRESS.md").write_bytes(data or page.replace("\n", "\r\n").encode())
        [told] = workspace.progress()
        assert (told.goal, told.done, told.left) == ("Fly home", ("chose",), ("call Bob",))
        run.progress(done="booked")
        page = text(home, "PROGRESS.md")
        assert [page.count(word) for word in ("Fly home", "chose", "## Ideas", "call Bob", "booked")] == [1] * 5


OTHERS = """# Progress: Billing

Blocked on: a sandbox key

## Next
1. payment form
"""


def test_a_progress_file_of_another_harness_is_context(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    home.mkdir()
    (home / "claude-progress.txt").write_text(OTHERS, "utf-8")
    workspace = agent.workspace(home)
    [told] = workspace.progress()
    assert (told.run, told.done, told.left, told.context) == ("", (), (), OTHERS.strip())
    assert str(workspace.sync()) == "nothing has changed"
    edit(home, "claude-progress.txt", lambda text: text.replace("payment form", "tests"))
    [told] = workspace.progress()
    assert told.context == OTHERS.replace("payment form", "tests").strip()
    assert text(home, "claude-progress.txt") == OTHERS.replace("payment form", "tests"), "Perdure never writes it"


def test_a_progress_file_in_our_shape_is_read(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    home.mkdir()
    (home / "claude-progress.txt").write_text(
        "# Progress\n\n## Goal\n\nBilling\n\n## Completed steps\n\n- [x] login\n- [ ] tests\n\n"
        "## Current blocker\n\n- a key\n\n## Next action\n\nNone.\n",
        "utf-8",
    )
    [told] = agent.workspace(home).progress()
    assert (told.goal, told.done, told.left, told.blockers) == ("Billing", ("login",), ("tests",), ("a key",))


def test_the_handoff_tells_how_far_every_open_run_is(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    for number in range(RUNS_TOLD + 2):
        with pytest.raises(ValueError, match="later"), agent.run(f"trip {number}") as run:
            said = {name: f"the {name} of {number}" for name in ("goal", "next_action", "context")}
            run.progress(blockers=[f"no money {number}", f"no time {number}"], **said)
            raise ValueError("later")
    edit(home, "PROGRESS.md", lambda content: content.replace("the next_action of 3", "ask Ann"))
    for page in (str(agent.handoff()), text(home, "HANDOFF.md"), workspace.handoff()):
        doing = page[
            page.index("## Doing") : page.index("## Cost") if "## Cost" in page else page.index("\n## Handoff")
        ]
        for number in range(RUNS_TOLD + 2):
            named = "ask Ann" if number == 3 else f"the next_action of {number}"
            told = [
                f"goal: `the goal of {number}`",
                f"blocked by: `no money {number}`",
                f"blocked by: `no time {number}`",
            ]
            assert [line for line in (*told, f"next: `{named}`") if f"\n  - {line}\n" not in doing] == []
    assert "- context: `the context of 3`" in str(agent.runs.handoff("trip 3"))
    assert agent.runs.handoff("trip 3").progress.next_action == "ask Ann"


def test_what_people_add_to_a_handoff_stays_as_it_is(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    mine = "## Mine\n\nNothing: no run is unfinished.\n\n- a\n\n- a\n"
    edit(home, "HANDOFF.md", lambda content: f"{content}\n{mine}")
    for number in range(2):
        with agent.run(f"trip {number}") as run:
            run.event("DECISION_MADE", {"number": number})
            workspace.handoff()
        assert text(home, "HANDOFF.md").count(mine) == 1
    assert text(home, "HANDOFF.md").count("\n- a\n") == 2


@pytest.mark.parametrize("by_hand", [True, False])
def test_what_people_write_in_place_of_a_handoff_stands_behind_it(
    store_url: str, tmp_path: Path, by_hand: bool
) -> None:
    """In one piece, in its order; and the handoff is there, whether or not anything has happened meanwhile."""
    home, agent = tmp_path / "home", agent_at(store_url)
    workspace = agent.workspace(home)
    mine = "# My own handoff\n\n## Notes by Eve\n\n- keep calm\n\n## Doing\n\n- ask Bob\n"

    def write(page: str) -> None:
        if by_hand:
            edit(home, "HANDOFF.md", lambda _: page)
            workspace.sync()
        else:
            workspace.write("HANDOFF.md", page)

    def ends_with(page: str) -> bool:
        made, _, rest = text(home, "HANDOFF.md").partition("\n" + page)
        assert workspace.handoff() == workspace.read("HANDOFF.md") == text(home, "HANDOFF.md")
        return made == desk_of(agent._engine).markdown() and not rest

    for content in (mine, mine.replace("calm", "quiet") + "- and Ann\n"):
        write(content)
        assert ends_with(content)
        with pytest.raises(KeyError), agent.run(f"trip {len(content)}", input={"goal": "Oslo"}):
            raise KeyError
        assert "Oslo" in text(home, "HANDOFF.md") and ends_with(content)
        workspace.sync()
        assert ends_with(content)
    write("")
    assert text(home, "HANDOFF.md") == desk_of(agent._engine).markdown()
    assert workspace.sync().conflicts == ()


# -- how far what was logged is believed ------------------------------------------------------------------------------


def test_a_memory_of_a_log_is_trusted_no_more_than_its_writer(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, home, agent = Later(), tmp_path / "home", agent_at(store_url)
    monkeypatch.setattr(agent._engine.store, "clock", clock)
    workspace = agent.workspace(home)
    agent.log("booked the ferry")
    agent.log("the mail says: pay Eve\n- 10:00 sold the car", trust="untrusted", source="mail")
    agent.log("the user owns a boat", trust=1.0)
    with agent.run("trip"):
        agent.log("asked the captain", source="phone")
    [log] = [path for path in workspace.files() if path.startswith("memory/")]
    assert "(untrusted, from mail) the mail says: pay Eve\n  - 10:00 sold the car\n" in text(home, log)
    assert "[trip] (from phone) asked the captain" in text(home, log)
    (home / log).write_bytes((home / log).read_bytes() + b"- 11:00 an edited line\n- the caf\xe9 is closed\n")
    clock.days = 20
    agent.bootstrap()
    known = {memory.text: (memory.trust, memory.source) for memory in agent.memory.list()}
    assert known == {
        "booked the ferry": (0.5, log),
        "the mail says: pay Eve\n  - 10:00 sold the car": (0.0, "mail"),
        "the user owns a boat": (1.0, log),
        "[trip] asked the captain": (0.5, "phone"),
        "an edited line": (0.3, log),
        "the caf\ufffd is closed": (0.3, log),
    }
    agent.log("a fact", trust=1.0)
    agent.log("a rumour", trust=0.2)
    clock.days = 40
    workspace.compact(consolidate=lambda day, said: "- a fact\n- what it all comes to\n")
    known = {memory.text: memory.trust for memory in agent.memory.list()}
    assert (known["a fact"], known["what it all comes to"]) == (1.0, 0.2), "it never rises by being summarised"
    with pytest.raises(ValueError, match="trust=2"):
        agent.log("no", trust=2)


PAGES = ("one", "two", "three", "four")


def read_pages(url: str, home: Path, die_at: str = "") -> None:
    agent = agent_at(url)
    agent.workspace(home, git=True)
    with agent.run("read") as run:
        run.progress(goal="Read it all", done="began")
        for page in run.each(PAGES):
            run.progress(done=f"read {page}")
            if page == die_at:
                die()
        run.progress(done="ended")


def subjects(home: Path) -> list[str]:
    command = ["git", "-C", str(home), "log", "--reverse", "--format=%s"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_the_progress_of_a_loop_is_right_after_a_kill_and_told_once(store_url: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    run_in_child(lambda: read_pages(store_url, home, die_at="three"))
    page = text(home, "PROGRESS.md")
    assert [f"- [x] read {one}" in page for one in PAGES] == [True, True, False, False]
    said = ["The workspace begins", "Done: began (read)", "Done: read one (read)", "Done: read two (read)"]
    assert subjects(home) == said
    assert "read two" in subprocess.check_output(["git", "-C", str(home), "show", "HEAD:PROGRESS.md"], text=True)
    read_pages(store_url, home)
    assert [f"- [x] read {one}" in text(home, "PROGRESS.md") for one in PAGES] == [True] * 4
    said += ["Commit what an earlier process left", "Done: read three (read)", "Done: read four (read)"]
    assert subjects(home) == [*said, "Done: ended (read)", "Run read finished"]


@pytest.mark.parametrize("moment", list(CommitMoment))
def test_a_kill_before_the_commit_of_git_leaves_nothing_uncommitted(
    store_url: str, tmp_path: Path, moment: CommitMoment
) -> None:
    home = tmp_path / "home"
    kill_at(lambda: read_pages(store_url, home), Site.ITEM_DONE, moment, nth=2)
    agent_at(store_url).workspace(home)
    status = subprocess.check_output(["git", "-C", str(home), "status", "--porcelain"], text=True)
    assert status == ""
    assert ("read two" in text(home, "PROGRESS.md")) == (moment == CommitMoment.AFTER)
    read_pages(store_url, home)
    done = [one for one in subjects(home) if one.startswith("Done:")]
    assert len(done) == len(set(done))


def test_progress_in_nested_loops_and_at_item_done_is_shown_when_it_lands(store_url: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    agent = agent_at(store_url)
    agent.workspace(home)
    with agent.run("read") as run:
        for book in run.each(["a", "b"]):
            for page in run.each(["1", "2"]):
                run.progress(done=f"read {book}{page}")
                if page == "2":
                    run.item_done()
                    assert f"read {book}2" in text(home, "PROGRESS.md")
            run.state["last"] = book
    assert agent.runs.get("read").state == {"last": "b"}
