"""`Agent(store="http://...")`: round trips, lost answers, killed servers and clients, and what a key may do."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, AsyncAgent, RunBusy
from perdure.errors import PerdureError, StoreReadOnly, StoreUnavailable
from perdure.server.routes.store import STORE_BYTES_MAX
from perdure.store import open_store
from perdure.store.base import Statement, Store
from perdure.store.remote.wire import COMMIT, CommitRequest, WireStatement, WireUnit, encode, write_statements
from perdure.values.limits import VALUE_BYTES_MAX
from tests.conformance.test_transfer_failures import make_loaded_agent
from tests.server.cutting_proxy import CuttingProxy
from tests.server.harness import Server

BAD_GATEWAY = b"HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def proxy(server: Server) -> Iterator[CuttingProxy]:
    made = CuttingProxy(server.port)
    yield made
    made.close()


def open_streams(store: str, agent: str, run: str) -> list[tuple[Any, ...]]:
    opened = open_store(store)
    try:
        return opened.read("get_run", (agent, run))
    finally:
        opened.close()


def count_entries(store: str, run: str) -> dict[int, int]:
    """The entries of a run by kind, read from the server's own store."""
    opened = open_store(store)
    try:
        [row] = opened.read("get_run", ("travel", run))
        return dict(opened.read("entry_counts", (row[0],)))
    finally:
        opened.close()


def note_call(path: Path, number: int) -> int:
    """Count a call outside of the store."""
    with path.open("a") as file:
        file.write(f"{number}\n")
    return number


def calls_in(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_step_is_one_round_trip_and_an_effect_two(server: Server, proxy: CuttingProxy) -> None:
    agent = Agent("travel", store=proxy.origin, api_key=server.make_key())
    step, effect = agent.step(name="step")(lambda n: n), agent.effect(name="effect")(lambda n: n)
    with agent.run("r"):
        step(0)
        before = len(proxy.paths)
        step(1)
        assert proxy.paths[before:] == [COMMIT]
        effect(1)
        assert proxy.paths[before:] == [COMMIT] * 3
    agent.close()


def test_a_step_is_one_round_trip_in_an_event_loop(server: Server, proxy: CuttingProxy) -> None:
    key = server.make_key()

    async def program() -> None:
        agent = AsyncAgent("travel", store=proxy.origin, api_key=key)
        step, effect = agent.step(name="step")(_twice), agent.effect(name="effect")(_twice)
        async with agent.run("r"):
            await step(0)
            before = len(proxy.paths)
            assert await step(1) == 2
            await effect(1)
            assert proxy.paths[before:] == [COMMIT] * 3
        await agent.close()

    asyncio.run(program())


async def _twice(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("fate", ["cut", "gateway timeout", "silence"])
def test_an_answer_that_is_lost_after_the_commit_is_looked_up(
    server: Server, proxy: CuttingProxy, tmp_path: Path, fate: str
) -> None:
    outside = tmp_path / "paid"

    agent = Agent("travel", store=f"{proxy.origin}?statement_seconds=0.2", api_key=server.make_key())
    effect, seen = agent.effect(name="pay")(lambda n: note_call(outside, n)), list[int]()

    def lose(request: bytes, answer: bytes) -> bytes | None:
        """Lose the answer of every third commit."""
        if COMMIT.encode() not in request.split(b"\r\n", 1)[0]:
            return answer
        seen.append(1)
        if len(seen) % 3:
            return answer
        return {"cut": None, "gateway timeout": BAD_GATEWAY, "silence": b""}[fate]

    with agent.run("r") as run:
        proxy.fate = lose
        for number in range(4):
            effect(number)
        run.result = "done"
    agent.close()
    assert calls_in(outside) == 4
    with Agent("travel", store=server.store).run("r") as again:
        assert again.result == "done"
    assert sorted(count_entries(server.store, "r").values()).count(4) >= 2  # 4 intents, 4 outcomes


def test_a_killed_server_loses_and_doubles_nothing(server: Server, tmp_path: Path) -> None:
    agent = Agent("travel", store=server.origin, api_key=server.make_key())
    outside, port = tmp_path / "calls", server.port
    step = agent.step(name="step")(lambda n: note_call(outside, n))
    with agent.run("r"):
        for number in range(6):
            step(number)
            if number in (1, 3):
                server.kill()
                server.start(port)
    agent.close()
    assert calls_in(outside) == 6
    assert 6 in count_entries(server.store, "r").values()


CHILD = """
import sys, time
from perdure import Agent
agent = Agent("travel", store=sys.argv[1], api_key=sys.argv[2])
step = agent.step(name="step")(lambda n: open(sys.argv[3], "a").write(f"{n}\\n"))
with agent.run("r"):
    step(0)
    print("open", flush=True)
    time.sleep(600)
"""


def test_a_killed_client_is_replaced_and_a_living_one_is_not(server: Server, tmp_path: Path) -> None:
    key, outside = server.make_key(), tmp_path / "calls"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, server.origin, key, str(outside)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        agent = Agent("travel", store=server.origin, api_key=key)
        step = agent.step(name="step")(lambda n: note_call(outside, n))
        with pytest.raises(RunBusy), agent.run("r"):
            pass
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    with agent.run("r"):
        step(0)
        step(1)
    agent.close()
    assert outside.read_text() == "0\n1\n"


# -- what a key may do ----------------------------------------------------------------------------------------------


def test_a_reader_cannot_write(shared_server: Server) -> None:
    owner = Agent("travel", store=shared_server.origin, api_key=shared_server.make_key())
    owner.state.set("prices", "seat", 3)
    reader = Agent("travel", store=shared_server.origin, api_key=shared_server.make_key("r", "--role", "reader"))
    assert reader.state.get("prices", "seat") == 3
    with pytest.raises(StoreReadOnly):
        reader.state.set("prices", "seat", 4)
    assert owner.state.get("prices", "seat") == 3
    owner.close()
    reader.close()


def test_a_key_of_one_agent_reaches_no_other(shared_server: Server) -> None:
    other = Agent("hotel", store=shared_server.origin, api_key=shared_server.make_key())
    other.state.set("prices", "room", 3)
    key = shared_server.make_key("bound", "--agent", "flight")
    ours = Agent("flight", store=shared_server.origin, api_key=key)
    with ours.run("own") as run:
        ours.state.set("prices", "seat", 1)
        run.result = 1
    with Agent("hotel", store=shared_server.origin, api_key=key) as foreign:
        with pytest.raises(StoreReadOnly):
            foreign.state.set("prices", "room", 4)
        with pytest.raises(StoreReadOnly):
            foreign.state.get("prices", "room")
    assert other.state.get("prices", "room") == 3
    ours.close()
    other.close()


def test_the_audit_log_is_not_for_remote_writers(shared_server: Server) -> None:
    agent = Agent("perdure:server", store=shared_server.origin, api_key=shared_server.make_key())
    with pytest.raises(StoreReadOnly, match="own agents"):
        agent.events.append("http.write", {"key": "somebody else"})
    with pytest.raises(StoreReadOnly, match="own agents"):
        list(agent.events.read("http.write"))


def test_the_audit_log_names_the_key_that_opened_a_store(shared_server: Server) -> None:
    keys = [shared_server.make_key(), shared_server.make_key("only-reads", "--role", "reader")]
    for key in keys:
        open_store(shared_server.origin, api_key=key).close()
    log = Agent("perdure:server", store=shared_server.store)
    notes = [event.payload for event in log.events.read("http.write")]
    log.close()
    opened = {note["key"] for note in notes if note["operation"] == "storeFacts"}
    writer, reader = (key.removeprefix("pdk_").partition("_")[0] for key in keys)
    assert writer in opened
    assert reader not in opened


def test_no_key_and_a_wrong_key_open_nothing(shared_server: Server) -> None:
    for key in ("", "pdk_nobody_nothing"):
        with pytest.raises(StoreUnavailable, match="401") as refusal:
            Agent("travel", store=shared_server.origin, api_key=key).state.get("a", "b")
        assert "api_key=" in refusal.value.hint and "Bearer" not in refusal.value.hint


def test_the_key_comes_from_the_environment(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_URL", shared_server.origin)
    monkeypatch.setenv("PERDURE_API_KEY", shared_server.make_key())
    agent = Agent("environment")
    agent.state.set("a", "b", 1)
    assert agent.state.get("a", "b") == 1
    agent.close()


@pytest.mark.parametrize("url", ["http://example.com", "http://10.0.0.1:8321", "https://user:hunter2@host", "https://"])
def test_an_unsafe_address_is_refused(url: str) -> None:
    with pytest.raises(PerdureError) as refused:
        Agent("travel", store=url)
    assert "hunter2" not in str(refused.value)


@pytest.fixture
def remote(shared_server: Server) -> Iterator[Store]:
    opened = open_store(shared_server.origin, api_key=shared_server.make_key())
    yield opened
    opened.close()


def send(server: Server, key: str, *statements: Statement) -> Any:
    unit = WireUnit("run.write", (write_statements(statements),), commit=True)
    body = encode(CommitRequest((unit,)))
    return server.client(key).request("POST", COMMIT, body, {"content-type": "application/msgpack"})


def test_the_secret_of_the_store_stays_on_the_server(shared_server: Server, remote: Store) -> None:
    store = open_store(shared_server.store)
    secret = store.secret
    store.close()
    reply = shared_server.client(shared_server.make_key()).request("POST", "/v1/store/facts", b"")
    assert reply.status == 200
    assert secret not in reply.body
    for query in (("get_meta", "secret"), ("meta_with_prefix", "s"), ("meta_with_prefix", "")):
        with pytest.raises(StoreReadOnly):
            remote.read(query[0], (query[1],))


def test_forged_entries_views_and_objects_are_refused(shared_server: Server) -> None:
    key = shared_server.make_key()
    agent = Agent("forged", store=shared_server.origin, api_key=key)
    with agent.run("r") as run:
        run.state["n"] = 1
        [(stream, *_)] = open_streams(shared_server.store, "forged", "r")
        for forged in (
            [Statement("append_entry", (stream, 99, 1, 0, b"x" * 40, b"y" * 32, 1))],
            [Statement("set_run_state", (stream, "", "n", b"\x00\x02", 0))],
            [Statement("put_object", (b"i" * 32, 3, b"\x00abc"))],
            [Statement("drop_journal_entries", (stream, 1, 9))],
            [Statement("put_meta", ("secret", b"known"))],
            [Statement("erase_entry", (stream, 1, b"d" * 32))],
        ):
            reply = send(shared_server, key, *forged)
            assert reply.status in (400, 403), forged
    assert agent.runs.get("r").status == "finished"
    agent.close()


def test_an_admin_imports_a_compacted_agent(
    shared_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_loaded_agent(f"sqlite:///{tmp_path / 'home.db'}", tmp_path / "moved", move=True)
    monkeypatch.setenv("PERDURE_API_KEY", shared_server.make_key())
    with pytest.raises(StoreReadOnly, match="nothing was written"):
        Agent.import_from(file, store=shared_server.origin)
    monkeypatch.setenv("PERDURE_API_KEY", shared_server.make_key("mover", "--role", "admin"))
    arrived = Agent.import_from(file, store=shared_server.origin)
    assert len(arrived.artifacts.load("weights")) > 0
    arrived.close()


def test_the_largest_values_fit_and_longer_bodies_do_not(shared_server: Server) -> None:
    key = shared_server.make_key()
    agent = Agent("large", store=shared_server.origin, api_key=key)
    value = os.urandom(VALUE_BYTES_MAX - 1000)
    agent.state.set("large", "value", value)
    assert agent.state.get("large", "value") == value
    agent.close()
    head = f"POST {COMMIT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    with socket.create_connection(("127.0.0.1", shared_server.port)) as connection:
        connection.sendall(f"{head}Content-Length: {STORE_BYTES_MAX + 1}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_nonsense_is_refused(shared_server: Server) -> None:
    key = shared_server.make_key()
    client = shared_server.client(key)
    for body in (b"", b"\xc1", encode([1, 2]), encode(CommitRequest((WireUnit("nowhere", ()),)))):
        assert client.request("POST", COMMIT, body, {"content-type": "application/msgpack"}).status == 400
    for statement in (
        WireStatement("no_such", ()),
        WireStatement("get_run", ("a",)),
        WireStatement("get_run", ([], {})),
    ):
        unit = WireUnit("run.write", ((statement,),))
        assert client.request("POST", COMMIT, encode(CommitRequest((unit,)))).status == 400
