"""The traces that a process leaves in what it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from perdure import Agent
from perdure.platform import descendants
from perdure.platform.descendants import ANCESTORS, find_living_descendant, mark_descendants, mark_of
from perdure.platform.process import Holder, identify_this_process, read_stat
from perdure.values.clock import SYSTEM_CLOCK
from perdure.values.limits import ANCESTORS_MAX
from tests.conformance.kit import fork_program, run_in_child, wait_until
from tests.unit import child

SECONDS = 100.0
HOLD = "import sys; print('begun', flush=True); sys.stdin.read()"


@pytest.fixture
def make_gone_holder() -> Holder:
    """A process of this boot that is not there."""
    return msgspec.structs.replace(identify_this_process(), pid=2**22 + 1, started=1)


@pytest.fixture
def heir(make_gone_holder: Holder) -> Iterator[subprocess.Popen[str]]:
    """A process that was started by the one that is gone."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, ANCESTORS: mark_of(make_gone_holder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    yield process
    child.end(process)


def test_a_process_with_the_mark_is_found_until_it_ends(make_gone_holder: Holder, heir: subprocess.Popen[str]) -> None:
    found = find_living_descendant(make_gone_holder, 0)
    assert found is not None and found.pid == heir.pid and not found.has_ended()
    assert str(found).startswith(f"child process {heir.pid} (") and "print" in str(found)
    heir.kill()
    os.waitid(os.P_PID, heir.pid, os.WEXITED | os.WNOWAIT)
    assert find_living_descendant(make_gone_holder, 0) is None, "a corpse does nothing"
    assert found.has_ended()


def test_only_what_was_started_later_counts(make_gone_holder: Holder, heir: subprocess.Popen[str]) -> None:
    seen = read_stat(f"/proc/{heir.pid}")
    assert seen is not None
    started_ms = seen.started * 1000 // os.sysconf("SC_CLK_TCK")
    assert find_living_descendant(make_gone_holder, started_ms) is not None
    assert find_living_descendant(make_gone_holder, started_ms + 1000) is None
    assert abs(SYSTEM_CLOCK.boot_ms() - started_ms) < 1_000_000, "both count from the same moment"


def test_a_process_without_an_environment_is_looked_at_twice_and_left_alone(make_gone_holder: Holder) -> None:
    """A process that is just executing a program looks the same for a moment."""
    other = subprocess.Popen([sys.executable, "-c", HOLD], env={}, stdin=-1, stdout=-1, text=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "begun\n"
        assert find_living_descendant(make_gone_holder, 0) is None
    finally:
        child.end(other)


def test_what_was_started_in_a_past_boot_is_not_looked_for(
    make_gone_holder: Holder, heir: subprocess.Popen[str]
) -> None:
    assert find_living_descendant(msgspec.structs.replace(make_gone_holder, boot="another"), 0) is None


def test_marks_of_outer_processes_are_kept_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = [f"[1.{number}.1]" for number in range(ANCESTORS_MAX + 5)]
    monkeypatch.setenv(ANCESTORS, " ".join(outer[:2]))
    mark_descendants(identify_this_process())
    mark_descendants(identify_this_process())
    assert os.environ[ANCESTORS].split() == [*outer[:2], mark_of(identify_this_process())]
    monkeypatch.setenv(ANCESTORS, " ".join(outer))
    mark_descendants(identify_this_process())
    assert os.environ[ANCESTORS].split() == [*outer[6:], mark_of(identify_this_process())]


def test_a_run_that_is_opened_leaves_the_mark_again(tmp_path: Path) -> None:
    agent = Agent("a", store=f"sqlite:///{tmp_path / 'a.db'}")
    for name in ("first", "second"):
        os.environ.pop(ANCESTORS, None)  # a program may clean its environment at any time
        with agent.run(name):
            assert os.environ[ANCESTORS] == mark_of(identify_this_process())


def leave_fork(monkeypatch: pytest.MonkeyPatch, identity: Path) -> tuple[Holder, int]:
    """A process that has left its traces, forked and ended; returns who it was, and the fork, which goes on."""

    def parent() -> None:
        mark_descendants(identify_this_process())
        fork = fork_program(signal.pause)
        identity.write_bytes(msgspec.json.encode((identify_this_process(), fork)))

    assert run_in_child(parent) == 0
    return msgspec.json.decode(identity.read_bytes(), type=tuple[Holder, int])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_is_found_by_what_it_has_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    holder, fork = leave_fork(monkeypatch, tmp_path / "identity")
    try:
        found = find_living_descendant(holder, 0)
        assert found is not None and found.pid == fork
        assert find_living_descendant(holder, SYSTEM_CLOCK.boot_ms() + 1000) is None
    finally:
        os.kill(fork, signal.SIGKILL)
    wait_until(lambda: find_living_descendant(holder, 0) is None)


@pytest.fixture
def disable_memory_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A system without `memfd_create`; the folder for its locks."""

    def refuse(name: str) -> int:
        raise OSError

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"perdure-{os.geteuid()}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_elsewhere_a_lock_tells_that_a_fork_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, disable_memory_files: Path
) -> None:
    holder, fork = leave_fork(monkeypatch, tmp_path / "identity")
    try:
        found = find_living_descendant(holder, 0)
        assert found is not None and str(found) == "a fork" and found.advice == ""
        assert not found.has_ended(), "nobody knows"
        assert (disable_memory_files / mark_of(holder)).stat().st_mode & 0o777 == 0o600
    finally:
        os.kill(fork, signal.SIGKILL)
    wait_until(lambda: find_living_descendant(holder, 0) is None)
    assert list(disable_memory_files.iterdir()) == [], "nothing is left lying around"


@pytest.mark.parametrize("trap", ["open to others", "a link"])
def test_a_folder_of_somebody_else_is_not_used(disable_memory_files: Path, tmp_path: Path, trap: str) -> None:
    if trap == "a link":
        (tmp_path / "elsewhere").mkdir(0o700)
        disable_memory_files.symlink_to(tmp_path / "elsewhere")
    else:
        disable_memory_files.mkdir()
        disable_memory_files.chmod(0o777)
    assert descendants._open_trace("[1.2.3]") == -1
    assert list(disable_memory_files.iterdir()) == []
