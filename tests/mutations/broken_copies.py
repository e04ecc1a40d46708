"""Builds copies of the repository, breaks them, and runs a narrow test in each.

The first copy, the *original*, is not broken: every named test must pass there. The mutated copies are made of
hard links to it, so each costs one changed file, and shares the compiled files of all others.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.edit import BadMutant, Edit
from tests.mutations.mutant import Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("src/perdure", "tests", "pyproject.toml")
LEFT = shutil.ignore_patterns("output.txt", "report.xml", "tmp")
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".hypothesis", ".pytest_cache")

SECONDS_MAX = 900
TEST_SECONDS_MAX = 120
HANGING_SECONDS_MAX = 10
TIMED_OUT = "Failed: Timeout"
PROVES_NOTHING = (
    "AttributeError",
    "ImportError",
    "IndentationError",
    "ModuleNotFoundError",
    "NameError",
    "SyntaxError",
    "TypeError",
    "UnboundLocalError",
)
"""A test that fails like this met a mutant that cannot run at all."""


@dataclass(frozen=True)
class Outcome:
    """What pytest said: how each test ended, and why."""

    exit_code: int
    passed: frozenset[str]
    failed: dict[str, str]
    """Name of the test (its parameters cut off) and the first line of why."""
    other: dict[str, str]
    """Errors outside of a test's own code, and skipped ones."""
    output: str


class Workshop:
    """A folder in which mutants are made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.original = folder / "original"
        self._environment = _environment(folder)
        self._warm: list[Warm] = []
        self._idle: queue.SimpleQueue[Warm] = queue.SimpleQueue()

    def build(self) -> None:
        """Make the original."""
        for name in COPIED:
            target = self.original / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=NOT_COPIED)
            else:
                shutil.copy2(ROOT / name, target)

    def try_original(self, tests: Iterable[str]) -> Outcome:
        """Run the tests where nothing is broken."""
        return self._run(self.original, sorted(set(tests)))

    def try_mutant(self, mutant: Mutant) -> Outcome:
        """Break a copy and run the test that must notice."""
        copy = self._folder / mutant.name
        shutil.copytree(self.original, copy, copy_function=os.link, ignore=LEFT)
        try:
            for edit in mutant.edits:
                apply(edit, copy)
            seconds = HANGING_SECONDS_MAX if mutant.hangs else TEST_SECONDS_MAX
            return self._run(copy, [mutant.test], "-x", f"--timeout={seconds}")
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def stop(self) -> None:
        """End what is at work."""
        for warm in self._warm:
            warm.close()

    def _run(self, copy: Path, tests: list[str], *options: str) -> Outcome:
        report = copy / "report.xml"
        arguments = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", f"--basetemp={copy / 'tmp'}", *options]
        environment = {**self._environment, "PYTHONPATH": str(copy / "src"), "TMPDIR": str(copy)}
        try:
            warm = self._idle.get_nowait()
        except queue.Empty:
            warm = Warm(self._environment)
            self._warm.append(warm)
        code = warm.run(copy, environment, [*arguments, *(f"tests/{test}" for test in tests)])
        self._idle.put(warm)
        return read_report(code, report, (copy / "output.txt").read_text("utf-8", errors="replace"))


class Warm:
    """A process of `fork_server.py`."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/mutations/fork_server.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._at_work = 0

    def run(self, copy: Path, environment: dict[str, str], arguments: list[str]) -> int:
        """The exit code of pytest; what it has printed is in the copy."""
        order = {"copy": str(copy), "environment": environment, "arguments": arguments}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._at_work = int(self._process.stdout.readline())
        patience = threading.Timer(SECONDS_MAX, _end_session, [self._at_work])
        patience.start()
        try:
            return int(self._process.stdout.readline())
        finally:
            patience.cancel()
            _end_session(self._at_work)  # whom it has left behind
            self._at_work = 0  # its number may soon be another's

    def close(self) -> None:
        """End it, and what it is at: somebody may have pressed Ctrl-C, which does not reach other sessions."""
        if self._at_work:
            _end_session(self._at_work)
        with self._process:
            self._process.kill()


def _end_session(leader: int) -> None:
    """A broken program may have left children behind that wait for ever."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _environment(folder: Path) -> dict[str, str]:
    """That of a new user, so that neither CI's settings nor those of whoever runs the tests reach the mutants."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTEST_", "XDG_"))}
    kept.pop("CI", None)
    # Protocol is the same on every store, and a server for each mutant would take its time.
    return {**kept, "HOME": str(folder), "PERDURE_HYPOTHESIS": "ci", "PERDURE_TEST_STORES": "sqlite"}


def apply(edit: Edit, copy: Path) -> None:
    """Change one file."""
    path = edit.path(copy)
    text = edit.apply(path)
    # Not in place: the file is a link to the original's, and so is what Python compiled of it.
    path.unlink()
    path.write_text(text, "utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def read_report(exit_code: int, report: Path, output: str) -> Outcome:
    """What the XML says about each test."""
    passed, failed, other = set(), {}, {}
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}".partition("[")[0]
        failure, trouble = case.find("failure"), case.find("error")
        skipped = case.find("skipped")
        if failure is not None:
            failed[name] = str(failure.get("message")).strip().partition("\n")[0]
        elif trouble is not None or skipped is not None:
            found = trouble if trouble is not None else skipped
            assert found is not None
            other[name] = str(found.get("message")).strip().partition("\n")[0]
        else:
            passed.add(name)
    # Of a test with parameters, some may be skipped as long as others run.
    other = {name: why for name, why in other.items() if name not in passed and name not in failed}
    return Outcome(exit_code, frozenset(passed - failed.keys()), failed, other, output)


def name_in_report(test: str) -> str:
    """The name in the XML of the test of a mutant."""
    file, _, function = test.partition("[")[0].partition("::")
    return f"tests.{file.removesuffix('.py').replace('/', '.')}::{function}"


def explain_failure(mutant: Mutant, outcome: Outcome) -> str:
    """Why the named test failed; raises when it did not, or failed for a reason that shows nothing."""
    name = name_in_report(mutant.test)
    if outcome.exit_code == 0:
        raise AssertionError(f"nobody noticed: {mutant.breaks}\n{mutant.test} passes on {mutant.name}")
    if outcome.exit_code != 1 or name not in outcome.failed:
        raise BadMutant(
            f"{mutant.test} did not fail but could not run (exit code {outcome.exit_code})\n{outcome.output}"
        )
    why = outcome.failed[name]
    if why.startswith(PROVES_NOTHING) or (why.startswith(TIMED_OUT) and not mutant.hangs):
        raise BadMutant(f"{mutant.name} is not wrong but broken: {why}")
    return why
