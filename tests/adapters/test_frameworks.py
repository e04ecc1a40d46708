"""Every framework, killed at the same moments: no model call is paid twice, and no tool runs twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from perdure import Agent
from tests.adapters.frameworks import ANSWER, MOMENTS, PLAYS, TOOLS, play, warm_up
from tests.conformance.kit import World, run_in_child


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder whose name says whether the program streams."""
    streams = "stream" in request.node.name
    made = tmp_path / ("stream" if streams else "whole")
    made.mkdir()
    return made


def run_killed(name: str, folder: Path, url: str, moment: str) -> None:
    """Start the program, and let it die."""
    status = run_in_child(partial(play, name, folder, url, moment))
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def run_to_end(name: str, folder: Path, url: str) -> Counter[str]:
    """Start the program in a new process, and count what has happened in all of them."""
    assert os.waitstatus_to_exitcode(run_in_child(partial(play, name, folder, url))) == 0
    return Counter(what.split()[0] for what in World(folder).read_all())


def kill_and_resume(name: str, moment: str, folder: Path, url: str) -> None:
    """Kill the program at a moment, start it again, and compare what has happened in both processes."""
    warm_up(name)
    run_killed(name, folder, url, moment)
    seen = run_to_end(name, folder, url)
    assert World(folder).read_all()[-1] == f"answer {ANSWER}"
    assert [seen[f"tool{number}"] for number in TOOLS] == [1, 1, 1]
    # The answer of a model that dies while it is given is lost, and is asked for once more.
    assert seen["model"] == (5 if moment in ("model", "stream") else 4)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", PLAYS)
def test_a_killed_turn_goes_on_without_repeating_anything(name: str, moment: str, folder: Path) -> None:
    kill_and_resume(name, moment, folder, f"sqlite:///{folder}/shop.db")


@pytest.mark.stores("postgres")
@pytest.mark.parametrize("name", PLAYS)
def test_a_killed_turn_goes_on_with_a_server(name: str, folder: Path, store_url: str) -> None:
    kill_and_resume(name, "inside", folder, store_url)


@pytest.mark.soak
@pytest.mark.stores("postgres")
@pytest.mark.parametrize("moment", [moment for moment in MOMENTS if moment != "inside"])
@pytest.mark.parametrize("name", PLAYS)
def test_a_killed_turn_goes_on_with_a_server_at_every_moment(
    name: str, moment: str, folder: Path, store_url: str
) -> None:
    kill_and_resume(name, moment, folder, store_url)


@pytest.mark.parametrize("name", ["openai-agents", "adk", "strands"])
def test_sessions_are_threads(name: str, folder: Path) -> None:
    warm_up(name)
    url = f"sqlite:///{folder}/shop.db"
    run_to_end(name, folder, url)
    with Agent(name, store=url) as agent:
        [thread] = agent.threads.list()
        assert thread.framework == name and thread.id.endswith("user-1")
        [run] = agent.runs.list()
        assert run.id == f"{thread.id}#1" and run.status == "finished" and agent.runs.result(run.id) == ANSWER
        assert agent.threads.delete(thread.id) and not agent.threads.list() and not agent.runs.list()
