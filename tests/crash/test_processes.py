"""Several processes and one store: who gets a run, and whether all get on."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.crash.harness import Child, Stage
from tests.crash.players import BUSY
from tests.crash.world import World

KILLED = -9
ROUNDS = 8
STEPS = 80
FAIR_SHARE_MIN = 0.1
"""Of the faster one's steps: who is starved has none. tests/unit measures the turnstile itself more closely."""


@pytest.mark.parametrize("rivals", [2, 4])
@pytest.mark.parametrize("crashed", [False, True], ids=["fresh", "after-a-crash"])
def test_of_many_that_open_a_run_at_once_one_gets_it(stage: Stage, rivals: int, crashed: bool) -> None:
    for _ in range(ROUNDS):
        scene = stage.scene("players:contend")
        if crashed:
            assert stage.zygote.run("tests.crash.players:contend", scene.folder, {"CRASH": "1"}, rivals=1) == KILLED
            (ready,) = scene.folder.glob("ready-*")
            ready.unlink()
        start = partial(stage.zygote.start, "tests.crash.players:contend", scene.folder, rivals=rivals)
        children = [start() for _ in range(rivals)]
        codes = Counter(child.wait() for child in children)
        assert codes == {0: 1, BUSY: rivals - 1}, _outputs(children)
        assert scene.world.effects() == {"booked": 1}


@pytest.mark.stores("sqlite")  # a server has no turnstile of ours, and lets both in
def test_two_processes_with_runs_of_their_own_get_on_alike(stage: Stage, tmp_path: Path) -> None:
    """Neither waits for ever before the write lock, and none hears StoreBusy."""
    # A file on a disk: in memory a commit is so short that the kernel's time slices decide who is first.
    start = partial(stage.zygote.start, "tests.crash.players:chain", tmp_path, steps=STEPS)
    children = [start(name=name) for name in ("a", "b")]
    assert [child.wait() for child in children] == [0, 0], _outputs(children)
    done = [line[1] for line in World(tmp_path).lines() if line[0] == "done"]
    assert Counter(done) == {"a": STEPS, "b": STEPS}
    faster = "b" if done[-1] == "a" else "a"
    slower = len(done) - done[::-1].index(faster) - STEPS
    assert slower >= STEPS * FAIR_SHARE_MIN, f"one had done {slower} of {STEPS} when the other had done all"


def _outputs(children: list[Child]) -> str:
    return "\n".join(child.output() for child in children)
