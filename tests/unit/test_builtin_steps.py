"""Builtins that do not tell their parameters are steps like all others."""

from __future__ import annotations

from perdure import Agent


def test_builtins_are_told_apart_by_their_arguments(store_url: str) -> None:
    agent = Agent("a", store=store_url)
    for _ in range(2):
        with agent.run("r") as run:
            assert [run.step(max, 1, 2), run.step(max, 3, 4), run.step(int, "5"), run.step(dict, a=1)] == [
                2,
                4,
                5,
                {"a": 1},
            ]
    done = [event for event in agent.runs.get("r").events if event.kind == "StepDone"]
    assert len(done) == 4
    agent.close()
