"""The workload in a child process, while a test breaks its server."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.crash.harness import Stage
from tests.crash.waiting import wait_for
from tests.crash.world import World
from tests.postgres import workload

RUNS, STEPS = 6, 120


class WorkloadProcess:
    """One child, with a store behind `url` that may break at any time."""

    def __init__(self, stage: Stage, url: str, colour: str, *, runs: int = RUNS, steps: int = STEPS) -> None:
        self.folder: Path = stage.folder()
        self.world = World(self.folder)
        self._size = runs, steps
        self._log = self.folder / "world.log"
        self._child = stage.fork_server.start(
            "tests.postgres.workload:main", self.folder, colour=colour, url=url, runs=runs, steps=steps
        )

    @property
    def is_running(self) -> bool:
        return not self._child.ended

    def progress(self, share: float) -> None:
        """Wait until that much more of all work is done. Counted in work: machines differ in speed."""
        runs, steps = self._size
        wanted = self._bytes() + share * runs * steps * BYTES_PER_STEP
        wait_for(lambda: self._bytes() >= wanted or not self.is_running, "more work to be done")

    def strike(self, blows: int, blow: Callable[[], object], chance: random.Random) -> None:
        """Strike that many times, at random moments spread over the whole workload."""
        for _ in range(blows):
            self.progress(chance.uniform(0.3, 1.0) * 0.8 / blows)
            assert self.is_running, f"the workload ended before the last blow:\n{self._child.output()}"
            blow()

    def join_and_judge(self, url: str) -> list[str]:
        """Wait for the end; what is wrong with what is left, seen through `url`."""
        code = self._child.wait()
        assert code == 0, self._child.output()
        return workload.judge(url, self.world, *self._size)

    def _bytes(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0


BYTES_PER_STEP = 50
"""What a step, with its share of writes and effects, adds to the outside log."""
