"""Old data opens: every store that a release has written is brought forward, whole, and its agent goes on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, stored, upcaster
from perdure.cli.main import main
from perdure.failpoints import Moment, Site
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.store import open_store, sql, versions_of
from perdure.store.postgres_url import is_postgres
from tests.conformance.kit import Behind, killed_at
from tests.releases import dump
from tests.releases.story import CONVERSATION, FILES, FLIGHT, KILLED_AT, LARGE, NOISE, PLAIN, unfinished

STORES = Path(__file__).parents[1] / "fixtures/stores"
pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")  # they are copies
RELEASES = sorted(path.name for path in STORES.iterdir())


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
def in_a_currency(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "currency": "EUR"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No keys of other tests: who opens an old store may not have its keys."""
    monkeypatch.setenv("PERDURE_KEYS", str(tmp_path / "keys"))


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> Path:
    """A copy of what a release has left, put where the test's store is to be; the world as it was then."""
    folder = STORES / request.param
    kind = "postgres" if is_postgres(store_url) else "sqlite"
    if is_postgres(store_url):
        dump.load((folder / "postgres.sql").read_text("utf-8"), store_url)
    else:
        shutil.copy(folder / "sqlite.db", store_url.removeprefix("sqlite:///"))
    shutil.copy(folder / f"{kind}.txt", tmp_path / "outside.txt")
    return folder


@pytest.fixture
def agent(release: Path, store_url: str) -> Iterator[Agent]:
    agent = Agent("keeper", store=store_url)
    yield agent
    agent.close()


def has(release: Path, part: str) -> bool:
    """Whether a release had this noun."""
    return part in (release / "parts.txt").read_text("utf-8").split()


def must_be_sound(url: str) -> None:
    store = open_store(url)
    rebuild.refresh(store)  # as an agent and every command does
    report = verify(store)
    assert report.ok, report.findings
    assert rebuild.check(store) == []
    store.close()


def flight(number: str = "AA1") -> Flight:
    return Flight(number, 9990, "EUR")


def test_it_is_migrated_and_sound(release: Path, store_url: str) -> None:
    before = versions_of(store_url)
    known = len(sql.migrations("postgres" if is_postgres(store_url) else "sqlite"))
    assert (before.known, len(before.steps)) == (known, known - before.found)
    if release.name.startswith("schema-"):
        assert before.found == int(release.name.removeprefix("schema-"))
    must_be_sound(store_url)
    assert versions_of(store_url).found == known


def test_its_runs_are_all_there(agent: Agent, release: Path) -> None:
    expected = {"finished": "finished", "child": "finished", "failed": "failed", "interrupted": "interrupted"}
    if has(release, "usage"):
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


def test_its_state_is_there_and_goes_on(agent: Agent, release: Path, store_url: str) -> None:
    if not has(release, "state"):
        assert agent.state.items("crawl") == []
        assert agent.state.set("crawl", "page", 1) == 1
    else:
        found = dict(agent.state.items("crawl"))
        assert found == {"page": 30, "flight": flight(), "findings": [LARGE]}
        assert agent.state.set("crawl", "page", 31) == 3
        assert [it.value for it in agent.state.history("crawl", "page")] == [29, 30, 31]
        assert agent.state.history("crawl", "flight")[0].value == flight()
        assert agent.state.at(1).items("crawl") == [("page", 29)]
        assert dict(agent.state.items("bank")) == {"alice": 90, "bob": 110}
        agent.state.update("crawl", "flight", lambda it: Flight(it.number, it.cents + 1, it.currency))
        assert agent.state.get("crawl", "flight") == Flight("AA1", 9991, "EUR")
    must_be_sound(store_url)


def test_its_checkpoints_are_there_and_go_on(agent: Agent, release: Path, store_url: str) -> None:
    if not has(release, "checkpoint"):
        assert agent.checkpoint.list() == []
        assert agent.checkpoint.create("talk", CONVERSATION) == 1
    else:
        assert [(it.name, it.version, it.labels) for it in agent.checkpoint.list()] == [
            ("talk", 1, ("first",)),
            ("talk", 2, ()),
        ]
        first, second = agent.checkpoint.restore("talk", version=1), agent.checkpoint.restore("talk")
        assert first == {"messages": CONVERSATION, "flight": flight()}
        assert (len(second["messages"]), second.flight, second.next_action) == (61, flight("DD4"), "read page 31")
        assert agent.checkpoint.create("talk", second) == 3
        assert [change.path for change in agent.checkpoint.diff(("talk", 1), "talk")]
    must_be_sound(store_url)


def test_its_artifacts_are_there_and_go_on(agent: Agent, release: Path, store_url: str) -> None:
    if not has(release, "artifacts"):
        assert agent.artifacts.list() == []
        assert agent.artifacts.save("report", b"new") == 1
    else:
        assert [(it.name, it.version, it.labels) for it in agent.artifacts.list()] == [("report", 2, ("best",))]
        assert agent.artifacts.load("report", version=1) == LARGE.encode()
        assert agent.artifacts.load("report") == LARGE.encode() + NOISE
        assert agent.artifacts.save("report", LARGE.encode()) == 3
    must_be_sound(store_url)


def test_its_events_are_there_and_go_on(agent: Agent, release: Path, store_url: str) -> None:
    """Those that runs have noted before there was `agent.events` too."""
    before = has(release, "events")
    [decision] = agent.events.read(run="finished")
    assert (decision.kind, decision.payload) == ("DECISION", {"why": "cheapest"})
    orders = [(event.payload["order"], event.payload["flight"]) for event in agent.events.read(kind="ORDER_PLACED")]
    assert orders == ([(number, flight()) for number in range(3)] if before else [])
    agent.events.append("ORDER_PLACED", {"order": 3, "flight": flight()})
    kinds = [event.kind for event in agent.events.read()]
    assert kinds == ["DECISION", *["ORDER_PLACED"] * (4 if before else 1)]
    must_be_sound(store_url)


def test_its_workflows_are_there_and_go_on(agent: Agent, release: Path, store_url: str) -> None:
    if not has(release, "workflows"):
        assert agent.workflows.list() == []
        agent.workflows.create(name="report", steps=["scrape", "analyse", "write", "send"])
    plan = agent.workflows.get("report")
    if has(release, "workflows"):
        assert plan.results == {1: [flight()], 2: LARGE}
        step = plan.next_incomplete_step()
        assert step is not None
        assert (step.action, step.status, plan.progress) == ("write", "in_progress", 50)
    names = ("scrape", "analyse", "write", "send")
    results = plan.resume(handlers={name: lambda step: f"{step.action} now" for name in names})
    assert (results[3], results[4], plan.progress) == ("write now", "send now", 100)
    must_be_sound(store_url)


def test_what_it_has_paid_is_still_known(agent: Agent, release: Path, store_url: str) -> None:
    paid = agent.usage()
    figures = (1, 1200, 300, 0.5) if has(release, "usage") else (0, 0, 0, 0)
    assert (paid.calls, paid.input_tokens, paid.output_tokens, paid.cost_usd) == figures
    with agent.run("paid again") as run:
        run.usage(model="gpt-4o", input_tokens=800, cost_usd=0.25)
    assert agent.usage().input_tokens == figures[1] + 800
    must_be_sound(store_url)


@pytest.mark.parametrize("moment", [Moment.BEGUN, Moment.WRITTEN])
def test_killed_while_it_is_brought_forward_it_is_what_it_was(release: Path, store_url: str, moment: Moment) -> None:
    before = versions_of(store_url)
    if not before.steps:
        return  # the newest of them has nothing to be killed in
    killed_at(lambda: open_store(store_url).close(), Site.STORE_CREATE, moment)
    assert versions_of(store_url) == before
    must_be_sound(store_url)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out or err)


def test_migrate_says_what_it_would_do_then_does_it(
    release: Path, store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = versions_of(store_url)
    steps = list(range(before.found + 1, before.known + 1))
    code, said = told(capsys, "migrate", "--check", "--store", store_url)
    assert (code, said["schema"], said["known"]) == (1 if steps else 0, before.found, before.known)
    assert [step["number"] for step in said["steps"]] == steps
    assert not said["done"] and versions_of(store_url) == before, "it has only looked"
    code, said = told(capsys, "migrate", "--store", store_url)
    assert (code, said["done"]) == (0, True)
    assert versions_of(store_url).found == before.known
    must_be_sound(store_url)
    if steps and not is_postgres(store_url):
        copy = f"{store_url}.schema-{before.found}"
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
        code, said = told(capsys, *arguments, "--store", store_url)
        assert (code, said["error"]["code"]) == (2, "PD205")
        assert "the store has schema 99; this version of Perdure knows schema" in said["error"]["message"]


def test_a_copy_never_takes_the_place_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "perdure.db"
    shutil.copy(STORES / "schema-1/sqlite.db", path)
    (tmp_path / "perdure.db.schema-1").write_text("another copy")
    assert main(["migrate", "--check", "--store", str(path)]) == 1
    said = capsys.readouterr().out
    assert "perdure.db.schema-1.2 first" in said
    assert "2 keeping: adds spaces, entries, history, checkpoints\n" in said
    assert "retention: changes no rows\n" in said, "the table that gets an index is empty then"
    assert "6 events: adds happenings, replays; makes the views anew from the journal\n" in said
    assert main(["migrate", "--store", str(path)]) == 0
    assert "it has schema" in capsys.readouterr().out
    assert (tmp_path / "perdure.db.schema-1").read_text() == "another copy"
    assert versions_of(f"sqlite:///{path}.schema-1.2").found == 1
    shutil.copy(STORES / "schema-1/sqlite.db", path)
    assert told(capsys, "migrate", "--no-backup", "--store", str(path))[1]["backup"] is None
