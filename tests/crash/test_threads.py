"""SIGKILL at every commit of a chat program: no message is lost or doubled, and what was deleted is gone."""

from __future__ import annotations

from functools import partial

import pytest

from tests.budget import IN_SOAK
from tests.crash.harness import Stage, Undisturbed, run_cases

SAMPLED = {("sqlite", "sync"): 7, ("postgres", "sync"): 13, ("sqlite", "async"): 17, ("postgres", "async"): 23}
"""CI takes every so many failpoints. Each commit has four of them, so the moments take turns."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_killed_at_every_commit_of_a_chat_program(stage: Stage, colour: str) -> None:
    expected = stage.scene("chat_program:main", colour).play_undisturbed()
    assert expected.outcome["talk messages"][::2] == ["one", "two", "three", "four"]
    assert expected.outcome["fork messages"][::2] == ["one", "two", "instead"]
    assert expected.outcome["left"] == []
    assert expected.outcome["secrets"] == 0
    places = expected.places()[:: 1 if IN_SOAK else SAMPLED[stage.kind, colour]]
    assert run_cases(partial(kill_and_resume, stage, colour, expected), places) == []


def kill_and_resume(stage: Stage, colour: str, expected: Undisturbed, place: str) -> list[str]:
    """What is wrong after a kill there."""
    scene = stage.scene("chat_program:main", colour)
    code = scene.once({"PERDURE_FAILPOINT": place})
    assert code == -9, f"it was not killed, but ended with {code}"
    scene.finish()
    return scene.judge(expected)
