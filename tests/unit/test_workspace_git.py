"""Commits that Perdure writes by itself: git finds them right, and nothing outside of the folder changes."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.presence.workspace.root import WorkspaceRoot

from ..conformance.kit import run_in_child

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed while it commits leaves its temporary files behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent("tester", store=tmp_path / "store.db")


def git(home: Path, *arguments: str) -> str:
    who = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    return subprocess.run(["git", *who, *arguments], cwd=home, check=True, capture_output=True, text=True).stdout


def is_whole(home: Path) -> bool:
    """Whether git has nothing to say against a repository, and the last commit is what is in the folder."""
    told = git(home, "fsck", "--full", "--strict", "--no-dangling")
    return not told and not git(home, "status", "--porcelain") and not git(home, "diff", "HEAD")


def make_repository(home: Path, *options: str) -> None:
    """A repository of a person, with files beside those of a workspace, and an old log in an archive."""
    git(home, "init", "--quiet", *options)
    for path in ("a.txt", "tasks/deploy.sh", "memory/archive/notes.txt", "memory.txt", "tasks.d/x", "tasks0"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("mine\n")
    git(home, "add", ".")
    git(home, "commit", "-m", "mine")


@pytest.mark.parametrize("options", [(), ("--object-format=sha256",)], ids=["sha1", "sha256"])
def test_git_finds_nothing_wrong(home: Path, agent: Agent, options: tuple[str, ...]) -> None:
    make_repository(home, *options)
    workspace = agent.workspace(home)
    assert is_whole(home)
    (home / "SOUL.md").chmod(0o755)
    workspace.task("paris", "- [ ] hotel\n")
    workspace.write("memory/2025-01-01.md", "- 10:00 an old line\n")
    workspace.compact()
    workspace.write("USER.md", "new\n")
    assert is_whole(home) and git(home, "ls-tree", "HEAD", "SOUL.md").startswith("100755")
    assert "memory/archive/2025-01-01.md" in git(home, "ls-files")
    git(home, "gc", "--quiet")  # now the branch is in packed-refs, and the objects are in a pack
    workspace.write("USER.md", "newer\n")
    (home / "tasks/paris.md").unlink()
    workspace.sync()
    assert is_whole(home) and "paris" not in git(home, "ls-files")
    assert git(home, "reflog", "--format=%H").split()[0] == git(home, "rev-parse", "HEAD").strip()
    assert git(home, "rev-list", "--count", "HEAD").strip() == str(len(git(home, "reflog").splitlines()))


def test_where_the_branch_is(home: Path, agent: Agent) -> None:
    make_repository(home)
    git(home, "checkout", "--quiet", "-b", "feature/trip")
    workspace = agent.workspace(home)
    assert git(home, "log", "-1", "--format=%s", "feature/trip").strip() == "The workspace begins"
    git(home, "checkout", "--quiet", "--detach")
    workspace.write("USER.md", "detached\n")
    assert is_whole(home) and git(home, "log", "-1", "--format=%s").strip() == "Wrote USER.md"
    assert git(home, "log", "-1", "--format=%s", "feature/trip").strip() == "The workspace begins"


def test_what_git_is_told_to_ignore_anywhere_is_ignored(home: Path, agent: Agent, tmp_path: Path) -> None:
    make_repository(home)
    (tmp_path / "mine").write_text("SOUL.md\n")
    Path("~/.gitconfig").expanduser().write_text(f"[core]\nexcludesFile = {tmp_path}/mine\n")
    (home / ".git/info/exclude").write_text("USER.md\n")
    (home / "tasks/.gitignore").write_text("*\n!kept.md\n")
    workspace = agent.workspace(home)
    workspace.task("kept", "one\n")
    workspace.task("other", "two\n")
    workspace.commit("now")
    files = git(home, "ls-files").split()
    assert {"AGENTS.md", "tasks/kept.md"} <= {*files} and not {"SOUL.md", "USER.md", "tasks/other.md"} & {*files}


def test_a_message_and_a_name_are_only_text(home: Path, tmp_path: Path) -> None:
    agent = Agent("ev<il>\n", store=tmp_path / "store.db")
    workspace = agent.workspace(home, git=True)
    workspace.write("USER.md", "new\n")
    (home / "USER.md").write_text("newer\n")
    workspace.commit("one\n\n\n\ntree 0000\n\0  \n")
    assert git(home, "log", "-1", "--format=%an|%B").startswith("ev il|one\n\ntree 0000\n")
    (home / "USER.md").write_text("newest\n")
    assert workspace.commit(" \n ").notes == ()
    assert is_whole(home)


# -- elsewhere --------------------------------------------------------------------------------------------------------


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _link(name: str) -> Callable[[Path, Path], object]:
    def change(home: Path, outside: Path) -> None:
        (home / ".git" / name).rename(home / f"was-{Path(name).name}")
        (home / ".git" / name).symlink_to(outside / ".git" / name)

    return change


def _head(text: str) -> Callable[[Path, Path], object]:
    return lambda home, outside: (home / ".git/HEAD").write_text(text.format(outside=outside))


def _move_home(home: Path, outside: Path) -> None:
    (home / ".git").rename(home / "was")


LEADING: dict[str, Callable[[Path, Path], Any]] = {
    "file": lambda home, outside: (_move_home(home, outside), (home / ".git").write_text(f"gitdir: {outside}/.git\n")),
    "link": lambda home, outside: (_move_home(home, outside), (home / ".git").symlink_to(outside / ".git")),
    "dangling": lambda home, outside: (_move_home(home, outside), (home / ".git").symlink_to(outside / "new")),
    "objects": _link("objects"),
    "refs": _link("refs"),
    "head": _link("HEAD"),
    "index": _link("index"),
    "hard": lambda home, outside: (
        (home / ".git/index").unlink(),
        os.link(outside / ".git/index", home / ".git/index"),
    ),
    "up": _head("ref: refs/heads/../../../../outside/.git/refs/heads/main\n"),
    "whole": _head("ref: {outside}/.git/refs/heads/main\n"),
    "reftable": _head("ref: refs/heads/.invalid\n"),
}


@pytest.mark.parametrize("way", LEADING)
def test_a_repository_that_leads_elsewhere_is_left_alone(home: Path, agent: Agent, tmp_path: Path, way: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    make_repository(outside, "-b", "main")
    make_repository(home, "-b", "main")
    workspace = agent.workspace(home)
    LEADING[way](home, outside)
    before = read_files(outside)
    (home / "USER.md").write_text("edited\n")
    synced = workspace.sync()
    assert synced.read == ("USER.md",) and synced.commit == ""
    assert len(synced.notes) == 1 and synced.notes[0].endswith("nothing was committed")
    assert read_files(outside) == before and not (outside / "new").exists()
    assert agent.workspace(home, git=True).sync().commit == ""
    assert read_files(outside) == before and not (outside / "new").exists()


def test_another_git_at_work_is_waited_for_by_nobody(home: Path, agent: Agent) -> None:
    workspace = agent.workspace(home, git=True)
    (home / ".git/index.lock").write_text("")
    (home / "USER.md").write_text("edited\n")
    [note] = workspace.sync().notes
    assert "index.lock exists" in note and (home / ".git/index.lock").exists()
    (home / ".git/index.lock").unlink()
    assert workspace.commit("now").commit and is_whole(home)


def test_killed_while_it_commits(home: Path, agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every change of a file: the next commit finds what is missing, and takes away what was left."""
    agent.workspace(home, git=True)
    writes = ("write", "make_new", "append", "remove")
    left, number, killed = 0, 0, True

    def program() -> None:
        nonlocal left
        left = number
        for name in writes:
            real = getattr(WorkspaceRoot, name)

            def counted(root: WorkspaceRoot, path: str, *given: Any, real: Any = real) -> Any:
                nonlocal left
                left -= path.startswith(".git/")
                if left == 0 and path.startswith(".git/"):
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(root, path, *given)

            monkeypatch.setattr(WorkspaceRoot, name, counted)
        Agent("tester", store=tmp_path / "store.db").workspace(home).sync()

    while killed:
        number += 1
        (home / "USER.md").write_text(f"edited {number}\n")
        (home / f"tasks/{number}.md").parent.mkdir(exist_ok=True)
        (home / f"tasks/{number}.md").write_text("new\n")
        killed = run_in_child(program) == signal.SIGKILL
        workspace = Agent("tester", store=tmp_path / "store.db").workspace(home)
        workspace.append("USER.md", f"- after {number}")
        workspace.commit("the rest")
        assert is_whole(home), f"killed at change {number}"
        assert not list((home / ".git").rglob("*.lock"))
    assert number > 10
