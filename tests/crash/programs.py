"""Short programs of users, each in a forked process that is killed with SIGKILL at a failpoint and started again.

What really happens outside of Perdure, they write to files. There a test counts effects and paid calls.
"""

from __future__ import annotations

import importlib
import os
import random
import re
import runpy
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site
from tests.conformance.kit import run_in_child

NOT_COUNTED = frozenset({Site.HEARTBEAT, Site.STREAM})
"""They happen at times of their own."""

KEY = re.compile("^[0-9a-f]{32} ")
KILLS_MAX = 4

Hook = Callable[[Site, CommitMoment], None]


def warm(*modules: str) -> None:
    """Import here what every fork would import for itself."""
    for module in modules:
        importlib.import_module(module)


class Program:
    """A program in a folder of its own."""

    def __init__(self, path: Path, folder: Path, store_url: str, **environment: str) -> None:
        self.path = path
        self.folder = folder
        self.environment = {"PERDURE_URL": store_url, **environment}
        self.arguments: tuple[str, ...] = ()
        self.kills = 0

    @property
    def output(self) -> list[str]:
        """The lines that the last start has printed."""
        return (self.folder / "stdout.txt").read_text().splitlines()

    def start(self, hook: Hook | None = None) -> list[str] | None:
        """Run it; the lines that it prints, or None if it was killed."""
        status = run_in_child(lambda: self._main(hook))
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            self.kills += 1
            return None
        assert status == 0, self.output
        return self.output

    def _main(self, hook: Hook | None) -> None:
        os.chdir(self.folder)
        os.environ.update(self.environment)
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder)  # a killed process leaves its files behind
        sys.argv = [str(self.path), *self.arguments]
        sleep = time.sleep
        time.sleep = lambda seconds: sleep(seconds / 50)  # simulated models need not take their time
        with (self.folder / "stdout.txt").open("w", buffering=1) as sys.stdout:
            failpoints.arm(hook)
            runpy.run_path(str(self.path), run_name="__main__")

    def finish(self) -> list[str]:
        """Run it to its end; the lines that it prints."""
        shown = self.start()
        assert shown is not None
        return shown

    def fails_with(self, error: str) -> bool:
        """Run it; whether it ends with this error."""
        told = self.folder / "error.txt"

        def main() -> None:
            try:
                self._main(None)
            except Exception as raised:
                told.write_text(type(raised).__name__)

        assert run_in_child(main) == 0
        return told.exists() and told.read_text() == error

    def killed_at(self, site: Site, moment: CommitMoment, nth: int = 1) -> None:
        """Start it and kill it there."""
        assert self.start(failpoints.kill_at(f"{site}:{moment}#{nth}")) is None, f"it never came to {site} {nth}"

    def survive(self, seed: int, most: int) -> list[str]:
        """Kill it after a random number of moments, up to `most`, until it comes to its end; what it prints then."""
        chance = random.Random(seed)
        for _ in range(KILLS_MAX):
            if (shown := self.start(after(chance.randint(1, most)))) is not None:
                return shown
        return self.finish()

    def outside(self, name: str) -> list[str]:
        """The lines of a file that stands for the world, without their keys."""
        path = self.folder / name
        return [KEY.sub("", line) for line in path.read_text().splitlines()] if path.exists() else []

    def once_each(self, name: str, expected: list[str]) -> None:
        """Check that everything expected happened once, in order."""
        assert self.outside(name) == expected

    def at_most_again(self, name: str, expected: list[str]) -> None:
        """Check that only calls were repeated that were under way at a kill."""
        count = Counter(self.outside(name))
        assert count.keys() == set(expected)
        assert sum(count.values()) - len(expected) <= self.kills


def after(moments: int) -> Hook:
    """Return a hook that kills the process at the given failpoint, counted from its start."""
    left = moments

    def hook(site: Site, moment: CommitMoment) -> None:
        nonlocal left
        left -= site not in NOT_COUNTED
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook
