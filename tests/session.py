"""What one session of the tests owns: a folder for temporary files, and every process that its tests started.

The folder is the session's TMPDIR, in memory where there is room: fsync costs milliseconds on a disk, and what survives
SIGKILL is in the page cache anyway. Child processes inherit TMPDIR, which tells whose they are. A session that leaves
a process or a file behind fails, names it, and clears it away.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 6 * 2**30
"""Containers often have 64 MB there. A session fills half of this, and a machine without memory kills processes."""

PREFIX = "perdure-tests-"
ABANDONED_SECONDS = 3600
"""After this long, the folder of a session that was killed, or kept for its failures, is removed by the next one."""

ENDING_SECONDS_MAX = 30.0
"""Processes get this long to end by themselves. A session without leftovers does not wait."""


@dataclass(frozen=True)
class Process:
    """One row of /proc."""

    pid: int
    parent: int
    group: int
    command: str
    environment: frozenset[str]

    @property
    def test(self) -> str:
        """The test that started the process, by the variable that pytest sets."""
        prefix = "PYTEST_CURRENT_TEST="
        return next((text.removeprefix(prefix) for text in self.environment if text.startswith(prefix)), "unknown test")


def processes() -> Iterator[Process]:
    """All that live and that this user may look at. Zombies have ended."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                state, parent, group, *_ = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if state != "Z":
                    words = (folder / "environ").read_bytes().decode("utf-8", "replace").split("\0")
                    command = (folder / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ").strip()
                    yield Process(int(folder.name), int(parent), int(group), command, frozenset(words))


def find_left_running(folder: Path) -> list[Process]:
    """The processes of the session with this folder, except this process and its ancestors."""
    everyone = {process.pid: process for process in processes()}
    me = everyone.pop(os.getpid())
    ancestor = me.parent
    while ancestor in everyone:
        ancestor = everyone.pop(ancestor).parent

    def ours(process: Process) -> bool:
        if "multiprocessing.resource_tracker" in process.command:
            return False  # it ends when its parent does, which may be this process
        forked = process.command == me.command and process.group == me.group  # its environment is older than TMPDIR
        return forked or any(text.startswith(f"TMPDIR={folder}") for text in process.environment)

    return [process for process in everyone.values() if ours(process)]


def make_folder() -> Path:
    """A folder that child processes of another user may enter, as the PostgreSQL server has to."""
    for base in (MEMORY, Path(tempfile.gettempdir())):
        for old in base.glob(f"{PREFIX}*"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > ABANDONED_SECONDS and not find_left_running(old):
                    shutil.rmtree(old, ignore_errors=True)
    within = PREFIX in tempfile.gettempdir()  # a test runs pytest
    roomy = MEMORY.is_dir() and min(shutil.disk_usage(MEMORY).free, _memory_available()) >= MEMORY_BYTES_MIN
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY if roomy and not within else None))
    folder.chmod(0o711)
    return folder


def _memory_available() -> int:
    """In bytes. A file system in memory may promise more than there is."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


class Session:
    """The folder of this session, and the check at its end."""

    def __init__(self) -> None:
        self._outer = os.environ.get("TMPDIR")
        self.folder = make_folder()
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder)
        self.left: list[str] = []

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Innermost of the wrappers: the workers have ended, and the summary is not yet written."""
        yield
        self.left = [*self._end_processes(), *self._files()]
        if self.left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left:
            terminalreporter.section("left behind", red=True)
            for line in self.left:
                terminalreporter.line(line)

    @pytest.hookimpl
    def pytest_unconfigure(self) -> None:
        """Remove the folder. What pytest keeps of failed tests stays, until a session an hour later removes it."""
        kept = [path for path in self.folder.glob("pytest-of-*/*") if any(path.iterdir())]
        if not kept:
            shutil.rmtree(self.folder, ignore_errors=True)
        tempfile.tempdir = None
        if self._outer is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = self._outer

    def _end_processes(self) -> list[str]:
        patience = time.monotonic() + ENDING_SECONDS_MAX
        while (left := find_left_running(self.folder)) and time.monotonic() < patience:
            time.sleep(0.05)
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return [f"process {process.pid} of {process.test}: {process.command}" for process in left]

    def _files(self) -> list[str]:
        known = ("pytest-of-", ".ses")  # onnxruntime writes the second one when it is imported
        return [f"file {path}" for path in self.folder.iterdir() if not path.name.startswith(known)]


def install(config: pytest.Config) -> None:
    """Once per session: the workers inherit the folder of the process that started them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Session(), "perdure-session")
