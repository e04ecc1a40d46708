"""`<store>-mark` and the watch over a store's files, in one process."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from perdure import Agent, AsyncAgent
from perdure.errors import StoreProblem, StoreRolledBack, StoreUnavailable
from perdure.platform.process import identify_this_process
from perdure.records import StepDone
from perdure.store import open_store
from perdure.store.sqlite import mark
from perdure.store.sqlite.mark import MAGIC, DurabilityMark, lines
from perdure.store.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


def work(path: Path, run_id: str, steps: int = 3, durability: str = "full") -> None:
    with closing(Agent("clerk", store=path, durability=durability)) as agent, agent.run(run_id) as run:
        for number in range(steps):
            run.step(lambda: 1, name="look", id=str(number))


def open_marked(path: Path, durability: str = "full") -> SqliteStore:
    store = open_store(f"sqlite:///{path}", durability=durability)
    assert isinstance(store, SqliteStore)
    return store


@pytest.fixture
def rolled_back(path: Path, tmp_path: Path) -> Path:
    """A store that was put back to before its run `later`."""
    work(path, "first")
    shutil.copy(path, tmp_path / "old.db")
    work(path, "later")
    shutil.copy(tmp_path / "old.db", path)
    return path


def test_a_store_that_was_put_back_can_be_read_and_not_written(rolled_back: Path) -> None:
    with closing(Agent("clerk", store=rolled_back)) as agent:
        assert [run.id for run in agent.runs.list()] == ["first"]
        with pytest.raises(StoreRolledBack, match=r"entries 1 to 5 of clerk/later.*perdure adopt"), agent.run("new"):
            pass


def test_adopt_accepts_lost_entries_and_does_not_say_that_there_was_nothing(
    rolled_back: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from perdure.cli.main import main

    assert main(["adopt", "--store", str(rolled_back)]) == 0
    told = capsys.readouterr().out
    assert "programs can continue" in told and "nothing to adopt" not in told


def test_a_rolled_back_store_is_refused_again_by_sync_and_async_agents(rolled_back: Path) -> None:
    import asyncio

    async def begin() -> None:
        agent = AsyncAgent("clerk", store=rolled_back)
        try:
            async with agent.run("new"):
                pass
        finally:
            await agent.close()

    for _ in range(2):
        with pytest.raises(StoreRolledBack):
            asyncio.run(begin())


def test_the_log_of_a_store_that_was_put_back_stays_as_it_is(path: Path) -> None:
    """It may be all that is left of what was lost."""
    work(path, "first")
    with closing(open_marked(path)):
        work(path, "later")
        log = Path(f"{path}-wal").read_bytes()
        files = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal", "-mark")}
    for suffix, data in files.items():
        Path(f"{path}{suffix}").write_bytes(data)
    Path(f"{path}-wal").write_bytes(log[: len(log) // 2])
    for _ in range(2):
        with closing(open_marked(path)) as store:
            assert store.rolled_back is not None
        assert Path(f"{path}-wal").read_bytes() == log[: len(log) // 2]


def test_a_batch_of_many_streams_is_marked_as_a_whole(path: Path, tmp_path: Path) -> None:
    work(path, "first")
    shutil.copy(path, tmp_path / "old.db")
    with closing(Agent("clerk", store=path)) as agent:

        def one(number: int) -> None:
            with agent.run(f"many-{number}") as run:
                run.step(lambda: 1, name="look")

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    shutil.copy(tmp_path / "old.db", path)
    with closing(open_marked(path)) as store:
        assert {lost.name for lost in store.losses()} == {f"clerk/many-{number}" for number in range(8)}
        assert all(lost.lost.complete for lost in store.losses())


def test_without_a_sync_a_mark_counts_until_the_machine_restarts(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(path, "first", durability="process")
    shutil.copy(path, tmp_path / "old.db")
    work(path, "later", durability="process")
    shutil.copy(tmp_path / "old.db", path)
    with closing(open_marked(path)) as store:
        assert store.rolled_back is not None
    restarted = msgspec.structs.replace(identify_this_process(), boot="a later one")
    monkeypatch.setattr(mark, "identify_this_process", lambda: restarted)
    with closing(open_marked(path)) as store:
        assert store.rolled_back is None, "a power cut may have taken it"


def test_with_syncs_it_counts_for_ever(rolled_back: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restarted = msgspec.structs.replace(identify_this_process(), boot="a later one")
    monkeypatch.setattr(mark, "identify_this_process", lambda: restarted)
    with closing(open_marked(rolled_back)) as store:
        assert store.rolled_back is not None


def test_the_mark_of_another_store_says_nothing(path: Path, tmp_path: Path) -> None:
    work(path, "first")
    work(tmp_path / "other.db", "elsewhere", steps=50)
    shutil.copy(tmp_path / "other.db-mark", f"{path}-mark")
    with closing(open_marked(path)) as store:
        assert store.rolled_back is None


def test_a_mark_keeps_its_newest_part(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark, "MARK_BYTES_MAX", 4096)
    monkeypatch.setattr(mark, "MARK_BYTES_KEPT", 2048)
    work(path, "first", steps=300)
    assert os.path.getsize(f"{path}-mark") < 2 * 4096
    shutil.copy(path, tmp_path / "old.db")
    work(path, "later")
    shutil.copy(tmp_path / "old.db", path)
    with closing(open_marked(path)) as store:
        assert store.rolled_back is not None


def test_lines_are_found_again_behind_what_is_torn(path: Path) -> None:
    work(path, "first")
    data = Path(f"{path}-mark").read_bytes()
    whole = lines(data)
    assert len(whole) > 4
    for at in range(len(data)):
        torn = data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]
        found = lines(torn)
        assert len(found) == len(whole) - 1 and set(found) < set(whole)
    assert lines(MAGIC * 20) == []


def test_after_compaction_nothing_is_missed(path: Path, tmp_path: Path) -> None:
    work(path, "first", steps=20)
    older = MAGIC.join(Path(f"{path}-mark").read_bytes().split(MAGIC)[:8])
    with closing(Agent("clerk", store=path)) as agent:
        while not agent.gc(compact_before=1e-6, archive=tmp_path / "archive").events:
            time.sleep(0.001)
    Path(f"{path}-mark").write_bytes(older)
    with closing(open_marked(path)) as store:
        assert store.read("chain_at", (2, 5)) == []
        assert store.rolled_back is None and not store.losses()


def test_what_was_forgotten_is_not_in_the_mark(path: Path) -> None:
    work(path, "about ada lovelace")
    assert b"ada lovelace" in Path(f"{path}-mark").read_bytes()
    with closing(open_marked(path)) as store:
        store.scrub([b"ada lovelace"])
        assert b"ada lovelace" not in Path(f"{path}-mark").read_bytes()
        assert lines(Path(f"{path}-mark").read_bytes()), "the others are kept"


@pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")
def test_a_backup_has_no_mark_of_an_older_file(path: Path, tmp_path: Path) -> None:
    work(path, "first")
    copy = tmp_path / "copy.db"
    with closing(open_marked(path)) as store:
        store.backup(str(copy))
        work(copy, "on its own")
        store.backup(str(copy))
    assert not Path(f"{copy}-mark").exists()
    with closing(open_marked(copy)) as store:
        assert store.rolled_back is None


def test_a_disk_that_is_full_makes_the_mark_say_less(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: DurabilityMark, line: bytes) -> None:
        raise OSError(28, "No space left on device")

    work(path, "first")
    with monkeypatch.context() as patched:
        patched.setattr(DurabilityMark, "_append_checked", refuse)
        work(path, "second")
    with closing(open_marked(path)) as store:
        assert store.rolled_back is None


def test_a_file_with_two_names_is_refused(path: Path, tmp_path: Path) -> None:
    work(path, "first")
    os.link(path, tmp_path / "same.db")
    for name in (path, tmp_path / "same.db"):
        with pytest.raises(StoreUnavailable, match="2 hard links"):
            open_marked(name)
    os.unlink(tmp_path / "same.db")
    with closing(Agent("clerk", store=path)) as agent, agent.run("second") as run:
        os.link(path, tmp_path / "later.db")  # as some backup tools do
        assert run.step(lambda: 1, name="look") == 1


def test_closed_in_order_a_store_leaves_no_log(path: Path) -> None:
    work(path, "first")
    assert not Path(f"{path}-wal").exists()
    with closing(open_marked(path)), closing(open_marked(path)):
        pass
    assert not Path(f"{path}-wal").exists()


def test_the_standard_library_takes_no_lock_of_ours(path: Path) -> None:
    """Neither as the last connection in this process, nor by letting another process be the last one."""
    with closing(open_marked(path)) as store:
        for _ in range(3):
            with closing(sqlite3.connect(path)) as other:
                other.execute("SELECT count(*) FROM journal").fetchall()
            assert Path(f"{path}-wal").exists() and Path(f"{path}-shm").exists()
        assert store.read("all_runs") == []


def test_readers_go_on_when_the_log_was_taken_away(path: Path) -> None:
    """Other threads read while the store is opened anew; a reading that meets the gap says so, and hangs nobody."""
    done = threading.Event()
    read, gaps = [0], [0]

    def look(agent: Agent) -> None:
        while not done.is_set():
            try:
                agent.runs.list()
                read[0] += 1
            except StoreProblem:
                gaps[0] += 1

    with closing(Agent("clerk", store=path)) as agent, agent.run("first") as run:
        run.step(lambda: 0, name="look", id="0")
        threads = [threading.Thread(target=look, args=(agent,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1, 6):
            os.unlink(f"{path}-wal")
            assert run.step(lambda number=number: number, name="look", id=str(number)) == number
        before = read[0]
        while read[0] < before + 10:
            time.sleep(0.001)
        done.set()
        for thread in threads:
            thread.join()
    with closing(Agent("clerk", store=path)) as agent:
        assert len([event for event in agent.runs.get("first").events if isinstance(event.record, StepDone)]) == 6


def test_no_new_store_is_made_beside_the_mark_of_one_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Agent("tester", store=path) as agent:
        agent.state.set("a", "b", 1)
    path.unlink()
    with pytest.raises(StoreUnavailable, match="is missing, but .*-mark records acknowledged commits"):
        Agent("tester", store=path).state.get("a", "b")
    assert not path.exists()
    (tmp_path / "s.db-mark").unlink()
    with Agent("tester", store=path) as agent:
        assert agent.state.get("a", "b") is None


def test_files_that_are_removed_under_an_open_agent_are_told_to_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Agent("tester", store=path) as first:
        first.state.set("a", "b", 1)
        for suffix in ("", "-wal", "-shm", "-mark"):
            (tmp_path / f"s.db{suffix}").unlink()
        with pytest.raises(StoreUnavailable, match="was removed while this process had it open"):
            Agent("other", store=path).state.get("a", "b")
