"""Arrays as artifacts: exactly what was saved, as safetensors files; hostile files are refused."""

from __future__ import annotations

import contextlib
import json
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Agent
from perdure.data.artifacts import arrays
from perdure.data.artifacts.sources import own
from perdure.errors import CorruptValue, NotStorable, UnknownType, ValueProblem
from perdure.journal import objects
from perdure.journal.trees import streams
from perdure.journal.trees.streams import CHUNK_LEAST, CHUNK_MOST, ChunkCutter

WEIGHTS = {
    "flag": np.array([True, False, True]),
    "layer.0": np.random.default_rng(1).standard_normal((300, 500)).astype("f4"),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), "f2"),
    "turned": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "every other": np.arange(20)[::2],
    "z": np.array([1 + 2j], "c8"),
    "größe": np.arange(-3, 4, dtype="i1"),
}


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert list(a) == list(b)
    for name, array in a.items():
        assert (array.dtype, array.shape) == (b[name].dtype, b[name].shape)
        np.testing.assert_array_equal(array, b[name])


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent("learner", store=tmp_path / "perdure.db")


def test_arrays_come_back_exactly(agent: Agent) -> None:
    agent.artifacts.save("weights", WEIGHTS)
    assert_same(agent.artifacts.load("weights"), WEIGHTS)
    for name, array in WEIGHTS.items():
        agent.artifacts.save(f"one {name}", array)
        assert_same({name: agent.artifacts.load(f"one {name}")}, {name: array})
    agent.artifacts.save("none", {})
    assert agent.artifacts.load("none") == {}
    agent.artifacts.load("weights")["layer.0"][0, 0] = 7  # one's own, and writable
    assert [artifact.kind for artifact in agent.artifacts.list()][-2:] == ["array", "arrays"]


def test_one_changed_layer_adds_little(agent: Agent) -> None:
    weights = {f"layer.{n}": np.random.default_rng(n).standard_normal((200, 500)).astype("f4") for n in range(20)}
    agent.artifacts.save("weights", weights)
    weights["layer.7"][3, 3] += 1
    agent.artifacts.save("weights", weights)
    first, second = agent.artifacts.usage()
    assert first.added > 7_000_000
    assert second.added < 300_000
    assert_same(agent.artifacts.load("weights"), weights)


def test_safetensors_reads_ours_and_we_read_theirs(agent: Agent, tmp_path: Path) -> None:
    theirs: Any = pytest.importorskip("safetensors.numpy")
    plain = {name: np.array(array, order="C") for name, array in WEIGHTS.items()}
    agent.artifacts.save("weights", WEIGHTS)
    path = agent.artifacts.load("weights", to=tmp_path / "weights.safetensors")
    found = theirs.load_file(path)
    assert_same({name: found[name] for name in WEIGHTS}, WEIGHTS)
    made = theirs.save(plain, metadata={"format": "np"})
    read = arrays.read_arrays([made])
    assert_same({name: read[name] for name in WEIGHTS}, WEIGHTS)


def test_what_has_no_place_there_is_refused(agent: Agent) -> None:
    for strange, near in ((np.array([1], ">i4"), "<i4"), (np.array([1j]), "<c8"), (np.zeros(1, "f16"), "<f8")):
        with pytest.raises(NotStorable, match=f"astype\\('{near}'\\)"):
            agent.artifacts.save("a", {"x": strange})
    for strange in (np.array(["text"]), np.array([None]), np.zeros(1, "M8[s]")):
        with pytest.raises(NotStorable, match=r"\(store it in agent\.state"):
            agent.artifacts.save("a", {"x": strange})
    for other in (np.ma.masked_array([1, 2], [0, 1]), np.float64(1), {"a": np.ma.masked_array([1])}):
        with pytest.raises(NotStorable, match=r"numpy\.asarray"):
            agent.artifacts.save("a", other)
    for name in (7, "__metadata__", "\ud800"):
        with pytest.raises(NotStorable, match="name of an array"):
            agent.artifacts.save("a", {name: np.zeros(1)})


# -- hostile headers --------------------------------------------------------------------------------------------------


def entry(begin: Any, end: Any, shape: Any = None, dtype: Any = "U8") -> dict[str, Any]:
    shape = [end - begin] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE: dict[str, Any] = {
    "overlap": {"a": entry(0, 6), "b": entry(4, 10)},
    "twice the same": {"a": entry(0, 10), "b": entry(0, 10)},
    "a gap": {"a": entry(0, 4), "b": entry(5, 10)},
    "out of range": {"a": entry(0, 11)},
    "too little": {"a": entry(0, 9)},
    "backwards": {"a": entry(0, 10), "b": entry(10, 4, [6])},
    "negative": {"a": entry(-1, 9, [10])},
    "shape": {"a": entry(0, 10, [11])},
    "overflow": {"a": entry(0, 10, [1 << 61, 16])},
    "minus shape": {"a": entry(0, 10, [-2, -5])},
    "dimensions": {"a": entry(0, 10, [10] + [1] * 70)},
    "true": {"a": entry(0, 10, [True, 10])},
    "float": {"a": entry(0, 10, [10.0])},
    "offsets": {"a": {"dtype": "U8", "shape": [10], "data_offsets": [0, 5, 10]}},
    "list": [entry(0, 10)],
    "no entry": {"a": 7},
    "nothing": {},
}


def file_of(header: bytes, size: int = 10) -> list[bytes]:
    return [len(header).to_bytes(8, "little"), header, bytes(size)]


@pytest.mark.parametrize("table", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_header_is_refused(table: Any) -> None:
    with pytest.raises(ValueProblem):
        arrays.read_arrays(file_of(json.dumps(table).encode()))


@pytest.mark.parametrize("text", [b"{", b"\xff{}", b"[" * 100_000, b'{"a":' + b"9" * 9999 + b"}"])
def test_a_header_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptValue, match="cannot be read"):
        arrays.read_arrays(file_of(text))


def test_the_order_in_a_file_is_not_trusted() -> None:
    for order in ("{", "7", '["b", "b", 7, "a", "c"]', "[" * 100_000):
        header = json.dumps({"__metadata__": {"order": order}, "a": entry(0, 4), "b": entry(4, 10)}).encode()
        with contextlib.suppress(CorruptValue):
            assert sorted(arrays.read_arrays(file_of(header))) == ["a", "b"]


def test_a_type_that_numpy_lacks_is_named() -> None:
    with pytest.raises(UnknownType, match="numpy lacks a type.*bfloat16.*to="):
        arrays.read_arrays(file_of(json.dumps({"a": entry(0, 10, [5], "BF16")}).encode()))


def test_a_missing_extra_is_named(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(UnknownType, match=r"pip install perdure\[numpy\]"):
        agent.artifacts.save("a", np.zeros(3))


@given(st.data())
def test_a_changed_file_is_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(b"".join(arrays.blocks_of({"a": np.arange(4, dtype="u2"), "b": np.ones(2, "?")})))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueProblem):
        arrays.read_arrays([bytes(whole)])


# -- cutting ----------------------------------------------------------------------------------------------------------


def chunks(data: bytes, sizes: list[int]) -> list[bytes]:
    cutter, found, at = ChunkCutter(), list[bytes](), 0
    for size in [*sizes, len(data)]:
        found += cutter.feed(data[at : at + size])
        at += size
    return [*found, *cutter.finish()]


@given(
    st.integers(0, 500_000), st.lists(st.integers(0, 200_000), max_size=4), st.sampled_from(["noise", "zeros", "text"])
)
def test_cuts_depend_on_the_bytes_and_not_on_the_blocks(size: int, sizes: list[int], kind: str) -> None:
    whole = {"noise": np.random.default_rng(5).bytes(size), "zeros": bytes(size), "text": b"a line of text\n" * size}
    data = whole[kind][:size]
    found = chunks(data, sizes)
    assert b"".join(found) == data
    assert found == chunks(data, [])
    assert all(CHUNK_LEAST <= len(chunk) <= CHUNK_MOST for chunk in found[:-1])
    assert not found or 0 < len(found[-1]) <= CHUNK_MOST


def test_cuts_are_where_the_bytes_around_them_say() -> None:
    data = np.random.default_rng(6).bytes(3_000_000) + b"a line of text\n" * 40_000
    ends = [len(chunk) for chunk in chunks(data, [])]
    assert len(ends) > 80
    for begin, length in zip(accumulate(ends[:-1], initial=0), ends, strict=True):
        marks = data[begin : begin + CHUNK_MOST].translate(streams._CLASSES)
        found = (at + 3 for at in range(CHUNK_LEAST, len(marks) - 2) if marks.startswith(streams._CANDIDATE, at))
        small = (at for at in found if crc32(data[begin + at - 48 : begin + at]) < streams._CHANCE)
        assert length == next(small, min(CHUNK_MOST, len(data) - begin))


# -- stored form ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000, 16 * 1024, 100_000])
def test_noise_is_stored_as_it_is_and_text_is_compressed(size: int) -> None:
    noise = np.random.default_rng(7).bytes(size)
    text = (b"a line of text\n" * size)[:size]
    for data in (noise, text, noise[: size // 2] + text[size // 2 :]):
        stored = objects.compress(memoryview(data))
        assert stored == objects.compress(data)
        assert objects.decompress_object(size, stored) == data
        assert len(stored) <= size + 1
    assert len(objects.compress(noise)) == size + 1
    assert size < 1000 or len(objects.compress(text)) < size / 10


def test_a_part_that_its_owner_could_change_is_copied() -> None:
    whole, changing = b"1234", bytearray(b"1234")
    assert own(memoryview(whole)) is whole
    assert own(memoryview(whole)[1:3]) == b"23"
    taken = own(memoryview(changing))
    changing[:] = b"5678"
    assert taken == b"1234"
