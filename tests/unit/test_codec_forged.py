"""Well-formed bytes with a meaning that no encoder of ours gives them, one by one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
from msgspec.msgpack import Ext, encode

from perdure.errors import CorruptValue, UnknownType
from perdure.values import codec
from perdure.values.codec.tags import STRUCTURES, ExtensionTag


@codec.stored("t-forged", version=2)
@dataclass(frozen=True)
class Thing:
    a: Any
    b: Any


def node(tag: ExtensionTag, *parts: Any) -> bytes:
    return encode([STRUCTURES[tag], *parts])


def leaf(tag: int, payload: bytes) -> bytes:
    return encode(Ext(int(tag), payload))


CORRUPT = {
    "nothing": b"",
    "trailing bytes": b"\x01\x02",
    "reserved byte": b"\xc1",
    "huge array": b"\xdd\xff\xff\xff\xff",
    "huge map": b"\xdf\xff\xff\xff\xff",
    "huge text": b"\xdb\xff\xff\xff\xff",
    "huge extension": b"\xc9\xff\xff\xff\xff\x01",
    "bad UTF-8": b"\xa1\xff",
    "surrogate in ordinary text": b"\xa3\xed\xa0\x80",
    "bad UTF-8 in a key": b"\x81\xa1\xff\x01",
    "integer in five bytes": b"\xce\x00\x00\x00\x01",
    "float of 32 bits": b"\xca\x00\x00\x00\x00",
    "long form of a short text": b"\xd9\x01a",
    "long form of a short array": b"\xdc\x00\x01\x01",
    "a key twice": b"\x82\xa1a\x01\xa1a\x02",
    "a number as key": b"\x81\x01\x02",
    "nil as key": b"\x81\xc0\x02",
    "an array as key": b"\x81\x92\x01\x02\x03",
    "an extension as key": b"\x81\xd4\x03\x01\x03",
    "bytes of msgpack itself": b"\xc4\x01a",
    "mark in a map": encode({"a": STRUCTURES[ExtensionTag.TUPLE]}),
    "mark not in front": encode([1, STRUCTURES[ExtensionTag.TUPLE]]),
    "mark with a payload": encode([Ext(int(ExtensionTag.TUPLE), b"x"), 1]),
    "two marks": encode([STRUCTURES[ExtensionTag.TUPLE], STRUCTURES[ExtensionTag.SET]]),
    "leaf tag as mark": encode([Ext(int(ExtensionTag.UUID), b""), 1]),
    "set not sorted": node(ExtensionTag.SET, 2, 1),
    "set with an element twice": node(ExtensionTag.SET, 1, 1),
    "set with 1 and 1.0": node(ExtensionTag.SET, 1, 1.0),
    "set with 0 and False": node(ExtensionTag.FROZENSET, 0, False),
    "set with a list": node(ExtensionTag.SET, [1]),
    "set with a dict": node(ExtensionTag.SET, {"a": 1}),
    "set with a set": node(ExtensionTag.SET, [STRUCTURES[ExtensionTag.SET], 1]),
    "set with a signalling NaN": node(ExtensionTag.SET, Ext(int(ExtensionTag.DECIMAL), b"sNaN")),
    "collection without content": node(ExtensionTag.COLLECTION, "deque", None),
    "collection of another name": node(ExtensionTag.COLLECTION, "UserDict", None, {}),
    "collection named by a list": node(ExtensionTag.COLLECTION, ["deque"], None, []),
    "deque of a dict": node(ExtensionTag.COLLECTION, "deque", None, {}),
    "deque longer than it may be": node(ExtensionTag.COLLECTION, "deque", 1, [1, 2]),
    "deque with a truth value as length": node(ExtensionTag.COLLECTION, "deque", True, [1]),
    "Counter with an argument": node(ExtensionTag.COLLECTION, "Counter", 1, {"a": 1}),
    "OrderedDict of a list": node(ExtensionTag.COLLECTION, "OrderedDict", None, [1]),
    "factory that is not in the table": node(ExtensionTag.COLLECTION, "defaultdict", "breakpoint", {}),
    "factory that is a list": node(ExtensionTag.COLLECTION, "defaultdict", ["list"], {}),
    "map with text keys only": node(ExtensionTag.MAP, "a", 1),
    "map that is empty": node(ExtensionTag.MAP),
    "map without its last value": node(ExtensionTag.MAP, 1, 2, 3),
    "map with a key twice": node(ExtensionTag.MAP, 1, 2, 1, 3),
    "map with 1 and True": node(ExtensionTag.MAP, 1, 2, True, 3),
    "map with a list as key": node(ExtensionTag.MAP, [1], 2),
    "small integer as a big one": leaf(ExtensionTag.INTEGER, b"\x05"),
    "big integer with a spare byte": leaf(ExtensionTag.INTEGER, b"\0\0" + b"\x7f" + b"\xff" * 9),
    "empty integer": leaf(ExtensionTag.INTEGER, b""),
    "ordinary text as text with surrogates": leaf(ExtensionTag.TEXT, b"abc"),
    "bad text with surrogates": leaf(ExtensionTag.TEXT, b"\xff\xfe"),
    "complex cut": leaf(ExtensionTag.COMPLEX, b"x" * 15),
    "range without a step": leaf(ExtensionTag.RANGE, encode([b"\0", b"\0", b"\0"])),
    "range cut": leaf(ExtensionTag.RANGE, encode([b"\0", b"\1"])),
    "month 13": leaf(ExtensionTag.DATE, encode([2024, 13, 1])),
    "month True": leaf(ExtensionTag.DATE, encode([2024, True, 1])),
    "year of 70 bits": leaf(ExtensionTag.DATE, encode([2**63, 1, 1])),
    "compact 2": leaf(ExtensionTag.TIME, encode([1, 1, 1, 1, 2, None])),
    "timedelta out of range": leaf(ExtensionTag.TIMEDELTA, encode([2**62, 0, 0])),
    "timedelta not normal": leaf(ExtensionTag.TIMEDELTA, encode([0, 90_000, 0])),
    "zone of an unknown kind": leaf(ExtensionTag.ZONE, encode([9, 0, ""])),
    "zone out of range": leaf(ExtensionTag.ZONE, encode([0, 10**15, ""])),
    "zone with a number too much": leaf(ExtensionTag.ZONE, encode([2, 1, "UTC"])),
    "zone outside of its folder": leaf(ExtensionTag.ZONE, encode([2, 0, "../../etc/passwd"])),
    "zone with an absolute path": leaf(ExtensionTag.ZONE, encode([2, 0, "/etc/passwd"])),
    "zone that names a package": leaf(ExtensionTag.ZONE, encode([2, 0, "os.path/x"])),
    "UUID cut": leaf(ExtensionTag.UUID, b"x" * 15),
    "decimal that is none": leaf(ExtensionTag.DECIMAL, b"abc"),
    "decimal in another form": leaf(ExtensionTag.DECIMAL, b"1e5"),
    "decimal with blanks": leaf(ExtensionTag.DECIMAL, b" 1 "),
    "decimal with an impossible exponent": leaf(ExtensionTag.DECIMAL, b"1E+9999999999999999999999"),
    "fraction by zero": leaf(ExtensionTag.FRACTION, encode([b"\1", b"\0"])),
    "fraction not in lowest terms": leaf(ExtensionTag.FRACTION, encode([b"\2", b"\4"])),
    "fraction with a negative part": leaf(ExtensionTag.FRACTION, encode([b"\1", b"\xff"])),
    "path of an unknown class": leaf(ExtensionTag.PATH, b"\x09a"),
    "path without anything": leaf(ExtensionTag.PATH, b""),
    "path not normal": leaf(ExtensionTag.PATH, b"\x03a//b"),
    "array of objects": leaf(ExtensionTag.NUMPY_ARRAY, encode(["|O", [1], "C", b"x" * 8])),
    "array of records": leaf(ExtensionTag.NUMPY_ARRAY, encode(["i4,i4", [1], "C", b"x" * 8])),
    "array larger than its bytes": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<f8", [2**40], "C", b"x" * 8])),
    "array whose shape overflows": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<f8", [2**32, 2**32], "C", b""])),
    "array of nothing, enormous": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<f8", [0, 2**62], "C", b""])),
    "array of a negative length": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<f8", [-1, -1], "C", b"x" * 8])),
    "array of 40 dimensions": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<f8", [1] * 40, "C", b"x" * 8])),
    "array in an unknown order": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<f8", [1], "K", b"x" * 8])),
    "array of items of no size": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<U0", [2**60], "C", b""])),
    "array of text beyond Unicode": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<U1", [1], "C", b"\xff" * 4])),
    "array of text beyond Unicode, other order": leaf(ExtensionTag.NUMPY_ARRAY, encode([">U1", [1], "C", b"\xff" * 4])),
    "array of booleans that are none": leaf(ExtensionTag.NUMPY_ARRAY, encode(["|b1", [1], "C", b"\2"])),
    "array with an unknown unit": leaf(ExtensionTag.NUMPY_ARRAY, encode(["<M8[zz]", [1], "C", b"x" * 8])),
    "scalar cut": leaf(ExtensionTag.NUMPY_SCALAR, encode(["<f8", b"x"])),
    "scalar boolean that is none": leaf(ExtensionTag.NUMPY_SCALAR, encode(["|b1", b"\7"])),
    "object without fields": node(ExtensionTag.OBJECT, "t-forged", 2),
    "object with too much": node(ExtensionTag.OBJECT, "t-forged", 2, {"a": 1, "b": 2}, {"private": {}}),
    "object with a number as name": node(ExtensionTag.OBJECT, 5, 2, {}),
    "object with text as version": node(ExtensionTag.OBJECT, "t-forged", "2", {}),
    "object with True as version": node(ExtensionTag.OBJECT, "t-forged", True, {}),
    "object with a list of fields": node(ExtensionTag.OBJECT, "t-forged", 2, [1]),
    "object with numbers as fields": node(ExtensionTag.OBJECT, "t-forged", 2, [STRUCTURES[ExtensionTag.MAP], 1, 2]),
    "exception cut": node(ExtensionTag.ERROR, "ValueError", 0, "x", []),
    "exception with a tuple as args": node(
        ExtensionTag.ERROR, "ValueError", 0, "x", [STRUCTURES[ExtensionTag.TUPLE]], {}
    ),
    "exception with a number as text": node(ExtensionTag.ERROR, "ValueError", 0, 5, [], {}),
    "exception of version -2": node(ExtensionTag.ERROR, "ValueError", -2, "", [], {}),
}


@pytest.mark.parametrize("data", CORRUPT.values(), ids=CORRUPT.keys())
def test_bytes_that_perdure_never_writes(data: bytes) -> None:
    for bad in (data, b"\x91" + data, b"\x81\xa1k" + data, b"\x91" * 9 + data):
        with pytest.raises(CorruptValue) as caught:
            codec.decode(bad)
        assert type(caught.value) is CorruptValue


@pytest.mark.parametrize("shape", [[2], [2**40], [2**32, 2**32], [0], [1, 0]])
def test_shapes_that_lie_never_reach_numpy(shape: list[int]) -> None:
    with pytest.raises(CorruptValue, match="shape of a stored array does not match its bytes"):
        codec.decode(leaf(ExtensionTag.NUMPY_ARRAY, encode(["<f8", shape, "C", b"x" * 8])))


def test_a_mark_alone_is_nothing_but_an_array_with_one_is_an_empty_tuple() -> None:
    mark = encode(STRUCTURES[ExtensionTag.TUPLE])
    with pytest.raises(CorruptValue):
        codec.decode(mark)
    assert codec.decode(b"\x91" + mark) == ()


UNKNOWN = {
    "tag of a later version": leaf(99, b"x"),
    "tag of nobody": leaf(-5, b"x"),
    "time of msgpack itself": b"\xd6\xff\x00\x00\x00\x01",
    "name of nobody": node(ExtensionTag.OBJECT, "os.system", 1, {"a": 1}),
    "version 0": node(ExtensionTag.OBJECT, "t-forged", 0, {"a": 1, "b": 2}),
    "version of the future": node(ExtensionTag.OBJECT, "t-forged", 2**63, {"a": 1, "b": 2}),
    "version of the past": node(ExtensionTag.OBJECT, "t-forged", 1, {"a": 1, "b": 2}),
    "field too much": node(ExtensionTag.OBJECT, "t-forged", 2, {"a": 1, "b": 2, "__class__": 3}),
    "field too few": node(ExtensionTag.OBJECT, "t-forged", 2, {"a": 1}),
    "zone of nowhere": leaf(ExtensionTag.ZONE, encode([2, 0, "Nowhere/Nothing"])),
    "zone that is a folder": leaf(ExtensionTag.ZONE, encode([2, 0, "America"])),
    "group of no exceptions": node(ExtensionTag.ERROR, "ExceptionGroup", 0, "x", ["m", [1]], {}),
    "group without members": node(ExtensionTag.ERROR, "ExceptionGroup", 0, "x", ["m", []], {}),
}


@pytest.mark.parametrize("data", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_types_that_nobody_registered(data: bytes) -> None:
    for bad in (data, b"\x91" + data, b"\x91" * 9 + data):
        with pytest.raises(UnknownType) as caught:
            codec.decode(bad)
        assert caught.value.hint


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    array = codec.encode(numpy.arange(3))
    zone = leaf(ExtensionTag.ZONE, encode([3, 60, ""]))
    for module, data in (("numpy", array), ("pydantic_core", zone)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UnknownType, match="pip install"):
            codec.decode(data)


WATCH = """
import sys
from perdure.values import codec
import zoneinfo, fractions, pathlib, numpy
zoneinfo.available_timezones()
import tzdata.zoneinfo
corpus = [bytes.fromhex(line) for line in sys.stdin.read().split()]
EVENTS = {"import", "exec", "compile", "os.system", "subprocess.Popen", "marshal.loads", "pickle.find_class"}
seen = []
armed = False
def hook(event, args):
    if armed and event in EVENTS:
        seen.append((event, str(args[0])))
class Finder:
    def find_spec(self, name, *_):
        if armed:
            seen.append(("find", name))
sys.meta_path.insert(0, Finder())
sys.addaudithook(hook)
armed = True
for data in corpus:
    try:
        codec.decode(data)
    except codec.decoder.ValueProblem:
        pass
armed = False
sys.exit(repr(seen) if seen else 0)
"""


def _fake_zones(folder: Path) -> str:
    """A package tzdata: where it is installed, ZoneInfo imports packages below it by the parts of a key."""
    (folder / "tzdata" / "zoneinfo").mkdir(parents=True)
    for file in ("__init__.py", "zones", "zoneinfo/__init__.py"):
        (folder / "tzdata" / file).touch()
    return str(folder)


def test_no_bytes_import_or_run_anything(tmp_path: Path) -> None:
    names = ["os.system", "builtins.eval", "subprocess.Popen", "antigravity", "__main__.X", "perdure.cli.main"]
    names += ["os:system", "builtins:eval", "subprocess:Popen", "antigravity:fly", "__main__:X", "perdure.cli:main"]
    names += ["this:s", "idlelib.run:main", "openai", "openai/x", "pathlib:Path.cwd", "numpy:f2py.Run", ":", "a:", ":b"]
    forged = [node(ExtensionTag.OBJECT, name, 1, {"args": ["echo"]}) for name in names]
    forged += [node(ExtensionTag.ERROR, name, version, "", ["x"], {}) for name in names for version in (-1, 0, 1)]
    forged += [leaf(ExtensionTag.ZONE, encode([2, 0, name])) for name in (*names, "os/path", "antigravity")]
    forged += [
        leaf(ExtensionTag.NUMPY_ARRAY, encode([name, [1], "C", b"x" * 8])) for name in ("|O", "O", "object", "i4,O")
    ]
    forged += [*CORRUPT.values(), codec.encode([(1,), {2: Decimal(1)}, KeyError("x")])]
    folders = [str(Path(codec.__file__).parents[3]), _fake_zones(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(
        [sys.executable, "-c", WATCH],
        input="\n".join(map(bytes.hex, forged)),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
