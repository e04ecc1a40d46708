"""A copy of a store on a server: a SQLite file with everything in it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from perdure import Agent
from perdure.cli.main import main
from perdure.errors import StoreMovedWarning
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.store import open_store
from tests.unit.units import behind

pytestmark = pytest.mark.stores("postgres")


def fill(agent: Agent, runs: int = 3) -> None:
    for number in range(runs):
        with agent.run(f"r{number}", input={"n": number}) as run:
            run.state["large"] = f"{number} " * 5_000
            run.step(lambda n: n, number, name="step")
            run.effect(lambda n: n, number, name="effect")
            run.result = number


def test_a_copy_is_a_store_that_verifies_and_goes_on(store_url: str, tmp_path: Path) -> None:
    agent = Agent("a", store=store_url)
    fill(agent)
    with pytest.raises(KeyboardInterrupt), agent.run("open") as run:
        run.step(lambda: 1, name="one")
        raise KeyboardInterrupt
    seen: list[tuple[int, int]] = []
    original = agent._engine.store
    size = original.backup(str(tmp_path / "copy.db"), lambda done, total: seen.append((done, total)))
    assert size == (tmp_path / "copy.db").stat().st_size
    assert seen[-1][0] == seen[-1][1] >= 4
    copy = open_store(f"sqlite:///{tmp_path / 'copy.db'}")
    assert (copy.identity, copy.secret) == (original.identity, original.secret)
    assert verify(copy).ok
    assert rebuild.check(copy) == []
    for query in ("all_streams", "all_seals", "all_runs", "all_run_state", "all_leases"):
        assert copy.read(query) == original.read(query)
    copy.close()
    agent.close()
    copied = Agent("a", store=tmp_path / "copy.db")
    with pytest.warns(StoreMovedWarning):
        assert copied.runs.get("open").status == "interrupted"
    with copied.run("open") as run:
        assert run.resumed
        assert run.step(lambda: 2, name="one") == 1
    assert Agent("a", store=tmp_path / "copy.db").runs.get("r1").state == {"large": "1 " * 5_000}


def test_a_copy_under_load_is_of_one_moment(store_url: str, tmp_path: Path) -> None:
    agent, stop = Agent("a", store=store_url), threading.Event()
    fill(agent, 1)

    def work() -> None:
        for number in range(100_000):
            if stop.is_set():
                return
            with agent.run(f"w{number}") as run:
                run.state["n"] = number

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(3):
            path = tmp_path / f"{number}.db"
            agent._engine.store.backup(str(path))
            copy = open_store(f"sqlite:///{path}")
            assert verify(copy).ok
            assert rebuild.check(copy) == []
            copy.close()
    finally:
        stop.set()
        thread.join()
    agent.close()


def test_a_copy_begins_anew_when_the_connection_is_lost(store_url: str, tmp_path: Path) -> None:
    agent = Agent("a", store=store_url)
    fill(agent)
    store, cuts = agent._engine.store, list[int]()

    def cut(done: int, total: int) -> None:
        if done == total and len(cuts) < 2:
            cuts.append(done)
            behind(store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure'")

    store.backup(str(tmp_path / "copy.db"), cut)
    assert len(cuts) == 2
    copy = open_store(f"sqlite:///{tmp_path / 'copy.db'}")
    assert verify(copy).ok
    copy.close()
    agent.close()


@pytest.mark.stores("sqlite", "postgres")
def test_a_backup_takes_the_place_of_an_older_one(store_url: str, tmp_path: Path) -> None:
    agent = Agent("a", store=store_url)
    store, target = agent._engine.store, tmp_path / "backups" / "copy.db"
    target.parent.mkdir()
    fill(agent, 1)
    store.backup(str(target))
    fill(agent, 3)
    store.backup(str(target))
    assert list(target.parent.iterdir()) == [target]
    copy = open_store(f"sqlite:///{target}")
    assert verify(copy).ok
    assert len(copy.read("all_runs")) == 3
    copy.close()
    agent.close()


def test_the_command_copies_a_server_with_its_keys(store_url: str, tmp_path: Path) -> None:
    agent = Agent("a", store=store_url)
    fill(agent, 1)
    agent.close()
    assert main(["backup", str(tmp_path / "copy.db"), "--with-keys", "--store", store_url]) == 0
    assert main(["verify", "--store", str(tmp_path / "copy.db")]) == 0
    assert [path.name for path in (tmp_path / "copy.db.keys").iterdir()] == ["a.key"]
    assert main(["verify", "--store", store_url]) == 0
    assert main(["rebuild", "--check", "--store", store_url]) == 0
    assert main(["rebuild", "--store", store_url]) == 0
