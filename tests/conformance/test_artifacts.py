"""`agent.artifacts`: bytes of any size in versions that share chunks, verified, and resumed after a crash."""

from __future__ import annotations

import io
import os
import random
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure import Agent, AsyncAgent
from perdure.data import artifacts
from perdure.data.artifacts.sources import source_of
from perdure.errors import ArtifactDamaged, ArtifactNotFound, NotStorable
from perdure.journal.artifact_writes import UploadLost
from perdure.journal.object_gc import collect
from perdure.journal.objects import identify
from perdure.journal.trees import references
from perdure.kernel.protocol import drive_sync
from perdure.platform.failpoints import CommitMoment, Site

from .kit import Behind, agent_at, check_views, kill_at, run_in_child
from .test_checkpoints import count_stored_bytes

MB = 1024 * 1024
EXPIRED = -60.0
"""A grace that has passed for everybody."""


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def blocks(data: bytes, size: int = 100_000) -> Iterator[bytes]:
    yield from (data[start : start + size] for start in range(0, len(data), size))


def collect_garbage(agent: Agent, grace: float | None = None) -> int:
    """As `perdure gc` does it; with a grace of its own for uploads."""
    store: Any = agent._engine.store
    return (collect(store) if grace is None else collect(store, grace=grace)).bytes


def mark_processes_dead(store_url: str) -> None:
    """As if the processes that have written so far were long dead."""
    with Behind(store_url) as raw:
        raw.execute("UPDATE holders SET deadline = 0")


def count_new_objects(agent: Agent, name: str, data: bytes) -> int:
    """Save something, and say how many objects were not there."""
    about = artifacts.ArtifactDetails(name, (), "")
    saving = artifacts.ArtifactWrite(agent._engine, about, "bytes")
    drive_sync(agent._engine.store, saving.write_all(source_of(data)))
    return saving.written


# -- what goes in comes out -------------------------------------------------------------------------------------------


def test_an_artifact_is_read_unchanged_in_another_process(store_url: str, tmp_path: Path) -> None:
    data, path = noise(3 * MB), tmp_path / "model.bin"
    path.write_bytes(data)

    def program() -> None:
        agent = agent_at(store_url)
        assert agent.artifacts.save("file", path, note="after epoch 3", labels=["best"]) == 1
        assert agent.artifacts.save("file", str(path)) == 2
        agent.artifacts.save("bytes", bytearray(data[:100]))
        agent.artifacts.save("every other", memoryview(data)[:100:2])
        agent.artifacts.save("nothing", b"")
        agent.artifacts.save("stream", io.BytesIO(data))
        agent.artifacts.save("iterator", blocks(data, 77_777))
        with agent.artifacts.writer("pieces") as file:
            assert sum(file.write(block) for block in blocks(data, 5000)) == len(data)
        assert file.version == 1

    assert run_in_child(program) == 0
    agent = agent_at(store_url)
    for name in ("file", "stream", "iterator", "pieces"):
        assert agent.artifacts.load(name) == data
    assert agent.artifacts.load("file", 1) == agent.artifacts.load("file", version=2) == data
    assert agent.artifacts.load("bytes") == data[:100]
    assert agent.artifacts.load("every other") == data[:100:2]
    assert agent.artifacts.load("nothing") == b""
    assert agent.artifacts.load("file", to=tmp_path / "again.bin").read_bytes() == data
    (tmp_path / "link").symlink_to(tmp_path / "linked.bin")
    assert agent.artifacts.load("file", to=tmp_path / "link").read_bytes() == data
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")  # stands for /dev/null, which must stay what it is
    reading = threading.Thread(target=lambda: poured.append((tmp_path / "pipe").read_bytes()))
    poured: list[bytes] = []
    reading.start()
    agent.artifacts.load("file", to=tmp_path / "pipe")
    reading.join()
    assert poured == [data] and (tmp_path / "pipe").is_fifo()
    assert [item.name for item in tmp_path.iterdir() if item.suffix == ".part"] == []
    first, second = agent.artifacts.versions("file")
    assert (first.kind, first.size, first.note, first.labels) == ("file", len(data), "after epoch 3", ("best",))
    assert first.digest == second.digest
    assert [item.name for item in agent.artifacts.list()] == [
        "bytes", "every other", "file", "iterator", "nothing", "pieces", "stream",
    ]  # fmt: skip
    assert [(item.name, item.version) for item in agent.artifacts.list(label="best")] == [("file", 1)]
    assert sum(item.added for item in agent.artifacts.usage()) < 1.02 * len(data), "the same bytes are stored once"
    check_views(store_url)


def test_what_is_none_is_refused(store_url: str, tmp_path: Path) -> None:
    agent = agent_at(store_url)
    with pytest.raises(ArtifactNotFound, match=r"artifacts\.save"):
        agent.artifacts.load("weights")
    agent.artifacts.save("weights-7b", b"1")
    with pytest.raises(ArtifactNotFound, match="did you mean 'weights-7b'"):
        agent.artifacts.open("weights-7")
    with pytest.raises(ArtifactNotFound, match=r"no version 2 \(existing versions: 1\)"):
        agent.artifacts.load("weights-7b", 2)
    for wrong, match in (
        (7, "not a value of type int"),
        ({"a": 1}, "'a' is a value of type int"),
        (io.StringIO("text"), "'rb'"),
        ([b"a", 7], "must yield bytes, not a value of type int"),
    ):
        with pytest.raises(NotStorable, match=match):
            agent.artifacts.save("wrong", wrong)
    with pytest.raises(FileNotFoundError, match=r"text\.encode"):
        agent.artifacts.save("wrong", "some text")
    with pytest.raises(IsADirectoryError):
        agent.artifacts.save("wrong", tmp_path)
    with pytest.raises(IsADirectoryError):
        agent.artifacts.load("weights-7b", to=tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        agent.artifacts.load("weights-7b", to=tmp_path / "none" / "a")
    with pytest.raises(ZeroDivisionError), agent.artifacts.writer("wrong") as file:
        file.write(noise(6 * MB))
        raise ZeroDivisionError
    assert [artifact.name for artifact in agent.artifacts.list()] == ["weights-7b"]
    assert agent_at(store_url, "other").artifacts.list() == []


def test_a_reader_is_a_file(store_url: str) -> None:
    agent, data = agent_at(store_url), noise(2 * MB)
    agent.artifacts.save("a", data)
    real, chance = io.BytesIO(data), random.Random(3)
    with agent.artifacts.open("a") as file:
        for _ in range(60):
            size, place = chance.choice((0, 1, 900, 200_000)), chance.randrange(len(data) + 1000)
            if chance.random() < 0.5:
                assert file.seek(place) == real.seek(place)
            assert file.read(size) == real.read(size)
            assert file.tell() == real.tell()
        assert file.seek(-5, os.SEEK_END) == len(data) - 5
        assert file.read() == data[-5:]
        assert file.seek(0) == 0
        assert b"".join(file) == data
    with pytest.raises(ValueError, match="closed"):
        file.read(1)
    text = io.TextIOWrapper(io.BufferedReader(agent.artifacts.open("a")), "latin-1", newline="\n")
    assert next(text).encode("latin-1") == data[: data.index(b"\n") + 1]


def test_every_version_reads_back_and_a_small_edit_adds_little(store_url: str) -> None:
    agent, chance, data = agent_at(store_url), random.Random(11), noise(5 * MB)
    kept, added = [data], []
    agent.artifacts.save("a", data)
    for number in range(8):
        at, some = chance.randrange(len(data)), noise(chance.randrange(1, 9), number)
        gone = chance.choice((0, 0, 3, len(some)))
        data = data[:at] + some + data[at + gone :]
        before = count_stored_bytes(agent)
        assert agent.artifacts.save("a", data) == number + 2
        added.append(count_stored_bytes(agent) - before)
        kept.append(data)
    # One chunk, or two when a cut is gone, and the nodes above them.
    assert sum(added) / len(added) < 100_000 and max(added) < 400_000, added
    before = count_stored_bytes(agent)
    agent.artifacts.save("a", data[: 2 * MB])
    assert count_stored_bytes(agent) - before < 150_000
    for version, then in enumerate([*kept, data[: 2 * MB]], start=1):
        assert agent.artifacts.load("a", version) == then
    assert agent.artifacts.delete("a", version=1) == 1
    assert agent.artifacts.delete("a", version=1) == 0
    collect_garbage(agent)
    assert agent.artifacts.load("a", 2) == kept[1]
    assert agent.artifacts.delete("a") == 9
    assert collect_garbage(agent) > 5 * MB
    assert agent.artifacts.save("a", b"1") == 11, "a number is not given again"
    check_views(store_url)


def test_damage_is_told_with_its_place(store_url: str, tmp_path: Path) -> None:
    agent, data = agent_at(store_url), noise(3 * MB)
    agent.artifacts.save("a", b"")
    agent.artifacts.save("a", data)
    store: Any = agent._engine.store
    offset, chunk = next((at, chunk) for at, chunk in agent.artifacts.open("a")._stream.chunks() if at > MB)
    forged = msgspec.structs.replace(artifacts._find_version(agent._engine, "a", 2), digest=bytes(32))
    with pytest.raises(ArtifactDamaged, match="the content does not match"):
        artifacts.ArtifactReader(store, forged).read()
    with Behind(store_url) as raw:
        raw.execute("UPDATE objects SET data = ? WHERE id = ?", (b"\0" + bytes(len(chunk)), identify(store, chunk)))
    for attempt in (lambda: agent.artifacts.load("a"), lambda: agent.artifacts.load("a", to=tmp_path / "a")):
        with pytest.raises(ArtifactDamaged, match=f"artifact 'a', version 2 .* from byte {offset}") as told:
            attempt()
        assert (told.value.name, told.value.version, told.value.offset) == ("a", 2, offset)
    assert not (tmp_path / "a").exists()
    with agent.artifacts.open("a") as file:
        assert file.read(offset) == data[:offset], "what is before it is sound"
    with Behind(store_url) as raw:
        raw.execute("DELETE FROM objects WHERE id = ?", (identify(store, chunk),))
    with pytest.raises(ArtifactDamaged, match="missing"):
        agent.artifacts.load("a")
    file = agent.artifacts.open("a")
    agent.artifacts.delete("a", 2)
    collect_garbage(agent)
    with pytest.raises(ArtifactNotFound, match="deleted while"):
        file.read()


def test_versions_that_no_store_could_count_are_not_there(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.artifacts.save("a", b"1")
    for version in (0, -1, 2, 10**30):
        with pytest.raises(ArtifactNotFound, match=f"no version {version}"):
            agent.artifacts.load("a", version)
        assert agent.artifacts.delete("a", version) == 0


def test_after_its_block_a_writer_takes_nothing(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.artifacts.writer("log") as file:
        file.write(b"one")
    with pytest.raises(ZeroDivisionError), agent.artifacts.writer("wrong") as wrong:
        raise ZeroDivisionError
    for over in (file, wrong):
        with pytest.raises(ValueError, match="writer is closed"):
            over.write(b"two")
        with pytest.raises(ValueError, match="writer is closed"), over:
            pass
    assert [artifact.name for artifact in agent.artifacts.list()] == ["log"]
    assert agent.artifacts.load("log") == b"one"


# -- with a step, and killed ------------------------------------------------------------------------------------------


def test_it_lands_with_the_step_or_the_item_or_not_at_all(store_url: str) -> None:
    agent, data = agent_at(store_url), noise(5 * MB)

    @agent.step
    def train(fails: bool) -> None:
        assert agent.artifacts.save("weights", data) == 0
        assert agent.artifacts.save("small", b"x") == 0
        assert agent.artifacts.list() == []
        collect_garbage(agent)
        if fails:
            raise ValueError

    with agent.run("r") as run:
        with pytest.raises(ValueError):  # noqa: PT011
            train(True)
        assert agent.artifacts.list() == []
        train(False)
        assert agent.artifacts.load("weights") == data
        for item in run.each(["a", "b"]):
            agent.artifacts.save("in an item", item.encode())
            agent.artifacts.delete("small")
            if item == "b":
                break
    with agent.run("r"):
        pass
    assert [(artifact.name, artifact.version) for artifact in agent.artifacts.list()] == [
        ("in an item", 1),
        ("weights", 1),
    ]
    assert agent.artifacts.load("in an item") == b"a"
    assert collect_garbage(agent, EXPIRED) < MB, "the failed attempt wrote the same chunks"
    check_views(store_url)


def test_killed_in_the_middle_it_goes_on(store_url: str) -> None:
    data = noise(11 * MB)

    def program() -> None:
        agent_at(store_url).artifacts.save("a", data)

    for moment in CommitMoment:
        kill_at(program, Site.UPLOAD, moment, 2)
        agent = agent_at(store_url)
        assert agent.artifacts.list() == []
        collect_garbage(agent)
    there = len(agent._engine.store.read("object_ids", (b"", 10_000)))
    assert there > 200, "10 MB were committed before the kill, and are kept"
    for number, moment in enumerate(CommitMoment):
        kill_at(program, Site.ARTIFACT, moment)
        assert len(agent.artifacts.versions("a")) == (moment is CommitMoment.AFTER), number
    assert agent.artifacts.load("a") == data
    assert count_new_objects(agent, "a", data) == 0, "what is there is not written again"
    assert collect_garbage(agent, EXPIRED) == 0
    check_views(store_url)


def test_what_a_killed_upload_has_written_is_found_and_later_collected(store_url: str) -> None:
    agent, data = agent_at(store_url), noise(14 * MB)
    kill_at(lambda: agent_at(store_url).artifacts.save("a", data), Site.UPLOAD, CommitMoment.BEFORE, 3)
    mark_processes_dead(store_url)
    assert collect_garbage(agent) == 0, "not so soon"
    assert collect_garbage(agent, EXPIRED) > 9 * MB
    kill_at(lambda: agent_at(store_url).artifacts.save("a", data), Site.UPLOAD, CommitMoment.BEFORE, 3)
    assert 0 < count_new_objects(agent, "a", data) < 200
    assert agent.artifacts.load("a") == data
    check_views(store_url)


# -- beside a collector -----------------------------------------------------------------------------------------------


def test_a_collector_leaves_a_running_upload_alone(store_url: str) -> None:
    agent, data = agent_at(store_url), noise(10 * MB)
    agent.artifacts.save("old", data[: 6 * MB])

    def elsewhere() -> None:
        other = agent_at(store_url)
        other.artifacts.delete("old")
        assert collect_garbage(other) > 0

    with agent.artifacts.writer("new") as file:
        file.write(data[: 5 * MB])  # they are there already, and are needed from now on
        assert run_in_child(elsewhere) == 0
        assert collect_garbage(agent, EXPIRED) == 0, "its process lives, however long it takes"
        file.write(data[5 * MB :])
    assert agent.artifacts.load("new") == data
    check_views(store_url)


def test_an_upload_that_was_given_up_is_never_half_a_version(store_url: str) -> None:
    agent, data = agent_at(store_url), noise(10 * MB)

    def slow() -> Iterator[bytes]:
        yield data[: 7 * MB]
        mark_processes_dead(store_url)
        assert collect_garbage(agent, EXPIRED) > 3 * MB  # as if it had been stopped for a day
        yield data[7 * MB :]

    def late(wait: bool) -> None:
        agent.artifacts.save("a", data)
        if wait:
            mark_processes_dead(store_url)
            assert collect_garbage(agent, EXPIRED) > 9 * MB

    with pytest.raises(UploadLost, match="save the artifact again"):
        agent.artifacts.save("a", slow())
    with pytest.raises(UploadLost), agent.run("r") as run:
        run.step(late, True, id="late")
    assert agent.artifacts.list() == []
    with agent.run("r") as run:
        run.step(late, False, id="late")
    assert agent.artifacts.load("a") == data
    check_views(store_url)


def test_savers_and_collectors_at_once(store_url: str) -> None:
    datas = [noise(6 * MB, seed) for seed in range(2)]
    failed: list[BaseException] = []

    def save(number: int) -> None:
        agent = agent_at(store_url)
        for turn in range(3):
            agent.artifacts.save(f"a{number}", datas[(number + turn) % 2])
            if turn != 2:
                agent.artifacts.delete(f"a{number}")

    def tidy() -> None:
        agent = agent_at(store_url)
        while any(thread.is_alive() for thread in savers):
            collect_garbage(agent)
            collect_garbage(agent, EXPIRED)

    def guarded(call: Any, *args: Any) -> None:
        try:
            call(*args)
        except BaseException as error:
            failed.append(error)

    savers = [threading.Thread(target=guarded, args=(save, number)) for number in range(2)]
    keeper = threading.Thread(target=guarded, args=(tidy,))
    for thread in (*savers, keeper):
        thread.start()
    for thread in (*savers, keeper):
        thread.join()
    assert failed == []
    agent = agent_at(store_url)
    for number in range(2):
        assert agent.artifacts.load(f"a{number}") == datas[number % 2]
    check_views(store_url)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_large_file_takes_little_memory(store_url: str, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        for seed in range(64):
            file.write(noise(MB, seed))

    def program() -> None:
        agent = agent_at(store_url)
        agent.artifacts.save("small", noise(5 * MB))
        agent.artifacts.load("small", to=tmp_path / "small")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        agent.artifacts.save("large", path)
        agent.artifacts.load("large", to=tmp_path / "copy")
        assert sum(map(len, agent.artifacts.open("large"))) == 64 * MB
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert grown < 48, f"{grown} MB"

    assert run_in_child(program) == 0
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_the_index_is_a_tree(store_url: str) -> None:
    agent, data = agent_at(store_url), noise(12 * MB)
    agent.artifacts.save("a", data)
    saved = artifacts._find_version(agent._engine, "a", None)
    assert len(saved.value) < 1000, "the entry has its root, and not all chunks"
    assert len(list(references(agent._engine.store, saved.value))) > 300


async def test_the_asynchronous_side_is_the_same(store_url: str, tmp_path: Path) -> None:
    agent, data = AsyncAgent("async", store=store_url), noise(5 * MB)

    async def stream() -> Any:
        for block in blocks(data):
            yield block

    assert await agent.artifacts.save("a", stream(), note="streamed") == 1
    assert await agent.artifacts.save("a", blocks(data)) == 2
    assert await agent.artifacts.load("a") == data
    async with agent.artifacts.open("a", 1) as file:
        assert await file.size() == len(data)
        assert b"".join([block async for block in file]) == data
        assert await file.seek(-7, os.SEEK_END) == await file.tell()
        assert await file.read() == data[-7:]
    async with agent.artifacts.writer("w") as out:
        assert await out.write(b"abc") == 3
    with pytest.raises(ValueError, match="writer is closed"):
        await out.write(b"def")
    assert (await agent.artifacts.load("w", to=tmp_path / "w")).read_bytes() == b"abc"
    async with agent.run("r") as run:
        assert await run.step(agent.artifacts.save, "s", b"in a step", name="save") == 0
    assert [artifact.name for artifact in await agent.artifacts.list()] == ["a", "s", "w"]
    assert [usage.added for usage in await agent.artifacts.usage()][1] == 0
    assert [artifact.note for artifact in await agent.artifacts.versions("a")] == ["streamed", ""]
    assert await agent.artifacts.delete("a") == 2
    await agent.close()
