"""The short programs that users write first, killed again and again, at every kind of instant, on both stores.

They are the examples. Each runs in a process of its own that is killed with SIGKILL at a failpoint, and is started
again until it comes to its end. Then the files outside say what has really happened.
"""

from __future__ import annotations

import os
import random
import re
import runpy
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site
from tests.conformance.kit import in_child

EXAMPLES = Path(__file__).parents[2] / "examples"
NOT_COUNTED = frozenset({Site.HEARTBEAT, Site.STREAM})
"""They come when they come."""

KEY = re.compile("^[0-9a-f]{32} ")
KILLS_MAX = 12


class Program:
    """One of the examples, in an empty folder."""

    def __init__(self, name: str, folder: Path, store_url: str) -> None:
        self.name = name
        self.folder = folder
        self.store_url = store_url
        self.kills = 0

    def start(self, hook: Callable[[Site, CommitMoment], None] | None = None) -> list[str] | None:
        """Run it to its end: the lines that it prints then. None when it was killed."""
        shown = self.folder / "stdout.txt"

        def program() -> None:
            os.chdir(self.folder)
            os.environ["PERDURE_URL"] = self.store_url
            os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder)  # a killed process leaves its files behind
            with shown.open("w") as sys.stdout:
                failpoints.arm(hook)
                runpy.run_path(str(EXAMPLES / self.name), run_name="__main__")

        status = in_child(program)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            self.kills += 1
            return None
        assert status == 0
        return shown.read_text().splitlines()

    def begun(self) -> str:
        """The first line of the last start."""
        return (self.folder / "stdout.txt").read_text().splitlines()[0]

    def survive(self, seed: int, most: int) -> list[str]:
        """Kill it after a random number of instants, up to so many, until it is done; what it prints at last."""
        chance = random.Random(seed)
        for _ in range(KILLS_MAX):
            if (shown := self.start(_after(chance.randint(1, most)))) is not None:
                return shown
        shown = self.start()
        assert shown is not None
        return shown

    def outside(self, name: str) -> list[str]:
        """The lines of a file that stands for the world, without their keys."""
        return [KEY.sub("", line) for line in (self.folder / name).read_text().splitlines()]

    def once_each(self, name: str, expected: list[str]) -> None:
        """What happened is what should have, each once and in order."""
        assert self.outside(name) == expected

    def at_most_again(self, name: str, expected: list[str]) -> None:
        """What may be repeated was, but only what was under way when it was killed."""
        count = Counter(self.outside(name))
        assert count.keys() == set(expected)
        assert sum(count.values()) - len(expected) <= self.kills


def _after(instants: int) -> Callable[[Site, CommitMoment], None]:
    left = instants

    def hook(site: Site, moment: CommitMoment) -> None:
        nonlocal left
        left -= site not in NOT_COUNTED
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def pages(item: Program) -> None:
    """A page counter and a findings list in `agent.state`."""
    assert item.start(failpoints.kill_at(f"{Site.STATE}:{CommitMoment.AFTER}#30")) is None
    assert item.start(failpoints.kill_at(f"{Site.STATE}:{CommitMoment.BEGUN}#1")) is None
    assert item.begun() == "begin at page 31"
    assert item.survive(seed=1, most=20)[-1] == "40 findings"
    item.at_most_again("pages.txt", [str(page) for page in range(1, 41)])


def workflow(item: Program) -> None:
    """`agent.workflows.create(...)` with four steps, gone on with at step 3: by the program, and by `resume()`."""
    # Made, two steps started and completed, the third one started.
    assert item.start(failpoints.kill_at(f"{Site.WORKFLOW}:{CommitMoment.AFTER}#6")) is None
    assert item.start(failpoints.kill_at(f"{Site.WORKFLOW}:{CommitMoment.BEGUN}#1")) is None
    assert item.begun() == "3 write"
    assert item.start(failpoints.kill_at(f"{Site.STEP_DONE}:{CommitMoment.BEFORE}#3")) is None
    assert item.outside("work.txt") == ["scrape", "analyse", "write", "check", "site", "mail", "chat"]
    assert item.start(failpoints.kill_at(f"{Site.WORKFLOW}:{CommitMoment.BEGUN}#1")) is None
    assert item.begun() == "sending: 50% done"
    assert item.survive(seed=5, most=12)[-1] == "feed is done 100%"
    places = ["site", "mail", "chat", "feed"]
    item.at_most_again("work.txt", ["scrape", "analyse", "write", "check", *places])


def checkpoints(item: Program) -> None:
    """`agent.checkpoint.create("analysis-30pct", ...)`, and `.restore(...).next_action`."""
    assert item.start(failpoints.kill_at(f"{Site.CHECKPOINT}:{CommitMoment.AFTER}#3")) is None
    assert item.start(failpoints.kill_at(f"{Site.CHECKPOINT}:{CommitMoment.WRITTEN}#1")) is None
    assert item.begun() == "analysis-30pct: read page 31"
    assert item.survive(seed=2, most=12)[-1] == "100 findings"
    assert set(item.outside("analysed.txt")) == {str(page) for page in range(1, 101)}


def reviews(item: Program) -> None:
    """A review of 50 files that continues at file 31, and posts no comment twice."""
    assert item.start(failpoints.kill_at(f"{Site.ITEM_DONE}:{CommitMoment.AFTER}#30")) is None
    assert item.start(failpoints.kill_at(f"{Site.EFFECT_OUTCOME}:{CommitMoment.BEFORE}")) is None
    assert item.begun() == "file_31.py"
    assert item.survive(seed=3, most=100)[-1] == "50 comments"
    files = [f"file_{number:02}.py" for number in range(1, 51)]
    item.once_each("comments.txt", [f"{file}: a name is unclear" for file in files])
    item.at_most_again("reviewed.txt", files)


def deploy(item: Program) -> None:
    """A pipeline that does not run its tests again."""
    assert item.start(failpoints.kill_at(f"{Site.EFFECT_INTENT}:{CommitMoment.AFTER}")) is None
    assert item.survive(seed=4, most=16)[-1] == "sha-15 is live"
    item.once_each("commands.txt", ["run the tests", "build the image"])
    item.once_each("registry.txt", ["push sha-15", "deploy sha-15"])


PROGRAMS = {
    "05_pages.py": pages,
    "06_workflow.py": workflow,
    "07_checkpoints.py": checkpoints,
    "08_reviews.py": reviews,
    "09_deploy.py": deploy,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_first_program_survives(name: str, store_url: str, tmp_path: Path) -> None:
    program = Program(name, tmp_path, store_url)
    PROGRAMS[name](program)
    assert program.kills >= 3, "it was hardly tried"
    finished = program.start()
    assert finished is not None, "and once more it only says what it has done"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_first_program_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text("utf-8").splitlines()) <= 40, "it is to be read in a minute"
