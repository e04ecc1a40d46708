"""The four cells in which a process can die around an effect, many times each, at random moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Agent
from tests.crash import service
from tests.crash.booking_program import CELLS
from tests.crash.harness import Stage, run_cases
from tests.crash.stores import store_of
from tests.crash.waiting import wait_for
from tests.crash.world import World

ROUNDS = {"sqlite": 30, "postgres": 5}
"""In CI, per cell; `make soak` plays thousands."""

ALARM = -14


@pytest.fixture
def office(stage: Stage) -> Iterator[Path]:
    """A folder with a store and a service that keeps bookings."""
    folder = stage.folder()
    child = stage.fork_server.start("tests.crash.service:serve", folder, seed=42)
    wait_for(lambda: service.is_up(folder), "the service")
    yield folder
    service.ask(str(folder), "stop")
    assert child.wait() == 0


def play(stage: Stage, office: Path, program: str, cell: str, rounds: int) -> Counter[int]:
    """Every round: killed in the cell, then started again in peace. Says how the first starts ended."""
    ends: list[int] = []

    def one(number: int) -> list[str]:
        call = f"tests.crash.booking_program:{program}"
        ends.append(stage.fork_server.run(call, office, cell=cell, number=number, deadly=True))
        code = stage.fork_server.run(call, office, cell=cell, number=number, deadly=False)
        return [] if code == 0 else [f"the second start ended with {code}"]

    assert run_cases(one, range(rounds)) == []
    return Counter(ends)


def check_books(office: Path, cell: str, policy: str, rounds: int) -> None:
    """Exactly one booking per round, under one key, and the run knows its receipt."""
    world = World(office)
    names = [f"{cell}-{policy}-{number}" for number in range(rounds)]
    bookings = world.effects()
    assert {name: bookings[name] for name in names if bookings[name] != 1} == {}
    assert world.broken_promises() == []
    agent = Agent("traveller", store=store_of(office))
    results = {name: agent.runs.result(name) for name in names}
    agent.close()
    assert results == {name: f"receipt of {name}" for name in names}


@pytest.mark.parametrize("cell", CELLS)
def test_with_a_check_there_is_exactly_one_effect(stage: Stage, office: Path, cell: str) -> None:
    rounds = ROUNDS[stage.kind]
    ends = play(stage, office, "with_check", cell, rounds)
    # A round counts when it was killed; in every other round of "raises" nobody is.
    assert ends[ALARM] >= rounds // 4, ends
    check_books(office, cell, "check", rounds)


@pytest.mark.parametrize("cell", CELLS)
def test_without_a_check_a_person_is_asked_and_there_are_never_two(stage: Stage, office: Path, cell: str) -> None:
    rounds = ROUNDS[stage.kind]
    ends = play(stage, office, "with_a_person", cell, rounds)
    assert ends[ALARM] >= rounds // 4, ends
    check_books(office, cell, "ask", rounds)
    waited = sum(line[0] == "waited" for line in World(office).lines())
    # After the outcome is recorded nobody is asked; before, everybody who died in the window is.
    assert waited >= rounds // 2 if cell != "recorded" else waited == 0


@pytest.mark.soak
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("program", "policy"), [("with_check", "check"), ("with_a_person", "ask")])
def test_the_matrix_for_long(stage: Stage, office: Path, cell: str, program: str, policy: str) -> None:
    play(stage, office, program, cell, 5_000)
    check_books(office, cell, policy, 5_000)
