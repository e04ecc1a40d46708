"""Large values: outside of the journal, once each, compressed, and never believed without a look."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import apsw
import psycopg
import pytest
import zstandard

from perdure import Agent
from perdure.errors import CorruptValue, JournalDamaged
from perdure.journal.object_gc import collect
from perdure.journal.objects import iterate_packed, pack, reference, unpack
from perdure.records import CallIdentity, RunWrite, StepDone
from perdure.store import open_store
from perdure.values import codec
from perdure.values.limits import INLINE_BYTES_MAX, VALUE_BYTES_MAX
from tests.unit.units import behind

NOISE = random.Random(1).randbytes(20_000)


@pytest.fixture
def agent(store_url: str) -> Iterator[Agent]:
    other_agent = Agent("a", store=store_url)
    yield other_agent
    other_agent.close()


@pytest.fixture
def store(agent: Agent) -> Any:
    with agent.run("first"):
        pass
    return agent._engine.store


def keep(agent: Agent, value: Any, run: str = "r") -> None:
    """Have a value recorded."""
    with agent.run(run) as open_run:
        open_run.step(lambda: value, name="step")


def table(store: Any) -> list[tuple[bytes, int, bytes]]:
    rows: list[tuple[bytes, int, bytes]] = behind(store, "SELECT id, size, data FROM objects")
    return rows


def make_value(length: int) -> bytes:
    """A value whose encoding has this many bytes."""
    overhead = len(codec.encode(bytes(length), "x")) - length
    value = bytes(length - overhead)
    assert len(codec.encode(value, "x")) == length
    return value


def test_up_to_the_threshold_a_value_stays_in_the_journal(store: Any) -> None:
    packed, made = pack(store, make_value(INLINE_BYTES_MAX), "x")
    assert made == ()
    assert reference(packed) == b""
    assert unpack(store, packed) == make_value(INLINE_BYTES_MAX)
    packed, made = pack(store, make_value(INLINE_BYTES_MAX + 1), "x")
    assert len(made) == 1
    assert len(packed) == 33
    assert reference(packed) == made[0].args[0]


def test_a_value_kept_twice_is_one_row(agent: Agent, store: Any) -> None:
    keep(agent, NOISE, "one")
    keep(agent, NOISE, "two")
    assert len(table(store)) == 1
    keep(agent, NOISE + b"!", "three")
    assert len(table(store)) == 2
    assert agent.runs.get("one").result is None


def test_what_compresses_is_compressed_and_what_does_not_is_not(agent: Agent, store: Any) -> None:
    keep(agent, "again and " * 10_000, "text")
    keep(agent, NOISE, "noise")
    text, noise = table(store)
    assert len(text[2]) < 1_000
    assert text[1] > 100_000
    assert len(noise[2]) == noise[1] + 1, "a byte says that it is raw"


def test_ids_tell_nothing_to_those_who_guess_the_content(tmp_path_factory: pytest.TempPathFactory) -> None:
    ids = []
    for name in "ab":
        store = open_store(f"sqlite:///{tmp_path_factory.mktemp(name)}/perdure.db")
        ids.append(reference(pack(store, NOISE, "x")[0]))
        store.close()
    assert ids[0] != ids[1]


def test_every_reading_is_a_copy(agent: Agent, store: Any) -> None:
    value = {"list": ["x" * 5000]}
    keep(agent, value)
    packed, _ = pack(store, value, "x")
    one = unpack(store, packed)
    one["list"].append("mine")
    assert unpack(store, packed) == value


# -- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def store_object(agent: Agent, store: Any) -> bytes:
    """The packed form of an object that is in the store."""
    keep(agent, "text " * 2_000)
    return pack(store, "text " * 2_000, "x")[0]


def alter(store: Any, change: str, *args: object) -> None:
    assert len(behind(store, f"UPDATE objects SET {change} RETURNING 1", args)) == 1


def test_a_missing_object_is_damage(store: Any, store_object: bytes) -> None:
    assert unpack(store, store_object) == "text " * 2_000
    behind(store, "DELETE FROM objects")
    with pytest.raises(JournalDamaged, match="is missing"):
        unpack(store, store_object)


def test_a_changed_object_is_damage(store: Any, store_object: bytes) -> None:
    other = codec.encode("TEXT " * 2_000, "x")
    alter(store, "size = ?, data = ?", len(other), b"\x01" + zstandard.compress(other))
    with pytest.raises(JournalDamaged, match="has been changed"):
        unpack(store, store_object)
    alter(store, "data = ?", b"\x00" + other)
    with pytest.raises(JournalDamaged, match="has been changed"):
        unpack(store, store_object)


@pytest.mark.parametrize("at", [1, 5, 20, -1])
def test_a_flipped_bit_is_noticed(store: Any, store_object: bytes, at: int) -> None:
    [(_, _, data)] = table(store)
    flipped = bytearray(data)
    flipped[at] ^= 1
    alter(store, "data = ?", bytes(flipped))
    with pytest.raises((JournalDamaged, CorruptValue)):
        unpack(store, store_object)


def test_a_frame_that_claims_more_than_its_row_is_refused_before_it_is_opened(store: Any, store_object: bytes) -> None:
    bomb = b"\x01" + zstandard.compress(bytes(300 * 1024 * 1024), 3)
    assert len(bomb) < 100_000
    alter(store, "data = ?", bomb)
    with pytest.raises(CorruptValue, match="claims to hold"):
        unpack(store, store_object)
    alter(store, "size = ?", 300 * 1024 * 1024)
    assert VALUE_BYTES_MAX < 300 * 1024 * 1024
    with pytest.raises(CorruptValue, match="claims to hold"):
        unpack(store, store_object)


def test_a_frame_that_does_not_say_its_size_is_refused(store: Any, store_object: bytes) -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    alter(store, "data = ?, size = -1", b"\x01" + compressor.compress(b"x" * 10_000))
    with pytest.raises(CorruptValue):
        unpack(store, store_object)


def test_a_frame_cut_short_or_of_nonsense_is_refused(store: Any, store_object: bytes) -> None:
    [(_, _, data)] = table(store)
    for broken in (data[:-3], b"\x01nonsense", b"\x01", b"", b"\x07abc"):
        alter(store, "data = ?", broken)
        with pytest.raises((CorruptValue, JournalDamaged)):
            unpack(store, store_object)


@pytest.mark.parametrize("packed", [b"", b"\x02abc", b"\x01short", b"\x01" + bytes(33)])
def test_a_forged_reference_is_refused(store: Any, packed: bytes) -> None:
    with pytest.raises(CorruptValue):
        unpack(store, packed)


# -- collecting -----------------------------------------------------------------------------------------------------


def test_only_what_no_entry_refers_to_is_collected(agent: Agent, store: Any) -> None:
    keep(agent, NOISE, "kept")
    keep(agent, NOISE + b"1", "gone")
    with agent.run("state", input=NOISE + b"2") as run:
        run.state["k"] = NOISE + b"3"
        run.effect(lambda data: None, NOISE + b"4", name="effect")
        for _ in run.each([1]):
            run.messages.append(NOISE + b"5")
        run.result = NOISE + b"6"
    with pytest.raises(ValueError, match="failed"), agent.run("failed") as run:
        run.step(fail, name="step")
    assert len(table(store)) == 8
    assert collect(store).bytes == 0
    assert len(table(store)) == 8

    [(stream,)] = behind(store, "SELECT stream FROM runs WHERE id = 'gone'")
    behind(store, f"DELETE FROM journal WHERE {select_stream(store)} = ?", (stream,))
    [(gone, freed)] = [(id, len(data)) for id, size, data in table(store) if id == identity(store, NOISE + b"1")]
    assert collect(store).bytes == freed
    assert gone not in {id for id, _, _ in table(store)}
    assert len(table(store)) == 7
    assert agent.runs.result("state") == NOISE + b"6"
    assert agent.runs.get("state").state == {"k": NOISE + b"3"}
    assert agent.runs.get("kept").status == "finished"


def fail() -> None:
    raise ValueError("failed " + NOISE.hex())


def select_stream(store: Any) -> str:
    """The stream of an entry, as the tables have it."""
    return "id >> 32" if store.url.startswith("sqlite") else "stream"


def identity(store: Any, value: Any) -> bytes:
    return reference(pack(store, value, "x")[0])


def test_an_object_that_is_needed_again_comes_back(agent: Agent, store: Any) -> None:
    keep(agent, NOISE, "one")
    behind(store, f"DELETE FROM journal WHERE {select_stream(store)} = (SELECT stream FROM runs WHERE id = 'one')")
    assert collect(store).bytes > 0
    assert table(store) == []
    keep(agent, NOISE, "two")
    assert len(table(store)) == 1


def test_references_are_found_wherever_a_record_has_them() -> None:
    ids = [bytes([n]) * 32 for n in range(3)]
    writes = (RunWrite(1, "a", b"\x01" + ids[1]), RunWrite(1, "b", b"\x00inline"), RunWrite(2, "c"))
    record = StepDone(CallIdentity("", "s", b"", 0), 0, 0, b"\x01" + ids[0], writes)
    assert [reference(packed) for packed in iterate_packed(record)] == ids[:2]


def test_the_table_refuses_a_second_row_of_one_id(store: Any, store_object: bytes) -> None:
    [(id, size, data)] = table(store)
    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        behind(store, "INSERT INTO objects (id, size, data) VALUES (?, ?, ?)", (id, size, data))
