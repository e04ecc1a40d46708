"""Runs that a client drives through a server: the same rules as in a process of Python, on every kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from perdure import Agent, InDoubt, NotDone, RunBusy
from perdure import records as r
from perdure.errors import Diverged, ForeignError, InputChanged, LeaseLost, ReplayUnknown, RunFinished, WrongValue
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import Protocol, drive_sync
from perdure.run.clients.calls import call_client_step, intend_effect, report_outcome
from perdure.run.clients.messages import (
    BodyReport,
    CheckReport,
    ClientCall,
    ReportedError,
    ReportedEvent,
    ReportedUsage,
    ReportedWrites,
    ask_check,
)
from perdure.run.clients.recorded import list_calls
from perdure.run.clients.session import ClientIdentity, ClientSession, RunEnding, close_session, open_session, renew
from perdure.run.clients.waits import ask_person
from perdure.run.function import CallOptions
from perdure.values.clock import SystemClock
from perdure.values.limits import LEASE_SECONDS

from .kit import expire_leases

SEARCH = ClientCall("search", {"city": "NYC"})
BOOK = ClientCall("book", {"flight": "PD 42"})
SAFE = ClientCall("book", {"flight": "PD 42"}, options=CallOptions(check=ask_check, timeout=5))
LEASE_MS = 2000


class Client:
    """A program somewhere else. `restart` is the server losing its memory."""

    def __init__(self, engine: Engine, name: str = "client-one") -> None:
        self.engine = engine
        self.identity = ClientIdentity(name, LEASE_MS)
        self.session: ClientSession | None = None

    def do(self, protocol: Protocol[Any]) -> Any:
        return drive_sync(self.engine.store, protocol)

    def open(self, given: Any = None) -> Client:
        self.session = self.do(open_session(self.engine, "trip", given, self.identity))
        return self

    def restart(self) -> None:
        assert self.session is not None
        self.session = ClientSession(self.engine, "trip", ClientIdentity.parse(str(self.session.identity)))

    def step(self, call: ClientCall, report: BodyReport | None = None) -> Any:
        return self.do(call_client_step(self.open_session, call, report))

    def intend(self, call: ClientCall, request: str = "1", **more: Any) -> Any:
        return self.do(intend_effect(self.open_session, call, request, **more))

    def outcome(self, call: ClientCall, intent: int, report: BodyReport, **more: Any) -> Any:
        return self.do(report_outcome(self.open_session, call, intent, report, **more))

    def close(self, how: str = "finished", **more: Any) -> str:
        return str(self.do(close_session(self.open_session, RunEnding(how, **more))))

    @property
    def open_session(self) -> ClientSession:
        assert self.session is not None
        return self.session

    def renew(self) -> str:
        return str(self.do(renew(self.open_session)))


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    engine = Engine("travel", store=store_url)
    yield engine
    engine.close()


@pytest.fixture
def client(engine: Engine) -> Client:
    return Client(engine)


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the boot clock ahead, and let all leases run out: PostgreSQL has its own clock."""
    right = SystemClock.boot_ms
    monkeypatch.setattr(SystemClock, "boot_ms", lambda self: right(self) + int(seconds * 1000))


def entries(engine: Engine) -> list[type[r.Record]]:
    [(stream, *_)] = engine.store.read("get_run", ("travel", "trip"))
    return [type(r.decode(kind, body)) for _, kind, _, body, _, _ in engine.store.read("journal_of", (stream, 0))]


def test_a_step_is_executed_once_and_found_again_by_the_next_opening(engine: Engine, client: Client) -> None:
    client.open({"to": "NYC"})
    assert client.step(SEARCH).status == "run"
    writes = ReportedWrites({"city": "NYC"}, (), ("found it",), (ReportedEvent("FOUND", 1),), (), "half")
    assert client.step(SEARCH, BodyReport(["PD 42"], writes=writes)).status == "done"
    before = entries(engine)
    client.restart()
    assert client.step(SEARCH, BodyReport(["other"])).result == ["PD 42"], "a repeated report changes nothing"
    assert client.step(ClientCall("search", {"city": "NYC"}, nth=1)).status == "run", "the second call is another one"
    assert entries(engine) == before
    assert client.close("interrupted") == client.close("interrupted") == "interrupted"
    again = client.open({"to": "NYC"}).step(SEARCH)
    assert (again.status, again.result) == ("done", ["PD 42"])
    assert again.writes is not None and (again.writes.state, again.writes.messages) == ({"city": "NYC"}, ("found it",))
    assert client.close(result={"ok": True}) == client.close(result={"ok": True}) == "finished"
    with Agent("travel", store=engine.url) as agent:
        info = agent.runs.get("trip")
        assert (info.result, info.state, info.messages) == ({"ok": True}, {"city": "NYC"}, ["found it"])
        assert [event.payload for event in agent.events.read("FOUND")] == [1]


def test_python_and_a_client_continue_each_others_runs(engine: Engine, client: Client) -> None:
    agent, ran = Agent("travel", store=engine.url), list[str]()

    @agent.step
    def search(city: str) -> list[str]:
        ran.append(city)
        return ["PD 42"]

    @agent.effect
    def book(flight: str) -> str:
        ran.append(flight)
        return "B-1"

    with pytest.raises(KeyboardInterrupt), agent.run("trip", input={"to": "NYC"}):
        assert search("NYC") == ["PD 42"]
        assert book("PD 42") == "B-1"
        raise KeyboardInterrupt
    client.open({"to": "NYC"})
    assert client.step(SEARCH).result == ["PD 42"]
    assert client.intend(BOOK).result == "B-1"
    assert client.step(ClientCall("pay", {"sum": 100}), BodyReport("paid")).status == "done"
    client.close("interrupted")
    with agent.run("trip", input={"to": "NYC"}) as run:
        assert (search("NYC"), book("PD 42")) == (["PD 42"], "B-1")
        assert run.step(lambda sum: ran.append("pay"), 100, name="pay") == "paid"
        run.result = "all"
    assert ran == ["NYC", "PD 42"]
    assert client.open().step(SEARCH).result == ["PD 42"]
    with pytest.raises(RunFinished):
        client.step(ClientCall("more"))
    agent.close()


def test_a_run_has_one_holder_and_a_repeated_open_is_the_same_one(engine: Engine, client: Client) -> None:
    client.open({"to": "NYC"})
    first, before = client.session, entries(engine)
    client.open({"to": "NYC"})
    assert first is not None and client.session is not None
    assert (client.session.identity, entries(engine)) == (first.identity, before)
    client.step(SEARCH, BodyReport(1))
    with pytest.raises(RunBusy):
        client.open({"to": "NYC"})
    with pytest.raises(RunBusy, match="client-one"):
        Client(engine, "client-two").open({"to": "NYC"})
    with pytest.raises(RunBusy, match="client-one"), Agent("travel", store=engine.url) as agent, agent.run("trip"):
        pass
    client.close("interrupted")
    with pytest.raises(InputChanged):
        client.open({"to": "SFO"})


def test_after_a_takeover_the_old_client_changes_nothing(engine: Engine, client: Client) -> None:
    client.open().step(SEARCH, BodyReport(1))
    expire_leases(engine.url)
    assert client.renew() == ""
    with pytest.raises(RunBusy):
        Client(engine, "client-two").open()
    expire_leases(engine.url)
    other = Client(engine, "client-two").open()
    before = entries(engine)
    attempts: list[Callable[[], object]] = [
        lambda: client.step(ClientCall("pay"), BodyReport(1)),
        lambda: client.intend(BOOK),
        client.renew,
        client.close,
    ]
    for memory in (False, True):
        for attempt in attempts:
            with pytest.raises(LeaseLost):
                attempt()
        if not memory:
            client.restart()
    assert entries(engine) == before
    assert other.step(SEARCH).result == 1


def test_an_intent_is_durable_before_the_body_and_a_repeated_request_is_recognised(
    engine: Engine, client: Client
) -> None:
    client.open()
    begun = client.intend(BOOK, "a")
    assert (begun.status, entries(engine)[-1]) == ("run", r.EffectIntended)
    for _ in range(2):
        again = client.intend(BOOK, "a")
        assert (again.status, again.key, again.entry) == ("run", begun.key, begun.entry)
        with pytest.raises(Diverged, match="has no outcome"):
            client.intend(BOOK, "b")
        client.restart()
    second = client.intend(msgspec.structs.replace(BOOK, nth=1), "c")
    assert second.key != begun.key
    with pytest.raises(InDoubt, match="cannot finish"):
        client.close()
    for _ in range(2):
        assert client.outcome(BOOK, begun.entry, BodyReport("B-1")).result == "B-1"
        client.restart()
    assert entries(engine).count(r.EffectDone) == 1
    client.outcome(BOOK, second.entry, BodyReport("B-2"))
    assert client.intend(msgspec.structs.replace(BOOK, nth=1), "d").result == "B-2"
    assert client.close() == "finished"


def test_an_effect_of_a_killed_client_is_in_doubt(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = client.open().intend(SAFE).key
    expire_leases(engine.url)
    other = Client(engine, "client-two").open()
    told = other.intend(SAFE, "2")
    assert (told.status, told.key) == ("check", key)
    doubted = other.intend(SAFE, "2", checked=CheckReport("not_done", ticket=told.ticket))
    assert doubted.status == "waiting", "the first client may still act within its timeout"
    late = other.intend(SAFE, "2")
    pass_time(monkeypatch, LEASE_SECONDS + 6)
    early = other.intend(SAFE, "2", checked=CheckReport("not_done", ticket=late.ticket))
    assert early.status == "waiting", "it was checked before the timeout was over"
    told = other.intend(SAFE, "2")
    again = other.intend(SAFE, "2", checked=CheckReport("not_done", ticket=told.ticket))
    assert (again.status, again.key) == ("run", key)
    other.restart()
    assert other.intend(SAFE, "2").status == "run", "a repeated request"
    assert other.outcome(SAFE, again.entry, BodyReport("B-1")).status == "done"


def test_the_same_client_is_believed_at_once(engine: Engine, client: Client) -> None:
    client.open().intend(SAFE)
    client.close("failed", error=ReportedError("lost its way"))
    told = client.open().intend(SAFE, "2")
    assert client.intend(SAFE, "2", checked=CheckReport("done", "B-1", told.ticket)).result == "B-1"
    assert entries(engine).count(r.EffectDone) == 1


@pytest.mark.parametrize("policy", ["ask", "retry", "fail"])
def test_without_a_check_the_policy_decides(engine: Engine, client: Client, policy: str) -> None:
    call = msgspec.structs.replace(BOOK, options=CallOptions(in_doubt=policy))
    client.open().intend(call)
    client.close("failed", error=ReportedError("killed"))
    client.open()
    if policy == "fail":
        with pytest.raises(InDoubt):
            client.intend(call, "2")
        return
    told = client.intend(call, "2")
    assert told.status == {"ask": "waiting", "retry": "run"}[policy]
    if policy == "ask":
        with Agent("travel", store=engine.url) as agent:
            agent.runs.answer("trip", done="B-7", key=told.key)
        assert client.intend(call, "2").result == "B-7"


def test_a_body_that_raises_is_checked_retried_or_in_doubt(engine: Engine, client: Client) -> None:
    call = msgspec.structs.replace(SAFE, options=CallOptions(check=ask_check, retries=1, backoff=0))
    failed = BodyReport(error=ReportedError("no seats", not_done=True))
    begun = client.open().intend(call, "1")
    for _ in range(2):
        assert client.outcome(call, begun.entry, failed).status == "later"
        client.restart()
    second = client.intend(call, "2")
    assert (second.status, second.attempt, second.key) == ("run", 2, begun.key)
    lost = BodyReport(error=ReportedError("connection reset"), attempt=2)
    assert client.outcome(call, begun.entry, lost).status == "check"
    with pytest.raises(InDoubt):
        client.outcome(call, begun.entry, lost, checked=CheckReport("unknown"))
    with pytest.raises(InDoubt):
        client.outcome(call, begun.entry, lost)
    with pytest.raises(Diverged, match="in doubt"):
        client.intend(ClientCall("book", {"flight": "PD 43"}), "3", passed=[begun.entry])
    assert entries(engine).count(r.AttemptFailed) == 1


def test_a_failed_step_is_recorded_once_and_runs_again_in_the_next_opening(engine: Engine, client: Client) -> None:
    call = msgspec.structs.replace(SEARCH, options=CallOptions(retries=1, backoff=0))
    error = ReportedError("no network", "TypeError")
    paid = ReportedWrites(usage=(ReportedUsage("gpt-4o", input_tokens=10, cost_usd=0.5),))
    client.open()
    for _ in range(2):
        assert client.step(call, BodyReport(error=error, writes=paid)).status == "later"
        client.restart()
    told = client.step(call)
    assert (told.status, told.attempt) == ("run", 2)
    for _ in range(2):
        failed = client.step(call, BodyReport(error=error, attempt=2))
        assert failed.status == "failed" and isinstance(failed.error, ForeignError)
        assert (str(failed.error), failed.error.type_name) == ("no network", "TypeError")
        client.restart()
    assert (entries(engine).count(r.AttemptFailed), entries(engine).count(r.StepFailedEntry)) == (1, 1)
    assert client.close("failed", error=error, cause=failed.entry) == "failed"
    assert client.open().step(call).status == "run"
    with Agent("travel", store=engine.url) as agent:
        assert agent.usage().cost_usd == 0.5


def test_a_changed_effect_diverges_and_the_client_tells_what_it_has_passed(engine: Engine, client: Client) -> None:
    begun = client.open().intend(BOOK)
    client.outcome(BOOK, begun.entry, BodyReport("B-1"))
    client.close("interrupted")
    client.open()
    other = ClientCall("book", {"flight": "PD 43"})
    with pytest.raises(ReplayUnknown):
        client.intend(other, "2")
    with pytest.raises(Diverged):
        client.intend(other, "2", passed=[])
    assert client.intend(BOOK).entry == begun.entry
    client.restart()
    assert client.intend(other, "2", passed=[begun.entry]).status == "run"


def test_a_question_of_a_client_waits_for_its_answer(engine: Engine, client: Client) -> None:
    client.open()

    def ask() -> Any:
        return client.do(ask_person(client.open_session, "approve", "Book it?"))

    assert (ask().status, ask().status) == ("waiting", "waiting")
    assert entries(engine).count(r.WaitBegan) == 1
    with Agent("travel", store=engine.url) as agent:
        agent.runs.answer("trip", True)
    client.restart()
    assert ask().result is True
    with pytest.raises(WrongValue):
        client.do(ask_person(client.open_session, "guess", "?"))


def test_recorded_calls_are_listed_in_pages(client: Client) -> None:
    client.open().step(SEARCH, BodyReport(1))
    begun = client.intend(msgspec.structs.replace(BOOK, options=CallOptions(id="leg-1")))
    first = client.do(list_calls(client.open_session, 0, 1))
    second = client.do(list_calls(client.open_session, first[0].entry, 1))
    assert [(one.name, one.status, one.result) for one in first] == [("search", "done", 1)]
    assert [(one.name, one.status, one.id, one.key) for one in second] == [("book", "started", "leg-1", begun.key)]


def test_an_order_reaches_the_client(engine: Engine, client: Client) -> None:
    client.open().step(SEARCH, BodyReport(1))
    with Agent("travel", store=engine.url) as agent:
        assert not agent.runs.cancel("trip", reason="too late").obeyed
        assert client.renew() == "cancel"
        assert client.close("stopped") == "cancelled"
        assert agent.runs.get("trip").status == "cancelled"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ClientIdentity("short"),
        lambda: ClientIdentity("x" * 101),
        lambda: ClientIdentity("client-one", 10),
        lambda: ClientIdentity("client-one", 10**9),
        lambda: ClientIdentity.parse("nonsense"),
        lambda: ClientIdentity.parse("²²²²²²²²²²²²²².1.client-one"),
        lambda: CheckReport("maybe").answer(),
    ],
)
def test_wrong_words_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(WrongValue):
        wrong()


def test_a_call_far_beyond_the_recorded_ones_is_refused(client: Client) -> None:
    with pytest.raises(WrongValue, match="nth"):
        client.open().step(ClientCall("search", nth=10**9), BodyReport(1))


def test_not_done_of_a_client_is_an_error_of_its_own() -> None:
    assert isinstance(ReportedError("no", not_done=True).make(), NotDone)
