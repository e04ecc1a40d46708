"""What was stored by other versions: of a class, which comes forward or says why not, and of Perdure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from typing import Any

import pytest

from perdure import Agent, records, stored, upcaster
from perdure.errors import StoreTooNew, UnknownType
from perdure.journal import rebuild
from perdure.journal.append import Append
from perdure.journal.object_gc import collect
from perdure.journal.verify import verify
from perdure.platform.failpoints import Site
from perdure.store.remote.address import is_remote

from .kit import agent_at, find_behind

_names = (f"ticket-{number}" for number in itertools.count(1))


class Changing:
    """A class under one stored name, edited and imported again, as in a new release of a program."""

    def __init__(self) -> None:
        self.name = next(_names)

    def version(self, number: int, *fields: str) -> Any:
        made = make_dataclass("Ticket", fields)
        made.__module__, made.__qualname__ = __name__, f"Ticket {self.name}"
        return stored(self.name, version=number)(made)

    def raised(self, from_version: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        upcaster(self.name, from_version=from_version)(change)


@pytest.fixture
def ticket() -> Changing:
    return Changing()


def fill(agent: Agent, ticket: Any) -> None:
    """An instance in every place that keeps values."""
    with agent.run("kept", input=ticket) as run:
        run.step(lambda: [ticket], name="think")
        run.effect(lambda ticket_value: ticket_value, ticket, name="act")
        run.state["ticket"] = ticket
        run.messages.append({"role": "tool", "content": ticket})
        run.checkpoint("in-run", {"ticket": ticket})
        run.result = ticket
    agent.state.set("s", "ticket", ticket)
    agent.state.set("s", "ticket", [ticket])
    agent.checkpoint.create("open", {"tickets": [ticket] * 50, "next_action": "go on"})


def places(agent: Agent) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every way to read one of them back."""

    def replayed(how: Callable[[Any], Any]) -> Any:
        with agent.run("kept") as run:
            return how(run)

    never = pytest.fail
    yield "input", lambda: agent.runs.get("kept").input
    yield "a step's result", lambda: replayed(lambda run: run.step(lambda: never("it ran again"), name="think"))[0]
    yield "messages", lambda: agent.runs.get("kept").messages[0]["content"]
    yield "run.state", lambda: agent.runs.get("kept").state["ticket"]
    yield "run.checkpoint", lambda: agent.checkpoint.restore("in-run").ticket
    yield "result", lambda: agent.runs.result("kept")
    yield "agent.state", lambda: agent.state.get("s", "ticket")[0]
    yield "items", lambda: agent.state.items("s")[0][1][0]
    yield "history", lambda: agent.state.history("s", "ticket")[0].value
    yield "at", lambda: agent.state.at(1).get("s", "ticket")
    yield "update", lambda: agent.state.update("s", "ticket", lambda ticket_value: ticket_value)[0]
    yield "checkpoint", lambda: agent.checkpoint.restore("open").tickets[49]


def test_a_class_that_changed_twice_comes_forward_everywhere(store_url: str, ticket: Changing) -> None:
    agent = agent_at(store_url)
    fill(agent, ticket.version(1, "seat")("4A"))
    newest = ticket.version(3, "row", "column", "open")
    ticket.raised(1, lambda old: {"row": int(old["seat"][:-1]), "column": old["seat"][-1]})
    ticket.raised(2, lambda old: {**old, "open": True})
    for where, read in places(agent):
        found = read()
        assert type(found) is newest, where
        assert (found.row, found.column, found.open) == (4, "A", True), where
    agent.close()


def test_without_a_way_forward_the_error_names_type_and_versions(store_url: str, ticket: Changing) -> None:
    agent = agent_at(store_url)
    fill(agent, ticket.version(1, "seat")("4A"))
    ticket.version(3, "row")
    ticket.raised(1, lambda old: {"row": old["seat"]})
    wanted = rf"'{ticket.name}' was stored .*but the class is now version 3 .*2 to 3: .*\"{ticket.name}\", 2"
    for where, read in places(agent):
        with pytest.raises(UnknownType, match=wanted):
            pytest.fail(f"{where}: {read()}")
    assert agent.checkpoint.list()[0].name, "what needs no value is read all the same"
    ticket.raised(2, lambda old: old)
    assert agent.runs.result("kept").row == "4A", "nothing was lost meanwhile"
    agent.close()


def test_data_of_a_later_program_is_refused(store_url: str, ticket: Changing) -> None:
    agent = agent_at(store_url)
    fill(agent, ticket.version(5, "seat")("4A"))
    ticket.version(4, "seat")
    for where, read in places(agent):
        with pytest.raises(
            UnknownType, match=f"'{ticket.name}' was stored with version 5, but this process has version 4"
        ):
            pytest.fail(f"{where}: {read()}")
    agent.close()


class Later(records.Record, frozen=True):
    """A kind of entry that this version does not know."""

    value: bytes = b""


class LaterWrote(records.Wrote, frozen=True):
    """With one field more."""

    more: int = 0


class LaterLanding(records.Record, frozen=True, tag=99):
    """Something that a later version can write to the agent."""

    owner: int


A_WRITE = records.RunWrite(records.WriteOp.SET, "k", b"\x00\x01")
LATER: dict[str, tuple[int, records.Record]] = {
    "kind": (200, Later()),
    "field": (records.EntryKind.WROTE, LaterWrote("", A_WRITE, more=1)),
    "landing": (records.EntryKind.LANDED, records.Landed((LaterLanding(1),))),  # type: ignore[arg-type]
    "write": (records.EntryKind.WROTE, records.Wrote("", records.RunWrite(99, "k"))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", LATER)
def test_an_entry_of_a_later_version_is_refused_and_not_skipped(
    store_url: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    kind, entry = LATER[what]
    # A server refuses such an entry of a client, so it is written where the server has its store.
    written_at = find_behind(store_url) if is_remote(store_url) else store_url
    writer, agent = agent_at(written_at), agent_at(store_url)
    store = agent._engine.store
    with monkeypatch.context() as later, writer.run("r") as run:
        later.setitem(records.KIND_OF, type(entry), int(kind))
        later.setattr("perdure.journal.append.project", lambda *_: ())
        run.state["large"] = "so that there is something to collect " * 500
        there = writer._engine.store
        there.submit(Append(Site.WRITE, run._core.head, [entry], there.clock))
    writer.close()
    for read in (
        lambda: agent.runs.get("r"),
        lambda: agent.run("r").__enter__(),
        lambda: rebuild.check(store),
        lambda: rebuild.rebuild(store),
        lambda: collect(store),
    ):
        with pytest.raises(StoreTooNew, match="this version of Perdure knows .*pip install -U"):
            read()
    report = verify(store)
    assert not report.ok
    assert "pip install -U perdure" in report.findings[0].text
    agent.close()
