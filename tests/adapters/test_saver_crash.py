"""PerdureSaver when processes die, and when there are several: SIGKILL, two writers, many threads at once."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from perdure.errors import ThreadConflict
from perdure.platform.failpoints import CommitMoment, Site
from tests.adapters.killed_graph import GIVEN, NODES, config, expected_points, journey, points, travel
from tests.adapters.savers import saver_at
from tests.conformance.kit import Behind, World, kill_at, run_in_child, run_in_children

COMMITS_MAX = 30


@pytest.fixture(scope="module")
def undisturbed_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The checkpoints of a journey that nothing happened to."""
    return expected_points(tmp_path_factory.mktemp("whole"))


def _survives(url: str, world: World, thread: str, undisturbed_checkpoints: list[Any]) -> None:
    """What is stored is what LangGraph might have got to, and the journey goes on from it to the same end."""
    with saver_at(url) as saver:
        graph = journey(saver, world)
        stored = points(graph, thread)
        assert stored == undisturbed_checkpoints[: len(stored)], "half a checkpoint"
        kept = [node for node in NODES if stored and node in stored[-1]["values"].get("log", [])]
        before = {node: world.count(node) for node in kept}
        graph.invoke(None if stored else GIVEN, config(thread), durability="sync")
        assert points(graph, thread) == undisturbed_checkpoints
    assert {node: world.count(node) for node in kept} == before, "a node ran again though its checkpoint was there"
    assert all(1 <= world.count(node) <= 2 for node in NODES)


def _kill_everywhere(
    url: str, folder: Path, undisturbed_checkpoints: list[Any], kills: Iterable[tuple[int, CommitMoment]]
) -> None:
    """Kill a journey at commit after commit, until one gets through; a thread each, all in one store."""
    for nth, moment in kills:
        thread = f"{nth}-{moment}"
        (folder / thread).mkdir()
        world = World(folder / thread)
        try:
            kill_at(partial(travel, url, world, thread), Site.THREAD, moment, nth)
        except AssertionError:
            assert points_of(url, world, thread) == undisturbed_checkpoints
            assert nth > len(undisturbed_checkpoints), "each checkpoint has a commit of its own"
            return
        _survives(url, world, thread, undisturbed_checkpoints)
    raise AssertionError("the journey never ends")


def points_of(url: str, world: World, thread: str) -> list[Any]:
    with saver_at(url) as saver:
        return points(journey(saver, world), thread)


def test_killed_at_some_commits_a_graph_goes_on(
    store_url: str, tmp_path: Path, undisturbed_checkpoints: list[Any]
) -> None:
    kills = zip(range(1, COMMITS_MAX, 4), itertools.cycle(CommitMoment), strict=False)
    _kill_everywhere(store_url, tmp_path, undisturbed_checkpoints, kills)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_killed_at_every_moment_of_every_commit(
    store_url: str, tmp_path: Path, undisturbed_checkpoints: list[Any]
) -> None:
    _kill_everywhere(
        store_url, tmp_path, undisturbed_checkpoints, itertools.product(range(1, COMMITS_MAX), CommitMoment)
    )


def _kill_after(seconds: float, program: Callable[[], object]) -> None:
    """SIGKILL from outside, wherever the program is then."""

    def doomed() -> None:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        program()
        os._exit(0)

    status = run_in_child(doomed)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0


def _kill_at_random(url: str, tmp_path: Path, undisturbed_checkpoints: list[Any], rounds: int, durability: str) -> None:
    chance = random.Random(7)
    for number in range(rounds):
        folder = tmp_path / f"{durability}-{number}"
        folder.mkdir()
        world, thread = World(folder), folder.name
        begun = time.monotonic()
        travel(url, world, f"{thread}-alive", durability)
        took = time.monotonic() - begun
        _kill_after(chance.random() * took * 1.5, partial(travel, url, world, thread, durability))
        _goes_on(url, world, thread, undisturbed_checkpoints)


def _goes_on(url: str, world: World, thread: str, undisturbed_checkpoints: list[Any]) -> None:
    """As `_survives`, but the mode may leave out checkpoints, and then nodes run again."""
    with saver_at(url) as saver:
        graph = journey(saver, world)
        stored = points(graph, thread)
        assert all(point in undisturbed_checkpoints for point in stored), "half a checkpoint"
        graph.invoke(None if stored else GIVEN, config(thread), durability="sync")
        assert points(graph, thread)[-1] == undisturbed_checkpoints[-1]


def test_killed_at_a_random_instant_a_graph_goes_on(
    store_url: str, tmp_path: Path, undisturbed_checkpoints: list[Any]
) -> None:
    _kill_at_random(store_url, tmp_path, undisturbed_checkpoints, 1, "async")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_killed_at_many_random_instants(
    store_url: str, tmp_path: Path, undisturbed_checkpoints: list[Any], durability: str
) -> None:
    _kill_at_random(store_url, tmp_path, undisturbed_checkpoints, 100, durability)


def _two_at_once(url: str, world: World, thread: str, on_conflict: str) -> list[int]:
    """Two processes go on with one thread; each has read it before either writes."""
    gate = multiprocessing.get_context("fork").Barrier(2)

    def writer() -> None:
        with saver_at(url, on_conflict=on_conflict) as saver:
            graph = journey(saver, world)
            given = None if graph.get_state(config(thread)).created_at else GIVEN
            read, first = saver.get_tuple, []

            def get_tuple(where: Any) -> Any:
                found = read(where)
                if not first:
                    first.append(True)
                    gate.wait(100)
                return found

            saver.get_tuple = get_tuple
            try:
                graph.invoke(given, config(thread), durability="sync")
            except ThreadConflict:
                os._exit(7)

    return sorted(os.waitstatus_to_exitcode(status) for status in run_in_children(2, writer))


@pytest.mark.parametrize(
    ("on_conflict", "crashed"),
    [
        pytest.param("refuse", False, id="refuse"),
        pytest.param("refuse", True, id="refuse-crashed", marks=pytest.mark.soak),
        pytest.param("fork", False, id="fork", marks=pytest.mark.soak),
        pytest.param("fork", True, id="fork-crashed"),
    ],
)
def test_two_writers(
    store_url: str, tmp_path: Path, undisturbed_checkpoints: list[Any], on_conflict: str, crashed: bool
) -> None:
    world, thread = World(tmp_path), "contested"
    if crashed:
        kill_at(partial(travel, store_url, world, thread), Site.THREAD, CommitMoment.AFTER, 3)
    ended = _two_at_once(store_url, world, thread, on_conflict)
    with saver_at(store_url) as saver:
        graph = journey(saver, world)
        assert graph.get_state(config(thread)).values == undisturbed_checkpoints[-1]["values"]
        found = list(graph.get_state_history(config(thread)))
    parents = [str(one.parent_config) for one in found]
    if on_conflict == "refuse":
        assert ended == [0, 7], "one of them is refused"
        assert len(set(parents)) == len(parents), "the thread has not forked"
        assert points_of(store_url, world, thread) == undisturbed_checkpoints
    else:
        assert ended == [0, 0]
        assert len(set(parents)) < len(parents), "both went on from the same checkpoint"


def test_a_large_state(store_url: str) -> None:
    _is_kept(store_url, 3_000_000)


@pytest.mark.soak
def test_a_state_of_20_mb(store_url: str) -> None:
    _is_kept(store_url, 20_000_000)


def _is_kept(url: str, size: int) -> None:
    """Half of it one value, half of it a list of small ones, to which another is added."""
    noise = random.Random(5)
    state = {"blob": noise.randbytes(size // 2), "parts": [noise.randbytes(200).hex() for _ in range(size // 800)]}
    with saver_at(url) as saver:
        place = _put(saver, _root("large"), state, 1)
        _put(saver, place, {**state, "parts": [*state["parts"], "one more"]}, 2)
        stored = _count_stored_bytes(url)
    with saver_at(url) as saver:
        assert saver.get_tuple(place).checkpoint["channel_values"] == state
    assert stored < 1.3 * size, "the second one shares what it has in common with the first"


def _root(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def _put(saver: Any, place: Any, values: dict[str, Any], step: int) -> Any:
    checkpoint = empty_checkpoint() | {"id": str(uuid6(clock_seq=step)), "channel_values": values}
    versions = {name: saver.get_next_version(None, None) for name in values}
    checkpoint["channel_versions"] = versions
    return saver.put(place, checkpoint, {"source": "loop", "step": step, "parents": {}}, versions)


def _count_stored_bytes(url: str) -> int:
    """Bytes of entries and objects."""
    with Behind(url) as store:
        [[entries]] = store.execute("SELECT sum(length(body)) FROM journal")
        [[objects]] = store.execute("SELECT coalesce(sum(length(data)), 0) FROM objects")
    return int(entries) + int(objects)


def test_what_is_stored_grows_with_what_is_new(store_url: str) -> None:
    noise, sizes = random.Random(3), []
    messages, place = list[Any](), _root("talk")
    with saver_at(store_url) as saver:
        for step in range(1, 91):
            messages = [*messages, {"role": "user", "content": noise.randbytes(512).hex()}]
            place = _put(saver, place, {"messages": messages}, step)
            saver.put_writes(place, [("messages", [messages[-1]])], f"task-{step}")
            if step % 30 == 0:
                sizes.append(_count_stored_bytes(store_url))
    assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0]), "not with the square of it"
    assert sizes[2] < 3 * 90 * 1024


def _run_concurrently(url: str, steps: int) -> None:
    """Eight conversations in threads, then eight in tasks of one loop, on one saver."""
    with saver_at(url) as saver:
        threads = [threading.Thread(target=_talk, args=(saver, f"thread-{n}", steps)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        async def tasks() -> None:
            await asyncio.gather(*(_async_talk(saver, f"task-{n}", steps) for n in range(8)))

        asyncio.run(tasks())
    with saver_at(url) as saver:
        for name in [f"{kind}-{n}" for kind in ("thread", "task") for n in range(8)]:
            found = list(saver.list(_root(name)))
            said = [one.checkpoint["channel_values"]["said"] for one in found]
            assert said == [[f"{name} {n}" for n in range(count)] for count in range(steps, 0, -1)]
            assert all(one.pending_writes == [(f"t{name}", "said", name)] for one in found)


def _talk(saver: Any, name: str, steps: int) -> None:
    place = _root(name)
    for step in range(steps):
        place = _put(saver, place, {"said": [f"{name} {n}" for n in range(step + 1)]}, step)
        saver.put_writes(place, [("said", name)], f"t{name}")


async def _async_talk(saver: Any, name: str, steps: int) -> None:
    place = _root(name)
    for step in range(steps):
        values = {"said": [f"{name} {n}" for n in range(step + 1)]}
        versions = {"said": saver.get_next_version(None, None)}
        checkpoint = empty_checkpoint() | {"id": str(uuid6(clock_seq=step)), "channel_values": values}
        checkpoint["channel_versions"] = versions
        place = await saver.aput(place, checkpoint, {"source": "loop", "step": step, "parents": {}}, versions)
        await saver.aput_writes(place, [("said", name)], f"t{name}")


def test_eight_conversations_at_once(store_url: str) -> None:
    _run_concurrently(store_url, 4)


@pytest.mark.soak
def test_eight_long_conversations_at_once(store_url: str) -> None:
    _run_concurrently(store_url, 50)
