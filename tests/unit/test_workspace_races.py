"""People save files at the very moment when they are written, and forget what is just being read: nothing is lost."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure import Agent
from perdure.errors import PathRefused
from perdure.platform import failpoints, files
from perdure.platform.failpoints import CommitMoment, RaceWindow, Site
from perdure.presence.workspace.root import WorkspaceRoot

from ..conformance.kit import run_in_child

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")

WRITING = (RaceWindow.FILE_READ, RaceWindow.FILE_ASIDE)
"""A file that is saved here is replaced by one that does not know of it."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent("tester", store=tmp_path / "store.db")


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    failpoints.set_visitor(None)
    failpoints.arm(None)


def come_in(gap: RaceWindow, do: Callable[[], object], nth: int = 1) -> None:
    """Somebody does something in a gap, the nth time that there is one."""
    left = nth

    def visitor(here: RaceWindow) -> None:
        nonlocal left
        left -= here == gap
        if here == gap and left == 0:
            do()

    failpoints.set_visitor(visitor)


def write_in_place(path: Path, text: str) -> None:
    path.write_text(text)


def write_by_rename(path: Path, text: str) -> None:
    path.with_name("saved").write_text(text)
    path.with_name("saved").rename(path)


def anew(path: Path, text: str) -> None:
    path.unlink()
    path.write_text(text)


def list_left_aside(home: Path) -> list[str]:
    return [path.name for path in home.rglob("*.part")]


@pytest.mark.parametrize("save", [write_in_place, write_by_rename, anew])
@pytest.mark.parametrize("gap", WRITING)
@pytest.mark.parametrize("can_exchange", [True, False])
def test_what_is_saved_in_a_gap_is_there(
    home: Path,
    agent: Agent,
    monkeypatch: pytest.MonkeyPatch,
    save: Callable[..., None],
    gap: RaceWindow,
    can_exchange: bool,
) -> None:
    """In every way that editors have; also where files cannot change places."""
    if not can_exchange:
        monkeypatch.setattr(files, "exchange", files._exchange_slowly)
    workspace = agent.workspace(home, git=False)
    memory = home / "MEMORY.md"
    come_in(gap, lambda: save(memory, memory.read_text() + "- saved\n"))
    workspace.append("MEMORY.md", "- appended")
    assert memory.read_text().splitlines()[-2:] == ["- appended", "- saved"]
    assert workspace.read("MEMORY.md") == memory.read_text()
    assert list_left_aside(home) == []


@pytest.mark.parametrize("gap", [*RaceWindow])
@pytest.mark.parametrize("nth", [1, 2])
def test_killed_after_somebody_has_saved(home: Path, agent: Agent, gap: RaceWindow, nth: int) -> None:
    """What he has saved is in a file beside the other one: the next start finds it."""
    agent.workspace(home, git=False)
    agent.close()
    memory, seen = home / "MEMORY.md", list[RaceWindow]()

    def visitor(here: RaceWindow) -> None:
        seen.append(here)
        if seen == [RaceWindow.FILE_READ]:
            memory.write_text(memory.read_text() + "- saved\n")
        if seen.count(gap) == nth and here == gap:
            os.kill(os.getpid(), signal.SIGKILL)

    def program() -> None:
        failpoints.set_visitor(visitor)
        Agent("tester", store=home.parent / "store.db").workspace(home, git=False).append("MEMORY.md", "- appended")

    assert os.WIFSIGNALED(run_in_child(program)), f"it was not killed at {gap}"
    assert Agent("tester", store=home.parent / "store.db").workspace(home, git=False).sync().conflicts == ()
    lines = memory.read_text().splitlines()
    assert [lines.count(line) for line in ("- appended", "- saved", "# Memory")] == [1, 1, 1]
    assert [name for name in list_left_aside(home) if len(name.split(".")) > 6] == []


@pytest.mark.parametrize("path", ["MEMORY.md", "HANDOFF.md", "tasks/paris.md"])
@pytest.mark.parametrize("save", [write_in_place, write_by_rename])
def test_a_save_that_is_saved_over_is_in_the_history(
    home: Path, agent: Agent, path: str, save: Callable[..., None]
) -> None:
    """An editor reads the file at the moment when a save is not in it, and saves that text later."""
    workspace, file = agent.workspace(home, git=False), home / path
    workspace.append(path, "- begun")
    read, gaps = list[str](), list[RaceWindow]()

    def visitor(here: RaceWindow) -> None:
        gaps.append(here)
        if gaps == [RaceWindow.FILE_READ]:
            save(file, file.read_text() + "- saved\n")
        if gaps.count(RaceWindow.FILE_PLACED) == 1 and here == RaceWindow.FILE_PLACED:
            read.append(file.read_text())
        if gaps.count(RaceWindow.FILE_PLACED) == 2 and here == RaceWindow.FILE_PLACED:
            save(file, read[0] + "- saved over it\n")

    failpoints.set_visitor(visitor)
    workspace.append(path, "- appended")
    failpoints.set_visitor(None)
    workspace.sync()
    assert "- saved" not in read[0].splitlines() and "- saved over it" in file.read_text().splitlines()
    assert any("- saved" in version.text.splitlines() for version in workspace.history(path))
    assert workspace.read(path) == file.read_text() and list_left_aside(home) == []


@pytest.mark.parametrize("where", [*RaceWindow, *CommitMoment])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_before_a_save_is_saved_over(home: Path, agent: Agent, where: str, nth: int) -> None:
    """Between any two things that are done: in a gap, or around a commit."""
    agent.workspace(home, git=False)
    agent.close()
    memory, reached = home / "MEMORY.md", list[str]()
    begun = memory.read_text()

    def visitor(here: str) -> None:
        reached.append(here)
        if reached.count(RaceWindow.FILE_READ) == 1 and here == RaceWindow.FILE_READ:
            memory.write_text(begun + "- saved\n")
        if reached.count(where) == nth and here == where:
            os.kill(os.getpid(), signal.SIGKILL)

    def program() -> None:
        workspace = Agent("tester", store=home.parent / "store.db").workspace(home, git=False)
        failpoints.set_visitor(visitor)
        failpoints.arm(lambda site, moment: visitor(moment) if site == Site.STATE else None)
        workspace.append("MEMORY.md", "- appended")

    assert os.WIFSIGNALED(run_in_child(program)) or nth == 3
    if nth == 1 and where not in (RaceWindow.FILE_PLACED, RaceWindow.FILE_KNOWN):
        return  # nothing has been written over yet: who saves over it now has seen it
    write_by_rename(memory, begun + "- appended\n- saved over it\n")
    workspace = Agent("tester", store=home.parent / "store.db").workspace(home, git=False)
    texts = [version.text.splitlines() for version in workspace.history("MEMORY.md")]
    assert any("- saved" in text for text in texts)
    assert "- saved over it" in memory.read_text().splitlines()


def test_a_save_that_was_an_older_version_counts(home: Path, agent: Agent) -> None:
    """Who takes a line out again, so that the file is what it once was, has done that."""
    workspace, memory = agent.workspace(home, git=False), home / "MEMORY.md"
    older = memory.read_text()
    workspace.append("MEMORY.md", "- wrong")
    come_in(RaceWindow.FILE_READ, lambda: write_by_rename(memory, older))
    workspace.write("MEMORY.md", "- first\n" + older + "- wrong\n")
    assert memory.read_text() == workspace.read("MEMORY.md") == "- first\n" + older


def test_a_file_that_somebody_keeps_open_is_looked_at_later(
    home: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CLOSED_SECONDS_MAX", 0.01)
    workspace = agent.workspace(home, git=False)
    with (home / "MEMORY.md").open("a") as file:
        workspace.append("MEMORY.md", "- appended")
        file.write("- much later\n")  # to a file that has no place any more
    workspace.sync()
    assert (home / "MEMORY.md").read_text().endswith("- appended\n- much later\n")
    assert workspace.read("MEMORY.md") == (home / "MEMORY.md").read_text()
    assert list_left_aside(home) == []


def test_a_file_that_somebody_keeps_open_for_hours_does_not_go(
    home: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was left aside an hour ago is a killed process's, unless somebody may still write to it."""
    monkeypatch.setattr(files, "CLOSED_SECONDS_MAX", 0.01)
    workspace = agent.workspace(home, git=False)
    with (home / "MEMORY.md").open("a") as file:
        workspace.append("MEMORY.md", "- appended")
        [aside] = list_left_aside(home)
        os.utime(home / aside, (0, 0))
        workspace.append("USER.md", "- hours later")
        file.write("- much later\n")
    workspace.sync()
    assert (home / "MEMORY.md").read_text().endswith("- appended\n- much later\n") and list_left_aside(home) == []


@pytest.mark.parametrize("gap", [RaceWindow.FILE_READ, RaceWindow.FILE_PLACED])
def test_a_file_that_is_saved_while_it_is_removed_stays(home: Path, agent: Agent, gap: RaceWindow) -> None:
    workspace = agent.workspace(home, git=False)
    workspace.task("paris", "- [ ] find a hotel\n")
    task = home / "tasks/paris.md"
    come_in(gap, lambda: write_in_place(task, "- [ ] find a hotel\n- [ ] book it\n"))
    workspace.delete("tasks/paris.md")
    assert workspace.read("tasks/paris.md") == task.read_text() == "- [ ] find a hotel\n- [ ] book it\n"
    assert list_left_aside(home) == []


def test_what_takes_the_place_of_a_file_in_a_gap_is_not_swallowed(home: Path, agent: Agent, tmp_path: Path) -> None:
    workspace, memory = agent.workspace(home, git=False), home / "MEMORY.md"
    (tmp_path / "outside").write_text("outside")

    def link() -> None:
        memory.unlink()
        memory.symlink_to(tmp_path / "outside")

    def folder() -> None:
        memory.unlink()
        memory.mkdir()

    for replace in (link, folder):
        come_in(RaceWindow.FILE_ASIDE, replace)
        with pytest.warns(UserWarning, match="not a regular file"):
            workspace.append("MEMORY.md", f"- {replace.__name__}")
        failpoints.set_visitor(None)
        assert memory.is_symlink() or memory.is_dir()
        with pytest.raises(PathRefused):
            workspace.sync()
        memory.rmdir() if memory.is_dir() and not memory.is_symlink() else memory.unlink()
        workspace.sync()
        assert memory.read_text().endswith(f"- {replace.__name__}\n")
    assert (tmp_path / "outside").read_text() == "outside" and list_left_aside(home) == []


def test_a_file_that_is_removed_in_a_gap_is_written_again(home: Path, agent: Agent) -> None:
    """One side has removed it, and the other has changed it: nothing is lost."""
    workspace, memory = agent.workspace(home, git=False), home / "MEMORY.md"
    come_in(RaceWindow.FILE_ASIDE, memory.unlink)
    workspace.append("MEMORY.md", "- appended")
    assert memory.read_text().endswith("- appended\n")


# -- forgetting -------------------------------------------------------------------------------------------------------

SECRET = "Ann has scurvy"


def forget(agent: Agent) -> tuple[str, ...]:
    [kept] = agent.memory.recall("scurvy", k=1)
    return tuple(map(str, agent.memory.forget(kept.id, everywhere=True).elsewhere))


def read_stored_texts(agent: Agent, home: Path) -> list[str]:
    """Everything that the documents have ever been, and the files."""
    space = agent.workspace(home, git=False)
    versions = [version.text for path in space.files() for version in space.history(path)]
    return versions + [path.read_text() for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("gap", WRITING)
@pytest.mark.parametrize("save", [write_in_place, write_by_rename])
def test_what_is_saved_while_something_is_forgotten(
    home: Path, agent: Agent, gap: RaceWindow, save: Callable[..., None]
) -> None:
    """The person's line is there, and what was forgotten does not come back with it, not even in the line itself."""
    workspace, user = agent.workspace(home, git=False), home / "USER.md"
    workspace.append("USER.md", f"- {SECRET}")
    agent.memory.remember(SECRET)
    come_in(gap, lambda: save(user, user.read_text() + f"- likes trains\n- {SECRET}, she says\n"))
    assert forget(agent) == ()
    failpoints.set_visitor(None)
    assert user.read_text().splitlines()[-3:] == ["- [forgotten]", "- likes trains", "- [forgotten], she says"]
    workspace.sync()
    assert [text for text in read_stored_texts(agent, home) if "scurvy" in text] == []


def test_no_process_works_in_the_folder_while_something_is_erased(home: Path, agent: Agent) -> None:
    """A sync that reads a file before, and commits after it, would bring it back."""
    agent.workspace(home, git=False).append("USER.md", f"- {SECRET}")
    agent.memory.remember(SECRET)
    locks: list[int | None] = []
    come_in(RaceWindow.FILE_READ, lambda: locks.append(WorkspaceRoot(home).lock()))

    def hook(site: Site, moment: CommitMoment) -> None:
        if (site, moment) == (Site.FORGET, CommitMoment.BEFORE):
            locks.append(WorkspaceRoot(home).lock())

    failpoints.arm(hook)
    assert forget(agent) == ()
    assert locks == [None, None]
    lock = WorkspaceRoot(home).lock()
    assert lock is not None, "then it is free again"
    os.close(lock)


def test_a_log_that_is_archived_is_saved_while_something_is_forgotten(home: Path, agent: Agent) -> None:
    workspace = agent.workspace(home, git=False)
    workspace.write("memory/2026-01-05.md", f"- 10:00 {SECRET}\n")
    workspace.compact()
    archive = home / "memory/archive/2026-01-05.md"
    come_in(RaceWindow.FILE_ASIDE, lambda: write_in_place(archive, archive.read_text() + "- a note of mine\n"))
    assert forget(agent) == ()
    assert archive.read_text() == "- 10:00 [forgotten]\n- a note of mine\n"


def test_a_folder_that_is_behind_does_not_bring_it_back(home: Path, agent: Agent, tmp_path: Path) -> None:
    """Whatever was edited there meanwhile: what it was last in step with is erased, and nobody can compare."""
    workspace, other = agent.workspace(home, git=False), tmp_path / "other"
    workspace.append("USER.md", f"- {SECRET}\n- lives in Oslo")
    elsewhere = Agent("tester", store=tmp_path / "store.db")
    behind = elsewhere.workspace(other, git=False)
    (other / "USER.md").write_text((other / "USER.md").read_text() + "- likes trains\n")
    agent.workspace(home, git=False)
    agent.memory.remember(SECRET)
    assert forget(agent) == ()
    assert "USER.md" in behind.sync().read
    for folder in (home, other):
        workspace.sync()
        text = (folder / "USER.md").read_text()
        assert text.endswith("- [forgotten]\n- lives in Oslo\n- likes trains\n"), folder
    assert [text for text in read_stored_texts(elsewhere, other) if "scurvy" in text] == []
    (home / "USER.md").write_text(f"- {SECRET}\n")
    workspace.sync()
    assert workspace.read("USER.md") == f"- {SECRET}\n", "who writes it again has written it"


def test_a_document_that_has_it_again_is_not_removed(home: Path, agent: Agent, tmp_path: Path) -> None:
    """Somebody writes it elsewhere, between the redaction and the erasure."""
    workspace = agent.workspace(home, git=False)
    workspace.append("USER.md", f"- lives in Oslo\n- {SECRET}")
    agent.memory.remember(SECRET)
    other, done = Agent("tester", store=tmp_path / "store.db"), list[str]()

    def hook(site: Site, moment: CommitMoment) -> None:
        if site == Site.STATE and moment == CommitMoment.AFTER and not done:
            done.append("once")
            other.state.update("perdure:workspace", "USER.md", lambda item: {"text": item["text"] + f"- {SECRET}\n"})

    failpoints.arm(hook)
    [left, *_] = forget(agent)
    assert "forget it again" in left
    assert workspace.read("USER.md").endswith(f"- lives in Oslo\n- [forgotten]\n- {SECRET}\n")  # type: ignore[union-attr]


def test_what_was_written_with_it_stays(home: Path, agent: Agent) -> None:
    """One sync reads many files: they are one entry, which is erased as a whole."""
    workspace = agent.workspace(home, git=False)
    with agent.run("trip"):
        pass
    (home / "USER.md").write_text(f"- {SECRET}\n")
    (home / "MEMORY.md").write_text("- knows Rome\n")
    (home / "PROGRESS.md").write_text((home / "PROGRESS.md").read_text() + "\n- [ ] call Bob\n")
    workspace.sync()
    agent.memory.remember(SECRET)
    assert forget(agent) == ()
    assert [text for text in read_stored_texts(agent, home) if "scurvy" in text] == []
    assert (home / "MEMORY.md").read_text() == workspace.read("MEMORY.md") == "- knows Rome\n"
    assert [progress.left for progress in workspace.progress()] == [("call Bob",)]


def test_opening_a_file_for_writing_ends_no_process(tmp_path: Path) -> None:
    """The kernel sends a signal to a process that has a lease on a file which somebody opens for writing."""
    file, real, opened = tmp_path / "SOUL.md", fcntl.fcntl, list[str]()
    file.write_text("calm\n")
    has_leases = hasattr(fcntl, "F_SETLEASE")  # Linux only

    def in_between(descriptor: int, command: int, argument: int = 0) -> int:
        done = int(real(descriptor, command, argument))
        if command == fcntl.F_SETLEASE and argument == fcntl.F_RDLCK:
            with pytest.raises(BlockingIOError):
                os.open(file, os.O_WRONLY | os.O_NONBLOCK)
            opened.append("while it was looked at")
        return done

    def look() -> None:
        fcntl.fcntl = in_between
        assert files.read_stable(os.open(file, os.O_RDONLY), wait=False).data == b"calm\n"
        assert opened or not has_leases

    assert run_in_child(look) == 0
