"""What LangGraph's own suite does not ask of a saver: order, late comers, conflicts, growth, sharing, hostile bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, make_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Overwrite, Send
from pydantic import BaseModel

from perdure import Agent
from perdure.adapters.langgraph import PerdureSaver
from perdure.errors import CorruptValue, ForeignThread, NotStorable, ThreadConflict, ThreadDeleted, UnknownType
from perdure.journal import rebuild, trees
from perdure.journal.object_gc import collect
from perdure.journal.verify import verify
from perdure.store.base import Store
from perdure.values import codec


def config(thread: str, point: str | None = None, ns: str = "") -> Any:
    about = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": about | ({"checkpoint_id": point} if point else {})}


def checkpoint(values: dict[str, Any], version: int = 1, point: str = "") -> Any:
    return {
        "v": 4,
        "id": point or str(uuid6()),
        "ts": "2026-11-16T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, version),
        "versions_seen": {},
        "updated_channels": None,
    }


def put(saver: Any, where: Any, values: dict[str, Any], version: int = 1, point: str = "", **meta: Any) -> Any:
    made = checkpoint(values, version, point)
    return saver.put(where, made, {"source": "loop", "step": version, "parents": {}, **meta}, made["channel_versions"])


def values(saver: Any, where: Any) -> Any:
    found = saver.get_tuple(where)
    return found and found.checkpoint["channel_values"]


def sound(store: Store) -> None:
    assert rebuild.check(store) == []
    assert verify(store).findings == ()


# -- against LangGraph's own, with anything in any order ------------------------------------------------------------

NAMES = st.sampled_from("ab")
VALUES = st.sampled_from([None, 7, "x" * 900, ["y" * 700, {"k": [1, "z" * 600]}], [HumanMessage("h" * 900, id="1")]])
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.integers(0, 5), st.integers(-1, 5), VALUES),
    st.tuples(st.just("write"), NAMES, st.integers(0, 5), st.sampled_from(["t1", "t2"]), VALUES),
    st.tuples(st.just("delete"), NAMES),
)


@settings(max_examples=12)
@given(st.lists(OPERATIONS, max_size=14))
def test_the_saver_behaves_as_the_saver_in_memory(operations: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as _:
        patch.setenv("PERDURE_URL", "")
        ours, theirs = PerdureSaver("sqlite:///:memory:"), InMemorySaver()
        life = {"a": 0, "b": 0}
        for number, (what, thread, *rest) in enumerate(operations):
            if what == "delete":
                life[thread] += 1
            for saver in (ours, theirs):
                _do(saver, what, thread, life[thread], number, rest)
        for thread in "ab":
            assert _list_checkpoints(ours, thread) == _list_checkpoints(theirs, thread)
        sound(ours._engine.store)
        ours.close()


def _do(saver: Any, what: str, thread: str, life: int, number: int, rest: list[Any]) -> None:
    if what == "delete":
        saver.delete_thread(thread)
        return
    if what == "put":
        point, parent, value = rest
        where = config(thread, f"{life}-{parent}" if parent >= 0 else None)
        put(saver, where, {"ch": value, "same": 1}, version=number, point=f"{life}-{point}", run_id=f"r{point}")
        return
    point, task, value = rest
    writes = [("ch", value), ("__error__", number)]
    saver.put_writes(config(thread, f"{life}-{point}"), writes, task, "path")


def _list_checkpoints(saver: Any, thread: str) -> list[Any]:
    return [
        (saved.config, saved.checkpoint["channel_values"], saved.metadata, saved.parent_config, saved.pending_writes)
        for saved in saver.list(config(thread))
    ]


# -- time and place --------------------------------------------------------------------------------------------------


def test_order_does_not_matter_and_twice_is_once(store_url: str) -> None:
    with PerdureSaver(store_url) as saver:
        child, parent = str(uuid6()), "0"
        saver.put_writes(config("t", child), [("ch", 1)], "task")
        for _ in range(2):
            put(saver, config("t", parent), {"ch": [1]}, point=child)
            saver.put_writes(config("t", child), [("ch", 2)], "task")
        found = saver.get_tuple(config("t"))
        assert found is not None
        assert found.pending_writes == [("task", "ch", 1)]
        assert [saved.config for saved in saver.list(config("t"))] == [found.config]


def test_what_comes_late_does_not_bring_a_deleted_thread_back(store_url: str) -> None:
    with PerdureSaver(store_url) as saver, PerdureSaver(store_url, agent="langgraph") as other:
        first = put(saver, config("t"), {"ch": "secret" * 300})
        other.delete_thread("t")
        saver.put_writes(first, [("ch", "late")], "task")
        assert saver._engine.store.read("all_thread_writes") == []
        with pytest.raises(ThreadDeleted):
            put(saver, first, {"ch": "secret"})
        assert list(saver.list(None)) == []
        anew = put(saver, config("t"), {"ch": "anew"})
        assert values(other, config("t")) == {"ch": "anew"}
        assert [saved.config for saved in saver.list(config("t"))] == [anew]
        collect(saver._engine.store)
        assert saver._engine.store.read("count_objects") == [(0,)]
        sound(saver._engine.store)


def test_a_second_writer_is_refused_and_time_travel_is_not(store_url: str) -> None:
    with PerdureSaver(store_url, on_conflict="refuse") as one, PerdureSaver(store_url, on_conflict="refuse") as two:
        root = put(one, config("t"), {"ch": 0})
        for saver in (one, two):
            assert values(saver, config("t")) == {"ch": 0}
        head = put(one, root, {"ch": 1})
        with pytest.raises(ThreadConflict):
            put(two, root, {"ch": 2})
        assert values(two, root) == {"ch": 0}  # asked for by its id: whoever goes on from it travels in time
        fork = put(two, root, {"ch": 3}, source="fork")
        put(two, fork, {"ch": 4})
        assert values(one, config("t")) == {"ch": 4}
        assert values(one, head) == {"ch": 1}
        put(two, config("t", ns="sub"), {"ch": 5})


def test_many_threads_and_loops_at_once(store_url: str) -> None:
    with PerdureSaver(store_url) as saver:

        def talk(thread: str) -> None:
            where = config(thread)
            for number in range(5):
                where = put(saver, where, {"messages": ["m" * 600] * number}, number)

        async def talk_async(thread: str) -> None:
            await asyncio.gather(*(asyncio.to_thread(talk, f"{thread}{n}") for n in range(2)))
            assert await saver.aget_tuple(config(f"{thread}0")) is not None

        with ThreadPoolExecutor(6) as pool:
            jobs = [pool.submit(talk, f"t{n}") for n in range(4)]
            jobs += [pool.submit(asyncio.run, talk_async(f"a{n}")) for n in range(2)]
            for job in jobs:
                job.result()
        assert {len(list(saver.list(config(f"t{n}")))) for n in range(4)} == {5}
        sound(saver._engine.store)


# -- bytes -----------------------------------------------------------------------------------------------------------


def test_a_conversation_is_stored_once_and_a_copy_of_it_not_at_all(store_url: str) -> None:
    with PerdureSaver(store_url) as saver:
        where, said = config("t"), list[Any]()
        for number in range(60):
            message = HumanMessage(f"{number}" + "m" * 1000, id=str(number))
            if number:
                saver.put_writes(where, [("messages", [message] if number % 2 else message)], f"task{number}")
            said.append(message)
            where = put(saver, where, {"messages": list(said)}, number)
        store = saver._engine.store
        [(count,)] = store.read("count_objects")
        assert count < 60 * 3, "a message is one object, and each checkpoint adds a node or two"
        saver.copy_thread("t", "copy")
        assert store.read("count_objects") == [(count,)]
        assert values(saver, config("copy")) == {"messages": said}
        saver.delete_thread("t")
        collect(store)
        assert values(PerdureSaver(Agent("langgraph", store=store_url)), config("copy")) == {"messages": said}
        sound(store)


def test_a_message_that_was_changed_in_place_is_stored_as_it_is(store_url: str) -> None:
    with PerdureSaver(store_url) as saver:
        said: list[Any] = [AIMessage("a" * 900, id=str(number)) for number in range(50)]
        where, tool = config("t"), ToolMessage("r", tool_call_id="1", artifact={"x": b"bytes"})
        edits: list[Callable[[], object]] = [
            lambda: None,
            lambda: setattr(said[3], "content", "edited"),
            lambda: said.append(tool),
            lambda: tool.artifact.update(x=bytearray(b"bytes")),
            lambda: said[7].additional_kwargs.update(pair=(1, 2)),
            lambda: said.pop(5),
        ]
        for number, edit in enumerate(edits):
            edit()
            where = put(saver, where, {"messages": said}, number)
            for read in (saver, PerdureSaver(Agent("langgraph", store=store_url))):
                found = values(read, where)["messages"]
                assert found == said
                assert codec.encode(found) == codec.encode(said), "and of the same types, all the way down"


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([1, 1, 2, 30]), st.sampled_from([20, 500, 900, 5000])), max_size=20))
def test_a_list_that_has_grown_has_the_tree_that_it_has_from_its_beginning(grown: list[tuple[int, int]]) -> None:
    store, known, memo = _store(), set[bytes](), None
    value: list[Any] = []
    for count, size in grown:
        value += [
            {"n": len(value) + number, "text": f"{len(value) * 7 + number:x}" * (size // 3)} for number in range(count)
        ]
        tree, memo = trees.pack_again(store, value, "value", known, memo)
        whole = trees.pack(store, value, "value")
        known |= tree.ids
        assert tree.packed == whole.packed
        assert whole.ids <= known
        assert memo.data == codec.encode(value)


def _store() -> Store:
    return Agent("a", store="sqlite:///:memory:")._engine.store


# -- history ---------------------------------------------------------------------------------------------------------


def test_pruning_keeps_what_delta_channels_need(store_url: str) -> None:
    with PerdureSaver(store_url) as saver:
        where = config("t")
        for number in range(6):
            held = {"log": ["seed"]} if number == 2 else {}
            since = {"log": (1, 1)} if number > 2 else {}
            where = put(saver, where, held | {"n": number}, number, counters_since_delta_snapshot=since)
            saver.put_writes(where, [("log", f"w{number}")], f"task{number}")
        before = saver.get_delta_channel_history(config=where, channels=["log"])
        assert [write[2] for write in before["log"]["writes"]] == ["w2", "w3", "w4"]
        saver.prune(["t"])
        assert saver.get_delta_channel_history(config=where, channels=["log"]) == before
        assert [saved.metadata["step"] for saved in saver.list(config("t"))] == [5, 4, 3, 2]
        saver.prune(["t"], strategy="delete")
        assert list(saver.list(None)) == []
        with pytest.raises(ValueError, match="strategy="):
            saver.prune(["t"], strategy="most")


def test_filters_are_compared_and_never_pasted(store_url: str) -> None:
    with PerdureSaver(store_url) as saver:
        put(saver, config("t"), {"ch": 1}, user="' OR 1=1 --")
        assert len(list(saver.list(None, filter={"user": "' OR 1=1 --"}))) == 1
        for hostile in ({"user": "x"}, {"x') OR ('1'='1": 1}, {"user": None}, {"nothing": 1}):
            assert list(saver.list(None, filter=hostile)) == []
        with pytest.raises(ValueError, match="operators are not supported"):
            list(saver.list(None, filter={"step": {"$gt": 0}}))
        with pytest.raises(TypeError, match="a metadata key"):
            list(saver.list(None, filter={1: 0}))  # type: ignore[dict-item]


# -- values ----------------------------------------------------------------------------------------------------------


@dataclass
class Ticket:
    seat: str


class Booking(BaseModel):
    tickets: list[Ticket]


def test_data_classes_need_no_allow(store_url: str) -> None:
    booking = Booking(tickets=[Ticket("4A")])
    stop = (Interrupt(booking, id="i"),)
    with PerdureSaver(store_url) as saver:
        where = put(saver, config("t"), {"booking": booking, "stop": stop})
        assert values(saver, where) == {"booking": booking, "stop": stop}
        assert type(values(saver, where)["booking"].tickets[0]) is Ticket


def test_values_come_back_exactly_or_are_refused_with_the_way_out(store_url: str) -> None:
    Seat = make_dataclass(f"Seat{store_url[:4]}", ["row"])  # one for each store: who is allowed stays so in a process
    told = {"send": Send("node", {"x": (1, 2)}), "stop": (Interrupt("why", id="i"),), "over": Overwrite([1])}
    with PerdureSaver(store_url) as saver:
        with pytest.raises(NotStorable, match=r"channel 'seat'.*Seat") as refused:
            put(saver, config("t"), {"seat": Seat(4)})
        assert "allow=[" in str(refused.value)
        where = put(saver, config("t"), told)
        assert values(saver, where) == told
        plain = Agent("langgraph", store=store_url).threads.state("t")
        assert plain["over"] == Overwrite([1])
    with PerdureSaver(store_url, allow=[Seat]) as saver:
        where = put(saver, config("t"), {"seat": Seat(4)})
        assert values(saver, where) == {"seat": Seat(4)}


def test_the_messages_of_a_saved_thread_are_read_like_those_of_a_conversation(store_url: str) -> None:
    said = [HumanMessage("Book a flight", id="1"), AIMessage("Done.", id="2")]
    with PerdureSaver(store_url) as saver:
        put(saver, config("lg"), {"messages": said})
        put(saver, config("other"), {"page": 3})
        agent = Agent("langgraph", store=store_url)
        assert agent.thread("lg").messages == agent.thread("lg").raw == said
        with pytest.raises(ForeignThread, match=r"agent\.threads\.state\('other'\)"):
            _ = agent.thread("other").messages
        assert agent.thread("new").messages == []


@pytest.mark.parametrize("name", ["os.system", "subprocess.Popen", f"{__name__}.Unlisted"])
def test_stored_bytes_name_no_code(name: str) -> None:
    forged = codec.encode([1]).replace(b"\x91\x01", _object(name))
    with pytest.raises(UnknownType):
        codec.decode(forged)


def _object(name: str) -> bytes:
    return b"\x94\xc7\x00\x2c" + codec.encode(name) + b"\x01" + codec.encode({"args": "true"})


class Rot:
    """A cipher for tests."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "rot", bytes(255 - byte for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes(255 - byte for byte in ciphertext)


def test_a_serializer_is_used_for_everything(store_url: str) -> None:
    serde = EncryptedSerializer(Rot(), JsonPlusSerializer())
    with PerdureSaver(store_url, serde=serde) as saver:
        where = put(saver, config("t"), {"ssn": "078-05-1120", "n": 7}, user="metadata of ann")
        saver.put_writes(where, [("ssn", "078-05-1120")], "task")
        found = saver.get_tuple(where)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"ssn": "078-05-1120", "n": 7}
        assert dict(found.metadata)["user"] == "metadata of ann"
        bodies = b"".join(row[3] for row in _entries(saver._engine.store))
        assert b"078-05" not in bodies
        assert b"of ann" not in bodies
        with PerdureSaver(store_url) as plain:
            with pytest.raises(UnknownType, match="written by another serializer"):
                plain.get_tuple(where)
            clear = put(plain, config("clear"), {"n": 7})
        with pytest.raises(CorruptValue, match="is not encrypted"):
            saver.get_tuple(clear)


def _entries(store: Store) -> list[Any]:
    return [row for (stream, _) in store.read("stream_heads") for row in store.read("journal_of", (stream, 0))]
