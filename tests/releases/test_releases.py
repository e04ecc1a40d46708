"""Old data opens: a store of an older schema is brought forward, whole, and its agent goes on."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Agent, stored, upcaster
from perdure.cli.main import main
from perdure.errors import StoreUnavailable
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.platform.failpoints import CommitMoment, Site
from perdure.store import open_store, sql, versions_of
from perdure.store.postgres.url import is_postgres
from perdure.testing.plugin import STORES
from tests.conformance.kit import Behind, kill_at
from tests.releases import dump
from tests.releases.store_program import CONVERSATION, FILES, FLIGHT, KILLED_AT, LARGE, NOISE, PLAIN, unfinished

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")  # they are copies
NEXT = """-- oldest: 2

CREATE TABLE made_up (id INTEGER PRIMARY KEY);
ALTER TABLE runs ADD COLUMN made_up INTEGER NOT NULL DEFAULT 0;
CREATE INDEX journal_by_kind ON journal (kind);
DELETE FROM events;
INSERT INTO meta (key, value) VALUES ('stale', '1');
"""
"""A next schema that does all that a migration may do. The view of events is as one that it has just added."""
NEXT_OF = {"sqlite": NEXT.replace("'1'", "x'01'"), "postgres": NEXT}


@stored(FLIGHT, version=3)
@dataclass(frozen=True)
class Flight:
    """As it is today: two versions after the one that was stored."""

    number: str
    cents: int
    currency: str


@upcaster(FLIGHT, from_version=1)
def price_in_cents(fields: dict[str, Any]) -> dict[str, Any]:
    return {"number": fields["number"], "cents": int(fields["price"] * 100)}


@upcaster(FLIGHT, from_version=2)
def add_currency(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "currency": "EUR"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys of other tests: who opens an old store may not have its keys."""
    monkeypatch.setenv("PERDURE_KEYS", str(tmp_path / "keys"))


@cache
def written(kind: str) -> tuple[bytes, str]:
    """A store as a program of this schema has left it, and what it has done to the world."""
    with tempfile.TemporaryDirectory() as folder:
        url, outside = STORES[kind](Path(folder)), Path(folder) / "outside.txt"
        environment = {**os.environ, "HOME": folder, "PERDURE_KEYS": str(Path(folder) / "keys")}
        program = [sys.executable, str(Path(__file__).with_name("writer.py")), url, str(outside)]
        subprocess.run(program, env=environment, check=True)
        doomed = subprocess.run([*program, "unfinished"], env=environment, check=False)
        assert doomed.returncode == -signal.SIGKILL, f"it ended with {doomed.returncode}"
        if is_postgres(url):
            return dump.dump_store(url).encode(), outside.read_text()
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return Path(url.removeprefix("sqlite:///")).read_bytes(), outside.read_text()


def kind_of(url: str) -> str:
    return "postgres" if is_postgres(url) else "sqlite"


def put(store_url: str) -> None:
    """Have such a store at this place."""
    data, _ = written(kind_of(store_url))
    if is_postgres(store_url):
        dump.load(data.decode(), store_url)
    else:
        Path(store_url.removeprefix("sqlite:///")).write_bytes(data)


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    """This program knows one schema more than that of the store."""
    history = {kind: sql.migrations(kind) for kind in NEXT_OF}
    monkeypatch.setattr(sql, "migrations", lambda kind: (*history[kind], NEXT_OF[kind]))
    monkeypatch.setattr(sql, "_names", lambda kind: ["0001_schema.sql", "0002_made_up.sql"])
    monkeypatch.setattr(sql, "find_oldest_schema", inspect.unwrap(sql.find_oldest_schema))


@pytest.fixture
def release(store_url: str, tmp_path: Path, upgraded: None) -> None:
    """A copy of the store, put where the test's store is to be; the world as it was then."""
    put(store_url)
    (tmp_path / "outside.txt").write_text(written(kind_of(store_url))[1])


@pytest.fixture
def agent(release: None, store_url: str) -> Iterator[Agent]:
    agent = Agent("keeper", store=store_url)
    yield agent
    agent.close()


def must_be_sound(url: str) -> None:
    store = open_store(url)
    rebuild.refresh(store)  # as an agent and every command does
    report = verify(store)
    assert report.ok, report.findings
    assert rebuild.check(store) == []
    store.close()


def flight(number: str = "AA1") -> Flight:
    return Flight(number, 9990, "EUR")


def test_a_store_of_an_old_release_is_migrated_and_sound(release: None, store_url: str) -> None:
    before = versions_of(store_url)
    assert (before.found, before.known, len(before.steps)) == (1, 2, 1)
    must_be_sound(store_url)
    after = versions_of(store_url)
    assert (after.found, after.steps) == (2, ())
    with Behind(store_url) as behind:
        assert behind.execute("SELECT count(*) FROM made_up") == [(0,)]
        assert behind.execute("SELECT count(*) FROM runs WHERE made_up = 0")[0][0] > 4


def test_its_runs_are_all_there(agent: Agent) -> None:
    expected = {"finished": "finished", "child": "finished", "failed": "failed", "interrupted": "interrupted"}
    expected["paid"] = "finished"
    found = {run.id: str(run.status) for run in agent.runs.list()}
    assert found == {**expected, "waiting": "waiting", "unfinished": "crashed"}
    finished = agent.runs.get("finished")
    assert finished.state == {"flight": flight(), "a": "a", "b": "b"}
    assert finished.result == agent.runs.result("finished") == flight("CC3")
    assert finished.input == {"to": "NYC", "plain": PLAIN}
    assert [message["content"] for message in finished.messages] == ["a", "b"]
    with agent.run("finished") as run:
        recorded = run.step(lambda city: pytest.fail("it ran again"), "NYC", name="search")
        assert recorded == {"city": "NYC", "flights": [flight(), flight("BB2")], "page": LARGE}


def test_its_unfinished_run_goes_on(agent: Agent, store_url: str, tmp_path: Path) -> None:
    thought = []

    def think(file: str) -> Flight:
        thought.append(file)
        return flight(file)

    result = unfinished(agent, tmp_path / "outside.txt", think, lambda: None)
    how = ["posted"] * (KILLED_AT - 1) + ["found"] + ["posted"] * (len(FILES) - KILLED_AT)
    assert result == {file: [told, flight(file)] for file, told in zip(FILES, how, strict=True)}
    assert thought == FILES[KILLED_AT:]
    posted = [line.split()[1] for line in (tmp_path / "outside.txt").read_text().splitlines()]
    assert posted == FILES
    agent.runs.answer("waiting", done="AB12", by="ann")
    with agent.run("waiting") as run:
        run.result = run.effect(lambda number, *, key: pytest.fail("it ran again"), "lost", name="book")
    assert agent.runs.result("waiting") == "AB12"
    must_be_sound(store_url)


def test_its_state_is_there_and_goes_on(agent: Agent, store_url: str) -> None:
    found = dict(agent.state.items("crawl"))
    assert found == {"page": 30, "flight": flight(), "findings": [LARGE]}
    assert agent.state.set("crawl", "page", 31) == 3
    assert [version.value for version in agent.state.history("crawl", "page")] == [29, 30, 31]
    assert agent.state.history("crawl", "flight")[0].value == flight()
    assert agent.state.at(1).items("crawl") == [("page", 29)]
    assert dict(agent.state.items("bank")) == {"alice": 90, "bob": 110}
    agent.state.update(
        "crawl",
        "flight",
        lambda ticket_value: Flight(ticket_value.number, ticket_value.cents + 1, ticket_value.currency),
    )
    assert agent.state.get("crawl", "flight") == Flight("AA1", 9991, "EUR")
    must_be_sound(store_url)


def test_its_checkpoints_are_there_and_go_on(agent: Agent, store_url: str) -> None:
    assert [(checkpoint.name, checkpoint.version, checkpoint.labels) for checkpoint in agent.checkpoint.list()] == [
        ("talk", 1, ("first",)),
        ("talk", 2, ()),
    ]
    first, second = agent.checkpoint.restore("talk", version=1), agent.checkpoint.restore("talk")
    assert first == {"messages": CONVERSATION, "flight": flight()}
    assert (len(second["messages"]), second.flight, second.next_action) == (61, flight("DD4"), "read page 31")
    assert agent.checkpoint.create("talk", second) == 3
    assert [change.path for change in agent.checkpoint.diff(("talk", 1), "talk")]
    must_be_sound(store_url)


def test_its_artifacts_are_there_and_go_on(agent: Agent, store_url: str) -> None:
    assert [(artifact.name, artifact.version, artifact.labels) for artifact in agent.artifacts.list()] == [
        ("report", 2, ("best",))
    ]
    assert agent.artifacts.load("report", version=1) == LARGE.encode()
    assert agent.artifacts.load("report") == LARGE.encode() + NOISE
    assert agent.artifacts.save("report", LARGE.encode()) == 3
    must_be_sound(store_url)


def test_its_events_are_there_and_go_on(agent: Agent, store_url: str) -> None:
    """The migration has made their view anew."""
    [decision] = agent.events.read(run="finished")
    assert (decision.kind, decision.payload) == ("DECISION", {"why": "cheapest"})
    orders = [(event.payload["order"], event.payload["flight"]) for event in agent.events.read(kind="ORDER_PLACED")]
    assert orders == [(number, flight()) for number in range(3)]
    agent.events.append("ORDER_PLACED", {"order": 3, "flight": flight()})
    kinds = [event.kind for event in agent.events.read()]
    assert kinds == ["DECISION", *["ORDER_PLACED"] * 4]
    must_be_sound(store_url)


def test_its_workflows_are_there_and_go_on(agent: Agent, store_url: str) -> None:
    plan = agent.workflows.get("report")
    assert plan.results == {1: [flight()], 2: LARGE}
    step = plan.next_incomplete_step()
    assert step is not None
    assert (step.action, step.status, plan.progress) == ("write", "in_progress", 50)
    names = ("scrape", "analyse", "write", "send")
    results = plan.resume(handlers={name: lambda step: f"{step.action} now" for name in names})
    assert (results[3], results[4], plan.progress) == ("write now", "send now", 100)
    must_be_sound(store_url)


def test_what_it_has_paid_is_still_known(agent: Agent, store_url: str) -> None:
    paid = agent.usage()
    assert (paid.calls, paid.input_tokens, paid.output_tokens, paid.cost_usd) == (1, 1200, 300, 0.5)
    with agent.run("paid again") as run:
        run.usage(model="gpt-4o", input_tokens=800, cost_usd=0.25)
    assert agent.usage().input_tokens == 2000
    must_be_sound(store_url)


@pytest.mark.parametrize("moment", [CommitMoment.BEGUN, CommitMoment.WRITTEN])
def test_killed_while_it_is_brought_forward_it_is_what_it_was(
    release: None, store_url: str, moment: CommitMoment
) -> None:
    before = versions_of(store_url)
    assert before.steps
    kill_at(lambda: open_store(store_url).close(), Site.STORE_CREATE, moment)
    assert versions_of(store_url) == before
    must_be_sound(store_url)


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out or err)


def test_migrate_says_what_it_would_do_then_does_it(
    release: None, store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = versions_of(store_url)
    code, said = run_command(capsys, "migrate", "--check", "--store", store_url)
    assert (code, said["schema"], said["known"]) == (1, 1, 2)
    assert [(step["number"], step["name"]) for step in said["steps"]] == [(2, "made_up")]
    assert not said["done"] and versions_of(store_url) == before, "it has only looked"
    code, said = run_command(capsys, "migrate", "--store", store_url)
    assert (code, said["done"]) == (0, True)
    assert versions_of(store_url).found == 2
    must_be_sound(store_url)
    if not is_postgres(store_url):
        copy = f"{store_url}.schema-1"
        assert said["backup"] == copy.removeprefix("sqlite:///")
        assert versions_of(copy) == before, "the copy is of the old schema"
        assert os.stat(said["backup"]).st_mode & 0o077 == 0
    assert main(["migrate", "--check", "--store", store_url]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_migrate_refuses_a_newer_store(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    open_store(store_url).close()
    with Behind(store_url) as behind:
        if is_postgres(store_url):
            behind.execute("UPDATE meta SET value = ? WHERE key IN ('schema', 'oldest')", (b"99",))
        else:
            behind.execute("PRAGMA user_version = 99")
    for arguments in (["migrate", "--check"], ["migrate"]):
        code, said = run_command(capsys, *arguments, "--store", store_url)
        assert (code, said["error"]["code"]) == (2, "PD205")
        assert "the store has schema 99; this version of Perdure knows schema" in said["error"]["message"]


@pytest.mark.stores("sqlite")
def test_a_copy_never_takes_the_place_of_another(
    release: None, store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(store_url.removeprefix("sqlite:///"))
    other = path.with_name(f"{path.name}.schema-1")
    other.write_text("another copy")
    assert main(["migrate", "--check", "--store", str(path)]) == 1
    said = capsys.readouterr().out
    assert f"{other}.2 and migrates" in said
    does = "adds made_up; adds a column to runs; reads all of journal, events; rebuilds the views from the journal"
    assert f"2 made_up: {does}\n" in said
    assert main(["migrate", "--store", str(path)]) == 0
    assert "schema 2 now" in capsys.readouterr().out
    assert other.read_text() == "another copy"
    assert versions_of(f"sqlite:///{other}.2").found == 1
    put(store_url)
    assert run_command(capsys, "migrate", "--no-backup", "--store", str(path))[1]["backup"] is None


def test_a_store_of_a_development_version_is_refused_and_left_as_it_is(
    store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    open_store(store_url).close()
    with Behind(store_url) as behind:
        for change in ("store_locations RENAME TO homes", "journal RENAME TO events_of_old"):
            behind.execute(f"ALTER TABLE {change}")
        if is_postgres(store_url):
            behind.execute("UPDATE meta SET value = ? WHERE key IN ('schema', 'oldest')", (b"20",))
        else:
            behind.execute("PRAGMA user_version = 21")
    with pytest.raises(StoreUnavailable, match="made by a development version of Perdure, before the first release"):
        open_store(store_url)
    for arguments in (["runs"], ["migrate", "--check"], ["migrate"]):
        code, said = run_command(capsys, *arguments, "--store", store_url)
        assert (code, said["error"]["code"]) == (2, "PD201")
        assert "create a new store with `perdure init`" in said["error"]["hint"]
