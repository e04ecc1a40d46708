"""The store on a server: its schema, its settings, its connections, its threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from perdure import Agent, AsyncAgent, RunBusy
from perdure.cli.main import main
from perdure.errors import LeaseLost, NotStorable, StoreBusy, StoreForked, StoreTooNew, StoreUnavailable
from perdure.journal.append import read_events
from perdure.store import answer_watch, open_store
from perdure.store.base import Statement
from perdure.store.postgres import pool
from perdure.store.postgres.connection import RawStatement
from tests.conformance.kit import Behind, run_in_child
from tests.unit.units import Put, append, behind, create_head, entry

pytestmark = pytest.mark.stores("postgres")
WAIT = 100


def run_at_once(count: int, work: Any) -> list[BaseException]:
    """Run it in so many threads that begin together; what was raised."""
    start, problems = threading.Barrier(count), list[BaseException]()

    def run(number: int) -> None:
        start.wait(WAIT)
        try:
            work(number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    return problems


def settings(store: Any, *names: str) -> list[str]:
    """What a session of the store has."""
    with store._pool.link(time.monotonic() + WAIT) as link:
        answers = link.send_batch(
            [RawStatement(b"SELECT current_setting($1::text)", (name,)) for name in names], time.monotonic() + WAIT
        )
        return [answer.rows[0][0] for answer in answers]


# -- the schema -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ['we"ird', "drop table; --", "Grün $1", "select"])
def test_a_schema_may_have_any_name(store_url: str, name: str) -> None:
    url = store_url.partition("schema=")[0] + "schema=" + quote(name + store_url.rpartition("_")[2])
    agent = Agent("a", store=url)
    with agent.run("r") as run:
        run.state["k"] = 1
    assert agent.runs.get("r").state == {"k": 1}
    agent.close()


def test_many_who_make_the_same_store_at_once_make_one(store_url: str) -> None:
    made: list[Any] = []
    assert run_at_once(8, lambda number: made.append(open_store(store_url))) == []
    assert len({store.identity for store in made}) == 1
    for store in made:
        store.close()


def test_a_store_of_a_later_version_is_refused(store: Any, store_url: str) -> None:
    behind(store, "UPDATE meta SET value = ? WHERE key IN ('schema', 'oldest')", (b"99",))
    with pytest.raises(StoreTooNew, match=r"schema 99; this version of Perdure knows schema \d+ \(upgrade"):
        open_store(store_url)


def test_while_a_fleet_is_upgraded_old_programs_can_be_started(store: Any, store_url: str) -> None:
    """The newer version has only added something, and says so."""
    behind(store, "UPDATE meta SET value = ? WHERE key = 'schema'", (b"99",))
    behind(store, "ALTER TABLE runs ADD COLUMN later TEXT")
    agent = Agent("a", store=store_url)
    with agent.run("r") as run:
        run.result = run.step(lambda: 1, name="one")
    assert agent.runs.result("r") == 1
    agent.close()


def test_a_schema_of_another_program_is_refused(store_url: str) -> None:
    open_store(store_url).close()
    store = open_store(store_url)
    behind(store, "DELETE FROM meta WHERE key = 'schema'")
    store.close()
    with pytest.raises(StoreUnavailable, match="another program"):
        open_store(store_url)


def test_a_table_of_the_same_name_elsewhere_is_not_looked_at(store: Any, store_url: str) -> None:
    behind(store, "CREATE TABLE IF NOT EXISTS public.meta (key text, value bytea)")
    store.submit(Put("here"))
    assert store.read("get_meta", ("here",)) == [(b"v",)]
    assert behind(store, "SELECT count(*) FROM public.meta WHERE key = 'here'") == [(0,)]


def test_doctor_names_code_in_the_schema_that_is_not_ours(
    store: Any, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.read("foreign_code") == []
    behind(store, "CREATE RULE liar AS ON INSERT TO agent_state DO INSTEAD NOTHING")
    behind(store, "CREATE VIEW harmless AS SELECT 1")
    behind(store, "CREATE POLICY hidden ON runs USING (false)")
    assert main(["doctor", "--store", store_url]) == 1
    said = capsys.readouterr().out
    for planted in ("rule liar on agent_state", "view harmless", "policy hidden on runs"):
        assert f"{planted} is not Perdure's" in said


# -- settings -------------------------------------------------------------------------------------------------------


def test_every_session_has_deadlines_and_waits_for_the_disk(store: Any) -> None:
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")
    assert settings(store, *names, "synchronous_commit") == ["30s", "10s", "10s", "1min", "on"]


def test_durability_of_a_process_does_not_wait(store_url: str) -> None:
    store = open_store(store_url, durability="process")
    assert settings(store, "synchronous_commit") == ["off"]
    store.close()


def test_full_durability_does_not_believe_a_careless_default(store_url: str) -> None:
    store = open_store(store_url + "&options=-c%20synchronous_commit%3Doff")
    assert settings(store, "synchronous_commit") == ["on"]
    store.close()
    careful = open_store(store_url + "&options=-c%20synchronous_commit%3Dremote_apply")
    assert settings(careful, "synchronous_commit") == ["remote_apply"]
    careful.close()


# -- commits --------------------------------------------------------------------------------------------------------


def test_what_must_hold_is_an_error_of_the_last_batch(store: Any) -> None:
    head = create_head(store)
    store.submit(append(head, entry("a")))
    with pytest.raises(LeaseLost):  # in the middle of a batch whose commit travels with it
        store.submit(append(head, entry("b"), also=(Statement("take_lease", (head.stream, 99, None), LeaseLost),)))
    head.fence = 2
    with pytest.raises(LeaseLost):
        store.submit(append(head, entry("c"), entry("d")))
    head.fence = 1
    assert store.submit(append(head, entry("e"))) == 2
    assert [row[0] for row in store.read("journal_of", (head.stream, 0))] == [1, 2]


def test_an_entry_of_somebody_else_is_not_taken_for_ours(store: Any) -> None:
    head = create_head(store)
    other = type(head)(head.store, head.stream, 1)
    store.submit(append(head, entry("a")))
    with pytest.raises(LeaseLost):
        store.submit(append(other, entry("b")))
    assert other.seq == 0


def test_a_session_that_was_ended_is_replaced(store: Any) -> None:
    head = create_head(store)
    for number in range(1, 4):
        behind(store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure'")
        assert store.submit(append(head, entry(f"k{number}"))) == number
        behind(store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure'")
        assert len(store.read("journal_of", (head.stream, 0))) == number


def test_threads_of_one_run_take_turns(store: Any) -> None:
    head = create_head(store)

    def work(number: int) -> None:
        for n in range(5):
            store.submit(append(head, entry(f"{number} {n}")))

    assert run_at_once(12, work) == []
    assert [row[0] for row in store.read("journal_of", (head.stream, 0))] == list(range(1, 61))


def test_what_has_waited_is_one_commit_and_a_stale_one_harms_only_itself(store: Any) -> None:
    head, stale = create_head(store), create_head(store)
    stale.fence = 9
    commits: list[int] = []
    begun, release = threading.Event(), threading.Event()
    original = store._commit

    def slowly(group: Any) -> None:
        commits.append(len(group))
        begun.set()
        assert release.wait(WAIT)
        original(group)

    store._commit = slowly
    units = [append(head, entry(f"k{n}")) for n in range(7)]
    refused = Statement("take_lease", (head.stream, 99, None), LeaseLost)
    units[3] = append(head, entry("never"), also=(refused,))
    results: dict[int, Any] = {}

    def submit(number: int) -> None:
        try:
            results[number] = store.submit(units[number])
        except LeaseLost:
            results[number] = "lost"

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(7)]
    threads[0].start()
    assert begun.wait(WAIT)
    for number, thread in enumerate(threads[1:], start=1):
        thread.start()
        while len(store._lanes._lanes[head.stream].waiting) < number:
            time.sleep(0.001)
    release.set()
    for thread in threads:
        thread.join(WAIT)
    assert commits == [1, 6]
    assert [results[number] for number in range(7)] == [1, 2, 3, "lost", 4, 5, 6]
    assert head.seq == 6
    found, stored = read_events(store.identity, head.stream, store.read("journal_of", (head.stream, 0)))
    assert (stored.seq, stored.chain) == (head.seq, head.chain)
    assert [event.record.write.key for event in found] == ["k0", "k1", "k2", "k4", "k5", "k6"]


def test_joined_units_are_one_transaction(store: Any) -> None:
    head = create_head(store)
    units = [append(head, entry(f"k{n}")) for n in range(5)]
    assert store.submit(units[0].join(units[1:])) == [1, 2, 3, 4, 5]
    assert behind(store, "SELECT count(DISTINCT xmin::text) FROM journal WHERE stream = ?", (head.stream,)) == [(1,)]
    assert units[0].join([append(create_head(store), entry("other"))]) is None


def test_of_threads_that_open_one_run_at_once_one_gets_it(store_url: str) -> None:
    agent = Agent("a", store=store_url)
    opened, ready = threading.Event(), threading.Barrier(8)

    def work(number: int) -> None:
        try:
            with agent.run("r") as run:
                run.step(lambda: 1, name="step")
                opened.set()
                ready.wait(WAIT)
        except RunBusy:
            ready.wait(WAIT)

    assert run_at_once(8, work) == []
    assert agent.runs.get("r").status == "finished"
    assert agent.runs.get("r").summary.resumes == 0
    agent.close()


def test_a_write_that_is_not_awaited_does_not_wait_for_its_own_loop(store_url: str) -> None:
    """A commit of the run is under way in the loop; the write blocks the loop, and needs that commit to end."""
    agent = AsyncAgent("a", store=store_url + "&pool_size=1")

    @agent.step
    async def work(n: int) -> int:
        return n

    async def program() -> None:
        async with agent.run("r") as run:

            async def write(n: int) -> None:
                await asyncio.sleep(0)
                run.state[f"k{n}"] = n

            await asyncio.gather(*[work(n) for n in range(10)], *[write(n) for n in range(10)])

    asyncio.run(program())


def test_more_runs_than_connections(store_url: str) -> None:
    agent = Agent("a", store=store_url + "&pool_size=2")

    def work(number: int) -> None:
        with agent.run(f"r{number}") as run:
            for n in range(3):
                run.step(lambda n: n, n, name="step")

    assert run_at_once(16, work) == []
    assert {run.status for run in agent.runs.list()} == {"finished"}
    agent.close()


# -- processes ------------------------------------------------------------------------------------------------------


def test_a_child_of_fork_leaves_the_connections_of_its_parent_alone(store: Any) -> None:
    head = create_head(store)

    def in_the_child() -> None:
        with pytest.raises(StoreForked):
            store.read("all_streams")
        store.close()

    assert run_in_child(in_the_child) == 0
    assert store.submit(append(head, entry("after"))) == 1


def test_a_child_holds_no_socket_of_its_parent(store: Any) -> None:
    store.read("all_streams")
    [number] = [connection.socket for connection in store._pool._connections]

    def in_the_child() -> None:
        assert os.readlink(f"/proc/self/fd/{number}") == "/dev/null"

    assert run_in_child(in_the_child) == 0


# -- waiting --------------------------------------------------------------------------------------------------------


def test_an_answer_wakes_who_waits(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody looks by himself any more: only being told ends the waiting.
    monkeypatch.setattr(answer_watch, "LISTEN_POLL_SECONDS", 1000.0)
    agent = Agent("a", store=store_url)

    @agent.effect
    def pay() -> None:
        raise ConnectionError("who knows")

    with pytest.raises(Exception, match="is unknown"), agent.run("r"):
        pay()
    paid: list[Any] = []

    def go_on() -> None:
        with agent.run("r") as run:
            paid.append(pay())
            paid.append(run.ask("And then?"))  # while the listener is still there for the wait before

    thread = threading.Thread(target=go_on)
    thread.start()
    store: Any = agent._engine.store
    listener = store._listener
    for _ in range(2000):
        if listener.listening:
            break
        threading.Event().wait(0.01)
    assert listener.listening
    other = open_store(store_url)
    agent.runs.answer("r", done="so it was")
    while thread.is_alive() and [question.kind for question in agent.runs.get("r").questions] != ["ask"]:
        threading.Event().wait(0.01)
    threading.Event().wait(0.05)  # it has looked by itself, in vain
    agent.runs.answer("r", "home")
    thread.join(WAIT)
    assert paid == ["so it was", "home"]
    other.close()
    agent.close()


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.stores("sqlite", "postgres")
@pytest.mark.parametrize("name", ["nul \0", "half \ud83d"])
def test_a_name_that_one_store_could_not_hold_is_refused_by_all(store_url: str, name: str) -> None:
    agent = Agent("a", store=store_url)
    with pytest.raises(ValueError, match="NUL"):
        Agent(name, store=store_url)
    with pytest.raises(ValueError, match="NUL"):
        agent.run(name)
    with pytest.raises(ValueError, match="NUL"):
        agent.step(lambda: 1, name=name)
    with agent.run("r") as run:
        with pytest.raises(NotStorable, match="NUL"):
            run.state[name] = 1
        run.state["value"] = name
    assert agent.runs.get("r").state == {"value": name}
    agent.close()


@pytest.mark.stores("sqlite", "postgres")
@pytest.mark.parametrize("text", ["nul \0", "half \ud83d"])
def test_a_failure_with_such_words_is_recorded(store_url: str, text: str) -> None:
    agent = Agent("a", store=store_url)
    with pytest.raises(ValueError, match="nul|half"), agent.run("r"):
        raise ValueError(text)
    assert agent.runs.get("r").status == "failed"
    assert agent.runs.get("r").error.startswith("ValueError: ")
    agent.close()


# -- patience -------------------------------------------------------------------------------------------------------


def test_a_row_that_stays_locked_is_told_as_busy(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SERVER_LOCK_SECONDS_MAX", 0.05)
    store = open_store(store_url + "&reconnect_seconds=0.2")
    with Behind(store_url) as other:
        other.execute("BEGIN")
        other.execute("SELECT last FROM stream_count FOR UPDATE")
        with pytest.raises(StoreBusy, match="lock timeout"):
            create_head(store)
        other.execute("ROLLBACK")
    assert create_head(store).stream == 1
    store.close()


def test_a_server_that_stays_away_is_told_in_time(store_url: str) -> None:
    store: Any = open_store(store_url + "&reconnect_seconds=0.2")
    head = create_head(store)
    store._pool.place = msgspec.structs.replace(store._pool.place, target="postgresql://postgres@127.0.0.1:1/postgres")
    store._pool.clear()
    with pytest.raises(StoreUnavailable, match="unreachable for 0.2 s"):
        store.submit(append(head, entry("lost")))
    assert head.seq == 0
    with pytest.raises(StoreUnavailable, match="unreachable for 0.2 s"):
        store.read("all_streams")
    store.close()
