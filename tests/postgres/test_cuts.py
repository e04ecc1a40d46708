"""The connection breaks at a round trip, at each one in turn: whatever was sent lands once, and the run finishes.

Two lives. The first begins with nothing: making the tables, the agent, the holder, a run; collecting; rebuilding. The
other is everyday life in a store that is there. At most one round trip is broken in each; the journal must be as if
none had been.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, InDoubt, RunWaiting
from perdure.journal import rebuild
from perdure.journal.object_gc import collect
from perdure.journal.verify import verify
from tests.crash.world import World
from tests.postgres.cluster import Cluster
from tests.postgres.proxy import Fault, Proxy

AT_A_TIME = 4
TRIPS_MAX = 400
TRIPS_MORE_MAX = 16
"""For a new connection, looking it up, and doing it again, perhaps from the start of a transaction."""

CUTS = [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LATE]

LARGE = "x" * 6000 + "y" * 6000
"""Becomes an object."""

Life = Callable[[Agent, World, str], None]


def begin(agent: Agent, world: World, name: str) -> None:
    """From nothing."""
    with agent.run(f"{name}-trip") as run:
        run.step(world.note, "body", "look")
        run.state["large"] = LARGE
    store = agent._engine.store
    collect(store)
    rebuild.rebuild(store)


def live(agent: Agent, world: World, name: str) -> None:
    """A little of everything that commits."""

    def look(city: str) -> str:
        world.note("body", "look")
        run.messages.append({"role": "assistant", "content": city})
        return LARGE

    def book(*, key: str) -> str:
        return world.act("booked", key)

    def break_down() -> None:
        world.note("body", "break_down")
        raise ValueError("never works")

    def lose_the_line() -> None:
        raise ConnectionError("nobody knows")

    with agent.run(f"{name}-trip", input={"to": "NYC"}) as run:
        run.step(look, "NYC")
        run.state["seen"] = 1
        with pytest.raises(ValueError, match="never works"):
            run.step(break_down)
        for item in run.each(["a", "b"]):
            run.state[item] = run.state.get(item, 0) + 1
        run.effect(book)
        run.event("BOOKED", {"large": LARGE})
        run.result = "done"
    with agent.run(f"{name}-trip") as again:
        assert again.result == "done"
    with pytest.raises(InDoubt), agent.run(f"{name}-asked") as asked:
        asked.effect(lose_the_line)
    with pytest.raises(RunWaiting), agent.run(f"{name}-asked", wait=0) as asked:
        asked.effect(lose_the_line)
    agent.runs.answer(f"{name}-asked", done="it happened", by="a person")
    with agent.run(f"{name}-asked") as asked:
        asked.result = asked.effect(lose_the_line)


class Case:
    """One life behind a proxy of its own."""

    def __init__(self, cluster: Cluster, folder: Path, schema: str, name: str) -> None:
        self._cluster = cluster
        self._schema = schema
        self._name = name
        self._folder = folder / name
        self._folder.mkdir()
        self.trips = 0
        """How many it took."""

    def play(self, life: Life, number: int = 0, fault: Fault | None = None) -> tuple[bool, Any]:
        """Whether the fault was met, and what is left."""
        world = World(self._folder)
        with Proxy(self._cluster, late_seconds=0.1) as proxy:
            if fault is not None:
                proxy.strike(number, fault)
            agent = Agent("traveller", store=proxy.url(self._schema))
            try:
                life(agent, world, self._name)
            finally:
                agent.close()
            struck = proxy.struck.is_set()
            proxy.heal()
            proxy.settle()
            self.trips = len(proxy.trips)
        return struck, self._legacy(world)

    def _legacy(self, world: World) -> Any:
        """All that is left of a life, but for what differs each time."""
        found: dict[str, Any] = {"bodies": world.bodies(), "effects": world.effects()}
        agent = Agent("traveller", store=self._cluster.url(self._schema))
        try:
            for run in agent.runs.list():
                kind = run.id.removeprefix(f"{self._name}-")
                if kind != run.id:
                    info = agent.runs.get(run.id)
                    entries = [event.kind for event in info.events]
                    found[kind] = info.status, info.result, info.state, entries
        finally:
            agent.close()
        return found


def damage(url: str) -> list[str]:
    """What is wrong with the whole store."""
    agent = Agent("traveller", store=url)
    try:
        store = agent._engine.store
        found = [str(one) for one in verify(store).findings if one.severity == "damage"]
        return found + [str(one) for one in rebuild.check(store)]
    finally:
        agent.close()


def strike_everywhere(play: Callable[[int], tuple[bool, Any]], expected: Any, every: int = 1) -> int:
    """Each round trip in turn, or every n-th, until there are none left to strike at; how many there were."""

    def complain(number: int) -> tuple[bool, str]:
        try:
            struck, found = play(number)
        except Exception as error:
            return True, f"round trip {number}: {error!r}"
        both = [(key, found.get(key), expected.get(key)) for key in found.keys() | expected.keys()]
        differs = [f"{key}: {seen!r}, not {wanted!r}" for key, seen, wanted in both if seen != wanted]
        return struck, f"round trip {number}: {differs}" if differs else ""

    complaints: list[str] = []
    count = 0
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for first in range(1, TRIPS_MAX, AT_A_TIME * every):
            results = list(pool.map(complain, range(first, first + AT_A_TIME * every, every)))
            complaints += [text for _, text in results if text]
            count += sum(struck for struck, _ in results)
            if not all(struck for struck, _ in results):
                break
    assert complaints == []
    return count


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.name.lower())
def test_a_cut_at_every_second_round_trip_of_the_first_life(cluster: Cluster, tmp_path: Path, fault: Fault) -> None:
    strike_at_first_life(cluster, tmp_path, fault, 2)


@pytest.mark.soak
@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.name.lower())
def test_a_cut_at_each_round_trip_of_the_first_life(cluster: Cluster, tmp_path: Path, fault: Fault) -> None:
    strike_at_first_life(cluster, tmp_path, fault, 1)


def strike_at_first_life(cluster: Cluster, tmp_path: Path, fault: Fault, every: int) -> None:
    name = f"begin_{fault.name.lower()}"
    undisturbed = Case(cluster, tmp_path, f"{name}_0", name)
    _, expected = undisturbed.play(begin)
    assert expected["trip"][0] == "finished"

    def play(number: int) -> tuple[bool, Any]:
        case = Case(cluster, tmp_path, f"{name}_{number}", f"{name}_{number}")
        struck, found = case.play(begin, number, fault)
        assert damage(cluster.url(f"{name}_{number}")) == []
        assert case.trips <= undisturbed.trips + TRIPS_MORE_MAX
        return struck, found

    assert strike_everywhere(play, expected, every) > 15 // every, "there is more than that to strike at"


@pytest.mark.timeout(900)
def test_a_cut_at_each_round_trip_of_everyday_life(cluster: Cluster, tmp_path: Path) -> None:
    strike_at_life(cluster, tmp_path, Fault.CUT_AFTER, 1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.LATE], ids=lambda fault: fault.name.lower())
def test_a_cut_at_every_third_round_trip_of_everyday_life(cluster: Cluster, tmp_path: Path, fault: Fault) -> None:
    strike_at_life(cluster, tmp_path, fault, 3)


@pytest.mark.soak
@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.LATE], ids=lambda fault: fault.name.lower())
def test_the_other_cuts_at_each_round_trip_of_everyday_life(cluster: Cluster, tmp_path: Path, fault: Fault) -> None:
    strike_at_life(cluster, tmp_path, fault, 1)


def strike_at_life(cluster: Cluster, tmp_path: Path, fault: Fault, every: int) -> None:
    schema = f"live_{fault.name.lower()}_{every}"
    undisturbed = Case(cluster, tmp_path, schema, "n0")
    _, expected = undisturbed.play(live)
    assert expected["effects"] == {"booked": 1}

    def play(number: int) -> tuple[bool, Any]:
        case = Case(cluster, tmp_path, schema, f"n{number}")
        struck, found = case.play(live, number, fault)
        assert case.trips <= undisturbed.trips + TRIPS_MORE_MAX
        return struck, found

    assert strike_everywhere(play, expected, every) > 30 // every, "there is more than that to strike at"
    assert damage(cluster.url(schema)) == []
