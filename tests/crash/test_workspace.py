"""The files of a workspace: SIGKILL at every system call that changes one, and a power cut after any of them."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure import Agent
from perdure.platform import failpoints
from tests.conformance.kit import fork_program, run_in_child
from tests.crash.tracer import trace_process

pytestmark = [pytest.mark.stores("sqlite"), pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")]

CHANGES = ("write", "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat")
CALLS = (*CHANGES, "openat", "fsync")
GENERATED = ("PROGRESS.md", "HANDOFF.md")
OLD_LOG = "- a line of an old log\n"


class Call(NamedTuple):
    """A system call of a clean run: the nth of its name, which is how strace counts."""

    name: str
    nth: int
    line: str


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder in which people and the agent have changed something since they were last in step."""
    store, home = tmp_path / "begun/store.db", tmp_path / "begun/home"
    store.parent.mkdir()
    with closing(Agent("tester", store=store)) as agent:
        space = agent.workspace(home, git=False)
        space.write("memory/2025-12-31.md", "- an older one\n")
        space.compact()  # now all that it needs is imported, and later processes open the same files in the same order
        space.write("memory/2026-01-01.md", OLD_LOG)
        space.task("over", "- [x] this one\n")
    (home / "USER.md").write_text("edited\n")
    with closing(Agent("tester", store=store)) as agent:
        agent.state.set("perdure:workspace", "SOUL.md", {"text": "new soul\n"})
        agent.state.delete("perdure:workspace", "tasks/over.md")
    return tmp_path / "begun"


def work(place: Path, *, stopped: bool = False, in_a_run: bool = False) -> None:
    """Everything that is ever done to files: made, replaced, removed, put away."""
    agent = Agent("tester", store=place / "store.db")
    agent.state.get("a", "b")
    if stopped:
        os.kill(os.getpid(), signal.SIGSTOP)
    space = agent.workspace(place / "home", git=False)
    if in_a_run:
        learn = agent.step(name="learn")(lambda: space.append("MEMORY.md", "- learned"))
        with agent.run("r") as run:
            learn()
            run.progress(done="half of it")
    space.task("new", "- [ ] this one\n")
    space.compact()
    agent.close()


def play_traced(strace: str, begun: Path, place: Path, inject: str = "") -> tuple[int, str]:
    """The wait status of a process that does it in a copy of the folder, and its trace."""
    shutil.copytree(begun, place)
    pid = fork_program(lambda: work(place, stopped=True))
    with trace_process(strace, pid, place / "trace", CALLS, inject):
        _, status = os.waitpid(pid, 0)
    return status, (place / "trace").read_text()


def calls_in(trace: str, home: Path) -> list[Call]:
    """Those that have to do with the folder, in order."""
    seen, found = Counter[str](), list[Call]()
    for line in (line.split(maxsplit=1)[1] for line in trace.splitlines()):
        name = line.partition("(")[0]
        seen[name] += 1
        if str(home) in line and (name != "openat" or "O_CREAT" in line):
            found.append(Call(name, seen[name], line))
    return found


def texts(place: Path) -> dict[str, str]:
    home = place / "home"
    return {str(path.relative_to(home)): path.read_text() for path in home.rglob("*.md")}


def test_killed_at_every_system_call_that_changes_a_file(strace: str, begun: Path, tmp_path: Path) -> None:
    """Each file is what it was, or what it is to be: never torn, never empty. The next start does the rest."""
    status, trace = play_traced(strace, begun, tmp_path / "clean")
    assert status == 0
    calls = [call for call in calls_in(trace, tmp_path / "clean/home") if call.name != "fsync"]  # which changes nothing
    assert {call.name for call in calls} >= {"openat", "write", "renameat2", "unlinkat", "mkdirat"}
    before, after = texts(begun), texts(tmp_path / "clean")
    assert after["SOUL.md"] == "new soul\n" and after["memory/archive/2026-01-01.md"] == OLD_LOG
    assert {*before} - {*after} == {"tasks/over.md", "memory/2026-01-01.md"}
    for number, call in enumerate(calls):
        place = tmp_path / str(number)
        status, _ = play_traced(strace, begun, place, f"{call.name}:signal=KILL:when={call.nth}")
        assert os.WIFSIGNALED(status), f"it was not killed at {call}"
        judge(place, before, after, str(call))


def test_killed_at_every_failpoint(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path / "clean")
    reached: list[str] = []
    failpoints.arm(lambda site, moment: reached.append(f"{site}:{moment}"))
    try:
        work(tmp_path / "clean", in_a_run=True)
    finally:
        failpoints.arm(None)
    before, after = texts(begun), texts(tmp_path / "clean")
    assert after["MEMORY.md"].count("- learned\n") == 1
    assert {*reached} >= {"state.write:begun", "step.done:written", "run.write:before", "run.end:after"}
    seen = Counter[str]()
    # Not those at which a process comes and goes: no file is written between them.
    for number, failpoint in enumerate(
        name for name in reached if not name.startswith(("store.", "stream.", "holder."))
    ):
        seen[failpoint] += 1
        place, hook = tmp_path / str(number), failpoints.kill_at(f"{failpoint}#{seen[failpoint]}")
        shutil.copytree(begun, place)

        def doomed(place: Path = place, hook: failpoints.FailpointHook = hook) -> None:
            failpoints.arm(hook)
            work(place, in_a_run=True)

        assert os.WIFSIGNALED(run_in_child(doomed)), f"it was not killed at {failpoint}"
        judge(place, before, after, failpoint, in_a_run=True)


def judge(place: Path, before: dict[str, str], after: dict[str, str], where: str, *, in_a_run: bool = False) -> None:
    """Every file is whole, the old log is somewhere, and the next start comes to the same end."""
    found = texts(place)
    assert {path: text for path, text in found.items() if not _is_whole(path, text, before, after)} == {}, where
    assert OLD_LOG in (found.get("memory/2026-01-01.md"), found.get("memory/archive/2026-01-01.md"))
    work(place, in_a_run=in_a_run)
    ended = {path: text for path, text in texts(place).items() if path not in GENERATED}
    assert ended == {path: text for path, text in after.items() if path not in GENERATED}, where
    shutil.rmtree(place)


def _is_whole(path: str, text: str, before: dict[str, str], after: dict[str, str]) -> bool:
    if path in GENERATED:  # made anew, they say another time
        return text.startswith("# ") and text.endswith("\n")
    if path == "MEMORY.md":  # which gets one line after the other
        return text in {before[path], f"{before[path]}- learned\n", after[path]}
    return text in (before.get(path), after.get(path))


def test_a_file_is_on_disk_before_it_gets_its_name(strace: str, begun: Path, tmp_path: Path) -> None:
    """A power cut leaves a whole file under each name: data is synced before a rename, the folder after it."""
    _, trace = play_traced(strace, begun, tmp_path / "clean")
    unsynced, unnamed, named = set[str](), set[str](), 0
    for call in calls_in(trace, tmp_path / "clean/home"):
        paths = [path for path in re.findall(r"<([^>]+)>", call.line) if path.startswith(str(tmp_path))]
        if call.name == "write":
            unsynced.add(paths[0])
        elif call.name == "fsync":
            unsynced.discard(paths[0])
            unnamed.discard(paths[0])
        elif call.name.startswith(("rename", "link")):
            assert f"{paths[0]}/{call.line.split(chr(34))[1]}" not in unsynced, call.line
            unnamed.add(paths[-1])
            named += 1
    assert (unsynced, unnamed) == (set(), set())
    assert named >= 6
