"""Several processes and one store: who gets a run, and whether all get on."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.crash.child_programs import BUSY
from tests.crash.harness import Child, Stage
from tests.crash.world import World

KILLED = -9
ROUNDS = 8
STEPS = 80


@pytest.mark.parametrize("rivals", [2, 4])
@pytest.mark.parametrize("crashed", [False, True], ids=["fresh", "after-a-crash"])
def test_of_many_that_open_a_run_at_once_one_gets_it(stage: Stage, rivals: int, crashed: bool) -> None:
    for _ in range(ROUNDS):
        scene = stage.scene("child_programs:contend")
        if crashed:
            assert (
                stage.fork_server.run("tests.crash.child_programs:contend", scene.folder, {"CRASH": "1"}, rivals=1)
                == KILLED
            )
            (ready,) = scene.folder.glob("ready-*")
            ready.unlink()
        start = partial(stage.fork_server.start, "tests.crash.child_programs:contend", scene.folder, rivals=rivals)
        children = [start() for _ in range(rivals)]
        codes = Counter(child.wait() for child in children)
        assert codes == {0: 1, BUSY: rivals - 1}, _outputs(children)
        assert scene.world.effects() == {"booked": 1}


@pytest.mark.stores("sqlite")  # a server has no turnstile of ours, and lets both in
def test_a_process_that_writes_without_a_pause_starves_no_other(stage: Stage, tmp_path: Path) -> None:
    """Each writes until the other has done its steps: who waits for ever before the write lock ends neither."""
    start = partial(stage.fork_server.start, "tests.crash.child_programs:chain", tmp_path, steps=STEPS)
    children = [start(name=name) for name in ("a", "b")]
    assert [child.wait() for child in children] == [0, 0], _outputs(children)
    done = {name: int(steps) for what, name, steps in World(tmp_path).lines() if what == "done"}
    assert done.keys() == {"a", "b"} and min(done.values()) >= STEPS


def _outputs(children: list[Child]) -> str:
    return "\n".join(child.output() for child in children)
