"""What the server lets the key of a remote store run, checked without a network."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from perdure import Agent
from perdure.errors import NotAllowed, RequestInvalid
from perdure.journal import chain
from perdure.server.access import Principal, Role
from perdure.server.remote.guard import StatementGuard
from perdure.server.remote.replay import ReplayedUnit
from perdure.store.base import Statement
from perdure.store.remote.wire import WireUnit, write_statements

WRITER = Principal("k", "default", None, Role.WRITER)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent("travel", store=tmp_path / "perdure.db")
    with made.run("r") as run:
        run.state["n"] = 1
    yield made
    made.close()


def check(agent: Agent, principal: Principal, *statements: Statement) -> None:
    unit = WireUnit("run.write", (write_statements(statements),), commit=True)
    StatementGuard(agent._engine.store).check_unit(principal, unit)


def test_a_reader_runs_no_write(agent: Agent) -> None:
    write = Statement("put_object", (b"", 0, b""))
    with pytest.raises(NotAllowed, match="may only read"):
        check(agent, Principal("k", "default", None, Role.READER), write)


def test_a_view_changes_with_an_entry_only(agent: Agent) -> None:
    with pytest.raises(NotAllowed, match="does not follow"):
        check(agent, WRITER, Statement("set_run_state", (2, "", "n", b"\x00\x02", 0)))


def test_an_entry_fits_its_chain(agent: Agent) -> None:
    store = agent._engine.store
    [(stream, *_)] = store.read("get_run", ("travel", "r"))
    [(seq, _)] = store.read("head_of", (stream,))
    [(_, kind, at, body, *_)] = store.read("journal_page", (stream, seq, 1))
    forged = chain.link(b"\0" * 32, stream, seq + 1, kind, at, chain.body_digest(body))
    with pytest.raises(NotAllowed, match="chain"):
        check(agent, WRITER, Statement("append_entry", (stream, seq + 1, kind, at, body, forged, 1)))


def test_an_object_has_the_content_of_its_id(agent: Agent) -> None:
    with pytest.raises(NotAllowed, match="content"):
        check(agent, WRITER, Statement("put_object", (b"i" * 32, 3, b"\x00abc")))


@pytest.mark.parametrize("query", [("get_meta", "secret"), ("meta_with_prefix", "s"), ("meta_with_prefix", "")])
def test_the_secret_is_not_told(agent: Agent, query: tuple[str, str]) -> None:
    guard = StatementGuard(agent._engine.store)
    with pytest.raises(NotAllowed):
        guard.check_reads(WRITER, write_statements([Statement(query[0], (query[1],))]))


def test_a_bound_key_touches_its_own_agent(agent: Agent) -> None:
    store = agent._engine.store
    [(stream, *_)] = store.read("get_run", ("travel", "r"))
    for write in (Statement("release_lease", (stream, 1)), Statement("take_lease", (stream, 1, 7))):
        check(agent, Principal("k", "default", "travel", Role.WRITER), write)
        with pytest.raises(NotAllowed, match="another agent"):
            check(agent, Principal("k", "default", "hotel", Role.WRITER), write)


@pytest.fixture
def audited(agent: Agent) -> tuple[int, int]:
    """The stream of the server's own agent, and its last entry."""
    with Agent("perdure:server", store=agent._engine.url) as server:
        server.events.append("http.write", {"key": "k"})
    [(stream, _)] = agent._engine.store.read("get_agent", ("perdure:server",))
    [(seq, _)] = agent._engine.store.read("head_of", (stream,))
    return stream, seq


def extend(agent: Agent, stream: int, seq: int) -> Statement:
    """An entry that fits its chain: the last one once more."""
    [(_, kind, at, body, link, *_)] = agent._engine.store.read("journal_page", (stream, seq, 1))
    following = chain.link(link, stream, seq + 1, kind, at, chain.body_digest(body))
    return Statement("append_entry", (stream, seq + 1, kind, at, body, following, 1))


def test_nobody_writes_to_the_audit_log(agent: Agent, audited: tuple[int, int]) -> None:
    for role in (Role.WRITER, Role.ADMIN):
        for write in (extend(agent, *audited), Statement("add_stream", ("agent", "perdure:other", 0))):
            with pytest.raises(NotAllowed, match="own agents"):
                check(agent, Principal("k", "default", None, role), write)
    [(_, _, _, body, *_)] = agent._engine.store.read("journal_page", (*audited, 1))
    with pytest.raises(NotAllowed, match="own agents"):
        check(agent, WRITER, Statement("erase_entry", (*audited, chain.body_digest(body))))


def test_the_audit_log_is_read_by_admins(agent: Agent, audited: tuple[int, int]) -> None:
    guard = StatementGuard(agent._engine.store)
    queries = write_statements([Statement("journal_page", (audited[0], 0, 9))])
    guard.check_reads(Principal("k", "default", None, Role.ADMIN), queries)
    with pytest.raises(NotAllowed, match="own agents"):
        guard.check_reads(WRITER, queries)


def show(agent: Agent, principal: Principal, query: Statement) -> list[tuple[object, ...]]:
    guard, store = StatementGuard(agent._engine.store), agent._engine.store
    statements = guard.check_reads(principal, write_statements([query]))
    [rows] = guard.show_rows(principal, statements, store.read_all(statements))
    return list(rows)


def test_lists_leave_out_the_audit_log(agent: Agent, audited: tuple[int, int]) -> None:
    for query in (Statement("all_streams"), Statement("all_events"), Statement("streams_page", (0, 1000))):
        everything = agent._engine.store.read_all([query])[0]
        assert audited[0] in {row[0] for row in everything}
        assert audited[0] not in {row[0] for row in show(agent, WRITER, query)}
    assert "perdure:server" not in {name for name, *_ in show(agent, WRITER, Statement("all_agents"))}
    assert "travel" in {name for name, *_ in show(agent, WRITER, Statement("all_agents"))}


def test_a_bound_key_reads_its_own_rows(agent: Agent) -> None:
    store = agent._engine.store
    agent.memory.remember("The window seat is mine")
    [(owner, _)] = store.read("get_agent", ("travel",))
    [(chunk, *_)] = store.read("chunks_of", (owner, 0, 9))
    [(run, *_)] = store.read("get_run", ("travel", "r"))
    ours, theirs = (Principal("k", "default", name, Role.READER) for name in ("travel", "hotel"))
    for query in (
        Statement("chunks_among", (f"[{chunk}]",)),
        Statement("positions_of_chunks", (f"[{chunk}]",)),
        Statement("vectors_among", ("model", f"[{chunk}]")),
        Statement("chunks_with_words", (f'[["k{owner}xwindow",1]]', 9)),
        Statement("standing_orders", (f"[{run}]",)),
        Statement("journal_among", (f"[[{run},1]]",)),
        Statement("question_inbox", ("travel", 0, 0, 9)),
        Statement("events_beside", (run,)),
    ):
        show(agent, ours, query)
        with pytest.raises(NotAllowed, match="another agent"):
            show(agent, theirs, query)


@pytest.mark.parametrize(
    "query",
    [
        Statement("question_inbox", ("", 0, 0, 9)),
        Statement("chunks_with_words", ('[["window",1]]', 9)),
        Statement("chunks_with_words", ("[[\"k1x' | 'k2xa\",1]]", 9)),
        Statement("streams_page", (0, 9)),
        Statement("object_ids", (b"", 9)),
        Statement("all_memories"),
    ],
)
def test_a_bound_key_reads_nothing_of_everybody(agent: Agent, query: Statement) -> None:
    with pytest.raises(NotAllowed):
        show(agent, Principal("k", "default", "travel", Role.WRITER), query)


@pytest.mark.parametrize("text", ["", "{}", "[[]]", '[["a"]]', "[1", None, 7, b"\xff"])
def test_a_list_that_is_none_is_refused(agent: Agent, text: object) -> None:
    for name in ("standing_orders", "journal_among", "chunks_among"):
        with pytest.raises(RequestInvalid):
            show(agent, Principal("k", "default", "travel", Role.WRITER), Statement(name, (text,)))


def test_a_holder_belongs_to_its_key(agent: Agent) -> None:
    store = agent._engine.store
    with agent.run("open"):
        [(stream, *_)] = store.read("get_run", ("travel", "open"))
        [(fence, local, *_)] = store.read("read_lease", (stream, 0))
        for of_the_process in (
            Statement("renew_holder", (local, "boot", "", 1, 1, "host", 0, 0, 10_000)),
            Statement("release_all", (local,)),
            Statement("drop_holder", (local,)),
            Statement("release_lease", (stream, fence)),
        ):
            with pytest.raises(NotAllowed, match="another key"):
                check(agent, WRITER, of_the_process)
    register(agent, Principal("alice", "default", None, Role.WRITER), 7)
    assert store.read("get_holder", (7, 0))[0][0] == "key alice remote boot"
    for row in (("release_all", (7,)), ("renew_holder", HOLDER), ("take_lease", (stream, fence, 7))):
        check(agent, Principal("alice", "default", None, Role.WRITER), Statement(*row))
        with pytest.raises(NotAllowed, match="another key"):
            check(agent, Principal("bob", "default", None, Role.WRITER), Statement(*row))
    [(boot, *_)] = show(agent, WRITER, Statement("get_holder", (7, 0)))
    assert boot == "boot"


HOLDER = (7, "boot", "", 1, 1, "host", 0, 0, 10_000)


def register(agent: Agent, principal: Principal, holder: int) -> None:
    """Register a holder as a remote process with this key does."""
    store = agent._engine.store
    unit = WireUnit("run.write", (write_statements([Statement("renew_holder", (holder, *HOLDER[1:]))]),), commit=True)
    guard = StatementGuard(store)
    batches, _ = guard.check_unit(principal, unit)
    store.submit(ReplayedUnit(unit, batches, partial(guard.show_rows, principal)))


def test_a_statement_without_a_rule_is_refused(agent: Agent) -> None:
    with pytest.raises(RequestInvalid):
        check(agent, WRITER, Statement("no_such_statement"))
