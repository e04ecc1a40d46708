"""The workspace: files and journal in step both ways, whoever changes them, wherever a process is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Agent, AsyncAgent
from perdure.errors import PathRefused, WorkspaceNotFound
from perdure.platform.failpoints import CommitMoment, Site
from perdure.presence.workspace.layout import MARKER

from .kit import agent_at, check_views, kill_at, run_in_child
from .test_transfer import KEY, OPEN


def text(folder: Path, path: str) -> str:
    return (folder / path).read_text("utf-8")


def edit(folder: Path, path: str, change: Callable[[str], str]) -> None:
    """As somebody with an editor does."""
    before = text(folder, path) if (folder / path).exists() else ""
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text(change(before), "utf-8")


def add(line: str) -> Callable[[str], str]:
    return lambda before: before + line + "\n"


def on_top(line: str) -> Callable[[str], str]:
    return lambda before: f"{line}\n{before}"


def the_log(folder: Path) -> str:
    [day] = sorted((folder / "memory").glob("*.md"))
    return day.read_text("utf-8")


def test_both_sides_may_change_everything(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    assert {path.name for path in home.iterdir()} >= {"SOUL.md", "USER.md", "AGENTS.md", "MEMORY.md", "PROGRESS.md"}
    edit(home, "USER.md", add("- likes trains"))
    edit(home, "tasks/paris.md", add("- [ ] hotel"))
    assert set(workspace.sync().read) == {"USER.md", "tasks/paris.md"}
    workspace.append("MEMORY.md", "- knows Paris")
    edit(home, "MEMORY.md", lambda before: before.replace("# Memory", "# What I know"))
    workspace.append("MEMORY.md", "- knows Rome")
    assert text(home, "MEMORY.md").startswith("# What I know\n")
    assert text(home, "MEMORY.md").endswith("- knows Paris\n- knows Rome\n")
    workspace.write("SOUL.md", "I am calm.\n")
    edit(home, "SOUL.md", lambda before: "I am quick.\n")
    workspace.write("SOUL.md", "I am slow.\n")  # both have changed the same line
    assert [line for line in ("I am quick.\n", "I am slow.\n") if line not in text(home, "SOUL.md")] == []
    assert "<<<<<<<" in text(home, "SOUL.md")
    assert workspace.sync().conflicts == ("SOUL.md",), "until somebody decides, whoever has met it first"
    other = tmp_path / "other"  # the same agent elsewhere
    again = agent_at(store_url).workspace(other)
    assert text(other, "SOUL.md") == text(home, "SOUL.md")
    (other / "tasks/paris.md").unlink()
    assert again.sync().removed == ("tasks/paris.md",)
    assert workspace.sync().removed == ("tasks/paris.md",)
    assert not (home / "tasks/paris.md").exists()
    assert [version.deleted for version in workspace.history("tasks/paris.md")] == [False, True]
    assert str(workspace.sync()) == "conflicts SOUL.md"
    edit(home, "SOUL.md", lambda before: "I am calm and quick.\n")
    assert workspace.sync().conflicts == ()
    assert str(workspace.sync()) == "nothing has changed"
    check_views(store_url)


def test_a_log_lands_with_its_step(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    with pytest.raises(WorkspaceNotFound):
        agent.bootstrap()
    agent.log("before there was a folder")
    with agent.run("none") as run:
        run.progress(next_action="find one")
    woken = agent.bootstrap()
    assert [section.part for section in woken.sections] == ["days", "progress"]
    assert "before there was a folder\n" in str(woken) and "find one\n" in str(woken)
    workspace = agent.workspace(home)

    @agent.step
    def work(fails: bool) -> None:
        agent.log("in a step")
        workspace.append("MEMORY.md", "- from a step")
        run.progress(done="half of it")
        assert "in a step" not in the_log(home)
        if fails:
            raise ValueError

    with pytest.raises(ValueError), agent.run("one") as run:  # noqa: PT011
        work(True)
    assert "in a step" not in the_log(home)
    assert "- from a step" not in text(home, "MEMORY.md")
    with agent.run("one") as run:
        work(False)
        run.progress(next_action="rest")
        assert "in a step" in the_log(home), "it has landed"
        assert "- from a step" in text(home, "MEMORY.md")
    for _ in range(2):  # a replay says nothing twice
        assert the_log(home).count("in a step") == 1
        assert text(home, "MEMORY.md").count("- from a step") == 1
        assert "- [x] half of it\n- [x] work\n" in text(home, "PROGRESS.md")
        with agent.run("one") as run:
            work(False)
            run.progress(next_action="rest")
        workspace.sync()
    edit(home, f"memory/{date.today().isoformat()}.md", add("by hand"))
    agent.log("one\nof two lines")
    assert the_log(home).endswith("one\n  of two lines\nby hand\n")


def test_async_agents_have_the_same(store_url: str, tmp_path: Path) -> None:
    async def program() -> None:
        agent, home = AsyncAgent("tester", store=store_url), tmp_path / "home"
        workspace = await agent.workspace(home)
        await workspace.switch("work", "Only work.")
        async with agent.run("r", input="Book a trip") as run:
            await run.progress(done=["chose"], blockers="no money", next_action="ask", context="May")
            [told] = await workspace.progress()
            assert (told.goal, told.done) == ("Book a trip", ("chose",))
            assert (told.blockers, told.next_action) == (("no money",), "ask")
        [told] = await workspace.progress()
        assert (told.done, told.blockers, told.status) == (("chose",), (), "finished")
        assert told == await agent.runs.progress("r")
        await agent.log("noted")
        after = told.next_action
        edit(
            home,
            "PROGRESS.md",
            lambda content: content.replace("- [x] chose", "- [x] chose\n- [x] paid").replace(after, "fly"),
        )
        [told] = await workspace.progress()
        assert (told.done, told.next_action) == (("chose", "paid"), "fly")
        boot = await agent.bootstrap()
        files = [section.path for section in boot.sections]
        assert files[:5] == ["SOUL.md", "USER.md", "AGENTS.md", "MEMORY.md", "contexts/work.md"]
        assert files[-1] == "PROGRESS.md"
        assert "Only work." in str(boot) and "noted" in str(boot)
        small = await agent.bootstrap(60)
        assert small.tokens <= 60 and small.sections[0].path == "SOUL.md" and small.dropped
        exact = await agent.bootstrap(200, tokens=len)
        assert len(str(exact)) == exact.tokens <= 200
        with pytest.raises(WorkspaceNotFound, match="did you mean 'work'"):
            await workspace.switch("wrok")
        with pytest.raises(PathRefused, match="did you mean 'SOUL.md'"):
            await workspace.write("SOUL.ms", "")
        await agent.close()

    asyncio.run(program())


# -- nothing is lost --------------------------------------------------------------------------------------------------

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["edit", "append", "log", "sync", "lose", "cut", "run"]), st.integers(0, 1), st.integers(0, 4)
    ),
    max_size=14,
)


@pytest.mark.stores("sqlite")
@settings(max_examples=15, deadline=None)
@given(actions=ACTIONS)
def test_no_line_is_ever_lost(actions: list[tuple[str, int, int]]) -> None:
    """Two folders of one agent, people in both, and the agent itself: what was added and not removed is everywhere."""
    with tempfile.TemporaryDirectory() as folder:
        lose_nothing(actions, Path(folder))


def lose_nothing(actions: list[tuple[str, int, int]], base: Path) -> None:
    agent = Agent("tester", store=base / "store.db")
    homes = (base / "a", base / "b")
    spaces = [agent.workspace(home, git=False) for home in homes]
    paths = ("USER.md", "MEMORY.md", "tasks/one.md", "PROGRESS.md", "HANDOFF.md")
    added: set[str] = set()
    for number, (what, which, where) in enumerate(actions):
        # In PROGRESS.md a heading of one's own: what stands under ours is said of a run, and goes with it.
        home, path, line = homes[which], paths[where], f"{'## ' if where == 3 else ''}line {number}"
        if what == "edit":
            edit(home, path, on_top(line) if where else add(line))
        elif what == "append":
            spaces[which].append(path, line)
        elif what == "log":
            agent.log(line)
        elif what == "run":
            with agent.run(f"run {number}") as run:
                run.progress(done=f"did {number}")
        elif what == "sync":
            spaces[which].sync()
        elif what == "lose":
            (home / MARKER).unlink(missing_ok=True)
        elif what == "cut" and where < 3 and (home / path).exists():
            *_, gone = ["", *text(home, path).splitlines()]
            edit(home, path, lambda content: "".join(content.splitlines(keepends=True)[:-1]))
            added.discard(gone)
        added |= {line} if what in ("edit", "append", "log") else set()
    for space in (*spaces, *spaces):
        space.sync()
    for home in homes:
        there = {path: text(home, path) for path in _files(home)}
        assert there == {path: text(homes[0], path) for path in _files(homes[0])}
        whole = "\n".join(there.values())
        assert {line for line in added if line not in whole} == set()
    agent.close()


def _files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*.md"))


def test_killed_around_every_commit_of_a_sync(store_url: str, tmp_path: Path) -> None:
    """What was logged is in the file once; what somebody has written stays."""
    home = tmp_path / "home"
    agent = agent_at(store_url)
    agent.workspace(home, git=False)
    agent.close()

    def program() -> None:
        mine = agent_at(store_url)
        mine.workspace(home, git=False).sync()

    for number, moment in enumerate(CommitMoment):
        agent_at(store_url).log(f"logged {number}")
        edit(home, "USER.md", add(f"edited {number}"))
        kill_at(program, Site.STATE, moment)
    assert run_in_child(program) == 0
    assert [the_log(home).count(f"logged {number}") for number in range(4)] == [1, 1, 1, 1]
    assert [text(home, "USER.md").count(f"edited {number}") for number in range(4)] == [1, 1, 1, 1]
    check_views(store_url)


def test_processes_share_a_folder(store_url: str, tmp_path: Path) -> None:
    home, agent = tmp_path / "home", agent_at(store_url)
    workspace = agent.workspace(home, git=False)

    def work(number: int) -> None:
        mine = agent_at(store_url)
        space = mine.workspace(home, git=False)
        for place in range(4):
            mine.log(f"log {number}.{place}")
            space.append("MEMORY.md", f"- fact {number}.{place}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    workspace.sync()
    for number in range(2):
        for place in range(4):
            assert the_log(home).count(f"log {number}.{place}\n") == 1
            assert text(home, "MEMORY.md").count(f"- fact {number}.{place}\n") == 1


# -- handing over -----------------------------------------------------------------------------------------------------


def test_trouble_with_a_file_ends_no_work(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    agent.workspace(home)
    agent.log("first")
    [log] = (home / "memory").glob("*.md")
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with agent.run("trip") as run:
            agent.log("second")
            run.result = "done"
    assert ["not up to date yet" in str(warning.message) for warning in told] == [True, True]
    assert agent.runs.get("trip").result == "done" and not (tmp_path / "elsewhere").exists()
    log.unlink()
    agent.log("third")
    assert [word in log.read_text() for word in ("first", "second", "third")] == [True] * 3


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_sigterm_writes_the_handoff(store_url: str, tmp_path: Path, colour: str) -> None:
    home = tmp_path / "home"

    def program() -> None:
        agent = agent_at(store_url)
        agent.workspace(home)

        @agent.step
        def work() -> None:
            run.event("DECISION_MADE", {"why": "cheapest"})

        with agent.run("trip", input="Book a trip") as run:
            work()
            os.kill(os.getpid(), signal.SIGTERM)

    async def asynchronous() -> None:
        agent = AsyncAgent("tester", store=store_url)
        await agent.workspace(home)

        @agent.step
        async def work() -> None:
            await run.event("DECISION_MADE", {"why": "cheapest"})

        async with agent.run("trip", input="Book a trip") as run:
            await work()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(30)

    status = run_in_child(program if colour == "sync" else lambda: asyncio.run(asynchronous()))
    assert os.WEXITSTATUS(status) == 1, "SystemExit, told by the kit"
    page = text(home, "HANDOFF.md")
    assert "- `trip`: interrupted" in page
    assert "`DECISION_MADE`: `{'why': 'cheapest'}`" in page
    assert "- [x] work\n" in text(home, "PROGRESS.md")
    assert "start the program that opens run trip" in text(home, "PROGRESS.md")
    edit(home, "HANDOFF.md", add("my own note"))
    agent = agent_at(store_url)
    agent.workspace(home)
    with agent.run("trip", input="Book a trip"):
        pass
    assert "no run is unfinished" in text(home, "HANDOFF.md")
    assert "my own note" in text(home, "HANDOFF.md"), "what a person has added stays"
    assert "no run is unfinished" in str(agent.handoff())


def test_old_logs_are_consolidated_and_put_away(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home)
    for day in ("2026-01-01", "2026-01-02"):
        edit(home, f"memory/{day}.md", add(f"on {day}"))
    agent.log("today")
    kept: list[Any] = []

    def consolidate(day: date, said: str) -> str:
        kept.append((day.isoformat(), said))
        return f"learned on {day}"

    assert workspace.compact(consolidate=consolidate) == ("memory/2026-01-01.md", "memory/2026-01-02.md")
    assert kept == [("2026-01-01", "on 2026-01-01\n"), ("2026-01-02", "on 2026-01-02\n")]
    assert "today" in the_log(home)
    assert text(home, "memory/archive/2026-01-02.md") == "on 2026-01-02\n"
    assert "\n\n## 2026-01-02\n\nlearned on 2026-01-02\n" in text(home, "MEMORY.md")
    assert workspace.compact() == ()
    said = ["chose the train to Oslo,\n  which is cheaper", "paid the invoice of Ann", *["looked at the mail"] * 20]
    edit(home, "memory/2026-01-02.md", lambda _: "# Friday\n\n" + "".join(f"- {one}\n" for one in said))
    assert "today" in str(agent.bootstrap()), "which puts old logs away by itself"
    assert text(home, "MEMORY.md").endswith(f"## 2026-01-02\n\n- {said[0]}\n- {said[1]}\n- {said[2]}\n")
    recalled = agent.memory.recall("train")
    assert [(memory.text, memory.source) for memory in recalled][:1] == [
        ("chose the train to Oslo,\n  which is cheaper", "memory/2026-01-02.md")
    ]
    assert recalled[0].valid_from.date() == date(2026, 1, 2)
    assert text(home, "memory/archive/2026-01-02.md").startswith("on 2026-01-02\n# Friday\n"), "nothing is lost"
    assert "today" in the_log(home)


def test_what_is_forgotten_is_in_no_file_and_the_rest_stays(store_url: str, tmp_path: Path) -> None:
    agent, home = agent_at(store_url), tmp_path / "home"
    workspace = agent.workspace(home, git=True)
    secret = "Ann has scurvy"
    edit(home, "memory/2026-01-05.md", lambda _: f"- 10:00 {secret}\n- 11:00 bought bread\n")
    workspace.compact()
    agent.log(secret)
    edit(home, "USER.md", add(f"- {secret}, and likes trains"))
    [kept] = agent.memory.recall("scurvy", k=1)
    told = agent.memory.forget(kept.id, everywhere=True)
    assert told.elsewhere == () and [note[:3] for note in told.notes if note.startswith("git")] == ["git"]
    workspace.sync()
    for path in ("MEMORY.md", "USER.md", "memory/archive/2026-01-05.md", f"memory/{date.today().isoformat()}.md"):
        assert "[forgotten]" in text(home, path) and "scurvy" not in text(home, path)
    assert "bought bread" in text(home, "MEMORY.md") and "likes trains" in text(home, "USER.md")
    versions = [version.text for path in workspace.files() for version in workspace.history(path)]
    assert [content for content in versions if "scurvy" in content] == []
    check_views(store_url)


def test_the_log_goes_on_in_another_store(store_url: str, tmp_path: Path) -> None:
    """Positions of events are a store's own: those of the old one mean nothing in the new one."""
    home, old = tmp_path / "home", Agent("mover", store=tmp_path / "old.db")
    Agent("noise", store=tmp_path / "old.db").log("so that streams have other numbers")
    old.workspace(home, git=False)
    old.log("before")
    old.export(tmp_path / "there.perdure", move=True, **KEY)
    there = Agent.import_from(tmp_path / "there.perdure", store=store_url, **OPEN)
    there.workspace(home, git=False)
    there.log("there")
    there.export(tmp_path / "back.perdure", move=True, **KEY)
    back = Agent.import_from(tmp_path / "back.perdure", store=tmp_path / "back.db", **OPEN)
    back.workspace(home, git=False)
    back.log("back")
    assert [the_log(home).count(said) for said in ("before", "there", "back")] == [1, 1, 1]
