"""SIGKILL between any two words with the server: nobody knows what has landed, and the next start finds out."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.crash.harness import Scene, Stage, Undisturbed, run_cases, spread

pytestmark = pytest.mark.stores("postgres")
COLOURS = ("sync", "async")
KILLED = -9
MOMENTS = ("unsent", "sent", "answered", "read")
KILLS = 6
"""Per moment and colour in CI; `make soak` takes all."""


@pytest.fixture(scope="module")
def clean(stage: Stage) -> dict[str, Undisturbed]:
    """The short run in peace, and every moment of its talk."""
    return {colour: stage.scene("server_messages:a_short_run", colour).play_undisturbed() for colour in COLOURS}


def kill_and_resume(scene: Scene, expected: Undisturbed, nth: int) -> tuple[str, list[str]]:
    """Kill at the nth moment, then let it finish. Says at which one it was, and what is wrong."""
    code = scene.once({"CRASH_NTH": str(nth)})
    # An answer may come in pieces, so that there are a few moments more or less each time.
    assert code in (KILLED, 0), f"it ended with {code}"
    moment = [line[1] for line in scene.world.lines() if line[0] == "killed"]
    scene.finish()
    return "".join(moment), scene.judge(expected)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("colour", COLOURS)
def test_killed_between_any_two_words(stage: Stage, clean: dict[str, Undisturbed], colour: str) -> None:
    """What was acknowledged is there, whatever has landed lands once, and the next start finishes the run."""
    expected, hits = clean[colour], Counter[str]()

    def case(nth: int) -> list[str]:
        moment, complaints = kill_and_resume(stage.scene("server_messages:a_short_run", colour), expected, nth)
        hits[moment] += 1
        return complaints

    numbered = list(enumerate(expected.reached, 1))
    chosen = [spread([nth for nth, moment in numbered if moment == wanted], KILLS) for wanted in MOMENTS]
    assert run_cases(case, [nth for part in chosen for nth in part]) == []
    assert all(hits[moment] >= KILLS // 3 for moment in MOMENTS), f"the kills fall elsewhere: {hits}"


@pytest.mark.soak
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("program", ["server_messages:a_short_run", "server_messages:a_long_run"])
def test_killed_between_every_two_words(stage: Stage, colour: str, program: str) -> None:
    expected = stage.scene(program, colour).play_undisturbed()

    def case(nth: int) -> list[str]:
        return kill_and_resume(stage.scene(program, colour), expected, nth)[1]

    assert run_cases(case, range(1, len(expected.reached) + 1)) == []
